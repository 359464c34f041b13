"""One neighbour: its line, what is sent and read over it, and how much of it is read.

What it does wrong ends its own line, and nothing else. Records and packets are taken within a
budget; messages as far as those before them have been answered.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from functools import partial
from typing import Protocol

from sealmq.families.between import Judge
from sealmq.kglink import KgError, KgUnavailable
from sealmq.loops import first_error
from sealmq.site.model import Peer
from sealmq_spec.errors import SealError

from . import crossing
from .line import (
    ANSWER,
    FAR,
    HELLO,
    KEYS,
    MESSAGE,
    PING,
    PING_S,
    PONG,
    RECORD,
    TAKEN,
    Line,
    LineLost,
    Listener,
    Own,
    call,
)
from .passing import which
from .spool import Message, Spool, Waiting
from .traffic import Handed, Traffic, now_ms

log = logging.getLogger("sealmq.bridge")

# Messages that the peer has not answered.
INFLIGHT = 64
# So many are sent: they go on as one client's, which may have 60 that its broker has not taken.
AHEAD = 56
# So many answers wait for no more: a peer that has sent all that it may goes on.
GROUP = AHEAD // 2
# Between two tries to call a peer, at first and at most.
WAIT_S = 0.5, 15.0
# Of records, and of packets, so much is sent a second, and twice as much is read: neither takes
# anything from the other. A record of 16 KiB may hold 90 signatures, which take 9 ms.
RATE, BURST, EACH = 128 << 10, 512 << 10, 1024
# After so much work for one neighbour it is the others' turn: who hears nothing ends its line.
TURN_S = 0.01
_BACKLOG, _UNREAD = 1 << 20, 16 << 20
_SENT = 8192


class Budget:
    """So many bytes a second, and as many at once as `burst`; EACH more for each that comes."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate, self._burst, self._left, self._at = rate, burst, burst, now

    def take(self, size: int, now: float) -> float:
        """0 when it is taken; else in how many seconds it can be."""
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        short = size + EACH - self._left
        if short > 0:
            return short / self._rate
        self._left -= size + EACH
        return 0.0


def keys_budget() -> Budget:
    """Of frames with keys, which a peer sends as these change: each is a transaction of the key
    generator's. One a second, and 16 at once; to be taken with size 0."""
    return Budget(EACH, 16 * EACH, time.monotonic())


class Host(Protocol):
    """What a neighbour needs of the bridge."""

    own: Own
    spool: Spool
    judge: Judge
    traffic: Traffic

    async def keys_for(self, name: str, der: bytes) -> bytes: ...
    async def keys_of(self, name: str, der: bytes, packet: bytes) -> None: ...
    async def far_keys(self, label: str) -> None: ...
    async def far(self, neighbour: str, raw: bytes) -> None: ...
    def joined(self, name: str, line: Line) -> None: ...
    def lost(self, name: str, why: str) -> None: ...
    def say(self, name: str, line: str) -> None: ...


class Neighbour:
    """`news`: something may be there for it."""

    def __init__(self, host: Host, peer: Peer) -> None:
        self._host, self._peer, self._name = host, peer, peer.name
        self.line: Line | None = None
        self.news = asyncio.Event()
        self._ours = asyncio.Event()  # the peer has taken our keys
        self._given: set[tuple[str, int]] = set()
        # What it has been sent and has not answered, by number.
        self._answered: dict[int, Waiting] = {}
        # Answers for it, for messages that are about to be written.
        self._due: list[bytes] = []
        # What the judge has for it, to be sent before the next message.
        self._records_due: list[bytes] = []
        self._sent, self._handed = Handed(_SENT), Handed()
        self._under_way = 0
        self._full = False
        self._keys = keys_budget()
        self._reads: dict[int, Budget] = {}
        self._sends: dict[int, Budget] = {}

    # --- its line ---

    async def run(self) -> None:
        """Again and again, until cancelled."""
        wait = WAIT_S[0]
        while True:
            begun = time.monotonic()
            try:
                if self._peer.listen is None:
                    await self._serve(await call(self._host.own, self._peer))
                else:
                    await self._listening()
            except LineLost as error:
                self._host.say(self._name, str(error))
            if time.monotonic() - begun > WAIT_S[1]:
                wait = WAIT_S[0]
            await asyncio.sleep(wait)
            wait = min(2 * wait, WAIT_S[1])

    async def _listening(self) -> None:
        def hear(what: str) -> None:
            log.info("%s: %s", self._name, what)
            if self.line is None:
                self._host.say(self._name, f"waiting for its call; {what}")

        async with Listener(self._host.own, self._peer, hear).serving() as listener:
            self._host.say(self._name, "waiting for its call")
            line = await listener.next()
            while True:
                serving = asyncio.create_task(self._serve(line), name="bridge: serve")
                coming = asyncio.create_task(listener.next(), name="bridge: next line")
                try:
                    await asyncio.wait((serving, coming), return_when=asyncio.FIRST_COMPLETED)
                    if serving.done():
                        serving.result()  # an error ends this run at once, not at the next call
                    # A newer line takes the place of one that hangs.
                    line = await coming
                finally:
                    for task in (serving, coming):
                        task.cancel()
                    await asyncio.gather(serving, coming, return_exceptions=True)

    async def _serve(self, line: Line) -> None:
        """One line, until it is lost."""
        now = time.monotonic()
        self._reads = {kind: Budget(2 * RATE, 2 * BURST, now) for kind in (RECORD, FAR)}
        self._sends = {kind: Budget(RATE, BURST, now) for kind in (RECORD, FAR)}
        self._sent, self._handed = Handed(_SENT), Handed(begun=now)
        self._under_way = 0
        self._ours.clear()
        self._given.clear()
        self._answered.clear()
        self._records_due, self._due = [], []
        self.line, why = line, "ended"
        try:
            self._host.joined(self._name, line)
            await self.give()
            async with asyncio.TaskGroup() as group:
                for work in (self._read(line), self._send(line), _beat(line)):
                    group.create_task(work, name="bridge: line")
        except BaseExceptionGroup as errors:
            error = first_error(errors)
            why = str(error)
            if not _is_its_own(error):
                raise error from None
        except (LineLost, SealError, KgError) as error:
            why = str(error)
            if not _is_its_own(error):
                raise
        finally:
            self.line, self._handed.over = None, True
            await line.close()
            self._host.lost(self._name, why)

    async def give(self) -> None:
        """Our keys, as they are now. LineLost: there are none for this peer."""
        line = self.line
        if line is None:
            return
        try:
            packet = await self._host.keys_for(self._name, line.peer)
        except KgUnavailable:
            raise
        except KgError as error:
            line.abort()
            raise LineLost(str(error)) from None
        self._ours.clear()
        line.send(KEYS, packet)  # who does not read it keeps nobody waiting

    def pass_on(self, raw: bytes) -> None:
        """A packet for a site behind it, if it is within the budget: whom it is from repeats it."""
        if self.line is None or self.line.backlog >= _BACKLOG:
            return
        if not self._sends[FAR].take(len(raw), time.monotonic()):
            self.line.send(FAR, raw)

    # --- to it ---

    async def _send(self, line: Line) -> None:
        last = 0
        while True:
            self.news.clear()
            if pending := self._host.judge.pending(self._name):
                await self._records(line, pending)
            room = AHEAD - len(self._answered)
            some = self._host.spool.after(self._name, last, room)
            # Answers are news only where more may wait than there is room for.
            self._full = len(some) == room
            self._sent.trim()
            for one in some:
                last = one.seq
                while not self._one(line, one):
                    await self._before(line, one.message)
            await line.flush()
            if not self._full or len(self._answered) >= AHEAD:
                await self.news.wait()

    def _one(self, line: Line, one: Waiting) -> bool:
        """Send it, unless it may not go, or has. False: something goes `_before` it."""
        host, (seq, message) = self._host, one
        if not host.traffic.still_goes(self._name, message):
            self._end(one, "it may not have it any more")
            return True
        origin, ctr, epoch = which(message.m1)
        sent = message.site + origin, ctr
        if sent in self._sent:
            host.spool.done(self._name, one)
            return True
        # Keys first: what comes before them is refused there.
        known = not message.label or (message.label, epoch) in self._given
        self._records_due = self._records_due or host.judge.pending(self._name)
        if self._records_due or not known or not self._ours.is_set():
            return False
        # From now on: what comes again after a kill may be in the spool already, and the peer takes
        # the second of one line for a replay.
        self._sent[sent] = None
        self._answered[seq] = one
        site, number, _, hops, token, topic, flags, m1 = message
        head = crossing.head(seq, flags, hops, site, number, token, topic)
        line.send(MESSAGE, head, m1)
        return True

    async def _before(self, line: Line, message: Message) -> None:
        host = self._host
        if not self._ours.is_set():
            await self._ours.wait()
        _, _, epoch = which(message.m1)
        if message.label and (message.label, epoch) not in self._given:
            await self.give()
            await host.far_keys(message.label)
            await self._ours.wait()
            self._given.add((message.label, epoch))
        records, self._records_due = self._records_due, []
        await self._records(line, records)

    async def _records(self, line: Line, records: Iterable[bytes]) -> None:
        for record in records:
            while wait := self._sends[RECORD].take(len(record), time.monotonic()):
                await line.flush()
                await asyncio.sleep(wait)
            line.send(RECORD, record)

    def _answer(self, body: bytes) -> None:
        seq, code, reason = crossing.read_answer(body)
        one = self._answered.pop(seq, None)
        if one is None:
            return
        if code == crossing.OK:
            self._host.spool.done(self._name, one)
        else:
            self._end(one, f"{self._name}: {reason}")

    def _end(self, one: Waiting, why: str) -> None:
        self._host.traffic.lost(self._name, one.message, why)
        self._host.spool.done(self._name, one)

    # --- from it ---

    async def _read(self, line: Line) -> None:
        host = self._host
        while True:
            frames = await line.receive_some()
            if line.backlog > _UNREAD:
                raise LineLost("it does not read what it is sent")
            answered, begun = False, time.monotonic()
            for kind, body in frames:
                if kind == MESSAGE:
                    self._message(line, body)
                elif kind == ANSWER:
                    self._answer(body)
                    answered = True
                elif kind in (RECORD, FAR):
                    await self._within(kind, body)
                elif kind == KEYS:
                    if wait := self._keys.take(0, time.monotonic()):
                        await asyncio.sleep(wait)
                        self._keys.take(0, time.monotonic())
                    await host.keys_of(self._name, line.peer, body)
                    line.send(TAKEN)
                elif kind == TAKEN:
                    self._ours.set()
                elif kind == PING:
                    line.send(PONG)
                elif kind not in (HELLO, PONG):
                    raise LineLost(f"a frame of type {kind}")
                if time.monotonic() - begun >= TURN_S:
                    await asyncio.sleep(0)
                    begun = time.monotonic()
            if answered and self._full:
                self.news.set()

    def _message(self, line: Line, body: bytes) -> None:
        if self._under_way >= INFLIGHT:
            raise LineLost(f"more than {INFLIGHT} messages that nobody has answered")
        self._under_way += 1
        one = crossing.unpack(body)
        answer = partial(self._decided, line, one.seq)
        self._host.traffic.take(self._name, self._handed, one, answer)

    async def _within(self, kind: int, body: bytes) -> None:
        host, now = self._host, now_ms()
        if self._reads[kind].take(len(body), time.monotonic()):
            host.judge.observe(self._name, "rate", now)
            return
        if kind == FAR:
            try:
                await host.far(self._name, body)
            except SealError as error:
                log.info("%s: %s", self._name, error)
                host.judge.observe(self._name, "bad-token", now)
            return
        host.judge.receive(self._name, body, now)

    def _decided(self, line: Line, seq: int, code: int, reason: str) -> None:
        """The message is answered after what this site keeps of it is on disk. One write, and one
        group of answers, serves all messages that wait for that.
        """
        if line is not self.line:
            return  # nobody waits for it any more
        due = self._due
        due.append(crossing.answer(seq, code, reason))
        if len(due) == 1:
            self._host.spool.then(partial(self._answers, line, due))
        elif len(due) == GROUP:
            self._host.spool.hurry()

    def _answers(self, line: Line, due: list[bytes]) -> None:
        if line is self.line:
            self._under_way -= len(due)
            self._handed.trim()
            line.send_all(ANSWER, due)
        due.clear()


def _is_its_own(error: BaseException) -> bool:
    """Whether it ends this line alone. Without a key generator the bridge begins anew."""
    return isinstance(error, LineLost | SealError | KgError) and not isinstance(
        error, KgUnavailable
    )


async def _beat(line: Line) -> None:
    while True:
        await asyncio.sleep(PING_S)
        line.send(PING)
