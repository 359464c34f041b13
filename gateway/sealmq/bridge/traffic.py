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
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from sealmq.families.between import Judge, Ruling
from sealmq_spec.errors import SealError, Unavailable
from sealmq_spec.origin import message_id

from . import crossing
from .awaited import Awaited
from .crossing import HOPS, Crossing
from .passing import head
from .spool import Message, Spool, Told

log = logging.getLogger("sealmq.bridge")

_HANDED = 4096
# A line that has just begun: records of other lines come with it.
_SETTLE_S = 10.0


Which = tuple[bytes, int]
"""A message: whose boot session it is of, and its counter."""


class Import(NamedTuple):
    """A label that comes here: of which peer, and what it calls it."""

    peer: str
    label: str

    @property
    def here(self) -> str:
        """Its name at this site."""
        return f"{self.label}@{self.peer}"


class Handed(OrderedDict[Which, None]):
    """The last messages that went over one line and were answered; so nobody sends one twice.
    `trim` now and then. begun: by the monotonic clock. over: the line is; what has not been
    answered comes again over another one."""

    def __init__(self, most: int = _HANDED, begun: float = 0.0) -> None:
        super().__init__()
        self._most, self.begun, self.over = most, begun, False
        # Of each boot session what is judged again, in its order: what comes goes after it.
        self.late: dict[bytes, deque[Callable[[], None]]] = {}

    def trim(self) -> None:
        """Those that went longest ago go."""
        while len(self) > self._most:
            self.popitem(last=False)


COUNTED = frozenset(
    {
        "hops",
        "it does not leave",
        "it is no neighbour any more",
        "it may not have it any more",
        "keys",
        "loop",
        "not exported",
        "replay",
        "the line was away for too long",
    }
)
THERE, REFUSED = "refused there", "refused here"
"""Under which messages that are given up are counted."""

Over = Callable[[Exception | None], None]
Deliver = Callable[[Import, Crossing, Over], None]
"""Publishes it below @PEER/. Called once: None, or a SealError: it will never be taken."""
Answer = Callable[[int, str], None]
"""Answers a neighbour: a code, and a reason."""


class _Coming(NamedTuple):
    """A message of a neighbour's that is about to be delivered here, or to go on."""

    neighbour: str
    handed: Handed
    one: Crossing
    sent: Which
    which: Which
    answer: Answer
    issuer: str
    here: Import | None
    onward: tuple[str, ...]


class Traffic:
    """One site's. `told`: of each message that goes to neighbours. `audit` writes an event."""

    def __init__(
        self,
        site: bytes,
        spool: Spool,
        judge: Judge,
        deliver: Deliver,
        audit: Callable[..., None],
        told: Callable[[Iterable[str]], None],
    ) -> None:
        self._site, self._spool, self._judge = site, spool, judge
        self._deliver, self._audit, self._told = deliver, audit, told
        self.imports: dict[tuple[bytes, int], Import] = {}
        """By the site that the label is of, and its number there."""
        self.awaited = Awaited()
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
        # What is being delivered here, and who waits for what becomes of it.
        self._coming: dict[Which, list[Callable[[], None]]] = {}

    # --- from here ---

    def own(
        self, label: str, number: int, topic: str, qos: int, m1: bytes, peer: str,
        safe: Told, kept: bool = False,
    ) -> tuple[str, ...]:  # fmt: skip
        """A message of an own client, for a peer that its label is exported to: it goes there, or
        to all neighbours that may have it where the peer is none. Gives those for which it waits
        now. `safe` is called once it may be
        acknowledged. kept: it comes again if this process ends before that; so it stays in memory
        while lines are up.
        """
        try:
            said = head(m1)
            crossing.check_name(topic)
        except SealError as error:
            self.drop(peer, topic, str(error), label)
            safe()
            return ()
        who = self.names.get(said.sender, "")
        found = self._judge.outbound(who, topic, label, now_ms())
        to = found.to if found.ok else ()
        if peer in self.neighbours:
            to = (peer,) if peer in to else ()
        if not to:
            why = "no neighbour may have it" if found.ok else found.reason
            self.drop(peer, topic, f"it does not leave: {why}", label)
            safe()
            return ()
        # Another peer's copy of it may have gone there already, or its own before it was answered.
        which = self._site + said.origin, said.ctr
        fresh = to
        parts: set[int] = set()  # set[int]() raises and catches two errors
        for n in to:
            left = self._left.get(n)
            if left is not None and which in left:
                parts.add(left[which])
                fresh = tuple(other for other in fresh if other != n)
        if fresh:
            flags = (2 if qos else 0) | (said.kind and 1)
            fields = self._site, number, label, 1, found.token, topic, flags, m1
            one: Message = tuple.__new__(Message, fields)
            alone = safe if not parts else None
            seq = self._spool.put(one, fresh, alone, hold=kept and self.up.issuperset(fresh))
            for n in fresh:
                left = self._left.get(n)
                if left is None:
                    left = self._left[n] = OrderedDict()
                left[which] = seq
                if len(left) > _HANDED:
                    left.popitem(last=False)
            if alone is not None:
                return fresh
            parts.add(seq)
        self._once(parts, safe)
        return fresh

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

    def take(self, neighbour: str, handed: Handed, one: Crossing, answer: Answer) -> None:
        """Have the neighbour answered, once. handed: what has come over its line."""
        try:
            crossing.check(one, self._site)
            said = head(one.m1)
        except SealError as error:
            answer(*self._refused(neighbour, one, str(error)))
            return
        sent = one.site + said.origin, said.ctr
        if sent in handed:
            self._judge.observe(neighbour, "replay", now_ms())
            why = "replay: it has handed this over before"
            answer(*self._refused(neighbour, one, why))
            return
        if (late := handed.late.get(sent[0])) is not None:
            late.append(partial(self._judged, neighbour, handed, one, sent, answer))
            return
        self._judged(neighbour, handed, one, sent, answer)

    def _judged(
        self, neighbour: str, handed: Handed, one: Crossing, sent: Which, answer: Answer
    ) -> None:
        judge = self._judge
        again = neighbour, handed, one, sent, answer
        # Its token may not be known before the line's records are here.
        issuer = judge.issuer(neighbour, one.token)
        if not issuer and _later(handed, sent[0], partial(self._judged, *again)):
            return
        # Whoever calls a message another site's uses up none of that site's numbers.
        which = one.site + issuer.encode() + sent[0][len(one.site) :], sent[1]
        if (waiting := self._coming.get(which)) is not None:
            # Twice at once: the second waits for what becomes of the first.
            waiting.append(partial(self._judged, *again))
            return
        if self._spool.seen(*which):
            handed[sent] = None
            answer(crossing.OK, "")
            return
        ruling = judge.message(neighbour, one.token, one.topic, now_ms())
        if ruling.heals and not ruling.accept:
            if _later(handed, sent[0], partial(self._judged, *again)):
                return
        here = self.imports.get((one.site, one.label))
        late = ""
        if here is None and ruling.accept and self.awaited.lacks(ruling.issuer):
            work = _unless_over(handed, partial(self._judged, *again))
            if self.awaited.waits(ruling.issuer, work):
                return
            late = f"keys: {ruling.issuer} has given none, and a label of it is imported here"
        if why := self._objection(neighbour, one, ruling, here, late):
            answer(*self._refused(neighbour, one, why))
            return
        onward = ruling.to
        if onward:
            onward = () if one.hops >= HOPS else tuple([n for n in onward if n != neighbour])
        if here is None and ruling.to and not onward:
            why = f"hops: it has passed {one.hops} sites, at most {HOPS} are allowed"
            answer(*self._refused(neighbour, one, why))
            return
        fields = neighbour, handed, one, sent, which, answer, ruling.issuer, here, onward
        coming: _Coming = tuple.__new__(_Coming, fields)
        self._coming[which] = []
        if here is None:
            self._over(coming, Unavailable(late) if late else None)
            return
        try:
            self._deliver(here, one, partial(self._over, coming))
        except BaseException:
            self._coming.pop(which, None)
            raise

    def _objection(
        self, neighbour: str, one: Crossing, ruling: Ruling, here: Import | None, late: str
    ) -> str:
        """Why it is refused; "": it is not. late: why it may be for this site all the same."""
        if not ruling.accept:
            return f"{ruling.reason} ({ruling.rule})"
        known = self.sites.get(ruling.issuer)
        if known is not None and known != one.site:
            self._judge.observe(neighbour, "outside", now_ms())
            return f"its token is of {ruling.issuer}, and it is of another site"
        if here is not None and here.peer != ruling.issuer:
            return f"its token is of {ruling.issuer}, and its label of {here.peer}"
        # At an end of the graph a copy ends, too; where it could go on, and may not, it is named.
        if here is None and not ruling.to:
            if late:
                return late
            behind = self.neighbours - {neighbour, ruling.issuer}
            if behind or not self._judge.relays:
                return "not exported: nothing of that label belongs here, or goes on from here"
        return ""

    def _over(self, coming: _Coming, error: Exception | None) -> None:
        """It is with the own broker, or is none of its messages, or will never be taken (error)."""
        neighbour, handed, one, sent, which, answer, issuer, here, onward = coming
        waiting = self._coming.pop(which)
        if error is not None and not onward:
            answer(*self._refused(neighbour, one, str(error)))
        else:
            if error is not None:
                self.drop(neighbour, self._shown(one, issuer), str(error))
            elif here is not None and self._judge.relays:  # else nobody asks who handed it over
                topic, id = f"@{here.peer}/{one.topic}", message_id(one.m1)
                self._judge.delivered(neighbour, id, topic, here.here, now_ms())
            # In one transaction, and after the own broker has it: a kill before that has it brought
            # again, and readers drop what they have; none between these two spools it twice.
            if onward:
                goes = one.site, one.label, "", one.hops + 1, one.token, one.topic, one.flags
                self._spool.put(Message(*goes, one.m1), onward)
                self._told(onward)
            self._spool.came(*which)
            handed[sent] = None
            answer(crossing.OK, "")
        for again in waiting:
            again()

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


def _later(handed: Handed, origin: bytes, work: Callable[[], None]) -> bool:
    """Do it a little later, if the line's records may still be on their way."""
    if time.monotonic() - handed.begun >= _SETTLE_S:
        return False
    if (late := handed.late.get(origin)) is not None:
        late.append(work)
        return True
    handed.late[origin] = deque([work])
    again = _unless_over(handed, partial(_again, handed, origin))
    asyncio.get_running_loop().call_later(0.2, again)
    return True


def _again(handed: Handed, origin: bytes) -> None:
    """What waited, in its order, as far as it can be judged now."""
    late = handed.late.pop(origin)
    while late:
        late.popleft()()
        if (waits := handed.late.get(origin)) is not None:
            waits.extend(late)
            return


def _unless_over(handed: Handed, work: Callable[[], None]) -> Callable[[], None]:
    """Nobody waits for the answer once the line is over, and the bridge may have ended with it."""

    def works() -> None:
        if not handed.over:
            work()

    return works


def now_ms() -> int:
    """By the wall clock."""
    return time.time_ns() // 1_000_000
