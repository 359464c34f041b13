"""Tries where purposes are asked for: the reader holds the topic's key, and that is not enough.

They are about a topic that its publisher reserves, with commands as any client sends them; what the
doctor's other topics are for stands in sealmq.toml as long as the doctor is there.
"""

from __future__ import annotations

import os

from sealmq.site.canary import CONSENT, OTHER_PURPOSE, PURPOSE
from sealmq_spec import purposes

from .at_mediator import NOT_ENFORCED, AtMediator
from .canary import Canary
from .errors import Broken
from .result import Failed

FAMILY = "purposes"


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
            if not await self._arrives():
                raise Broken("a message for the reserved purpose did not arrive")
            await self._reserve(OTHER_PURPOSE)
            if await self._arrives():
                raise Failed(f"it is delivered for a purpose that was withdrawn; {NOT_ENFORCED}")
        finally:
            await self._end(filt)
        return "nothing is delivered from then on"

    async def foreign_reservation(self) -> str:
        """The stranger says what the writer's topic is for, and the writer what others' are."""
        told = set()
        for who, filt in ((self._at.stranger, CONSENT), (self._at.writer, "sealmq-doctor/#")):
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
            if await self._arrives():
                raise Failed(f"a reserved topic is read {how}; {NOT_ENFORCED}")
        finally:
            await self._end(filt)
        return "nothing is delivered" if granted else "SUBACK 0x80"

    async def _arrives(self) -> bool:
        """Whether the reader gets what the writer publishes now."""
        payload = os.urandom(8)
        await self._at.honest_publish(self._at.writer, CONSENT, payload)
        return (CONSENT, payload) in await self._at.last()

    async def _reserve(self, purpose: str) -> None:
        rule = await self._say(self._at.writer, purposes.reserve(CONSENT, [purpose], []))
        if rule is not None:
            raise Broken(f"the writer may not reserve its own topic: {rule or 'no answer'}")

    async def _end(self, filt: str) -> None:
        await self._at.reader.unsubscribe(filt)
        await self._say(self._at.writer, purposes.release(CONSENT))

    async def _say(self, who: Canary, command: str) -> str | None:
        return await who.command(FAMILY, command)
