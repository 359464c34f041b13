"""What `sealmq doctor` tries where rules say who may publish and read what: labels alone would let
the writer and the reader do it.

A rule of the doctor's own lets its clients do what its other tries need, as long as it is there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from typing import Any

from sealmq.doctor.at_mediator import LOW_TOPIC, NOT_ENFORCED, AtMediator
from sealmq.doctor.errors import Broken
from sealmq.doctor.policy import add_row, table, take_rows
from sealmq.doctor.result import Failed, Try
from sealmq.site.canary import CLIENTS, LOW, STRANGER
from sealmq_spec.const import REF_LABEL
from sealmq_spec.envelope import get_m3

from . import MANIFEST

UNLISTED = "sealmq-doctor/unlisted/any"
"""Nobody may publish or read it, by any rule of the doctor's."""
UNREAD = "sealmq-doctor/unread/any"
"""The doctor's clients may publish it, and nobody may read it."""
UNHEARD = "sealmq-doctor/unheard/any"
"""They may publish it, and read what one of them publishes there, who is not the writer."""
SEALED = "sealmq-doctor/sealed/any"
"""They may read it, and it is sealed to the link of each."""
_TOPICS = (UNLISTED, UNREAD, UNHEARD, SEALED)
# Topics of the doctor's have one level or two; + because other families' tries have some, too.
_USED = ("+", "sealmq-doctor/+")
Table = MutableMapping[str, Any]


def put_in(doc: Table) -> None:
    """Rules about the doctor's clients, and what the tries are about."""
    for topic in _TOPICS:
        table(doc, "topics")[topic] = LOW
    t = table(table(doc, "families"), MANIFEST.name)
    for what in (
        {
            "publish": [*_USED, UNREAD, UNHEARD, SEALED],
            "read": [*_USED, SEALED],
            "sealed": [SEALED],
        },
        {"read": [UNHEARD], "from": [STRANGER]},
    ):
        add_row(t, "rule", {"clients": list(CLIENTS), **what})


def take_out(doc: Table) -> None:
    """All of that."""
    for topic in _TOPICS:
        doc.get("topics", {}).pop(topic, None)
    if MANIFEST.name not in doc.get("families", {}):
        return
    t = table(table(doc, "families"), MANIFEST.name)
    take_rows(t, "rule", lambda row: list(row.get("clients", ())) == list(CLIENTS))


def as_sent(filter: str) -> str:
    """As it is."""
    return filter


def tries(at: AtMediator) -> Mapping[str, Try]:
    """By name."""
    found = AtRules(at)
    return {
        "publish what no rule allows": found.unlisted_publish,
        "subscribe to what no rule allows": found.unlisted_subscribe,
        "read what no rule allows": found.unlisted_read,
        "read what no rule allows from its sender": found.unlisted_sender,
        "open what is sealed to another's link": found.sealed,
    }


class AtRules:
    """With the canaries of `at`, which have to be connected."""

    def __init__(self, at: AtMediator) -> None:
        self._at = at

    async def unlisted_publish(self) -> str:
        """The writer's label is the topic's."""
        return await self._at.must_be_refused(UNLISTED)

    async def unlisted_subscribe(self) -> str:
        """The reader's label is above the topic's."""
        if await self._at.reader.subscribe(self._at.filter(UNREAD)):
            await self._at.reader.unsubscribe(self._at.filter(UNREAD))
            raise Failed(f"a subscription that no rule allows is granted; {NOT_ENFORCED}")
        return "SUBACK 0x80"

    async def unlisted_read(self) -> str:
        """The reader has a filter that matches, of which rules allow a part."""
        return await self._undelivered(UNREAD, "what no rule lets the reader read")

    async def unlisted_sender(self) -> str:
        """A rule lets the reader read the topic, from somebody else than the writer."""
        return await self._undelivered(UNHEARD, "what another sender than the rule's publishes")

    async def _undelivered(self, topic: str, what: str) -> str:
        await self._at.honest_publish(self._at.writer, topic, os.urandom(8))
        # Also what it cannot open.
        if topic in [heard for heard, _ in await self._at.last()]:
            raise Failed(f"{what} is delivered; {NOT_ENFORCED}")
        return "nothing is delivered"

    async def sealed(self) -> str:
        """The writer has the key of the topic's label, and sees what the reader is sent."""
        at = self._at
        if not await at.arrives(SEALED):
            raise Broken("what a rule has sealed to the reader's link does not open for it")
        plain, sealed = (at.reader.came[topic] for topic in (LOW_TOPIC, SEALED))
        if get_m3(plain)[1] == REF_LABEL and not at.writer.opens(LOW_TOPIC, plain):
            raise Broken("the writer does not open what its label's key is enough for")
        if at.writer.opens(SEALED, sealed):
            raise Failed("another client opens what a rule has sealed to the reader's link")
        return "it opens for the reader alone"
