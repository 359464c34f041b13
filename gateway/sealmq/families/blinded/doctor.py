"""What `sealmq doctor` tries where policies are blinded: the writer publishes without a policy id,
and under one that was never granted. Labels alone would take it.

Its topics have three levels: those of two are let through, as the other tries need it (family.py).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from typing import Any

from sealmq.doctor.at_mediator import AtMediator
from sealmq.doctor.policy import table
from sealmq.doctor.result import Failed, Try
from sealmq.site.canary import LOW

UNBOUND = "sealmq-doctor/unbound/any"
"""Nobody has an event grant for it."""


def put_in(doc: MutableMapping[str, Any]) -> None:
    """The topic's label."""
    table(doc, "topics")[UNBOUND] = LOW


def take_out(doc: MutableMapping[str, Any]) -> None:
    """That again."""
    doc.get("topics", {}).pop(UNBOUND, None)


def as_sent(filter: str) -> str:
    """As it is."""
    return filter


def tries(at: AtMediator) -> Mapping[str, Try]:
    """By name."""

    async def without() -> str:
        return await at.must_be_refused(UNBOUND)

    async def unread() -> str:
        """What no mediator has put an id to is delivered to no customer: the reader is none."""
        payload = os.urandom(8)
        refused = await at.writer.publish(UNBOUND, at.writer.seal(UNBOUND, payload))
        if (UNBOUND, payload) in await at.last():
            raise Failed("what was published without a policy id is delivered")
        return refused or "nothing is delivered"

    return {"publish without a policy id": without, "read what has no policy id": unread}
