"""Many clients that connect as fast as they are let in, a bounded number of them under way."""

from __future__ import annotations

import os
import select
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass

from load_cpu import LoadError
from load_peer import PATIENCE_S, Peer, TlsSocket

from sealmq.mqtt import build


@dataclass
class _Arriving:
    peer: Peer
    hello: bytes
    began: int
    secured: TlsSocket | None = None
    said: bool = False
    data: bytes = b""


class Storm:
    """All of them. hellos: each one's CONNECT, made beforehand."""

    def __init__(
        self, peers: Sequence[Peer], hellos: Sequence[bytes], context: ssl.SSLContext | None
    ) -> None:
        self._waiting = list(zip(peers, hellos, strict=True))[::-1]
        self._context = context
        self._poll = select.epoll()
        self._by_fd: dict[int, _Arriving] = {}
        self._total = len(peers)
        # Nanoseconds from opening the connection to being let in.
        self.took: list[int] = []

    def run(self, under_way: int) -> None:
        """Until the last one is in. LoadError when one is refused, or none gets in any more."""
        while self._waiting or self._by_fd:
            while self._waiting and len(self._by_fd) < under_way:
                self._open(*self._waiting.pop())
            ready = self._poll.poll(PATIENCE_S)
            if not ready:
                raise self._failed("then nothing more came")
            for fd, _ in ready:
                try:
                    self._go_on(fd, self._by_fd[fd])
                except (OSError, LoadError) as error:
                    why = str(error)
                    if isinstance(error, OSError):
                        why = f"client {self._by_fd[fd].peer.number}: {error.strerror}"
                    raise self._failed(why) from None
        self._poll.close()

    def _failed(self, why: str) -> LoadError:
        return LoadError(f"{len(self.took)} of {self._total} clients were let in: {why}")

    def _open(self, peer: Peer, hello: bytes) -> None:
        sock = socket.socket()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        peer.sock = sock
        sock.connect_ex(peer.address)
        self._by_fd[sock.fileno()] = _Arriving(peer, hello, time.monotonic_ns())
        self._poll.register(sock.fileno(), select.EPOLLOUT)

    def _go_on(self, fd: int, one: _Arriving) -> None:
        peer = one.peer
        if not one.said and one.secured is None:
            error = peer.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, os.strerror(error))
            self._poll.modify(fd, select.EPOLLIN)
            if self._context is not None:
                peer.sock = one.secured = TlsSocket(peer.sock, self._context)
        elif one.secured is not None and not one.said and not one.secured.feed():
            raise LoadError(f"client {peer.number}: the handshake was ended")
        if not one.said:
            if one.secured is None or one.secured.handshake():
                peer.said()
                peer.send(one.hello)
                one.said = True
            return
        try:
            data = peer.sock.recv(65536)
        except BlockingIOError:
            return
        if not data:
            raise LoadError(f"client {peer.number}: the connection was closed")
        one.data += data
        while (size := _first(one.data)) is not None:
            packet, one.data = one.data[:size], one.data[size:]
            if peer.welcome(packet):
                self.took.append(time.monotonic_ns() - one.began)
                self._poll.unregister(fd)
                del self._by_fd[fd]
                peer.take(one.data)
                return


def _first(data: bytes) -> int | None:
    """The length of the packet that stands first; None: it is not whole."""
    size = 0
    for at, byte in enumerate(data[1:5]):
        size |= (byte & 127) << 7 * at
        if byte < 128:
            whole = 2 + at + size
            return whole if len(data) >= whole else None
    return None


class Idle:
    """Clients that do nothing but keep alive. keepalive_s: each sends a PINGREQ so often."""

    def __init__(self, poll: select.epoll, by_fd: dict[int, Peer], keepalive_s: float) -> None:
        self._poll, self._by_fd, self._keepalive_s = poll, by_fd, keepalive_s

    def run(self, seconds: float) -> None:
        """LoadError when a ping is not answered, or a connection ends."""
        peers = list(self._by_fd.values())
        for peer in peers:
            peer.answered = 0
        count = max(1, int(len(peers) * seconds / self._keepalive_s))
        began, ping = time.monotonic(), build.pingreq()
        for nth in range(count):
            peers[nth % len(peers)].send(ping)
            self._receive(began + (nth + 1) * seconds / count)
        end = time.monotonic() + PATIENCE_S
        while (missing := count - sum(peer.answered for peer in peers)) > 0:
            if time.monotonic() > end:
                raise LoadError(f"{missing} of {count} pings were not answered")
            self._receive(time.monotonic() + 0.1)

    def _receive(self, until: float) -> None:
        while (left := until - time.monotonic()) > 0:
            for fd, _ in self._poll.poll(left):
                self._by_fd[fd].receive()
