"""Brokers for the tests of links: real ones, and one that does as a script says."""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from broker.peers import BrokerProcess, until
from sealmq.broker import mosquitto
from sealmq.mediator.links import BrokerAddress
from sealmq.mqtt import (
    Connect,
    Decoder,
    Packet,
    Pingreq,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Unsubscribe,
    build,
)
from sealmq.site.model import Limits

WAIT_S = 15.0


@contextlib.contextmanager
def real_mosquitto(folder: Path, *changed: str) -> Iterator[BrokerAddress]:
    """A private one of this machine on a Unix socket; `changed`: lines instead of its own."""
    names = {line.split()[0] for line in changed}
    kept = [x for x in mosquitto.kept(folder, Limits()) if x.split()[0] not in names]
    where = folder / "m.sock"
    lines = [f"listener 0 {where}", "allow_anonymous true", "user root", *kept, *changed]
    config = folder / "mosquitto.conf"
    config.write_text("\n".join(lines) + "\n")
    program = mosquitto.find().path
    log = (folder / "log").open("wb")
    process = subprocess.Popen([program, "-c", str(config)], stderr=log, stdout=log)
    try:
        until(lambda: _listens(where) or process.poll() is not None, "mosquitto to listen")
        assert process.poll() is None, (folder / "log").read_text()
        yield BrokerAddress("127.0.0.1", 1, unix=where, inflight=1000)
    finally:
        process.terminate()
        process.wait(30)
        log.close()


def _listens(where: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as sock:
        return sock.connect_ex(str(where)) == 0


@contextlib.contextmanager
def real_amqtt() -> Iterator[BrokerAddress]:
    """The embedded broker's process."""
    made = BrokerProcess.start()
    try:
        given = made.credentials
        address = BrokerAddress("127.0.0.1", made.port, given.user, given.password)
        yield replace(address, inflight=1000)
    finally:
        made.stop()


Does = Callable[[Packet, "Peer"], bool]
"""Deals with a packet that has come, or leaves it to the peer (False)."""


@dataclass(eq=False)
class Peer:
    """One connection to the scripted broker."""

    broker: Scripted
    number: int
    writer: asyncio.StreamWriter
    client_id: str = ""
    came: list[Packet] = field(default_factory=list)

    def send(self, data: bytes) -> None:
        """Bytes to the link."""
        if not self.writer.is_closing():
            self.writer.write(data)

    def kill(self) -> None:
        """As if the broker were killed."""
        self.writer.transport.abort()

    @property
    def gone(self) -> bool:
        return self.writer.is_closing()

    def answer(self, packet: Packet) -> None:
        """As a good broker does that keeps no subscriptions."""
        match packet:
            case Connect():
                self.client_id = packet.client_id
                self.send(build.connack(False, 0))
            case Pingreq():
                self.send(build.pingresp())
            case Publish(qos=1):
                self.send(build.puback(packet.packet_id))
            case Publish(qos=2):
                self.send(build.pubrec(packet.packet_id))
            case Pubrel():
                self.send(build.pubcomp(packet.packet_id))
            case Pubrec():
                self.send(build.pubrel(packet.packet_id))
            case Subscribe():
                codes = [min(2, qos) for _, qos in packet.filters]
                self.send(build.suback(packet.packet_id, codes))
            case Unsubscribe():
                self.send(build.unsuback(packet.packet_id))


class Scripted:
    """A broker on a Unix socket. `does` may deal with what comes; what it leaves is answered."""

    def __init__(self, folder: Path) -> None:
        self.address = BrokerAddress("127.0.0.1", 1, unix=folder / "scripted.sock")
        self.does: Does = lambda packet, peer: False
        self.peers: list[Peer] = []
        # (connection, what came), and what each read brought.
        self.came: list[tuple[int, Packet]] = []
        self.reads: list[int] = []
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Scripted:
        await self.start()
        return self

    async def __aexit__(self, *about: object) -> None:
        self.stop()

    async def start(self) -> None:
        """Listens."""
        where = self.address.unix
        if where is None:
            raise RuntimeError("a scripted broker has a Unix socket")
        where.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, where)

    def stop(self) -> None:
        """As if it were killed."""
        if self._server is not None:
            self._server.close()
        for peer in self.peers:
            peer.kill()

    def of(self, client_id: str) -> list[Peer]:
        """Its connections, the oldest first."""
        return [peer for peer in self.peers if peer.client_id == client_id]

    def published(self) -> list[Publish]:
        """All that came, over whatever connection."""
        return [packet for _, packet in self.came if isinstance(packet, Publish)]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(self, len(self.peers), writer)
        self.peers.append(peer)
        decoder = Decoder(1 << 22, connect_first=True)
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 20):
                self.reads.append(len(data))
                for packet in decoder.feed(data):
                    if peer.gone:
                        return
                    peer.came.append(packet)
                    self.came.append((peer.number, packet))
                    if not self.does(packet, peer):
                        peer.answer(packet)
        writer.close()


class _Skipping(selectors.DefaultSelector):
    """Where nothing is ready it does not wait: `now` goes on by the time that it was to wait."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(timeout and 0)
        if not ready and timeout:
            self.now += timeout
        return ready


class OwnTime(asyncio.SelectorEventLoop):
    """A loop whose time goes on only when all of a story waits: no machine is too slow for it, and
    no second is waited for. For a story that talks over Unix sockets with itself alone: what it
    sends is there at once.
    """

    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        """Seconds of the story."""
        return self._skipping.now


def played(
    story: Coroutine[Any, Any, None],
    wait_s: float = WAIT_S,
    loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    """Run a story, for wait_s seconds at most. loop: what makes its event loop (None: asyncio)."""

    async def run() -> None:
        async with asyncio.timeout(wait_s):
            await story

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


async def so(true: Callable[[], bool]) -> None:
    """Waits until it is so; the story's time ends that."""
    while not true():  # noqa: ASYNC110 - of whatever is to become so
        await asyncio.sleep(0.002)


@contextlib.asynccontextmanager
async def running(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Links that run meanwhile."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end
