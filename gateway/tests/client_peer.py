"""A key generator and a mediator in one scripted server on loopback, of the portable package.

It keeps to SPEC.md unless a test turns a knob; it verifies proofs and tokens, opens both layers and
remembers what it saw. Nothing of the gateway's own key generator or mediator is used.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from sealmq.aead import Aead, make
from sealmq.client import Client, Options
from sealmq.client.state import own_roots
from sealmq.mqtt import (
    Connect,
    Decoder,
    Disconnect,
    Packet,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Unsubscribe,
    build,
)
from sealmq.order import Order
from sealmq_spec import control, provision
from sealmq_spec.const import (
    CONTROL,
    M1_HEAD,
    M2_HEAD,
    M3_HEAD,
    OP_ASK_TIME,
    OP_COMMAND,
    OP_FETCH,
    OP_NAMES,
    REF_GRANT,
    REF_LINK,
    SUBSCRIBE,
    TAG,
    TLV_FAMILIES,
    TLV_FIRED,
    TLV_KG_TIME,
    UNSUBSCRIBE,
    USE_CONTROL,
    USE_DELIVERY,
    USE_DOWN,
    USE_PUBLISH,
    WANT_KG_TIME,
)
from sealmq_spec.delivery import grant, seal_delivery
from sealmq_spec.envelope import (
    get_m1,
    get_m2,
    nonce_link,
    nonce_m1,
    put_m1,
    put_m3,
    tail_m1,
    tail_m2,
    tail_m3,
)
from sealmq_spec.errors import SealError
from sealmq_spec.keys import grant_key, inner_key, link_key, outer_key, topic_key, u24
from sealmq_spec.records import Roots, make_record
from sealmq_spec.tlv import EMPTY, pack, span, unpack
from sealmq_spec.topics import matches, split_token
from sealmq_spec.window import NEW, Window

INST = 7
LABEL, OTHER = 16, 17
CLIENT, WRITER = 5, 9
MEDIATOR = 1


# By how much the gateway's time differs from this machine's.
SKEW_MS = [0]


def now_ms() -> int:
    return time.time_ns() // 1_000_000 + SKEW_MS[0]


# Errors are raised, not waited for.
QUICK = Options(connect_timeout=5, timeout=5, reconnect=False)


@dataclass
class Published:
    """A PUBLISH that was opened. `first`: the bytes were not seen before in this boot session."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    ctr: int
    kind: int
    life: int
    boot: int
    dup: bool
    first: bool
    raw: bytes = field(repr=False)
    tlv: dict[int, bytes] = field(default_factory=dict)


class Site:
    """What a key generator holds: one client at LABEL, which dominates OTHER."""

    def __init__(self, suite: int = 1) -> None:
        self.id = os.urandom(4)
        self.suite = suite
        self.ps = os.urandom(32)
        self.kseq = 10
        self.order = Order(INST)
        self.roots = {LABEL: self.draw(LABEL, 1), OTHER: self.draw(OTHER, 1)}
        # gen -> link root; the confirmed and the pending one.
        self.gens: dict[int, bytes] = {}
        self.pending = 0
        self.newest = 0
        self.status = provision.OK
        self.asked: list[bytes] = []

    def draw(self, label: int, epoch: int) -> Roots:
        return Roots(label, epoch, self.suite, os.urandom(32), os.urandom(32))

    def enrolment(self, port: int) -> dict[str, Any]:
        return {
            "sealmq": 1,
            "site": self.id.hex(),
            "client": CLIENT,
            "name": "app",
            "ps": self.ps.hex(),
            "suite": self.suite,
            "mediator": {"number": MEDIATOR, "host": "127.0.0.1", "port": port},
        }

    def next_order(self) -> bytes:
        return self.order.next_bytes(now_ms())

    def answer(self, packet: bytes) -> bytes:
        """SPEC.md 7.2: the same gen again while one is pending."""
        suite, client, _, _, nonce_c = provision.get_ask(packet)
        provision.check_ask(make, self.id, self.ps, packet, MEDIATOR)
        self.asked.append(packet)
        if not self.pending:
            self.newest += 1
            self.pending = self.newest
            self.gens[self.pending] = os.urandom(32)
        own, km = self.roots[LABEL], self.gens[self.pending]
        plain = b""
        if self.status == provision.OK:
            plain = provision.body(
                self.pending,
                own.label,
                own.epoch,
                own.suite,
                self.suite,
                MEDIATOR,
                self.kseq,
                now_ms(),
                own.r,
                own.r_bar,
                km,
                EMPTY,
            )
        order = self.next_order()
        return provision.answer(
            make, self.id, self.ps, suite, self.status, client, nonce_c, order, plain
        )

    def confirm(self, gen: int) -> None:
        if gen == self.pending:
            self.gens = {gen: self.gens[gen]}
            self.pending = 0

    def record(self) -> bytes:
        top, low = self.roots[LABEL], self.roots[OTHER]
        kids = os.urandom(8), os.urandom(8)
        return make_record(make, self.id, top, low, *kids, self.kseq, 0, self.next_order())

    def rotate(self) -> None:
        self.kseq += 1
        self.roots[LABEL] = self.draw(LABEL, self.roots[LABEL].epoch + 1)


class Knobs:
    """What a test makes the peer do otherwise."""

    def __init__(self) -> None:
        self.connack = 0
        self.present = False
        self.floor = 0
        self.kg_time = True
        # None: as it should be; bytes: sent in place of the welcome's packet.
        self.welcome: bytes | None = None
        self.say_nothing = False
        # topic or filter -> (class, rule, reason)
        self.refuse: dict[str, tuple[int, str, str]] = {}
        self.late_notice = False
        self.acks = True
        self.receipts = True
        self.pong = True
        self.records = True
        self.fetches = True
        # Names by number, labels and clients alike; None: it knows no such question.
        self.names: dict[int, str] | None = {
            LABEL: "top", OTHER: "low", CLIENT: "app", WRITER: "writer",
        }  # fmt: skip
        # CONNACK codes and answers to come first, one a connection.
        self.first_connacks: list[int] = []
        self.spoil_answer = False
        # Sent in one piece with a provisioning answer; notices in place of the next answers.
        self.before_answer: Callable[[], bytes] = bytes
        self.behind_answer: Callable[[], bytes] = bytes
        self.no_answers: list[tuple[int, str, str]] = []
        self.own_epoch: int | None = None


class Peer:
    """The server. `async with Peer() as peer:`; `peer.links` are its connections, oldest first."""

    def __init__(self, suite: int = 1) -> None:
        self.site = Site(suite)
        self.knobs = Knobs()
        self.links: list[Link] = []
        self.published: list[Published] = []
        # Families' commands: (family, body).
        self.commands: list[tuple[str, bytes]] = []
        # (label, client) whose names were asked for, by question.
        self.asked_names: list[list[tuple[int, int]]] = []
        self.highest = (0, 0, 0)
        self.salts: dict[tuple[int, int], bytes] = {}
        # (gen, boot, salt) -> what outlives a connection.
        self.boots: dict[tuple[int, int, bytes], Boot] = {}
        self.retained: dict[str, bytes] = {}
        self.port = 0
        self.order = Order(INST)
        self.errors: list[Exception] = []

    async def __aenter__(self) -> Peer:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.down()

    async def down(self) -> None:
        """Stop listening and cut every connection."""
        self._server.close()
        for link in self.links:
            link.cut()
        await asyncio.gather(*(link.done.wait() for link in self.links))

    async def up(self) -> None:
        """Listen again, where it was."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    def enrolment(self) -> dict[str, Any]:
        return self.site.enrolment(self.port)

    @property
    def link(self) -> Link:
        """The newest connection."""
        return self.links[-1]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(self, reader, writer)
        self.links.append(link)
        try:
            await link.run()
        except (OSError, asyncio.IncompleteReadError):
            pass
        except Exception as error:
            self.errors.append(error)
        finally:
            link.done.set()
            link.cut()

    def m3(
        self,
        topic: str,
        payload: bytes,
        *,
        label: int = OTHER,
        how: int = 0,
        kind: int = 0,
        ctr: int = 0,
        life: int = 0,
        s2: int | None = None,
        t_pub: int | None = None,
        boot: int = 3,
        sender: int = WRITER,
        inner: Roots | None = None,
        tlv: bytes = b"",
    ) -> bytes:
        """A message of another client, sealed under both layers. inner: of an earlier epoch."""
        now = self.site.roots[label]
        t = now_ms() // 1000 if t_pub is None else t_pub
        m1 = self.m1(topic, payload, inner or now, kind, ctr, life, t, boot, sender)
        # A will has the time at which it fired.
        fired = EMPTY if t else pack([(TLV_FIRED, (now_ms() // 1000).to_bytes(4, "big"))])
        return self.wrap(topic, now, (tlv or fired) + m1, how, s2)

    def m1(
        self,
        topic: str,
        payload: bytes,
        roots: Roots,
        kind: int = 0,
        ctr: int = 0,
        life: int = 0,
        t: int | None = None,
        boot: int = 3,
        sender: int = WRITER,
    ) -> bytes:
        """What another client has sealed."""
        raw, salt, label = topic.encode(), b"writer!!", roots.label
        ctr = ctr or next(_COUNTERS)
        t = now_ms() // 1000 if t is None else t
        head = bytearray(M1_HEAD)
        put_m1(head, 0, roots.suite, kind, roots.epoch, sender, boot, salt, ctr, t, life)
        key = inner_key(self.site.id, roots.suite, sender, boot, salt, roots.r_bar)
        tail = tail_m1(self.site.id, label, raw)
        aad = bytes(head) + tail
        return bytes(head) + make(roots.suite, key).seal(nonce_m1(head, 0), payload, aad)

    def to_grant(
        self, number: int, epoch: int, g: bytes, topic: str, payload: bytes, label: int = OTHER
    ) -> bytes:
        """The same, sealed to a grant of suite 1."""
        key = grant_key(self.site.id, 1, number, epoch, INST, g)
        return self.deliverable(make(1, key), REF_GRANT, number, epoch, topic, payload, label)

    def deliverable(
        self,
        aead: Aead,
        ref: int,
        number: int,
        epoch: int,
        topic: str,
        payload: bytes,
        label: int,
        items: Iterable[tuple[int, bytes]] = (),
    ) -> bytes:
        """The same, under another key than a label's."""
        ms, seq = self.order.next(now_ms())
        head = bytearray(M3_HEAD)
        put_m3(head, 0, self.site.suite, ref, 0, number, epoch, INST, ms, seq)
        m1 = self.m1(topic, payload, self.site.roots[label])
        raw = topic.encode()
        m3: bytes = seal_delivery(aead, bytes(head), self.site.id, raw, label, m1, items)
        return m3

    def wrap(self, topic: str, roots: Roots, body: bytes, how: int, s2: int | None = None) -> bytes:
        ms, seq = self.order.next(now_ms())
        head = bytearray(M3_HEAD)
        s2 = ms if s2 is None else s2
        put_m3(head, 0, roots.suite, 0, how, roots.label, roots.epoch, INST, s2, seq)
        ek = topic_key(self.site.id, roots.suite, roots.label, roots.epoch, roots.r)
        key = outer_key(self.site.id, roots.suite, roots.label, roots.epoch, INST, ek)
        aad = bytes(head) + tail_m3(self.site.id, topic.encode())
        return bytes(head) + make(roots.suite, key).seal(bytes(head[8:]), body, aad)


_COUNTERS = itertools.count(1)


class Boot:
    """What a mediator remembers of a boot session."""

    def __init__(self, site: Site, gen: int, boot: int, salt: bytes) -> None:
        self.boot, self.salt = boot, salt
        self.window = Window()
        self.seen: dict[int, bytes] = {}

        def key(use: int) -> Aead:
            km = site.gens[gen]
            return make(site.suite, link_key(site.id, use, site.suite, MEDIATOR, boot, salt, km))

        self.publish, self.control, self.down = key(USE_PUBLISH), key(USE_CONTROL), key(USE_DOWN)
        self.delivery = key(USE_DELIVERY)


class Link:
    """One connection of the peer."""

    def __init__(
        self, peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.peer, self.site, self.knobs = peer, peer.site, peer.knobs
        self._reader, self._writer = reader, writer
        self._decoder = Decoder(2_000_000, max_connect=16384, connect_first=True)
        self.done = asyncio.Event()
        self.boot: Boot | None = None
        self.conn = 0
        self.low = 0
        self.filters: dict[str, int] = {}
        self.acked: list[int] = []
        self.packets: list[Packet] = []
        self.connect: Connect | None = None
        self.quarantine = False
        self.goodbye = False
        self.fetched: list[int] = []

    def cut(self) -> None:
        self._writer.transport.abort()

    def busy(self, on: bool) -> None:
        """Reads nothing for now, or goes on; writing is another thing."""
        transport = cast(asyncio.Transport, self._writer.transport)
        (transport.pause_reading if on else transport.resume_reading)()

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def run(self) -> None:
        while data := await self._reader.read(65536):
            for packet in self._decoder.feed(data):
                self.packets.append(packet)
                self._take(packet)
            await self._writer.drain()

    def _take(self, packet: Packet) -> None:
        if isinstance(packet, Connect):
            self._connect(packet)
        elif isinstance(packet, Publish):
            if packet.topic_raw == CONTROL:
                self._control(packet.payload)
            else:
                self._publish(packet)
        elif isinstance(packet, Subscribe):
            self._subscribe(packet)
        elif isinstance(packet, Unsubscribe):
            for filt in packet.filters:
                self.filters.pop(self._token(filt, 0, UNSUBSCRIBE)[0], None)
            self.send(build.unsuback(packet.packet_id))
        elif isinstance(packet, Pingreq):
            if self.boot and self.knobs.receipts:
                self.receipt()
            if self.knobs.pong:
                self.send(build.pingresp())
        elif isinstance(packet, Pubrel):
            self.send(build.pubcomp(packet.packet_id))
        elif isinstance(packet, Puback | Pubrec | Pubcomp):
            self.acked.append(packet.packet_id)
            if isinstance(packet, Pubrec):
                self.send(build.pubrel(packet.packet_id))
        elif isinstance(packet, Disconnect):
            self.goodbye = True
            self._writer.close()

    # --- CONNECT ---------------------------------------------------------------------------------

    def _connect(self, packet: Connect) -> None:
        self.connect = packet
        site, knobs, peer = self.site, self.knobs, self.peer
        if knobs.say_nothing:
            return
        password = packet.password or b""
        suite, flags, gen, client, boot, salt, conn, low, tag = control.split_proof(password)
        assert (suite, client, packet.username) == (site.suite, CLIENT, "sealmq1")
        code = knobs.first_connacks.pop(0) if knobs.first_connacks else knobs.connack
        if gen == 0:
            self.quarantine = True
            self.send(build.connack(False, code))
            return
        if code or gen not in site.gens:
            self.send(build.connack(False, code or 5))
            return
        self.boot = peer.boots.setdefault((gen, boot, salt), Boot(site, gen, boot, salt))
        control.check_connect(self.boot.control, site.id, MEDIATOR, salt, conn, packet.raw, tag)
        site.confirm(gen)
        self.conn, self.low = conn, low
        self.send(build.connack(knobs.present, 0))
        stored = peer.salts.get((gen, boot), salt)
        behind = (gen, boot, conn) <= peer.highest or salt != stored or boot <= knobs.floor
        if knobs.welcome is not None:
            self.send(build.publish(CONTROL, knobs.welcome) if knobs.welcome else b"")
            return
        self.welcome(1 if behind else 0, flags)
        if behind:
            self._writer.close()
            return
        peer.highest, peer.salts[gen, boot] = (gen, boot, conn), salt
        if packet.will is not None:
            will = packet.will
            payload = self._open(
                Publish(will.topic, will.topic.encode(), will.payload, will.qos, will.retain)
            )
            peer.published.append(payload)

    def welcome(self, status: int, flags: int) -> None:
        site, boot = self.site, self.boot
        assert boot is not None
        tlv = EMPTY
        if flags & WANT_KG_TIME and self.knobs.kg_time:
            nonce = provision.time_nonce(boot.salt, boot.boot, self.conn)
            tlv = pack([(TLV_KG_TIME, self._kg_time(nonce))])
        floor = max(self.peer.highest[1], self.knobs.floor)
        w = boot.window
        epoch = self.knobs.own_epoch or site.roots[LABEL].epoch
        body = control.welcome(status, now_ms(), floor, w.top, w.mask, epoch, site.kseq, tlv)
        self.down(body)

    def _kg_time(self, nonce: bytes) -> bytes:
        site = self.site
        order, epoch = site.next_order(), site.roots[LABEL].epoch
        blob: bytes = provision.kg_time(
            make, site.id, site.ps, site.suite, CLIENT, nonce, order, now_ms(), epoch, site.kseq
        )
        return blob

    # --- down ------------------------------------------------------------------------------------

    def sealed(self, body: bytes, conn: int | None = None) -> bytes:
        assert self.boot is not None
        order = self.peer.order.next_bytes(now_ms())
        packet: bytes = control.seal_down(
            self.boot.down,
            self.site.suite,
            order,
            self.site.id,
            CLIENT,
            MEDIATOR,
            self.conn if conn is None else conn,
            body,
        )
        return packet

    def down(self, body: bytes) -> None:
        self.send(build.publish(CONTROL, self.sealed(body)))

    def notice(self, what: int, ctr: int, code: int, rule: str, reason: str) -> None:
        self.down(control.notice(what, ctr, code, rule, reason))

    def receipt(self) -> None:
        assert self.boot is not None
        self.down(control.receipt(self.boot.window.top, self.boot.window.mask))

    def record(self, packet: bytes | None = None) -> None:
        self.down(b"\x05" + (packet or self.site.record()))

    def epoch(self) -> None:
        """Tells of the current epoch of the client's label."""
        kseq, epoch = self.site.kseq.to_bytes(4, "big"), self.site.roots[LABEL].epoch
        self.down(b"\x04" + u24(LABEL) + u24(epoch) + kseq + bytes(4))

    def deliver(
        self, topic: str, m3: bytes, qos: int = 0, retain: bool = False, pid: int = 0
    ) -> None:
        self.send(build.publish(topic, m3, qos, retain, packet_id=pid))

    def to_link(
        self,
        topic: str,
        payload: bytes,
        label: int = OTHER,
        items: Iterable[tuple[int, bytes]] = (),
    ) -> bytes:
        """A message of another client, sealed to this connection's boot session."""
        assert self.boot is not None
        aead, peer = self.boot.delivery, self.peer
        return peer.deliverable(aead, REF_LINK, CLIENT, 0, topic, payload, label, items)

    def grant(self, number: int, epoch: int, g: bytes, until: int = 0) -> None:
        self.down(grant(number, epoch, 1, until, g))

    # --- up --------------------------------------------------------------------------------------

    def _control(self, payload: bytes) -> None:
        if payload[0] == 0x1A:
            answer = bytearray(self.site.answer(payload))
            if self.knobs.spoil_answer:
                answer[-1] ^= 1
            if self.knobs.no_answers and not self.quarantine:
                self.notice(4, 0, *self.knobs.no_answers.pop(0))
                return
            before, behind = self.knobs.before_answer(), self.knobs.behind_answer()
            self.send(before + build.publish(CONTROL, bytes(answer)) + behind)
            return
        assert self.boot is not None
        body = control.open_up(
            self.boot.control, self.boot.salt, self.site.id, CLIENT, MEDIATOR, payload
        )
        if body[0] == OP_ASK_TIME:
            tlv = pack([(TLV_KG_TIME, self._kg_time(body[1:17]))])
            self.down(b"\x06" + body[1:17] + now_ms().to_bytes(6, "big") + tlv)
        elif body[0] == OP_FETCH:
            label = int.from_bytes(body[1:], "big")
            self.fetched.append(label)
            if label == OTHER and self.knobs.fetches:
                self.record()
            elif label != OTHER:
                self.notice(4, control.up_header(payload)[1], 5, "fetch", "nothing leads there")
        elif body[0] == OP_NAMES:
            ctr = control.up_header(payload)[1]
            numbers = [int.from_bytes(body[i : i + 3], "big") for i in range(1, len(body), 3)]
            self.peer.asked_names.append(list(zip(numbers[::2], numbers[1::2], strict=True)))
            if self.knobs.names is None:
                self.notice(4, ctr, 10, "mediator.control.unsupported", "an older mediator")
            else:
                texts = (self.knobs.names.get(n, "").encode() for n in numbers)
                self.down(b"\x07" + u24(ctr) + b"".join(bytes((len(t),)) + t for t in texts))
        elif body[0] == OP_COMMAND:
            ctr, end = control.up_header(payload)[1], 2 + body[1]
            family = body[2:end].decode()
            self.peer.commands.append((family, body[end:]))
            if family in self.knobs.refuse:
                self.notice(4, ctr, *self.knobs.refuse[family])
            elif family != "silent":
                self.down(b"\x07" + u24(ctr) + b"done: " + body[end:])

    def _open(self, packet: Publish) -> Published:
        boot, site = self.boot, self.site
        assert boot is not None
        suite, ctr, s1 = get_m2(packet.payload)
        flags = packet.qos << 1 | packet.retain
        tail = tail_m2(site.id, CLIENT, MEDIATOR, flags, packet.topic_raw)
        head = packet.payload[:M2_HEAD]
        nonce = nonce_link(boot.salt, packet.payload)
        body = boot.publish.open(nonce, packet.payload[M2_HEAD:], head + tail)
        assert body is not None, "m2 does not verify"
        assert suite == site.suite
        first, start = span(body, 0, len(body))
        tlv = unpack(body, first, start, range(TLV_FAMILIES, 128))
        m1 = body[start:]
        _, kind, untimed, epoch, sender, m1_boot, salt, m1_ctr, t_pub, life = get_m1(m1, 0, len(m1))
        assert (sender, m1_boot, salt, m1_ctr) == (CLIENT, boot.boot, boot.salt, ctr)
        assert (t_pub == s1 == 0) if untimed else abs(t_pub - now_ms() / 1000) < 5
        own = site.roots[LABEL]
        if epoch != own.epoch:
            raise OldEpoch(ctr)
        key = inner_key(site.id, own.suite, sender, boot.boot, boot.salt, own.r_bar)
        aad = m1[:M1_HEAD] + tail_m1(site.id, LABEL, packet.topic_raw)
        plain = make(own.suite, key).open(nonce_m1(m1, 0), m1[M1_HEAD:], aad)
        assert plain is not None, "m1 does not verify"
        return Published(
            packet.topic,
            plain,
            packet.qos,
            packet.retain,
            ctr,
            kind,
            life,
            boot.boot,
            packet.dup,
            ctr not in boot.seen,
            body,
            tlv,
        )

    def _publish(self, packet: Publish) -> None:
        boot, knobs = self.boot, self.knobs
        assert boot is not None
        ctr = get_m2(packet.payload)[1]
        seen = boot.seen.get(ctr)
        if seen is None:
            if boot.window.look(ctr) != NEW or ctr < self.low:
                self.notice(1, ctr, 4, "window", "below the window")
                self._acknowledge(packet)
                return
            try:
                opened = self._open(packet)
            except OldEpoch:
                self.notice(1, ctr, 6, "epoch", "provision again")
                self._acknowledge(packet)
                return
            if packet.topic in knobs.refuse:
                self.notice(1, ctr, *knobs.refuse[packet.topic])
                self._acknowledge(packet)
                return
            boot.window.mark(ctr)
            boot.seen[ctr] = packet.payload[-TAG:]
            self._forward(opened)
        else:
            assert seen == packet.payload[-TAG:]
            opened = self._open(packet)
        self.peer.published.append(opened)
        self._acknowledge(packet)

    def _acknowledge(self, packet: Publish) -> None:
        if packet.qos and self.knobs.acks:
            answer = build.puback if packet.qos == 1 else build.pubrec
            self.send(answer(packet.packet_id))

    def _forward(self, opened: Published) -> None:
        how = 0
        for filt, qos in self.filters.items():
            if matches(filt, opened.topic) and not qos:
                m3 = self.peer.wrap(opened.topic, self.site.roots[LABEL], opened.raw, how)
                self.deliver(opened.topic, m3)

    def _token(self, text: str, qos: int, op: int) -> tuple[str, int]:
        assert self.boot is not None
        site = self.site
        ctr, tag, filt = split_token(text)
        control.check_token(
            self.boot.control,
            site.suite,
            op,
            ctr,
            self.boot.salt,
            site.id,
            CLIENT,
            MEDIATOR,
            qos,
            filt,
            tag,
        )
        return filt, int.from_bytes(ctr, "big")

    def _subscribe(self, packet: Subscribe) -> None:
        codes, notices = [], []
        for text, qos in packet.filters:
            filt, ctr = self._token(text, qos, SUBSCRIBE)
            if filt in self.knobs.refuse:
                notices.append((2, ctr, *self.knobs.refuse[filt]))
                codes.append(0x80)
            else:
                self.filters[filt] = qos
                codes.append(qos)
        if not self.knobs.late_notice:
            for notice in notices:
                self.notice(*notice)
        if self.knobs.records and any(code != 0x80 for code in codes):
            self.record()
        if self.knobs.acks:
            self.send(build.suback(packet.packet_id, codes))
        if self.knobs.late_notice:
            for notice in notices:
                self.notice(*notice)


class OldEpoch(SealError):
    """m1 of another epoch than the current one."""


def play(story: Callable[[Peer], Awaitable[None]], suite: int = 1) -> None:
    """Run a story against a peer, which must not have failed either; nothing may be overlooked."""

    overlooked: list[str] = []

    async def whole() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: overlooked.append(str(context)))
        async with Peer(suite) as peer, asyncio.timeout(60):
            await story(peer)
        for error in peer.errors:
            raise error

    asyncio.run(whole())
    gc.collect()
    assert not overlooked


def client_of(peer: Peer, state: Path | None = None, options: Options = QUICK) -> Client:
    """A client of the peer's site, not yet connected."""
    return Client.from_enrolment(peer.enrolment(), state, options=options)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that the other side does; TimeoutError when it does not."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 (the peer has no events to wait for)
            await asyncio.sleep(0.01)


def own(client: Client) -> Roots:
    """The client's own roots, typed."""
    roots = own_roots(client.identity)
    assert roots is not None
    return roots
