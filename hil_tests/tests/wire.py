"""A client down at the bytes, for attackers: honest where a test wants it, and every byte at hand.

MQTT packets are written here by hand, ciphers come from `cryptography`; only the protocol's own
package is ours. Nothing retries, nothing hides an error.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, ChaCha20Poly1305
from sealmq_spec.identity import Identity
from sealmq_spec.provision import ask
from sealmq_spec.session import Session

CONTROL = b"!c1"


class Cipher:
    """The port of sealmq_spec.aead on `cryptography`."""

    def __init__(self, suite: int, key: bytes) -> None:
        self._cipher = AESCCM(key, 16) if suite == 1 else ChaCha20Poly1305(key)

    def seal_into(self, nonce: bytes, aad: bytes, buf: bytearray, start: int, n: int) -> None:
        buf[start : start + n + 16] = self._cipher.encrypt(
            nonce, bytes(buf[start : start + n]), aad
        )

    def open_into(self, nonce: bytes, aad: bytes, buf: bytearray, start: int, n: int) -> bool:
        try:
            plain = self._cipher.decrypt(nonce, bytes(buf[start : start + n + 16]), aad)
        except InvalidTag:
            buf[start : start + n] = bytes(n)
            return False
        buf[start : start + n] = plain
        return True


def mono() -> int:
    """Milliseconds that only rise."""
    return time.monotonic_ns() // 1_000_000


def length(n: int) -> bytes:
    """MQTT's remaining length."""
    out = bytearray()
    while True:
        n, digit = n >> 7, n & 127
        out.append(digit | (128 if n else 0))
        if not n:
            return bytes(out)


def text(raw: bytes) -> bytes:
    """A string with its two bytes of length."""
    return struct.pack(">H", len(raw)) + raw


def packet(first: int, body: bytes) -> bytes:
    """Fixed header and body."""
    return bytes((first,)) + length(len(body)) + body


def connect(
    client_id: bytes,
    password: bytes,
    user: bytes = b"sealmq1",
    will: bytes = b"",
    flags: int = 0xC2,
    keepalive: int = 60,
) -> bytearray:
    """CONNECT; `will` is topic and message as they stand in the payload."""
    body = text(b"MQTT") + bytes((4, flags)) + struct.pack(">H", keepalive)
    return bytearray(packet(0x10, body + text(client_id) + will + text(user) + text(password)))


def publish(topic: bytes, payload: bytes, first: int = 0x30, pid: int = 0) -> bytes:
    """PUBLISH; `first` holds DUP, QoS and RETAIN."""
    middle = struct.pack(">H", pid) if first & 6 else b""
    return packet(first, text(topic) + middle + payload)


def split(data: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """The whole packets as (first byte, body) that stand in `data`, and the rest."""
    packets: list[tuple[int, bytes]] = []
    at = 0
    while True:
        size, shift, o = 0, 0, at + 1
        while o < len(data):
            size |= (data[o] & 127) << shift
            shift, o = shift + 7, o + 1
            if data[o - 1] < 128:
                break
        else:
            return packets, data[at:]
        if len(data) < o + size:
            return packets, data[at:]
        packets.append((data[at], data[o : o + size]))
        at = o + size


class Wire:
    """A TCP connection to the mediator and whole packets read off it."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 60)
        self._held = b""
        self._packets: deque[tuple[int, bytes]] = deque()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes | bytearray) -> None:
        """Everything; a mediator that has hung up already is no error here."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def read(self) -> tuple[int, bytes] | None:
        """The next packet as (first byte, body); None when the mediator has closed."""
        while not self._packets:
            try:
                more = self.socket.recv(65536)
            except ConnectionResetError:
                return None
            if not more:
                return None
            packets, self._held = split(self._held + more)
            self._packets.extend(packets)
        return self._packets.popleft()

    def closed(self) -> bool:
        """Reads until the mediator closes; its last packets are dropped."""
        while self.read() is not None:
            pass
        return True


class RawClient:
    """A client with an enrolment: provisions, connects and seals like an honest one."""

    def __init__(self, port: int, enrolment: Path) -> None:
        self.port = port
        self.ident = Identity.from_enrolment(json.loads(enrolment.read_text()))
        self.client_id = b"raw-%d" % self.ident.client
        self.boot = 0
        self.wire: Wire
        self.session: Session
        self.notices: list[tuple[int, int, int, str, str]] = []
        # For the text of a failure: what was answered to the newest CONNECT, what the site noted.
        self.answered = "no CONNECT yet"
        self.noted: Callable[[], str] = lambda: ""
        self.begin()

    def begin(self) -> None:
        """A new boot session, as after a restart."""
        self.boot += 1
        self.session = Session(self.ident, Cipher, self.boot, os.urandom(8))

    def provision(self) -> None:
        """Quarantine, request, answer (SPEC.md 7.2)."""
        wire = Wire(self.port)
        wire.send(connect(self.client_id, self.session.begin_connect(False)))
        assert wire.read() == (0x20, b"\0\0")
        i, nonce_c = self.ident, os.urandom(16)
        who = i.site, i.ps, i.suite, i.client, i.gen
        wire.send(publish(CONTROL, ask(Cipher, *who, self.boot, nonce_c, i.mediator)))
        answer = self._there(wire.read(), "a provisioning answer")
        i.accept(Cipher, nonce_c, answer[1][5:])
        wire.close()
        self.session.renew(i)

    def connect_packet(self, **fields: object) -> bytearray:
        """A signed CONNECT."""
        head = self.session.begin_connect(False)
        made = connect(self.client_id, head + b"A" * 22, **fields)  # type: ignore[arg-type]
        self.session.sign(made, mono())
        return made

    def connect(self, **fields: object) -> bytes:
        """Connects; gives CONNACK's body. The welcome sets the time."""
        if not self.ident.gen:
            self.provision()
        return self.enter(bytes(self.connect_packet(**fields)))

    def enter(self, made: bytes | bytearray) -> bytes:
        """Sends a CONNECT; gives CONNACK's body, behind the welcome if it is 0."""
        self.wire = Wire(self.port)
        self.wire.send(made)
        self.answered = "nothing"
        answer = self.next("CONNACK")
        assert answer[0] == 0x20, answer
        self.answered = f"CONNACK {answer[1].hex()}"
        if answer[1][1] == 0:
            welcome = self.control(self.next("the welcome"))
            self.answered += f", welcome {welcome}"
        return answer[1]

    def next(self, what: str) -> tuple[int, bytes]:
        """The next packet; fails with what was awaited if the mediator has closed."""
        return self._there(self.wire.read(), what)

    def _there(self, got: tuple[int, bytes] | None, what: str) -> tuple[int, bytes]:
        assert got is not None, (
            f"the mediator closed the connection of {self.ident.name}, which waited for {what}; "
            f"to its CONNECT: {self.answered}; {self.noted()}"
        )
        return got

    def control(self, got: tuple[int, bytes] | None) -> tuple[int, object]:
        """Opens a control packet; notices are collected."""
        got = self._there(got, "a control packet")
        assert got[1][2:5] == CONTROL, got
        op, what = self.session.down(got[1][5:], mono())
        if op == 3:
            self.notices.append(what)
        answer: tuple[int, object] = (op, what)
        return answer

    def seal(
        self,
        topic: bytes,
        payload: bytes,
        flags: int = 2,
        kind: int = 0,
        life: int = 0,
        tlv: bytes = b"\0",
    ) -> bytes:
        """An m2 for `topic`."""
        at = 9 + len(tlv) + 27
        buf = bytearray(at + len(payload) + 32)
        buf[at : at + len(payload)] = payload
        n = self.session.seal_publish(buf, 0, len(payload), topic, flags, kind, life, mono(), tlv)
        return bytes(buf[:n])

    def barrier(self) -> list[tuple[int, bytes]]:
        """PINGREQ; everything that came before PINGRESP, notices taken out."""
        self.wire.send(b"\xc0\0")
        seen: list[tuple[int, bytes]] = []
        while True:
            got = self.next("PINGRESP")
            if got[0] == 0xD0:
                return seen
            if got[0] == 0x30 and got[1][2:5] == CONTROL:
                self.control(got)
            else:
                seen.append(got)

    def acknowledged(self) -> list[tuple[int, bytes]]:
        """Everything up to the next PUBACK, notices taken out.

        The broker's may come behind a PINGRESP, which is the mediator's own.
        """
        seen: list[tuple[int, bytes]] = []
        while not seen or seen[-1][0] != 0x40:
            got = self.next("PUBACK")
            if got[0] == 0x30 and got[1][2:5] == CONTROL:
                self.control(got)
            else:
                seen.append(got)
        return seen

    def publish(self, topic: bytes, payload: bytes, pid: int = 1) -> list[tuple[int, bytes]]:
        """Sealed, QoS 1; everything that came, up to PUBACK."""
        self.wire.send(publish(topic, self.seal(topic, payload), 0x32, pid))
        return self.acknowledged()

    def subscribe(self, filt: str, qos: int = 0) -> list[tuple[int, bytes]]:
        """SUBSCRIBE with its token; everything that came before SUBACK. In a session that is kept
        that may be messages already, and the records that open them.
        """
        with_token, _ = self.session.token(filt, qos)
        self.wire.send(packet(0x82, b"\0\x09" + text(with_token.encode()) + bytes((qos,))))
        before: list[tuple[int, bytes]] = []
        while (got := self.next("SUBACK"))[0] != 0x90:
            before.append(got)
        assert got[1][2] == qos, "the subscription was refused"
        return before

    def close(self) -> None:
        self.wire.close()
