"""A scripted mediator and key generator for one client, on 127.0.0.1, for tests and measurements.

It follows SPEC.md from the other side with the portable package and `cryptography`, so a client
that talks to it talks to the protocol. What a test wants to go wrong is an attribute or a hook.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from peer_site import Aead, Site, make
from sealmq_spec import const, control, provision
from sealmq_spec.envelope import (
    get_m1,
    get_m2,
    nonce_link,
    nonce_m1,
    nonce_m3,
    put_m1,
    put_m3,
    tail_m1,
    tail_m2,
    tail_m3,
)
from sealmq_spec.errors import SealError, Unauthentic
from sealmq_spec.keys import inner_key, link_key, outer_key, topic_key
from sealmq_spec.records import Roots
from sealmq_spec.tlv import pack
from sealmq_spec.topics import matches, split_token
from sealmq_spec.window import Window


def frame(first: int, body: bytes) -> bytes:
    """An MQTT packet."""
    n = len(body)
    size = bytearray()
    while True:
        size.append(n & 127 | (128 if n > 127 else 0))
        n >>= 7
        if not n:
            return bytes((first,)) + bytes(size) + body


def text(raw: bytes) -> bytes:
    """An MQTT string."""
    return len(raw).to_bytes(2, "big") + raw


class ConnectionClosed(Exception):
    """The client is gone, or says what no client may."""


def _exactly(sock: socket.socket, n: int) -> bytes:
    out = b""
    while len(out) < n:
        piece = sock.recv(n - len(out))
        if not piece:
            raise ConnectionClosed("closed")
        out += piece
    return out


def read_packet(sock: socket.socket) -> tuple[bytes, int, bytes]:
    """(the whole packet, its first byte, its body)"""
    raw = _exactly(sock, 2)
    n, shift = raw[1] & 127, 7
    while raw[-1] > 127:
        raw += _exactly(sock, 1)
        n |= (raw[-1] & 127) << shift
        shift += 7
    body = _exactly(sock, n)
    return raw + body, raw[0], body


class Connection:
    """One TCP connection of the client."""

    def __init__(self, peer: Peer, sock: socket.socket) -> None:
        self.peer = peer
        self.site = peer.site
        self.sock = sock
        self.gen = self.boot = self.conn = 0
        self.salt = b""
        self.filters: dict[str, int] = {}
        self.pid = 0

    # --- MQTT ---

    def read(self) -> tuple[bytes, int, bytes]:
        """(the whole packet, its first byte, its body)"""
        return read_packet(self.sock)

    def send(self, first: int, body: bytes) -> None:
        self.sock.sendall(frame(first, body))

    def publish(self, topic: bytes, payload: bytes, qos: int = 0) -> None:
        """A PUBLISH as it stands."""
        pid = b""
        if qos:
            self.pid += 1
            pid = self.pid.to_bytes(2, "big")
        self.send(0x30 | qos << 1, text(topic) + pid + payload)

    # --- SealMQ ---

    def aead(self, use: int) -> Aead:
        s = self.site
        key = link_key(s.id, use, s.suite, s.mediator, self.boot, self.salt, s.km[self.gen])
        return make(s.suite, key)

    def down(self, body: bytes) -> bytes:
        """A control packet down, sealed."""
        s = self.site
        aead = self.aead(const.USE_DOWN)
        who = s.id, s.client, s.mediator, self.conn
        return control.seal_down(aead, s.suite, s.order(), *who, body)

    def tell(self, body: bytes) -> None:
        self.publish(const.CONTROL, self.down(body))

    def notice(self, what: int, ctr: int, code: int, rule: str, reason: str) -> None:
        self.tell(control.notice(what, ctr, code, rule, reason))

    def receipt(self) -> None:
        w = self.peer.window
        self.tell(control.receipt(w.top, w.mask))

    def welcome(self, status: int = const.READY, want_time: bool = False, **change: Any) -> bytes:
        """The body of a welcome."""
        s, w = self.site, self.peer.window
        nonce = provision.time_nonce(self.salt, self.boot, self.conn)
        items = self.kg_time(nonce) if want_time else []
        at = {"ms": s.now_ms(), "floor": self.peer.highest[1], "epoch": s.own.epoch, **change}
        return control.welcome(
            status, at["ms"], at["floor"], w.top, w.mask, at["epoch"], s.kseq, pack(items)
        )

    def kg_time(self, nonce: bytes) -> list[tuple[int, bytes]]:
        """The TLV item with KG time, if it is to be had."""
        s = self.site
        if not self.peer.gives_kg_time:
            return []
        now, epoch = s.now_ms(), s.own.epoch
        blob = provision.kg_time(
            make, s.id, s.ps, s.suite, s.client, nonce, s.order(), now, epoch, s.kseq
        )
        return [(const.TLV_KG_TIME, blob)]

    def take_up(self, packet: bytes) -> None:
        """A sealed packet on the control topic; the question for time is answered."""
        s = self.site
        body = control.open_up(
            self.aead(const.USE_CONTROL), self.salt, s.id, s.client, s.mediator, packet
        )
        self.peer.log("up", body[0])
        if body[0] == const.OP_ASK_TIME:
            said = bytes((const.OP_TIME,)) + body[1:17] + s.now_ms().to_bytes(6, "big")
            self.tell(said + pack(self.kg_time(body[1:17])))

    def m1(self, topic: bytes, plain: bytes, roots: Roots, ctr: int) -> bytes:
        """A message of this client as a publisher at another label would seal it."""
        s = self.site
        now = s.now_ms() // 1000
        buf = bytearray(27 + len(plain) + 16)
        suite, epoch = roots.suite, roots.epoch
        put_m1(buf, 0, suite, const.LIVE, epoch, s.client, self.boot, self.salt, ctr, now, 0)
        buf[27 : 27 + len(plain)] = plain
        key = inner_key(s.id, suite, s.client, self.boot, self.salt, roots.r_bar)
        aad = bytes(buf[:27]) + tail_m1(s.id, roots.label, topic)
        make(suite, key).seal_into(nonce_m1(buf, 0), aad, buf, 27, len(plain))
        return bytes(buf)

    def m3(self, topic: bytes, m1: bytes, roots: Roots, how: int = 0) -> bytes:
        """m1 sealed for readers of a label."""
        s = self.site
        s.seq += 1
        buf = bytearray(20 + 1 + len(m1) + 16)
        put_m3(buf, 0, roots.suite, 0, how, roots.label, roots.epoch, s.inst, s.now_ms(), s.seq)
        buf[21 : 21 + len(m1)] = m1
        ek = topic_key(s.id, roots.suite, roots.label, roots.epoch, roots.r)
        key = outer_key(s.id, roots.suite, roots.label, roots.epoch, s.inst, ek)
        aad = bytes(buf[:20]) + tail_m3(s.id, topic)
        make(roots.suite, key).seal_into(nonce_m3(buf), aad, buf, 20, 1 + len(m1))
        return bytes(buf)

    def run(self) -> None:
        try:
            raw, first, body = self.read()
            if first != 0x10:
                raise ConnectionClosed("no CONNECT")
            if self._connect(raw, body):
                while True:
                    _, first, body = self.read()
                    self.peer.on_packet(self, first, body)
        except (OSError, SealError, ConnectionClosed) as error:
            self.peer.log("end", type(error).__name__, str(error))
        finally:
            self.sock.close()

    def _connect(self, raw: bytes, body: bytes) -> bool:
        peer, s = self.peer, self.site
        rest = body[10:]
        fields = []
        while rest:
            n = int.from_bytes(rest[:2], "big")
            fields.append(rest[2 : 2 + n])
            rest = rest[2 + n :]
        self.flags, self.fields = body[7], fields
        proof = control.split_proof(fields[-1])
        _, flags, self.gen, client, self.boot, self.salt, self.conn, self.low, tag = proof
        if peer.on_connect is not None and peer.on_connect(self):
            return True
        if self.gen == 0:
            peer.log("quarantine", client)
            self.send(0x20, b"\0\0")
            return True
        try:
            if self.gen not in s.km:
                raise Unauthentic("gen")
            aead = self.aead(const.USE_CONTROL)
            control.check_connect(aead, s.id, s.mediator, self.salt, self.conn, raw, tag)
        except SealError:
            peer.log("proof fails", self.gen)
            self.send(0x20, b"\0\x05")
            return False
        self.send(0x20, bytes((peer.present, 0)))
        order = self.gen, self.boot, self.conn
        if order <= peer.highest:
            peer.log("behind", self.boot)
            self.tell(self.welcome(const.BEHIND))
            return False
        if order[:2] != peer.highest[:2]:
            peer.window = Window()
        peer.highest = order
        peer.log("connected", *order)
        want = bool(flags & const.WANT_KG_TIME)
        if peer.on_welcome is None or not peer.on_welcome(self, want):
            self.tell(self.welcome(const.READY, want))
        return True

    def unseal(self, topic: bytes, flags: int, payload: bytes) -> tuple[int, bytes, bytes]:
        """(ctr, m1, plaintext) of an m2, both layers verified. Raises SealError."""
        s = self.site
        _, ctr, s1 = get_m2(payload)
        buf = bytearray(payload)
        aad = payload[:9] + tail_m2(s.id, s.client, s.mediator, flags, topic)
        n = len(buf) - 25
        if not self.aead(const.USE_PUBLISH).open_into(nonce_link(self.salt, buf), aad, buf, 9, n):
            raise Unauthentic("m2")
        m1 = bytes(buf[10 : 9 + n])
        head = get_m1(m1, 0, len(m1))
        suite, _, _, epoch, sender, boot, salt, in_ctr, t_pub, _ = head
        if (sender, boot, salt, in_ctr, t_pub) != (s.client, self.boot, self.salt, ctr, s1):
            raise Unauthentic("m1 says something else than m2")
        own = s.epochs[epoch]
        inner = bytearray(m1)
        key = inner_key(s.id, suite, sender, boot, salt, own.r_bar)
        aad = m1[:27] + tail_m1(s.id, own.label, topic)
        if not make(suite, key).open_into(nonce_m1(m1, 0), aad, inner, 27, len(m1) - 43):
            raise Unauthentic("m1")
        return ctr, m1, bytes(inner[27:-16])


class Peer:
    """Listens and plays mediator. `events` is what happened, in order."""

    def __init__(self, site: Site | None = None) -> None:
        self.site = site or Site()
        self.events: list[tuple[Any, ...]] = []
        self.highest = (0, 0, 0)
        self.window = Window()
        self.present = 0
        self.gives_kg_time = True
        self.denied: dict[str, tuple[int, str, str]] = {}
        # Hooks that return True when they did all there was to do.
        self.on_connect: Callable[[Connection], bool] | None = None
        self.on_welcome: Callable[[Connection, bool], bool] | None = None
        self.on_publish: Callable[[Connection, str, bytes, int, int], bool] | None = None
        self.on_subscribe: Callable[[Connection, str, int], bool] | None = None
        self.on_ping: Callable[[Connection], bool] | None = None
        self.on_ask: Callable[[Connection, bytes], bool] | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._threads: list[threading.Thread] = []

    def settle(self) -> None:
        """Waits until every connection that a client has ended is seen to be over."""
        for thread in self._threads:
            thread.join(10)

    def settle_after(self, seconds: float) -> None:
        """Holds back what comes next."""
        time.sleep(seconds)

    def log(self, *event: Any) -> None:
        self.events.append(event)

    def said(self, what: str) -> list[tuple[Any, ...]]:
        """The events of one kind, without their first word."""
        return [event[1:] for event in self.events if event[0] == what]

    @contextmanager
    def serving(self) -> Iterator[Peer]:
        threading.Thread(target=self._accept, daemon=True).start()
        try:
            yield self
        finally:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            thread = threading.Thread(target=Connection(self, sock).run, daemon=True)
            self._threads.append(thread)
            thread.start()

    def on_packet(self, c: Connection, first: int, body: bytes) -> None:
        kind = first & 0xF0
        if kind == 0x30:
            self._publish(c, first, body)
        elif kind == 0x80 or kind == 0xA0:
            self._subscribe(c, kind, body)
        elif kind == 0xC0:
            self.log("ping")
            if self.on_ping is None or not self.on_ping(c):
                c.send(0xD0, b"")
        elif kind == 0x40:
            self.log("puback", int.from_bytes(body, "big"))
        elif kind == 0xE0:
            raise ConnectionClosed("disconnect")
        else:
            raise ConnectionClosed(f"packet {first:02x}")

    def _publish(self, c: Connection, first: int, body: bytes) -> None:
        n = int.from_bytes(body[:2], "big")
        topic, rest = body[2 : 2 + n], body[2 + n :]
        qos = first >> 1 & 3
        pid, payload = (rest[:2], rest[2:]) if qos else (b"", rest)
        if topic == const.CONTROL:
            if payload[0] == const.ASK:
                self.log("asked", provision.get_ask(payload)[2])
                if self.on_ask is None or not self.on_ask(c, payload):
                    c.publish(topic, self.site.answer(payload))
            elif payload[0] == const.UP:
                c.take_up(payload)
            return
        ctr, m1, plain = c.unseal(topic, first & 7, payload)
        name = topic.decode()
        fresh = self.window.look(ctr) == 0
        if fresh:
            self.window.mark(ctr)
        self.log("publish", name, plain, first & 7, ctr, m1[1] & 15, m1[26])
        if self.on_publish is not None and self.on_publish(c, name, m1, ctr, qos):
            return
        if name in self.denied:
            c.notice(1, ctr, *self.denied[name])
        else:
            for filt, granted in c.filters.items():
                if fresh and matches(filt, name):
                    c.publish(topic, c.m3(topic, m1, self.site.own), granted)
        if qos:
            c.send(0x40, pid)

    def _subscribe(self, c: Connection, kind: int, body: bytes) -> None:
        s = self.site
        n = int.from_bytes(body[2:4], "big")
        qos = body[4 + n] if kind == 0x80 else 0
        ctr, tag, filt = split_token(body[4 : 4 + n].decode())
        op = const.SUBSCRIBE if kind == 0x80 else const.UNSUBSCRIBE
        aead = c.aead(const.USE_CONTROL)
        control.check_token(
            aead, s.suite, op, ctr, c.salt, s.id, s.client, s.mediator, qos, filt, tag
        )
        self.log("subscribe" if op == const.SUBSCRIBE else "unsubscribe", filt, qos)
        number = int.from_bytes(ctr, "big")
        if self.on_subscribe is not None and self.on_subscribe(c, filt, number):
            return
        if op == const.UNSUBSCRIBE:
            c.filters.pop(filt, None)
            c.send(0xB0, body[:2])
        elif filt in self.denied:
            c.notice(2, number, *self.denied[filt])
            c.send(0x90, body[:2] + b"\x80")
        else:
            c.filters[filt] = qos
            c.send(0x90, body[:2] + bytes((qos,)))
