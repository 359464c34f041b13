"""What `sealmq doctor` tries where tokens say who may publish and read what: labels alone would let
the writer and the reader do it.

The doctor's clients have tokens for its other tries, as long as it is there.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from sealmq.doctor.at_mediator import NOT_ENFORCED, AtMediator
from sealmq.doctor.policy import table
from sealmq.doctor.result import Failed, Try
from sealmq.site.canary import ALL_TOPICS, CLIENTS, LOW

from . import MANIFEST

UNTOLD = "sealmq-doctor/untold/none"
"""No token of the doctor's has it in F_p."""
WIDER = "#"
"""No token of the doctor's has it in F_s."""
# Topics of the doctor's have one level or two; + and the third because other families' tries have
# some, too.
_PUBLISH = ("+", "sealmq-doctor/+", "sealmq-doctor/+/any")
_SUBSCRIBE = ("+", ALL_TOPICS)
Table = MutableMapping[str, Any]


def put_in(doc: Table) -> None:
    """Tokens of the doctor's clients, and what the tries are about."""
    table(doc, "topics")[UNTOLD] = LOW
    tokens = table(table(table(doc, "families"), MANIFEST.name), "tokens")
    for client in CLIENTS:
        tokens[client] = {"publish": list(_PUBLISH), "subscribe": list(_SUBSCRIBE)}


def take_out(doc: Table) -> None:
    """All of that."""
    doc.get("topics", {}).pop(UNTOLD, None)
    ours = doc.get("families", {}).get(MANIFEST.name, {})
    for client in CLIENTS:
        ours.get("tokens", {}).pop(client, None)
    if "tokens" in ours and not ours["tokens"]:
        del ours["tokens"]


def as_sent(filter: str) -> str:
    """As it is."""
    return filter


def tries(at: AtMediator) -> Mapping[str, Try]:
    """By name."""

    async def publish() -> str:
        # The writer's label is the topic's.
        return await at.must_be_refused(UNTOLD)

    async def subscribe() -> str:
        # Labels grant it: each message is judged when it is delivered.
        if await at.reader.subscribe(at.filter(WIDER)):
            await at.reader.unsubscribe(at.filter(WIDER))
            raise Failed(f"a subscription beyond the client's token is granted; {NOT_ENFORCED}")
        return "SUBACK 0x80"

    return {
        "publish what the token does not have": publish,
        "subscribe beyond the token": subscribe,
    }
