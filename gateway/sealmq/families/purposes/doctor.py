"""What `sealmq doctor` tries where purposes are asked for: the reader holds the topic's key, and
that is not enough.

The tries are about a topic that its publisher reserves, with commands as any client sends them;
what the doctor's other topics are for stands in sealmq.toml as long as the doctor is there.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from sealmq.doctor.at_mediator import NOT_ENFORCED, AtMediator
from sealmq.doctor.canary import Canary
from sealmq.doctor.errors import Broken
from sealmq.doctor.policy import add_row, inline, table, take_key, take_rows
from sealmq.doctor.result import Failed, Try
from sealmq.site.canary import ALL_TOPICS, LOW
from sealmq_spec import purposes

from . import MANIFEST

# What all of the doctor's topics but one are for. That one is its publisher's own to reserve, and
# nobody else's.
PURPOSE, OTHER_PURPOSE = "sealmq-doctor", "sealmq-doctor-other"
CONSENT = "sealmq-doctor-consent"
Table = MutableMapping[str, Any]


def put_in(doc: Table) -> None:
    """The topic, what the others are for, and who may reserve it."""
    table(doc, "topics")[CONSENT] = LOW
    t = table(table(doc, "families"), MANIFEST.name)
    table(t, "reserve")[ALL_TOPICS] = inline({"aip": [PURPOSE]})
    if t.get("tree"):  # else every purpose is known
        table(t, "tree").update({PURPOSE: [], OTHER_PURPOSE: []})
    # The first that crosses decides.
    add_row(t, "grant", {"filter": CONSENT, "labels": [LOW]}, first=True)


def take_out(doc: Table) -> None:
    """All of that."""
    doc.get("topics", {}).pop(CONSENT, None)
    if MANIFEST.name not in doc.get("families", {}):
        return
    t = table(table(doc, "families"), MANIFEST.name)
    take_key(t, "reserve", ALL_TOPICS)
    for purpose in (PURPOSE, OTHER_PURPOSE):
        t.get("tree", {}).pop(purpose, None)
    take_rows(t, "grant", lambda row: row.get("filter") == CONSENT)


def as_sent(filter: str) -> str:
    """For the doctor's purpose."""
    return purposes.access(filter, PURPOSE)


def tries(at: AtMediator) -> Mapping[str, Try]:
    """By name."""
    found = AtPurposes(at)
    return {
        "subscribe without a purpose": found.no_purpose,
        "subscribe for another purpose": found.other_purpose,
        "read for a purpose that was withdrawn": found.withdrawn,
        "reserve topics of others": found.foreign_reservation,
    }


class AtPurposes:
    """With the canaries of `at`, which have to be connected."""

    def __init__(self, at: AtMediator) -> None:
        self._at = at

    async def no_purpose(self) -> str:
        """A subscription that does not say what for."""
        return await self._withheld(CONSENT, "without a purpose")

    async def other_purpose(self) -> str:
        """One for a purpose that the topic is not reserved for."""
        filt = purposes.access(CONSENT, OTHER_PURPOSE)
        return await self._withheld(filt, "for a purpose that it is not reserved for")

    async def withdrawn(self) -> str:
        """What was allowed ends with the next message when the reservation changes."""
        filt = purposes.access(CONSENT, PURPOSE)
        reader = self._at.reader
        await self._reserve(PURPOSE)
        try:
            if not await reader.subscribe(filt):
                raise Broken("a subscription for the reserved purpose was refused")
            if not await self._at.arrives(CONSENT):
                raise Broken("a message for the reserved purpose did not arrive")
            await self._reserve(OTHER_PURPOSE)
            if await self._at.arrives(CONSENT):
                raise Failed(f"it is delivered for a purpose that was withdrawn; {NOT_ENFORCED}")
        finally:
            await self._end(filt)
        return "nothing is delivered from then on"

    async def foreign_reservation(self) -> str:
        """The stranger says what the writer's topic is for, and the writer what others' are."""
        told = set()
        for who, filt in ((self._at.stranger, CONSENT), (self._at.writer, ALL_TOPICS)):
            rule = await self._say(who, purposes.reserve(filt, [PURPOSE], []))
            if rule is None:
                await self._say(who, purposes.release(filt))
                raise Failed(f"{who.name} may reserve {filt}, which is not its own")
            told.add(rule or "no answer")
        return ", ".join(sorted(told))

    async def _withheld(self, filt: str, how: str) -> str:
        await self._reserve(PURPOSE)
        try:
            granted = await self._at.reader.subscribe(filt)
            if await self._at.arrives(CONSENT):
                raise Failed(f"a reserved topic is read {how}; {NOT_ENFORCED}")
        finally:
            await self._end(filt)
        return "nothing is delivered" if granted else "SUBACK 0x80"

    async def _reserve(self, purpose: str) -> None:
        rule = await self._say(self._at.writer, purposes.reserve(CONSENT, [purpose], []))
        if rule is not None:
            raise Broken(f"the writer may not reserve its own topic: {rule or 'no answer'}")

    async def _end(self, filt: str) -> None:
        await self._at.reader.unsubscribe(filt)
        await self._say(self._at.writer, purposes.release(CONSENT))

    async def _say(self, who: Canary, command: str) -> str | None:
        return await who.command(MANIFEST.name, command)
