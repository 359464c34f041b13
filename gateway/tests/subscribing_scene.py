"""A connection around Subscribing, a broker that does what it is sent in its order and answers when
the test says, and a store whose commits end when the test says. No socket.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any, cast

from families.factory import FACTORY, Site
from families.gate import Gate
from sealmq.broker.promises import BrokerTakes
from sealmq.mediator.hub import Hub
from sealmq.mediator.keptsubs import KeptSubs
from sealmq.mediator.subscribing import Subscribing
from sealmq.mediator.upstream import BrokerAddress
from sealmq.mqtt import Decoder, Packet, Suback, Subscribe, Unsuback, Unsubscribe
from sealmq.store import KeptSub, KeptSubGone, StoreRecord
from sealmq_spec.errors import SealError

LABEL = 16
REFUSED = 0x80


class Broker:
    """`subs`: filter -> QoS, as it has them. `grants`: what it makes of a filter and a QoS."""

    def __init__(self) -> None:
        self.subs: dict[str, int] = {}
        self.got: list[Packet] = []
        self.answers: deque[Packet] = deque()
        self.grants: Callable[[str, int], int] = lambda filt, qos: qos
        self._decoder = Decoder(1 << 20, "server")

    def send(self, data: bytes) -> None:
        for packet in self._decoder.feed(data):
            self.got.append(packet)
            if isinstance(packet, Subscribe):
                codes = [self.grants(filt, qos) for filt, qos in packet.filters]
                for (filt, _), code in zip(packet.filters, codes, strict=True):
                    if code != REFUSED:
                        self.subs[filt] = code
                self.answers.append(Suback(packet.packet_id, tuple(codes)))
            else:
                assert isinstance(packet, Unsubscribe)
                for filt in packet.filters:
                    self.subs.pop(filt, None)
                self.answers.append(Unsuback(packet.packet_id))


class Disk:
    """`rows`: what is on it. A commit ends at `go`; one that is not kept back ends at once."""

    def __init__(self) -> None:
        self.rows: dict[str, KeptSub] = {}
        self.waiting: deque[tuple[Sequence[StoreRecord], asyncio.Future[list[Any]]]] = deque()

    async def commit(self, records: Sequence[StoreRecord]) -> list[Any]:
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self.waiting.append((records, future))
        return await future

    def go(self) -> None:
        """The oldest commit is done."""
        records, future = self.waiting.popleft()
        for record in records:
            if isinstance(record, KeptSub):
                self.rows[record.filter] = record
            elif isinstance(record, KeptSubGone):
                self.rows.pop(record.filter, None)
        future.set_result([])


class Scene:
    """`told`: what the client was sent, `refused`: notices with their rules."""

    def __init__(self, kept: Sequence[KeptSub] | None = None, shared: bool = True) -> None:
        self.gate = Gate()
        self.site = Site(FACTORY, self.gate)
        self.engine = self.site.engine
        self.broker = Broker()
        self.disk = Disk()
        self.told: list[Packet] = []
        self.refused: list[tuple[str, str]] = []
        self.closed = ""
        self._tasks: list[asyncio.Task[None]] = []
        self._client = Decoder(1 << 20, "client")
        self.hub: Any = SimpleNamespace(
            broker_takes=BrokerTakes(),
            engine=self.engine,
            broker=BrokerAddress("", 0, shared=shared),
            store=self.disk,
            audit=SimpleNamespace(write=lambda *_, **__: None, count_unenforced=lambda *_: None),
            now_ms=lambda: self.site.now,
            by_policy={},
            changing={},
            rewriting=None,
            due={},
        )
        self.hub._follow_some = lambda: Hub._follow_some(cast(Hub, self.hub))
        self.conn: Any = SimpleNamespace(
            hub=self.hub,
            state="open",
            client=SimpleNamespace(number=5, name="monitor", label=LABEL),
            client_id="id",
            token_low=0,
            link=SimpleNamespace(token=lambda op, qos, text, low: (text, 7)),
            policy=self.site.conn("monitor"),
            publishing=SimpleNamespace(underway=SimpleNamespace(holds=lambda number: None)),
            upstream=self.broker,
            send=lambda data: self.told.extend(self._client.feed(data)),
            refuse=self._refuse,
            spawn=self._spawn,
            stop=self._close,
            close=self._close,
        )
        self.conn.kept_subs = KeptSubs(self.conn)  # type: ignore[arg-type]
        self.subscribing = Subscribing(self.conn)  # type: ignore[arg-type]
        self.conn.subscribing = self.subscribing
        self.hub.by_policy[self.conn.policy] = self.conn
        if kept is not None:
            self.disk.rows = {row.filter: row for row in kept}
            self.broker.subs = {row.at: row.qos for row in kept if row.at}
            self.conn.kept_subs.begin(kept)
            self.subscribing.restore(self.conn.kept_subs.rows)

    def _refuse(
        self, what: int, error: SealError, rule: str, event: str = "", topic: str = ""
    ) -> None:
        self.refused.append((rule, topic))

    def _close(self, reason: str) -> None:
        self.closed, self.conn.state = reason, "closed"

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    # --- what happens ---

    def subscribe(self, number: int, *filters: tuple[str, int]) -> None:
        self.subscribing.subscribe(Subscribe(number, filters))

    def unsubscribe(self, number: int, *filters: str) -> None:
        self.subscribing.unsubscribe(Unsubscribe(number, filters))

    def apply(self, records: list[Any]) -> None:
        """As the hub does it behind a commit."""
        Hub.apply(self._as_hub(), records)

    def _as_hub(self) -> Any:
        self.hub.follow = lambda: Hub.follow(self.hub)
        return self.hub

    def answer(self) -> None:
        """The broker's oldest answer comes."""
        packet = self.broker.answers.popleft()
        if isinstance(packet, Suback):
            self.subscribing.granted(packet)
        else:
            assert isinstance(packet, Unsuback)
            self.subscribing.left(packet)

    def settle(self) -> None:
        """All answers come. For sessions that are not kept."""
        while self.broker.answers:
            self.answer()

    async def settled(self) -> None:
        """All answers come and all commits end."""
        while True:
            for _ in range(5):
                await asyncio.sleep(0)
            if self.disk.waiting:
                self.disk.go()
            elif self.broker.answers:
                self.answer()
            else:
                return

    # --- what came of it ---

    @property
    def acks(self) -> list[tuple[str, int, tuple[int, ...]]]:
        """What the client was told, short."""
        rows: list[tuple[str, int, tuple[int, ...]]] = []
        for packet in self.told:
            if isinstance(packet, Suback):
                rows.append(("suback", packet.packet_id, tuple(packet.codes)))
            else:
                assert isinstance(packet, Unsuback), packet
                rows.append(("unsuback", packet.packet_id, ()))
        return rows
