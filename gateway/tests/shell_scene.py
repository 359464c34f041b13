"""A whole worker of the mediator on a loopback socket, with a real broker, store and journal, and
clients that speak MQTT to it over real sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from core_world import CONFIG, TOPIC
from links_scene import running
from mediator_world import World, hello, sealed
from sealmq.aead import make
from sealmq.audit import Audit
from sealmq.families.engine import Engine
from sealmq.families.labels.family import Labels
from sealmq.families.records import TopicLabel
from sealmq.mediator.links import BrokerAddress
from sealmq.mediator.locks import RowLocks
from sealmq.mediator.mediator import Mediator
from sealmq.mediator.shared import Begin
from sealmq.mediator.single import SingleStore
from sealmq.mqtt import Connack, Decoder, Packet, Publish, Pubrec, Pubrel, Will, build
from sealmq.site.check import parse
from sealmq.site.layout import Layout
from sealmq.store import Store
from sealmq_spec.const import CONTROL, WILL
from sealmq_spec.reader import Reader
from sealmq_spec.session import Session

WAIT_S = 20.0


class Worker:
    """`mediator` serves at `port`."""

    def __init__(self, world: World, mediator: Mediator, audit: Audit) -> None:
        self.world, self.mediator, self.audit = world, mediator, audit
        self.port = 0
        self.clients: list[Client] = []

    async def client(self, number: int, client_id: str = "id", **more: Any) -> Client:
        """A client whose session is open."""
        made = Client(self, number, client_id)
        await made.connect(**more)
        return made


class Client:
    """`got`: all packets that came, except control packets; `heard`: the payloads of messages,
    opened. `over`: its connection has ended.
    """

    def __init__(self, worker: Worker, number: int, client_id: str) -> None:
        self._worker, self.client_id = worker, client_id
        # Each has a boot session of its own.
        self.session: Session = worker.world.session(number, len(worker.clients) + 1)
        self.session._offset = time.time_ns() // 1_000_000
        self.opener = Reader(self.session.ident, make)
        self.opener.session = self.session
        self.got: list[Packet] = []
        self.heard: list[bytes] = []
        self.over = False
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        worker.clients.append(self)

    async def connect(self, clean: bool = True, will: Will | None = None) -> None:
        """Returns once its session is open."""
        await self.begin(clean, will)
        [answer] = await self.came("connack")
        if not isinstance(answer, Connack) or answer.code:
            raise ConnectionError(f"the mediator refuses the connection: {answer}")

    async def begin(self, clean: bool = True, will: Will | None = None) -> None:
        """Sends a CONNECT with a proof."""
        await self.opens()
        self.writer.write(hello(self.session, self.client_id, clean, will))

    async def opens(self) -> None:
        """A connection, over which nothing was sent."""
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._worker.port)
        self.over = False
        self._task = asyncio.create_task(self._read())

    def will(self, payload: bytes) -> Will:
        """A will, sealed."""
        return Will(TOPIC, sealed(self.session, TOPIC, payload, 2, kind=WILL), 1, False)

    def send(self, data: bytes) -> None:
        """Bytes to the mediator."""
        self.writer.write(data)

    def publish(self, payload: bytes, qos: int = 0, packet_id: int = 0, topic: str = TOPIC) -> None:
        """A message, sealed."""
        m2 = sealed(self.session, topic, payload, qos << 1)
        self.send(build.publish(topic.encode(), m2, qos, packet_id=packet_id))

    async def ping(self) -> None:
        """Returns after PINGRESP."""
        self.send(build.pingreq())
        await self.came("pingresp")

    async def subscribe(self, filt: str, qos: int) -> None:
        """Returns after SUBACK."""
        text = self.session.token(filt, qos)[0]
        self.send(build.subscribe(1, [(text, qos)]))
        await self.came("suback")

    async def came(self, kind: str, count: int = 1) -> list[Packet]:
        """Waits for so many packets of a kind, by its name, and takes them out."""

        def found() -> list[Packet]:
            return [packet for packet in self.got if type(packet).__name__.lower() == kind]

        await self.until(lambda: len(found()) >= count)
        some = found()[:count]
        for packet in some:
            self.got.remove(packet)
        return some

    async def until(self, true: Callable[[], bool]) -> None:
        """Waits until this holds, after something has come."""
        while not true():
            self._news.clear()
            await self._news.wait()

    async def ended(self) -> None:
        """Waits until the mediator has hung up."""
        await self.until(lambda: self.over)

    def hang_up(self) -> None:
        """Ends, after all that it has sent, without a DISCONNECT."""
        self.writer.write_eof()

    def cut(self) -> None:
        """Cuts its connection."""
        self.writer.transport.abort()

    async def close(self) -> None:
        """Returns when all of it has ended."""
        if self._task is not None:
            self.cut()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self) -> None:
        decoder = Decoder(1 << 24, "client")
        with contextlib.suppress(OSError):
            while data := await self.reader.read(65536):
                for packet in decoder.feed(data):
                    self._take(packet)
                self._news.set()
        self.over = True
        self._news.set()

    def _take(self, packet: Packet) -> None:
        if isinstance(packet, Publish) and packet.topic_raw == CONTROL:
            self.session.down(packet.payload, 0)
            return
        self.got.append(packet)
        if isinstance(packet, Publish):
            now = self.session.now_ms(0)
            message = self.opener.open(packet.topic_raw, bytearray(packet.payload), now)
            self.heard.append(bytes(message.payload))
            if packet.qos:
                answer = build.puback if packet.qos == 1 else build.pubrec
                self.send(answer(packet.packet_id))
        elif isinstance(packet, Pubrec):
            self.send(build.pubrel(packet.packet_id))
        elif isinstance(packet, Pubrel):
            self.send(build.pubcomp(packet.packet_id))


async def _nobody_else() -> None:
    """No other worker has kept sessions."""


@contextlib.asynccontextmanager
async def worker(folder: Path, address: BrokerAddress) -> AsyncIterator[Worker]:
    """A worker that lets clients in."""
    world = World()
    engine = Engine([Labels()])
    layout = Layout.of(folder / "site")
    state = layout.state_of("mediator")
    state.mkdir(parents=True)
    store = Store.open(state / "mediator.db")
    audit = Audit(folder / "audit", "mediator", world.ring.inst, world.ring.site.hex(), strict=True)
    config = parse(CONFIG)
    records = engine.load(config, [TopicLabel(TOPIC, "low", "sensor", 0)])
    begin = Begin(layout, config, world.ring, 0, 1, {}, False)
    shared: Any = SimpleNamespace(
        store=SingleStore(store),
        locks=RowLocks(),
        kg=None,
        passed=lambda *words: None,
        took=lambda *words: None,
        live=lambda *words: None,
        marked=lambda *words: None,
        reopened=_nobody_else,
    )
    mediator = Mediator(begin, shared, engine, audit, address)
    await mediator.policy.commit(list(records))
    made = Worker(world, mediator, audit)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: mediator.channel(b""), "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        async with asyncio.timeout(WAIT_S), running(*mediator.run()):
            await mediator.control.ready.wait()
            while mediator.away is not None:  # noqa: ASYNC110 - of whichever link
                await asyncio.sleep(0.002)
            yield made
            for client in made.clients:
                await client.close()
            mediator.stop("the test is over")
            await mediator.settle()
    finally:
        server.close()
        await mediator.close()
        audit.close()
        store.close()
