"""A client of the doctor's, packet by packet: honest unless a try wants it otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import time
from typing import TypeVar

from sealmq.client.cipher import make
from sealmq.client.opening import connect
from sealmq.client.seal import seal_message
from sealmq.mqtt import (
    Connack,
    Decoder,
    MqttError,
    Packet,
    Pingresp,
    Puback,
    Publish,
    Suback,
    Unsuback,
    build,
)
from sealmq_spec.const import (
    CONTROL,
    LIVE,
    OP_COMMAND,
    OP_NOTICE,
    OP_RECORD,
    OP_REPLY,
    OP_WELCOME,
    READY,
    RETAINED,
    UNSUBSCRIBE,
)
from sealmq_spec.errors import SealError
from sealmq_spec.identity import Identity
from sealmq_spec.reader import Reader
from sealmq_spec.session import Session

from .errors import Broken

# Only what is silently dropped is waited for so long; a healthy mediator answers all of it.
WAIT_S = 15.0
_TRIES, _PAUSE_S = 100, 0.05
_MOST = 1 << 20

P = TypeVar("P")


class Canary:
    """One identity, and one connection at a time. `hello`: the last honest CONNECT."""

    def __init__(self, identity: Identity, host: str, port: int, name: str, boot: int = 0) -> None:
        self.session = Session(identity, make, boot or _boot(), os.urandom(8))
        self.host, self.port, self.name = host, port, name
        self.client_id = f"{name}-{os.urandom(4).hex()}"
        self.hello = b""
        self._told: list[str] = []
        self._replied = False
        self._open = False
        self._reader = self._new_reader()
        # What came last on each topic, as it came.
        self.came: dict[str, bytes] = {}
        # What a family has answered last.
        self.answer = b""
        self._ids = itertools.count(1)
        self._wire: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._decoder = Decoder(_MOST, "client")
        self._held: list[Packet] = []

    def again(self, host: str = "", port: int = 0) -> Canary:
        """The same identity after a restart: another boot session, not yet connected.

        host, port: where it will connect to, if not where this one does.
        """
        session = self.session
        return Canary(
            session.ident, host or self.host, port or self.port, self.name, session.boot + 1
        )

    def close(self) -> None:
        """Hang up, with a DISCONNECT."""
        if self._wire is not None:
            with contextlib.suppress(OSError):
                self._wire[1].write(build.disconnect())
            self._wire[1].close()
            self._wire = None

    # --- what goes out ---

    async def connect(self) -> None:
        """An honest CONNECT up to its welcome. Broken when that does not come."""
        self.hello = self.make_hello()
        code = await self.knock(self.hello)
        if code:
            raise Broken(f"CONNACK {code} to an honest client")
        if not await self.welcomed():
            raise Broken("no valid welcome behind CONNACK 0")

    def make_hello(self) -> bytes:
        """A CONNECT that counts once it is sent."""
        return connect(self.session, self.client_id, True, 30, None, False, 0, mono())

    async def pinged(self) -> bool:
        """Whether the other end serves this connection."""
        self.send(build.pingreq())
        try:
            await self._next(Pingresp)
        except Broken:
            return False
        return True

    async def knock(self, hello: bytes) -> int:
        """A new connection with these bytes: CONNACK's code. Broken when it ends without one."""
        self.close()
        self._open = False
        self._decoder, self._held = Decoder(_MOST, "client"), []
        try:
            async with asyncio.timeout(WAIT_S):
                self._wire = await asyncio.open_connection(self.host, self.port)
        except (OSError, TimeoutError) as error:
            raise Broken(f"{self.host}:{self.port} takes no connection: {error}") from None
        self.send(hello)
        return (await self._next(Connack)).code

    async def welcomed(self) -> bool:
        """Whether a valid welcome comes next, that lets in."""
        # Who knows of no welcome answers this first, so that nothing is waited for in vain.
        self.send(build.pingreq())
        try:
            packet = await self._next(object)
            if not isinstance(packet, Publish) or packet.topic_raw != CONTROL:
                return False
            op, status = self.session.down(packet.payload, mono())
            if (op, status) != (OP_WELCOME, READY):
                return False
            self._open = True
            await self._next(Pingresp)
        except (Broken, SealError):
            return False
        return True

    def send(self, data: bytes) -> None:
        """These bytes."""
        if self._wire is not None:
            self._wire[1].write(data)

    def seal(self, topic: str, payload: bytes, *, retain: bool = False, kind: int = LIVE) -> bytes:
        """An m2 of QoS 1, honest for this topic."""
        if retain and kind == LIVE:
            kind = RETAINED
        flags = 2 | retain
        return bytes(seal_message(self.session, topic.encode(), payload, flags, kind, 0, mono())[1])

    async def publish(self, topic: str, m2: bytes, *, retain: bool = False) -> str | None:
        """PUBLISH at QoS 1: None when it is acknowledged and no refusal told, else the refusal.

        That is a rule, or "" where the mediator said nothing, or hung up.
        """
        packet_id = next(self._ids)
        self._told.clear()
        publish = build.publish(topic.encode(), m2, 1, retain, packet_id=packet_id)
        self.send(publish + build.pingreq())
        with contextlib.suppress(Broken):
            # A notice comes before PINGRESP; the broker's PUBACK may come behind it.
            await self._next(Pingresp)
            if not self._told:
                await self._next(Puback)
                return self._told[0] if self._told else None
        return self._told[0] if self._told else ""

    async def command(self, family: str, command: str) -> str | None:
        """A policy family's command: None when it is answered, else its refusal as in publish."""
        body = bytes((OP_COMMAND, len(family))) + family.encode() + command.encode()
        self._told.clear()
        self._replied = False
        self.send(build.publish(CONTROL, self.session.up(body, mono())))
        # It may have to wait for the disk, and for other workers; PINGRESP does not.
        with contextlib.suppress(Broken):
            for _ in range(_TRIES):
                self.send(build.pingreq())
                await self._next(Pingresp)
                if self._told or self._replied:
                    break
                await asyncio.sleep(_PAUSE_S)
        if self._told:
            return self._told[0]
        return None if self._replied else ""

    async def unsubscribe(self, filt: str) -> None:
        """Leave it."""
        with_token, _ = self.session.token(filt, 0, UNSUBSCRIBE)
        self.send(build.unsubscribe(next(self._ids), [with_token]))
        await self._next(Unsuback)

    async def subscribe(self, filt: str) -> bool:
        """Whether the subscription, at QoS 1, is granted."""
        with_token, _ = self.session.token(filt, 1)
        self.send(build.subscribe(next(self._ids), [(with_token, 1)]))
        return (await self._next(Suback)).codes != (0x80,)

    async def heard(self, last: bytes) -> list[tuple[str, bytes | None]]:
        """(topic, payload) of what came before the payload `last`; None: it does not open."""
        found: list[tuple[str, bytes | None]] = []
        while True:
            packet = await self._next(Publish)
            self.send(build.puback(packet.packet_id) if packet.qos else b"")
            self.came[packet.topic] = packet.payload
            payload = self._plain(packet)
            if payload == last:
                return found
            found.append((packet.topic, payload))

    def opens(self, topic: str, m3: bytes) -> bool:
        """Whether what another client was sent opens for this one, as if it had come first."""
        now = self.session.now_ms(mono())
        try:
            self._new_reader().open(topic.encode(), bytearray(m3), now)
        except SealError:
            return False
        return True

    # --- what comes in ---

    def _new_reader(self) -> Reader:
        reader = Reader(self.session.ident, make)
        # With what is sealed to its link.
        reader.session = self.session
        return reader

    def _plain(self, packet: Publish) -> bytes | None:
        now = self.session.now_ms(mono())
        try:
            said = self._reader.open(packet.topic_raw, bytearray(packet.payload), now)
            payload: bytes = said.payload
            return payload
        except SealError:
            return None

    async def _next(self, kind: type[P]) -> P:
        try:
            async with asyncio.timeout(WAIT_S):
                while True:
                    for at, packet in enumerate(self._held):
                        if isinstance(packet, kind):
                            del self._held[at]
                            return packet
                    await self._more()
        except TimeoutError:
            raise Broken(f"no {kind.__name__.upper()} within {WAIT_S:g} s") from None
        except (OSError, MqttError, SealError):
            raise Broken(f"the connection ended where {kind.__name__.upper()} was due") from None

    async def _more(self) -> None:
        if self._wire is None:
            raise ConnectionResetError
        chunk = await self._wire[0].read(65536)
        if not chunk:
            raise ConnectionResetError
        for packet in self._decoder.feed(chunk):
            if self._open and isinstance(packet, Publish) and packet.topic_raw == CONTROL:
                self._control(packet.payload)
            else:
                self._held.append(packet)

    def _control(self, payload: bytes) -> None:
        op, what = self.session.down(payload, mono())
        if op == OP_NOTICE:
            self._told.append(what[3] or what[4])
        elif op == OP_REPLY:
            self._replied, self.answer = True, what[1]
        elif op == OP_RECORD:
            self._reader.add(what)


# Each run a higher one: a mediator takes no retained message that is older than one it has seen of
# the sender, by second, boot and counter.
def _boot() -> int:
    return int(time.time() * 4) % 0x800000 + 1


def mono() -> int:
    """Milliseconds that only rise."""
    return time.monotonic_ns() // 1_000_000
