"""What a site does with messages that cross: an own one leaves, a neighbour's is delivered here,
goes on, does both, or is refused and named. No socket; `deliver` publishes with the own broker.

A neighbour is answered once its message is with the own broker if its label is imported, and on
this disk for each site that it goes on to. (site, sender, boot, salt, ctr) is used up only then,
and on disk with the message: what one neighbour's copy is refused for may be right with another's.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from sealmq.families.between import Judge
from sealmq_spec.errors import SealError
from sealmq_spec.origin import message_id

from . import crossing
from .crossing import HOPS, Crossing
from .passing import head
from .spool import Message, Spool, Told

log = logging.getLogger("sealmq.bridge")

_HANDED = 4096
# A line that has just begun: records of other lines come with it.
_SETTLE_S = 10.0


class Import(NamedTuple):
    """A label that comes here: of which peer, and what it calls it."""

    peer: str
    label: str

    @property
    def here(self) -> str:
        """Its name at this site."""
        return f"{self.label}@{self.peer}"


class Handed:
    """The last messages that went over one line and were answered; so nobody sends one twice.
    begun: by the monotonic clock."""

    def __init__(self, most: int = _HANDED, begun: float = 0.0) -> None:
        self._most, self.begun = most, begun
        self._last: OrderedDict[tuple[bytes, int], None] = OrderedDict()

    def __contains__(self, which: tuple[bytes, int]) -> bool:
        return which in self._last

    def add(self, which: tuple[bytes, int]) -> None:
        self._last[which] = None
        if len(self._last) > self._most:
            self._last.popitem(last=False)


COUNTED = frozenset(
    {
        "hops",
        "it does not leave",
        "it is no neighbour any more",
        "it may not have it any more",
        "loop",
        "not exported",
        "replay",
        "the line was away for too long",
    }
)
THERE, REFUSED = "refused there", "refused here"
"""Under which messages that are given up are counted."""

Deliver = Callable[[Import, Crossing], Awaitable[None]]
"""Publishes it below @PEER/. SealError: it will never be taken."""


class Traffic:
    """One site's. `told`: of each message that goes to neighbours. `audit` writes an event."""

    def __init__(
        self,
        site: bytes,
        spool: Spool,
        judge: Judge,
        deliver: Deliver,
        audit: Callable[..., None],
        told: Callable[[tuple[str, ...]], None],
    ) -> None:
        self._site, self._spool, self._judge = site, spool, judge
        self._deliver, self._audit, self._told = deliver, audit, told
        self.imports: dict[tuple[bytes, int], Import] = {}
        """By the site that the label is of, and its number there."""
        self.sites: dict[str, bytes] = {}
        """Of peers whose certificate is known."""
        self.neighbours: frozenset[str] = frozenset()
        self.exported: dict[str, frozenset[str]] = {}
        """Labels of ours, to which peers each goes."""
        self.names: Mapping[int, str] = {}
        """Own clients that publish under exported labels."""
        self.up: set[str] = set()
        """Neighbours whose lines are."""
        self.dropped: dict[str, Counter[str]] = {}
        # The last messages for each neighbour, and their numbers in the spool.
        self._left: dict[str, OrderedDict[tuple[bytes, int], int]] = {}
        self._coming: dict[tuple[bytes, int], asyncio.Future[None]] = {}

    # --- from here ---

    def own(
        self, label: str, number: int, topic: str, qos: int, m1: bytes, peer: str,
        safe: Told, kept: bool = False,
    ) -> None:  # fmt: skip
        """A message of an own client, for a peer that its label is exported to: it goes there, or
        to all neighbours that may have it where the peer is none. `safe` is called once it may be
        acknowledged. kept: it comes again if this process ends before that; so it stays in memory
        while lines are up.
        """
        try:
            said = head(m1)
            crossing.check_name(topic)
        except SealError as error:
            self.drop(peer, topic, str(error), label)
            safe()
            return
        who = self.names.get(said.sender, "")
        found = self._judge.outbound(who, topic, label, now_ms())
        to = found.to if found.ok else ()
        if peer in self.neighbours:
            to = tuple(n for n in to if n == peer)
        if not to:
            why = "no neighbour may have it" if found.ok else found.reason
            self.drop(peer, topic, f"it does not leave: {why}", label)
            safe()
            return
        # Another peer's copy of it may have gone there already, or its own before it was answered.
        which = self._site + said.origin, said.ctr
        fresh = tuple(n for n in to if which not in self._left.setdefault(n, OrderedDict()))
        parts = set[int]()
        if fresh != to:
            parts = {self._left[n][which] for n in to if n not in fresh}
        if fresh:
            flags = min(qos, 1) << 1 | (said.kind and 1)
            one = Message(self._site, number, label, 1, found.token, topic, flags, m1)
            alone = safe if not parts else None
            seq = self._spool.put(one, fresh, alone, hold=kept and self.up.issuperset(fresh))
            for n in fresh:
                left = self._left[n]
                left[which] = seq
                if len(left) > _HANDED:
                    left.popitem(last=False)
            self._told(fresh)
            if alone is not None:
                return
            parts.add(seq)
        self._once(parts, safe)

    def _once(self, parts: set[int], safe: Told) -> None:
        """Have `safe` called once all of these are."""
        waits = len(parts)

        def one_is() -> None:
            nonlocal waits
            waits -= 1
            if not waits:
                safe()

        for seq in parts:
            if not self._spool.join(seq, one_is):
                one_is()

    def still_goes(self, neighbour: str, one: Message) -> bool:
        """Whether a message that waits may still go to the neighbour, which is told its token."""
        peers = self.exported.get(one.label, frozenset())
        if one.label and neighbour not in peers and peers <= self.neighbours:
            return False
        return self._judge.naming(neighbour, one.token)

    # --- from neighbours ---

    async def take(self, neighbour: str, handed: Handed, one: Crossing) -> tuple[int, str]:
        """What the neighbour is answered. handed: what has come over its line."""
        try:
            crossing.check(one, self._site)
            said = head(one.m1)
        except SealError as error:
            return self._refused(neighbour, one, str(error))
        sent = one.site + said.origin, said.ctr
        if sent in handed:
            self._judge.observe(neighbour, "replay", now_ms())
            return self._refused(neighbour, one, "replay: it has handed this over before")
        # Whoever calls a message another site's uses up none of that site's numbers.
        issuer = await self._issuer(neighbour, handed, one)
        which = one.site + issuer.encode() + said.origin, said.ctr
        while (coming := self._coming.get(which)) is not None:
            # Twice at once: the second waits for what becomes of the first.
            await asyncio.wait((coming,))
        if not self._spool.seen(*which):
            done = self._coming[which] = asyncio.get_running_loop().create_future()
            try:
                why = await self._new(neighbour, handed, one, which)
            finally:
                del self._coming[which]
                done.set_result(None)
            if why:
                return self._refused(neighbour, one, why)
        handed.add(sent)
        return crossing.OK, ""

    async def _issuer(self, neighbour: str, handed: Handed, one: Crossing) -> str:
        """Of its token; "": it is not known, also once the line's records should be here."""
        issuer = self._judge.issuer(neighbour, one.token)
        while not issuer and await _later(handed):
            issuer = self._judge.issuer(neighbour, one.token)
        return issuer

    async def _new(
        self, neighbour: str, handed: Handed, one: Crossing, which: tuple[bytes, int]
    ) -> str:
        """Why it is refused; "": it is where it belongs."""
        ruling = self._judge.message(neighbour, one.token, one.topic, now_ms())
        while ruling.heals and not ruling.accept and await _later(handed):
            ruling = self._judge.message(neighbour, one.token, one.topic, now_ms())
        if not ruling.accept:
            return f"{ruling.reason} ({ruling.rule})"
        known = self.sites.get(ruling.issuer)
        if known is not None and known != one.site:
            self._judge.observe(neighbour, "outside", now_ms())
            return f"its token is of {ruling.issuer}, and it is of another site"
        here = self.imports.get((one.site, one.label))
        if here is not None and here.peer != ruling.issuer:
            return f"its token is of {ruling.issuer}, and its label of {here.peer}"
        # At an end of the graph a copy ends, too; where it could go on, and may not, it is named.
        behind = self.neighbours - {neighbour, ruling.issuer}
        if here is None and not ruling.to and (behind or not self._judge.relays):
            return "not exported: nothing of that label belongs here, or goes on from here"
        onward = () if one.hops >= HOPS else tuple(n for n in ruling.to if n != neighbour)
        if here is None and ruling.to and not onward:
            return f"hops: it has passed {one.hops} sites, at most {HOPS} are allowed"
        try:
            if here is not None:
                await self._deliver(here, one)
                if self._judge.relays:  # else nobody asks who has handed it over
                    topic = f"@{here.peer}/{one.topic}"
                    id = message_id(one.m1)
                    self._judge.delivered(neighbour, id, topic, here.here, now_ms())
        except SealError as error:
            if not onward:
                return str(error)
            self.drop(neighbour, self._shown(one, ruling.issuer), str(error))
        # In one transaction, and after the own broker has it: a kill before that has it brought
        # again, and readers drop what they have; none between these two spools it twice.
        if onward:
            goes = one.site, one.label, "", one.hops + 1, one.token, one.topic, one.flags, one.m1
            self._spool.put(Message(*goes), onward)
            self._told(onward)
        self._spool.came(*which)
        return ""

    def _refused(self, neighbour: str, one: Crossing, why: str) -> tuple[int, str]:
        self.drop(neighbour, self._shown(one), why)
        return crossing.DROPPED, why

    def _shown(self, one: Crossing, issuer: str = "") -> str:
        return f"@{issuer or self._name(one.site)}/{one.topic}"

    def _name(self, site: bytes) -> str:
        return next((name for name, held in self.sites.items() if held == site), site.hex())

    # --- what is given up ---

    def lost(self, neighbour: str, one: Message, why: str) -> None:
        """A message that waited for a neighbour will never be there."""
        own = one.site == self._site
        topic = one.topic if own else f"@{self._name(one.site)}/{one.topic}"
        self.drop(neighbour, topic, why, one.label)

    def drop(self, neighbour: str, topic: str, why: str, label: str = "") -> None:
        """Name it; it is counted under a word of this site's own."""
        word = why.partition(":")[0]
        held = self.dropped.setdefault(neighbour, Counter())
        held[word if word in COUNTED else THERE if word == neighbour else REFUSED] += 1
        self._audit("bridge-dropped", peer=neighbour, topic=topic, label=label, reason=why)


async def _later(handed: Handed) -> bool:
    """A little later, if the line's records may still be on their way."""
    if time.monotonic() - handed.begun >= _SETTLE_S:
        return False
    await asyncio.sleep(0.2)
    return True


def now_ms() -> int:
    """By the wall clock."""
    return time.time_ns() // 1_000_000
