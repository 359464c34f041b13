"""The device client, whole, on this interpreter: what a network and a mediator may send it.

An input is a script: what a peer answers to CONNECT, to a request for roots, to a PUBLISH, what it
sends besides, well sealed or not, and what the application does meanwhile. Only SealError and
OSError come out, and everything that the client keeps is bounded.
"""

from __future__ import annotations

import binascii
import socket
import struct
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from sealmq.aead import make
from sealmq.mqtt import build
from sealmq_spec import control, keys, provision
from sealmq_spec.b64 import put_b64u
from sealmq_spec.const import CONTROL, USE_DOWN
from sealmq_spec.errors import SealError

from . import reader
from .packets import KEY, SITE, client
from .target import Draw, Finding, Target

_ROOT = Path(__file__).resolve().parents[2]
_TICKS = 1 << 30
_BOUNDS = {"_queue": 16, "notices": 8, "unacked": 8, "refused": 16, "_topics": 32}


def _like_micropython() -> None:
    """The modules that MicroPython has besides; umqtt.simple as `make setup` fetched it."""

    def module(name: str, **content: Any) -> None:
        made = types.ModuleType(name)
        vars(made).update(content)
        sys.modules.setdefault(name, made)

    for folder in ("firmware", "build/micropython/lib"):
        sys.path.append(str(_ROOT / folder))
    vars(time).setdefault("ticks_ms", lambda: time.monotonic_ns() // 1_000_000 % _TICKS)
    vars(time).setdefault("ticks_add", lambda a, b: (a + b) % _TICKS)
    module("micropython", const=lambda value: value)
    module("ustruct", **vars(struct))
    module("ubinascii", **vars(binascii))
    module("usocket", **vars(socket))
    module("sealmq_device.aead", make=make)
    module("sealmq_device.text64", put_b64u=put_b64u)


class _Wire:
    """A socket whose other end is the input."""

    def __init__(self, peer: _Peer) -> None:
        self.peer = peer
        self.ready = bytearray()
        self.open = True
        self.waits = True

    def settimeout(self, seconds: float | None) -> None:
        self.waits = seconds is None or seconds > 0

    def readinto(self, buf: bytearray) -> int | None:
        """As MicroPython's: None when nothing is there yet, and at the end too few."""
        size = min(len(buf), len(self.ready))
        if not size and not self.waits:
            return None
        buf[:size] = self.ready[:size]
        del self.ready[:size]
        return size

    def write(self, buf: bytes, at: int = 0, size: int | None = None) -> int:
        written = bytes(buf[at:] if size is None else buf[at : at + size])
        self.peer.hears(written)
        return len(written)

    def close(self) -> None:
        self.open = False


class _Store:
    """What the client keeps, in memory."""

    def __init__(self) -> None:
        ident = client()
        ident.own = reader.roots(16, 2)
        self._state, self._boot = ident.dump() + bytes(12), 0

    def enrolment(self) -> dict[str, Any]:
        at = {"number": 1, "host": "h", "port": 1883}
        return {
            "sealmq": 1, "site": SITE.hex(), "client": 7, "name": "c", "ps": KEY.hex(),
            "suite": 1, "mediator": at,
        }  # fmt: skip

    def state(self) -> bytes:
        return self._state

    def put_state(self, blob: bytes) -> None:
        self._state = blob

    def boot(self) -> int:
        return self._boot

    def put_boot(self, number: int) -> None:
        self._boot = number


class _Peer:
    """Mediator and network, as the input has them."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.order = 0
        self.client: Any = None
        self.wire: Any = None

    def hears(self, packet: bytes) -> None:
        """Answers what the client wrote; a good answer where the input says 0."""
        first, draw = packet[0], self.draw
        odd = draw.number() % 8
        if odd == 7:
            self.wire.ready += draw.chunk()
        elif first == 0x10:
            self.wire.ready += build.connack(False, 5 if odd == 6 else 0)
            if odd < 6:
                ms = 1_800_000_000_000 + draw.number() * 1000
                body = control.welcome(odd == 5, ms, draw.number(), 0, 0, 2 + (odd == 4), 4, b"\0")
                self.down(body if odd < 3 or odd > 3 else draw.chunk())
        elif packet[4:7] == CONTROL and packet[7:8] == b"\x1a":
            self._answer(packet[7:], odd)
        elif first & 0xF0 == 0x30 and first & 6:
            at = packet.find(b"\x12") - 2
            self.wire.ready += b"\x40\x02" + packet[at : at + 2]
        elif first == 0x82:
            self.wire.ready += b"\x90\x03" + packet[2:4] + bytes((odd % 4,))

    def down(self, body: bytes) -> None:
        """A control packet of this connection."""
        s = self.client.session
        i = s.ident
        key = keys.link_key(SITE, USE_DOWN, i.suite, i.mediator, s.boot, s.salt, i.km)
        self.order += 1
        order = keys.u24(9) + bytes(6) + keys.u24(self.order)
        packet = control.seal_down(make(1, key), 1, order, SITE, 7, i.mediator, s.conn, body)
        self.wire.ready += build.publish(CONTROL, packet)

    def _answer(self, ask: bytes, odd: int) -> None:
        _, _, held, _, nonce = provision.get_ask(ask)
        own = reader.roots(16, 2 + odd % 3)
        body = provision.body(
            held + 1, 16, own.epoch, 1, 1, 1, 5, 10**12, own.r, own.r_bar, KEY, b"\0"
        )
        status = odd if odd == 6 else 0
        answer = provision.answer(make, SITE, KEY, 1, status, 7, nonce, b"o" * 12, body)
        self.wire.ready += build.publish(CONTROL, answer)


class Fuzz(Target):
    """Connects, then up to twelve steps."""

    longest: ClassVar[int] = 1200
    words: ClassVar[tuple[bytes, ...]] = (b"\x30", b"\x40\x02\0\1", b"\0\3!c1", b"\x20\x02\0\0")
    # Messages that the last input's application got.
    delivered = 0

    def __init__(self) -> None:
        _like_micropython()
        from sealmq_device import Client

        self._kind: Any = Client
        self._messages = reader.Fuzz()

    def one(self, data: bytes) -> None:
        self.delivered = 0
        peer = _Peer(Draw(data))
        c = peer.client = self._kind(_Store(), make, 0, 600, 1)
        now = 0
        c.mono = lambda: now

        def opened() -> None:
            c._close()
            c.sock = peer.wire = _Wire(peer)

        def got(message: Any) -> None:
            self.delivered += 1

        c._open, c.cb = opened, got
        steps = 0
        while steps == 0 or (steps <= 12 and peer.draw.more()):
            steps += 1
            try:
                if steps == 1 or c.sock is None:
                    c.connect()
                now += self._step(c, peer)
            except (SealError, OSError):
                continue
        for name, bound in _BOUNDS.items():
            if len(getattr(c, name)) > bound:
                raise Finding(f"{name} has {len(getattr(c, name))} entries, at most {bound}")

    def _step(self, c: Any, peer: _Peer) -> int:
        """One thing that the peer sends and one that the application does; time that passes."""
        draw = peer.draw
        sends = draw.number() % 4
        if sends == 0:
            peer.wire.ready += draw.chunk()
        elif sends == 1:
            peer.down(draw.chunk())
        elif sends == 2:
            topic = draw.pick(reader.TOPICS)
            m3 = self._messages.message(draw, topic, reader.NOW, reader.link_key(c.session))
            flags = draw.number() % 8
            qos = min(flags >> 1, 2)
            peer.wire.ready += build.publish(topic, m3, qos, flags & 1 == 1, False, 7 if qos else 0)
        does = draw.number() % 8
        if does < 4:
            for _ in range(1 + does):
                c.check_msg()
        elif does == 4:
            c.publish("a/b", draw.chunk(), draw.number() % 2 == 1, draw.number() % 2)
        elif does == 5:
            c.subscribe("a/+", draw.number() % 2)
        elif does == 6:
            c.resend()
        else:
            return draw.number(2)
        return 1

    def seeds(self) -> Iterator[bytes]:
        """A good connection; then a message, control packets, a publish, a rekey."""
        good = b"\0\0\0"
        message = b"\2\0" + reader.sample()[2:] + b"\0\1"
        publish = b"\3\4\3abc\0\1\0"
        yield good + message + message

        def told(body: bytes) -> bytes:
            return b"\1" + bytes((len(body),)) + body + b"\0"

        yield good + told(bytes((4,)) + keys.u24(16) + keys.u24(3) + bytes(8)) + b"\3\0\1" + message
        for body in (control.receipt(1, 1), control.notice(1, 1, 6, "r", "no")):
            yield good + publish + told(body) + publish + b"\3\6"
        yield good + b"\3\5\1\0" + publish + message
        yield good + b"\0\2\xd0\0\0" + message
        yield b"\4\0\0\1" + message
        yield b"\6\0\0\0" + message
