"""The boards' path to the mediator: a forwarder that reads along what is sealed, up and down.

One port a board. It changes nothing; what it cannot read it passes on and says so in the book.
It can be cut, as a network is.
"""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from sealmq_spec.errors import SealError

from . import mqtt, nonces
from .nonces import Book
from .tap import outer

_PROOF = 0x16
_UP, _DOWN, _REQUEST = 0x14, 0x15, 0x1A
_M2, _M3 = 0x12, 0x13
# Of the link's keys (SPEC.md 2).
_USES = {nonces.PUBLISH: 1, nonces.DOWN: 3}
_OF_CONTROL = 2
_CONTROL = b"!c1"
_TOKEN = b"!s1/"
_TOKEN_TEXT = 26  # b64u of ctr and tag, 19 bytes


class Session:
    """What one connection's CONNECT says, and the nonces of all that comes behind it."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._stream, self._down = mqtt.Stream(), mqtt.Stream()
        self._known = False
        self.client = self.gen = self.boot = self._suite = 0
        self.salt = b""

    def feed(self, data: bytes) -> None:
        """Bytes from the board. NotMqtt, ValueError for what is none of ours."""
        for first, body, whole in self._stream.feed(data):
            kind = first & 0xF0
            if kind == mqtt.CONNECT:
                self._connect(body, whole)
            elif not self._known:
                raise mqtt.NotMqtt(f"packet {first:02x} before CONNECT")
            elif kind == mqtt.PUBLISH:
                self._publish(first, body)
            elif kind in (mqtt.SUBSCRIBE, 0xA0):
                self._subscribe(kind, body)

    def feed_down(self, data: bytes) -> None:
        """Bytes to the board, which come behind its CONNECT. NotMqtt, SealError."""
        for first, body, _ in self._down.feed(data):
            if first & 0xF0 != mqtt.PUBLISH:
                continue
            topic, _, payload = mqtt.published(first, body)
            if topic == _CONTROL and payload[:1] == bytes((_DOWN,)):
                whose = (str(self.client), str(self.gen), str(self.boot), self.salt.hex())
                nonce = payload[2:14]
                key = (nonces.DOWN, *whose, nonce.hex())
                under = self._name(nonces.DOWN, payload[1] >> 4)
                # The connection is bound in as well; the key lasts for all of a boot session.
                self._book.add(key, payload, under, nonce)
            elif payload[:1] == bytes((_M3,)):
                outer(self._book, topic, payload)

    def _connect(self, body: bytes, whole: bytes) -> None:
        name, at = mqtt.string(body, 0)
        if name != b"MQTT" or len(body) < at + 4:
            raise mqtt.NotMqtt("no CONNECT of 3.1.1")
        flags = body[at + 1]
        _, at = mqtt.string(body, at + 4)
        will_topic = will = b""
        if flags & 4:
            will_topic, at = mqtt.string(body, at)
            will, at = mqtt.string(body, at)
        _, at = mqtt.string(body, at)
        password, at = mqtt.string(body, at)
        head = base64.urlsafe_b64decode(password[:32])
        if len(head) != 24:
            raise mqtt.NotMqtt("no password of ours")
        self.gen, self.client, self.boot = (
            int.from_bytes(head[n : n + 3], "big") for n in (1, 4, 7)
        )
        self.salt, self._suite = head[10:18], head[0] >> 4
        self._known = True
        if self.gen:
            conn = int.from_bytes(head[18:21], "big")
            self._sealed(nonces.PROOF, self._suite, conn, bytes((_PROOF,)) + whole)
        if will:
            self._envelope(flags >> 2 & 7, will_topic, will)

    def _publish(self, first: int, body: bytes) -> None:
        topic, _, payload = mqtt.published(first, body)
        if topic != _CONTROL:
            self._envelope(first & 7, topic, payload)
        elif payload[:1] == bytes((_UP,)):
            ctr = int.from_bytes(payload[2:5], "big")
            self._sealed(nonces.CONTROL, payload[1] >> 4, ctr, payload)
        elif payload[:1] == bytes((_REQUEST,)):
            # N_c makes the key here; the nonce is zeros.
            n_c = payload[11:27].hex()
            under = nonces.named(
                "p1",
                site=self._book.site,
                client=self.client,
                dir=0,
                suite=payload[1] >> 4,
                n_c=n_c,
            )
            self._book.add((nonces.REQUEST, str(self.client), n_c), payload, under, bytes(12))

    def _envelope(self, flags: int, topic: bytes, payload: bytes) -> None:
        if payload[:1] != bytes((_M2,)):
            raise ValueError(f"a payload that begins with {payload[:1].hex()}")
        ctr = int.from_bytes(payload[2:5], "big")
        content = bytes((flags,)) + mqtt.text(topic) + payload
        self._sealed(nonces.PUBLISH, payload[1] >> 4, ctr, content)

    def _subscribe(self, kind: int, body: bytes) -> None:
        at = 2
        while at < len(body):
            filt, at = mqtt.string(body, at)
            qos = b""
            if kind == mqtt.SUBSCRIBE:
                qos, at = body[at : at + 1], at + 1
            if not filt.startswith(_TOKEN):
                raise ValueError("a filter without a token")
            token = filt[len(_TOKEN) : len(_TOKEN) + _TOKEN_TEXT]
            raw = base64.urlsafe_b64decode(token + b"=" * (-len(token) % 4))
            ctr = int.from_bytes(raw[:3], "big")
            self._sealed(nonces.TOKEN, self._suite, ctr, bytes((kind,)) + filt + qos)

    def _sealed(self, use: str, suite: int, ctr: int, content: bytes) -> None:
        whose = (self.client, self.gen, self.boot, self.salt)
        self._book.sealed(use, *whose, ctr, content, under=self._name(use, suite))

    def _name(self, use: str, suite: int) -> str:
        return nonces.named(
            "l1",
            site=self._book.site,
            client=self.client,
            gen=self.gen,
            use=_USES.get(use, _OF_CONTROL),
            suite=suite,
            mediator=self._book.mediator,
            boot=self.boot,
            salt=self.salt.hex(),
        )


class Path:
    """Listens for one board, and passes it on to the mediator."""

    def __init__(self, book: Book, mediator: tuple[str, int], host: str = "127.0.0.1") -> None:
        self._book, self._mediator = book, mediator
        self._server = socket.create_server((host, 0))
        self.port: int = self._server.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.connections = 0
        self._shut = False
        threading.Thread(target=self._accept, name=f"path {self.port}", daemon=True).start()

    def close(self) -> None:
        """No more connections; those that are there end."""
        # close() alone does not wake the thread that accepts.
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """Every connection ends here, as when a network does."""
        with self._lock:
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def shut(self, shut: bool) -> None:
        """Nothing gets through, as if there was no gateway; until it is opened again."""
        with self._lock:
            self._shut = shut
        if shut:
            self.cut()

    def _accept(self) -> None:
        while True:
            try:
                board, _ = self._server.accept()
            except OSError:
                return
            if self._shut:
                board.close()
                continue
            self.connections += 1
            threading.Thread(target=self._serve, args=(board,), daemon=True).start()

    def _serve(self, board: socket.socket) -> None:
        try:
            mediator = socket.create_connection(self._mediator, 10)
        except OSError:
            board.close()
            return
        mediator.settimeout(None)
        with self._lock:
            self._open |= {board, mediator}
            shut = self._shut
        if shut:  # meanwhile
            self.cut()
        session = Session(self._book)
        words = (mediator, board, session.feed_down, session)
        down = threading.Thread(target=self._pump, args=words, daemon=True)
        down.start()
        try:
            self._pump(board, mediator, session.feed, session)
        finally:
            for each in (board, mediator):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            down.join()
            with self._lock:
                self._open -= {board, mediator}
            board.close()
            mediator.close()

    def _pump(
        self,
        source: socket.socket,
        sink: socket.socket,
        read: Callable[[bytes], None],
        session: Session,
    ) -> None:
        reads = True
        with suppress(OSError):
            while data := source.recv(65536):
                if reads:
                    try:
                        read(data)
                    except (ValueError, SealError) as error:
                        self._book.missed(f"on the path of client {session.client}: {error}")
                        reads = False
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
