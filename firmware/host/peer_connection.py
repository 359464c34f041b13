"""One TCP connection of a client with the scripted peer, as the mediator has it (SPEC.md 3, 4)."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from mqtt_frames import ConnectionClosed, frame, read_packet, text
from peer_site import Aead, make
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
from sealmq_spec.tlv import EMPTY, pack, span, unpack
from sealmq_spec.window import Window

if TYPE_CHECKING:
    from peer import Peer


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
        # Of the PUBLISH that is being looked at, and of the SUBSCRIBE.
        self.publish_pid = b""
        self.subscribe_pid = b""

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

    def reply(self, ctr: int, said: bytes = b"") -> None:
        self.tell(bytes((const.OP_REPLY,)) + ctr.to_bytes(3, "big") + said)

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
        """A sealed packet on the control topic; what it asks for or commands is answered."""
        s = self.site
        body = control.open_up(
            self.aead(const.USE_CONTROL), self.salt, s.id, s.client, s.mediator, packet
        )
        self.peer.log("up", body[0])
        if body[0] == const.OP_ASK_TIME:
            said = bytes((const.OP_TIME,)) + body[1:17] + s.now_ms().to_bytes(6, "big")
            self.tell(said + pack(self.kg_time(body[1:17])))
        elif body[0] == const.OP_COMMAND:
            family, raw = body[2 : 2 + body[1]].decode(), body[2 + body[1] :]
            command = raw.decode("utf-8", "surrogateescape")
            ctr = control.up_header(packet)[1]
            self.peer.log("command", family, command, ctr)
            hook = self.peer.on_command
            if hook is None or not hook(self, command, ctr):
                self.reply(ctr)

    def m1(
        self, topic: bytes, plain: bytes, roots: Roots, ctr: int, site: bytes | None = None
    ) -> bytes:
        """A message of this client as a publisher at another label, or site, would seal it."""
        s = self.site
        home = s.id if site is None else site
        now = s.now_ms() // 1000
        buf = bytearray(27 + len(plain) + 16)
        suite, epoch = roots.suite, roots.epoch
        put_m1(buf, 0, suite, const.LIVE, epoch, s.client, self.boot, self.salt, ctr, now, 0)
        buf[27 : 27 + len(plain)] = plain
        key = inner_key(home, suite, s.client, self.boot, self.salt, roots.r_bar)
        aad = bytes(buf[:27]) + tail_m1(home, roots.label, topic)
        make(suite, key).seal_into(nonce_m1(buf, 0), aad, buf, 27, len(plain))
        return bytes(buf)

    def m3(self, topic: bytes, m1: bytes, roots: Roots, how: int = 0, tlv: bytes = EMPTY) -> bytes:
        """m1 sealed for readers of a label."""
        s = self.site
        s.seq += 1
        body = tlv + m1
        buf = bytearray(20 + len(body) + 16)
        put_m3(buf, 0, roots.suite, 0, how, roots.label, roots.epoch, s.inst, s.now_ms(), s.seq)
        buf[20 : 20 + len(body)] = body
        ek = topic_key(s.id, roots.suite, roots.label, roots.epoch, roots.r)
        key = outer_key(s.id, roots.suite, roots.label, roots.epoch, s.inst, ek)
        aad = bytes(buf[:20]) + tail_m3(s.id, topic)
        make(roots.suite, key).seal_into(nonce_m3(buf), aad, buf, 20, len(body))
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
        start, end = span(buf, 9, 9 + n)
        if items := unpack(buf, start, end, range(const.TLV_FAMILIES, 128)):
            self.peer.log("items", ctr, items)
        m1 = bytes(buf[end : 9 + n])
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
