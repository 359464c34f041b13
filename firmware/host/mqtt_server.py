"""An MQTT server on 127.0.0.1 that does what measurements of a client need and nothing else.

It accepts everybody and acknowledges. A subscription to a topic "N/SIZE" (see `wanted`) gets N
messages of SIZE bytes on TOPIC, each as soon as the client has read the one before: a client must
not seem cheaper because messages came in one piece.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Self

from mqtt_frames import ConnectionClosed, frame, read_packet, text

TOPIC = b"machine/1/temperature"

_STUCK = 60.0  # seconds in which a client must have read a message
_SOCK_DIAG = 4  # the netlink family, and what follows from linux/inet_diag.h
_BY_FAMILY = 20
_ANY = 0xFFFFFFFF
_RECEIVE_QUEUE = 16 + 4 + 48 + 4


def wanted(filt: str) -> tuple[int, int, str] | None:
    """What a subscription asks for: (messages, bytes of each, rest), None for any other filter."""
    count, _, rest = filt.partition("/")
    size, _, rest = rest.partition("/")
    return (int(count), int(size), rest) if count.isdigit() and size.isdigit() else None


def payload(number: int, size: int) -> bytes:
    """The message of that number, of at least two bytes."""
    return number.to_bytes(2, "big") + bytes(size - 2)


class Reading:
    """Whether the other end of a connection on this host has read what it was sent.

    Asked of the kernel through sock_diag(7): /proc/net/tcp tells the same a thousand times slower.
    """

    def __init__(self, sock: socket.socket) -> None:
        (there, its_port), (here, port) = sock.getpeername(), sock.getsockname()
        addresses = (socket.inet_aton(there), socket.inet_aton(here))
        sides = struct.pack(">HH4s12x4s12x", its_port, port, *addresses)
        asked = struct.pack("=BBxxI", socket.AF_INET, socket.IPPROTO_TCP, _ANY) + sides
        asked += struct.pack("=III", 0, _ANY, _ANY)
        self._question = struct.pack("=IHHII", 16 + len(asked), _BY_FAMILY, 1, 1, 0) + asked
        self._kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG)

    def close(self) -> None:
        self._kernel.close()

    def wait(self) -> None:
        """Until nothing lies in its receive queue. ConnectionClosed when it is gone or stuck."""
        end = time.monotonic() + _STUCK
        pause = 0.0001
        while self._waiting():
            if time.monotonic() > end:
                raise ConnectionClosed("the client does not read")
            time.sleep(pause)
            pause = min(2 * pause, 0.002)

    def _waiting(self) -> int:
        self._kernel.send(self._question)
        answer = self._kernel.recv(4096)
        if struct.unpack_from("=H", answer, 4)[0] != _BY_FAMILY:
            raise ConnectionClosed("gone")
        return int(struct.unpack_from("=I", answer, _RECEIVE_QUEUE)[0])


class MqttServer:
    """`port`; `published`, the messages that came. What runs below MQTT is `wrap`."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.published = 0

    def wrap(self, plain: socket.socket) -> socket.socket:
        """The socket that speaks MQTT, over an accepted one."""
        return plain

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            with closing(Reading(plain)) as reading, self.wrap(plain) as sock:
                while True:
                    # umqtt writes a packet in pieces, and each waits for the last one's.
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
                    _, first, body = read_packet(sock)
                    self._answer(sock, reading, first, body)
        except (OSError, ConnectionClosed):
            plain.close()

    def _answer(self, sock: socket.socket, reading: Reading, first: int, body: bytes) -> None:
        if first == 0x10:
            sock.sendall(frame(0x20, b"\0\0"))
        elif first & 0xF0 == 0x30:
            self.published += 1
            n = int.from_bytes(body[:2], "big")
            if first & 2:
                sock.sendall(frame(0x40, body[2 + n : 4 + n]))
        elif first == 0x82:
            sock.sendall(frame(0x90, body[:2] + b"\0"))
            n = int.from_bytes(body[2:4], "big")
            asked = wanted(body[4 : 4 + n].decode())
            count, size, _ = asked or (0, 0, "")
            for i in range(1, count + 1):
                reading.wait()
                sock.sendall(frame(0x30, text(TOPIC) + payload(i, size)))

    @contextmanager
    def serving(self) -> Iterator[Self]:
        """Serves while the block runs."""
        threading.Thread(target=self._accept, daemon=True).start()
        try:
            yield self
        finally:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
