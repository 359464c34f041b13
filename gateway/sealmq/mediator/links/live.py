"""The live link: what is delivered to clean sessions, over one subscription for each filter that
any of them holds.

The broker keeps one bounded queue for it, and drops what exceeds that. A SUBSCRIBE makes it put all
that is retained there. So a filter with wildcards that nobody holds yet is tried on a scratch link
first, and gets a connection of its own (a line) if too much is retained for it. If the link falls
before a filter was answered, every new filter is tried first until that one has been answered: the
broker may hang up on others, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from typing import Any

from sealmq.mqtt import Packet, Publish, Pubrel, QoS2Receiver, build

from .broker import (
    AsEvent,
    BrokerAddress,
    BrokerAway,
    BrokerLink,
    OnUnfit,
    directly,
    nobody_hears,
)
from .credit import Credit, Lines
from .reconnecting import ReconnectingLink
from .snapshots import QUIET_S, SnapshotCut, SnapshotEnded, Snapshots
from .subscribe_requests import SubscribeRequests

log = logging.getLogger("sealmq.mediator")

# The most filters of one SUBSCRIBE or UNSUBSCRIBE; a broker may take fewer.
FILTERS, FILTER_BYTES = 100, 32 * 1024
# How long a filter stays subscribed that nobody holds any more, and how many such filters there may
# be: each new SUBSCRIBE makes the broker send all that is retained once more.
LINGER_S = 60.0
LINGERING = 1024
# A filter for which more than this is retained does not get onto the line that all share.
RETAINED, RETAINED_BYTES = 256, 1024 * 1024
# The most lines of one client's filters: each is a connection, and brings each message once more.
LINES = 32
# Filters that are remembered because the link fell before they were answered.
SUSPECTS = 1024
# Filters of one client that are tried at a time.
TRIED_AT_ONCE = 4

# How often a line is asked whether it is empty while nothing comes that is retained.
ASKED = 15
# The packet id of the question whether a line is empty: those of SUBSCRIBE begin with 1.
_EMPTY_ID = 65_535
_BEAT_S = 1.0
_REFUSED = 0x80


class _Line:
    """One connection: what comes goes to `deliver`, and is acknowledged when that returns.

    `marks`: their topic; `marked` is called with this line and each of them.
    """

    def __init__(
        self,
        deliver: Callable[[Publish], None],
        ended: Callable[[str], None],
        marks: str,
        marked: Callable[[_Line, bytes], None],
        on_unfit: OnUnfit = nobody_hears,
        as_event: AsEvent = directly,
    ) -> None:
        self._deliver = deliver
        self._marks, self._marked = marks, marked
        self._ended = ended
        self.link = BrokerLink(
            self._came,
            self._lost,
            overdue=self._overdue,
            on_unfit=on_unfit,
            as_event=as_event,
        )
        self.asking = SubscribeRequests(self.link.send)
        self._twos = QoS2Receiver()
        # What comes back when nothing is before it any more.
        self._empty = "", asyncio.Event()
        # Copies that have come of what is retained.
        self._retained = 0

    async def empty(self, topic: str) -> bool:
        """Returns once all that the broker had for this line has come, or False at once, if the
        broker does not let that be asked. Raises BrokerAway.

        What is retained for a filter may fill the broker's queue for it: what is published until
        there is room is dropped, and so is this question, which is asked again then.
        """
        self._empty = topic, asyncio.Event()
        self._there()
        [code] = await self.asking.subscribe([(topic, 1)])
        if code != 1:
            self.asking.unsubscribe([topic])
            return False
        in_vain = came = 0
        while in_vain < ASKED:
            self._there()
            self.link.send(build.publish(topic, b"?", 1, packet_id=_EMPTY_ID))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(QUIET_S):
                    await self._empty[1].wait()
                self.asking.unsubscribe([topic])
                return True
            in_vain, came = in_vain + 1 if self._retained == came else 0, self._retained
        raise BrokerAway("what is retained for a filter does not pass")

    def _there(self) -> None:
        if not self.link.up:
            raise BrokerAway("the line was lost")

    def close(self) -> None:
        self.link.close()
        self.asking.lost("the live link was closed")

    def _lost(self, reason: str) -> None:
        self.asking.lost(reason)
        self._ended(reason)

    def _overdue(self) -> str | None:
        return self.asking.overdue()

    def _came(self, packet: Packet) -> None:
        if type(packet) is Publish:
            self._retained += packet.retain
            if not packet.qos:
                self._deliver(packet)
            elif packet.qos == 1:
                if packet.topic == self._marks:
                    self._marked(self, packet.payload)
                elif packet.topic == self._empty[0]:
                    self._empty[1].set()
                else:
                    self._deliver(packet)
                self.link.send(build.puback(packet.packet_id))
            else:
                # The same packet id again before its PUBREL: the same message.
                if self._twos.accept(packet.packet_id):
                    self._deliver(packet)
                self.link.send(build.pubrec(packet.packet_id))
        elif isinstance(packet, Pubrel):
            self._twos.release(packet.packet_id)
            self.link.send(build.pubcomp(packet.packet_id))
        else:
            self.asking.took(packet)


class _Held:
    """A filter. `whose`: the client's that has asked for it first. `code`: the broker's answer,
    once it is there. `line`: its own, if it has one. `asked`: whether the broker was asked.
    """

    __slots__ = ("asked", "code", "holders", "line", "whose")

    def __init__(self, whose: Hashable, code: asyncio.Future[int]) -> None:
        self.whose = whose
        self.holders: set[object] = set()
        self.code = code
        self.line: _Line | None = None
        self.asked = False


class LiveLink(ReconnectingLink):
    """`packet` gets each PUBLISH, which is acknowledged when it returns. `lost` is called with the
    reason when the link falls: then nobody holds a filter any more. `snapshots`: for trying
    filters. `credit`: shared with the publish link. `on_unfit`, `as_event`: as BrokerLink has them.
    `whose`: of a holder, which client it is of.

    What is asked in one turn of the loop goes out in the order in which it was asked, in as few
    packets as possible; the broker deals with them in that order, so the last one counts.
    """

    def __init__(
        self,
        address: BrokerAddress,
        client_id: str,
        packet: Callable[[Publish], None],
        lost: Callable[[str], None],
        changed: Callable[[], None] = lambda: None,
        snapshots: Snapshots | None = None,
        credit: Credit | None = None,
        on_unfit: OnUnfit = nobody_hears,
        as_event: AsEvent = directly,
        whose: Callable[[Any], Hashable] = id,
    ) -> None:
        super().__init__(address, client_id, changed)
        self._credit = credit if credit is not None and credit.possible else None
        self._deliver, self._lost, self._snapshots = packet, lost, snapshots
        self._on_unfit, self._as_event, self._whose = on_unfit, as_event, whose
        self._line: _Line | None = None
        self._filters: dict[str, _Held] = {}
        # Filters that nobody holds, the oldest first, and since when.
        self._lingering: dict[str, float] = {}
        # What the next packets ask: (filter, its answer), or (filter, None) to unsubscribe.
        self._queue: list[tuple[str, _Held | None]] = []
        self._suspects: dict[str, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._opened = 0
        # Of clients whose filters are tried: how many since it began, and how many just now.
        self._tried: dict[Hashable, tuple[int, int]] = {}
        # Which of the lines have brought which marks.
        self._lines: Lines | None = None

    # --- subscriptions ---

    def subscribe(
        self, holder: object, filters: Iterable[str]
    ) -> Coroutine[Any, Any, Sequence[int]]:
        """Holds the filters from now on. Awaited, it gives the broker's codes, one a filter, or
        raises BrokerAway; filters that the broker refuses are not held.
        """
        if self._line is None:
            return self._answers(None)
        return self._answers([self._hold_filter(holder, filt) for filt in filters])

    async def _answers(self, codes: list[asyncio.Future[int]] | None) -> Sequence[int]:
        if codes is None:
            raise BrokerAway(self.away or "the live link is lost")
        # Others wait for the same answer: the end of one of them must not cancel it.
        return [await asyncio.shield(code) for code in codes]

    def unsubscribe(self, holder: object, filters: Iterable[str]) -> None:
        """The holder leaves these; the broker is told when nobody has held them for a while."""
        now = asyncio.get_running_loop().time()
        for filt in filters:
            held = self._filters.get(filt)
            if held is None or holder not in held.holders:
                continue
            held.holders.discard(holder)
            if not held.holders:
                self._lingering[filt] = now
        self._linger(now)

    def _hold_filter(self, holder: object, filt: str) -> asyncio.Future[int]:
        held = self._filters.get(filt)
        if held is None:
            code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            held = self._filters[filt] = _Held(self._whose(holder), code)
            # While there is a filter on which the link may have fallen, there may be more like it.
            doubtful = "+" in filt or "#" in filt or bool(self._suspects)
            if doubtful and self._snapshots is not None:
                self._spawn(self._try(filt, held, self._snapshots))
            else:
                self._ask(filt, held)
        held.holders.add(holder)
        self._lingering.pop(filt, None)
        return held.code

    def _linger(self, now: float) -> None:
        for filt, since in list(self._lingering.items()):
            if len(self._lingering) <= LINGERING and now - since < LINGER_S:
                return
            del self._lingering[filt]
            held = self._filters.pop(filt)
            if held.line is not None:
                self._end_line(held.line)
            elif held.asked:
                self._ask(filt, None)

    # --- filters that are tried first ---

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="live filter")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _try(self, filt: str, held: _Held, snapshots: Snapshots) -> None:
        try:
            much = await self._much(filt, held.whose, snapshots)
            if self._filters.get(filt) is held:
                self._suspects.pop(filt, None)
                if much:
                    await self._own_line(filt, held)
                else:
                    self._ask(filt, held)
        except SnapshotEnded as error:
            # The live link is still there, so the broker did not go away: it hangs up on this
            # filter.
            log.warning("a filter is refused: %s", error)
            self._answer(filt, held, _REFUSED)
        except BrokerAway as error:
            if self._filters.get(filt) is held:
                del self._filters[filt]
                self._lingering.pop(filt, None)
            if not held.code.done():
                held.code.set_exception(error.with_traceback(None))
                held.code.exception()

    # Whether more is retained for it than may come over the line that all share.
    async def _much(self, filt: str, whose: Hashable, snapshots: Snapshots) -> bool:
        number, now = self._tried.get(whose, (0, 0))
        self._tried[whose] = number + 1, now + 1
        snapshot = snapshots.of((whose, number % TRIED_AT_ONCE), filt)
        count = size = 0
        more = True
        try:
            while more:
                some, more = await snapshot.more()
                count += len(some)
                size += sum(len(packet.payload) for packet in some)
                if count > RETAINED or size > RETAINED_BYTES:
                    return True
        except SnapshotCut:
            return True
        finally:
            snapshot.close()
            number, now = self._tried.pop(whose)
            if now > 1:
                self._tried[whose] = number, now - 1
        return False

    # Whether its client's filters may have one line more. At the limit, a line that nobody holds is
    # closed to make room.
    def _may_open(self, whose: Hashable) -> bool:
        mine = [f for f, h in self._filters.items() if h.line is not None and h.whose == whose]
        if len(mine) < LINES:
            return True
        over = next((filt for filt in mine if filt in self._lingering), None)
        if over is None:
            return False
        del self._lingering[over]
        line = self._filters.pop(over).line
        if line is not None:
            self._end_line(line)
        return True

    async def _own_line(self, filt: str, held: _Held) -> None:
        if not self._may_open(held.whose):
            log.warning(
                "a filter is refused: %d of its client have connections of their own", LINES
            )
            self._answer(filt, held, _REFUSED)
            return
        line = held.line = self._make_line(self._give_up)
        self._opened += 1
        name = f"{self._client_id}/{self._opened}"
        try:
            await line.link.open(self._address, name)
            [code] = await line.asking.subscribe([(filt, self._address.qos)])
            if self._credit is not None and code != _REFUSED and await line.empty(f"@{name}"):
                await line.asking.subscribe([(self._credit.topic, 1)])
        except BrokerAway:
            self._end_line(line)
            raise
        if self._filters.get(filt) is held and code != _REFUSED:
            self._answer(filt, held, code)
        else:
            self._end_line(line)
            self._answer(filt, held, _REFUSED)

    def _make_line(self, ended: Callable[[str], None]) -> _Line:
        marks = "" if self._credit is None else self._credit.topic
        return _Line(self._deliver, ended, marks, self._marked, self._on_unfit, self._as_event)

    def _end_line(self, line: _Line) -> None:
        line.close()
        if self._lines is not None and (reason := self._lines.over(line)):
            self._give_up(reason)

    def _marked(self, line: _Line, payload: bytes) -> None:
        if self._lines is not None and (reason := self._lines.came(line, payload)):
            self._give_up(reason)

    # Messages are missing, whichever line falls.
    def _give_up(self, reason: str) -> None:
        if self._line is not None:
            self._line.link.give_up(reason)

    # --- asking ---

    def _ask(self, filt: str, held: _Held | None) -> None:
        if held is not None:
            held.asked = True
        if not self._queue:
            asyncio.get_running_loop().call_soon(self._ask_all)
        self._queue.append((filt, held))

    def _ask_all(self) -> None:
        queue, self._queue = self._queue, []
        most = min(FILTERS, self._address.filters)
        some: list[tuple[str, _Held | None]] = []
        size = 0
        for filt, held in queue:
            length = len(filt.encode())
            other = some and (held is None) != (some[0][1] is None)
            if other or len(some) == most or size + length > FILTER_BYTES:
                self._ask_some(some)
                some, size = [], 0
            some.append((filt, held))
            size += length
        self._ask_some(some)

    def _ask_some(self, some: list[tuple[str, _Held | None]]) -> None:
        if not some or self._line is None:
            return
        wanted = [(filt, held) for filt, held in some if held is not None]
        if not wanted:
            self._line.asking.unsubscribe([filt for filt, _ in some])
            return
        qos = self._address.qos
        answer = self._line.asking.subscribe([(filt, qos) for filt, _ in wanted])
        answer.add_done_callback(lambda done: self._answered(wanted, done))

    def _answered(
        self, wanted: list[tuple[str, _Held]], answer: asyncio.Future[tuple[int, ...]]
    ) -> None:
        if answer.cancelled() or answer.exception() is not None:
            return
        for (filt, held), code in zip(wanted, answer.result(), strict=True):
            self._answer(filt, held, code)

    def _answer(self, filt: str, held: _Held, code: int) -> None:
        if held.code.done():
            return
        if code == _REFUSED and self._filters.get(filt) is held:
            del self._filters[filt]
            self._lingering.pop(filt, None)
        held.code.set_result(code)

    # --- the link ---

    async def _hold(self) -> None:
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        credit = self._credit
        line = self._make_line(ended.set_result)
        self._lines = None if credit is None else Lines(credit, line)
        await line.link.open(self._address, self._client_id)
        if credit is not None:
            try:
                [code] = await line.asking.subscribe([(credit.topic, 1)])
            except BaseException:
                line.close()
                raise
            credit.begin(code == 1)
        self._line = line
        beats = asyncio.create_task(self._beat(), name="live link")
        self._tell(None)
        try:
            reason = await ended
        finally:
            beats.cancel()
            line.close()
            self._line = None
            if credit is not None:
                credit.begin(False)
            self._forget("the live link was closed")
        self._tell(reason)
        self._lost(reason)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_BEAT_S)
            self._linger(asyncio.get_running_loop().time())
            if self._credit is not None and (reason := self._credit.overdue()):
                self._give_up(reason)

    def _forget(self, reason: str) -> None:
        filters, self._filters = self._filters, {}
        self._lingering.clear()
        self._queue.clear()
        for task in self._tasks:
            task.cancel()
        for filt, held in filters.items():
            if held.line is not None:
                held.line.close()
            if not held.code.done():
                if held.asked or held.line is not None:
                    self._suspects[filt] = None
                held.code.set_exception(BrokerAway(reason))
                held.code.exception()
        while len(self._suspects) > SUSPECTS:
            del self._suspects[next(iter(self._suspects))]
