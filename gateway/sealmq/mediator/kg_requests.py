"""The key generator, as the mediator's sessions need it: provisioning requests (SPEC.md 7.2), its
time, confirmations.

Anybody may send provisioning requests, and the key generator takes one after the other. So few are
under way at a time, and the sources that wait (an address or network) take turns, however many
requests each of them has.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from sealmq.audit import Audit
from sealmq.kglink import KgError, KgUnavailable
from sealmq.strangers import Source

from .core.limits import ASKED_AT_ONCE, PROVISION_S
from .core.site import Site

if TYPE_CHECKING:
    from sealmq.kglink import Answer

    from .shared import SharedKg

log = logging.getLogger("sealmq.mediator")

_TIME_S = 1.0


class Turns:
    """At most `most` have a turn. No more can wait than there are connections: each waits once."""

    def __init__(self, most: int) -> None:
        self._free = most
        # Those that wait, by source, oldest first. The first source is the next that gets a turn.
        self._waiting: dict[Source, deque[asyncio.Future[None]]] = {}

    async def take(self, source: Source) -> None:
        """Returns when the caller has a turn, which ends with `give`."""
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(source, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._forget(source, turn)
            else:
                self.give()
            raise

    def give(self) -> None:
        """A turn has ended."""
        while self._waiting:
            source = next(iter(self._waiting))
            row = self._waiting.pop(source)
            turn = row.popleft()
            if row:
                self._waiting[source] = row
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def _forget(self, source: Source, turn: asyncio.Future[None]) -> None:
        row = self._waiting.get(source, deque())
        if turn in row:
            row.remove(turn)
            if not row:
                del self._waiting[source]


class KgRequests:
    """`kg`: None while the key generator is away."""

    def __init__(self, site: Site, audit: Audit, kg: SharedKg | None = None) -> None:
        self._site, self._audit, self.kg = site, audit, kg
        site.kg_there = kg is not None
        self._turns = Turns(ASKED_AT_ONCE)
        # Set, and replaced by a new one, when keys or the key generator have come or gone.
        self._news = asyncio.Event()

    # --- what comes and goes ---

    def take_kg(self, kg: SharedKg | None) -> None:
        """The key generator came or went."""
        if (kg is None) != (self.kg is None):
            if kg is None:
                self._audit.write("kg-away", reason="the connection to it is lost")
            else:
                self._audit.write("kg-back")
        self.kg = kg
        self._site.kg_there = kg is not None
        self.news()

    def news(self) -> None:
        """Keys, or the key generator, have come or gone."""
        self._news.set()
        self._news = asyncio.Event()

    # --- what is asked ---

    async def time(self, client: int, nonce: bytes, suite: int) -> bytes | None:
        """The key generator's time for a client; None while it is away."""
        if self.kg is None:
            return None
        try:
            async with asyncio.timeout(_TIME_S):
                return await self.kg.time(client, nonce, suite)
        except (KgError, TimeoutError):
            return None

    async def confirm(self, client: int, gen: int) -> None:
        """The first proof under a pending generation has ended the older ones."""
        if self.kg is not None:
            try:
                await self.kg.confirm(client, gen)
            except KgError as error:
                log.warning("confirming generation %d of client %d: %s", gen, client, error)

    async def provision(self, packet: bytes, source: Source) -> Answer:
        """The key generator's answer to a request from that source. While it is away, this waits
        for it, for PROVISION_S at most. Raises KgError.
        """
        why = "the key generator is away"
        try:
            async with asyncio.timeout(PROVISION_S):
                answer = await self._ask(packet, source)
                why = "keys and sealmq.toml that its answer is made for are not in force here yet"
                await self._catch_up(answer)
        except TimeoutError:
            raise KgUnavailable(why) from None
        return answer

    async def _ask(self, packet: bytes, source: Source) -> Answer:
        while True:
            news, kg = self._news, self.kg
            if kg is not None:
                try:
                    return await self._in_turn(kg, packet, source)
                except KgUnavailable:
                    if not kg.lost:
                        raise
            if self.kg is kg:
                await news.wait()

    # A turn lasts until the key generator has answered, even if nobody waits for the answer any
    # more: the key generator works on it all the same.
    async def _in_turn(self, kg: SharedKg, packet: bytes, source: Source) -> Answer:
        await self._turns.take(source)
        call = asyncio.ensure_future(kg.answer(packet))
        call.add_done_callback(self._answered)
        return await asyncio.shield(call)

    def _answered(self, call: asyncio.Future[Answer]) -> None:
        self._turns.give()
        if not call.cancelled():
            call.exception()  # seen, though the asker may be gone

    # A client of which this mediator does not know yet, or that used an epoch of which it does not,
    # would be refused; one that was relabelled would be judged by its label of before.
    async def _catch_up(self, answer: Answer) -> None:
        while answer.gen and not self._knows(answer):
            await self._news.wait()

    def _knows(self, answer: Answer) -> bool:
        ring = self._site.ring
        client = ring.clients.get(answer.client)
        if client is None or client.disabled or answer.gen not in client.links:
            return ring.kseq >= answer.kseq  # then it is no more
        label = ring.labels.get(client.label)
        if label is None or client.epochs.get(answer.gen, 0) > label.epoch:
            return ring.kseq >= answer.kseq
        # What a new sealmq.toml says counts a moment after the keys that were made for it.
        known = self._site.config.clients.get(client.name)
        return known is not None and not known.disabled and known.label == label.name
