"""The live link: what is delivered to clean sessions, over one subscription for each filter that
any of them holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from sealmq.mqtt import Packet, Publish, Pubrel, QoS2Receiver, build

from .asking import Asking
from .broker import BrokerAddress, BrokerAway, BrokerLink
from .holding import HeldLink

# Filters of one SUBSCRIBE or UNSUBSCRIBE.
FILTERS, FILTER_BYTES = 64, 16 * 1024
# How long a filter stays that nobody holds any more, and how many such there are: each new
# SUBSCRIBE makes the broker send all that is retained once more.
LINGER_S = 60.0
LINGERING = 1024

_REFUSED = 0x80


class _Held:
    """A filter on the broker. `code`: the broker's answer, once it is there."""

    __slots__ = ("code", "holders")

    def __init__(self, code: asyncio.Future[int]) -> None:
        self.holders: set[object] = set()
        self.code = code


class LiveLink(HeldLink):
    """`packet` gets each PUBLISH, which is acknowledged when it returns; `lost`, why the link fell:
    then nobody holds a filter any more.

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
    ) -> None:
        super().__init__(address, client_id, changed)
        self._deliver, self._lost = packet, lost
        self._link: BrokerLink | None = None
        self._asking = Asking(self._send)
        self._twos = QoS2Receiver()
        self._filters: dict[str, _Held] = {}
        # Filters that nobody holds, the oldest first, and since when.
        self._lingering: dict[str, float] = {}
        # What the next packets ask: (filter, its answer), or (filter, None) to unsubscribe.
        self._queue: list[tuple[str, _Held | None]] = []

    # --- subscriptions ---

    async def subscribe(self, holder: object, filters: Iterable[str]) -> Sequence[int]:
        """The broker's codes, one a filter; what it refuses is not held. Raises BrokerAway."""
        if self._link is None:
            raise BrokerAway(self.away or "the live link is lost")
        codes = [self._hold_filter(holder, filt) for filt in filters]
        # Shared with others, so that nobody's end may cancel it.
        return [await asyncio.shield(code) for code in codes]

    def unsubscribe(self, holder: object, filters: Iterable[str]) -> None:
        """This one does not want them any more. The broker is told when nobody has wanted them for
        a while.
        """
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
            held = self._filters[filt] = _Held(asyncio.get_running_loop().create_future())
            self._ask(filt, held)
        held.holders.add(holder)
        self._lingering.pop(filt, None)
        return held.code

    def _linger(self, now: float) -> None:
        for filt, since in list(self._lingering.items()):
            if len(self._lingering) <= LINGERING and now - since < LINGER_S:
                return
            del self._lingering[filt]
            del self._filters[filt]
            self._ask(filt, None)

    def _ask(self, filt: str, held: _Held | None) -> None:
        if not self._queue:
            asyncio.get_running_loop().call_soon(self._ask_all)
        self._queue.append((filt, held))

    def _ask_all(self) -> None:
        queue, self._queue = self._queue, []
        some: list[tuple[str, _Held | None]] = []
        size = 0
        for filt, held in queue:
            bytes_ = len(filt.encode())
            other = some and (held is None) != (some[0][1] is None)
            if other or len(some) == FILTERS or size + bytes_ > FILTER_BYTES:
                self._ask_some(some)
                some, size = [], 0
            some.append((filt, held))
            size += bytes_
        self._ask_some(some)

    def _ask_some(self, some: list[tuple[str, _Held | None]]) -> None:
        if not some or self._link is None:
            return
        wanted = [(filt, held) for filt, held in some if held is not None]
        if not wanted:
            self._asking.unsubscribe([filt for filt, _ in some])
            return
        qos = self._address.qos
        answer = self._asking.subscribe([(filt, qos) for filt, _ in wanted])
        answer.add_done_callback(lambda done: self._answered(wanted, done))

    def _answered(
        self, wanted: list[tuple[str, _Held]], answer: asyncio.Future[tuple[int, ...]]
    ) -> None:
        if answer.cancelled() or answer.exception() is not None:
            return
        for (filt, held), code in zip(wanted, answer.result(), strict=True):
            if held.code.done():
                continue
            if code == _REFUSED and self._filters.get(filt) is held:
                del self._filters[filt]
                self._lingering.pop(filt, None)
            held.code.set_result(code)

    # --- the link ---

    async def _hold(self) -> None:
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        link = BrokerLink(self._came, ended.set_result, overdue=self._overdue)
        await link.open(self._address, self._client_id)
        self._link, self._twos = link, QoS2Receiver()
        self._asking = Asking(link.send)
        self._tell(None)
        try:
            reason = await ended
        finally:
            link.close()
            self._link = None
            self._forget("the live link was closed")
        self._tell(reason)
        self._lost(reason)

    def _send(self, data: bytes) -> None:
        if self._link is not None:
            self._link.send(data)

    def _forget(self, reason: str) -> None:
        filters, self._filters = self._filters, {}
        self._lingering.clear()
        self._queue.clear()
        self._asking.lost(reason)
        for held in filters.values():
            if not held.code.done():
                held.code.set_exception(BrokerAway(reason))
                held.code.exception()

    def _overdue(self) -> str | None:
        self._linger(asyncio.get_running_loop().time())
        return self._asking.overdue()

    def _came(self, packet: Packet) -> None:
        if type(packet) is Publish:
            if not packet.qos:
                self._deliver(packet)
            elif packet.qos == 1:
                self._deliver(packet)
                self._send(build.puback(packet.packet_id))
            else:
                # One that comes again before its PUBREL is not another one.
                if self._twos.accept(packet.packet_id):
                    self._deliver(packet)
                self._send(build.pubrec(packet.packet_id))
        elif isinstance(packet, Pubrel):
            self._twos.release(packet.packet_id)
            self._send(build.pubcomp(packet.packet_id))
        else:
            self._asking.took(packet)
