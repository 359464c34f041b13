"""The mediator's judgement: what clients send it and what the broker gives back.

The harness has the link's and the topic keys, so an input is what a dishonest client puts into good
seals, and what a broker makes of messages. Only SealError comes out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from sealmq.aead import make
from sealmq.mediator.core.boots import BootSession
from sealmq.mediator.core.keyring import Keyring
from sealmq.mediator.core.proof import claim_of, is_behind, verify
from sealmq.mediator.core.wrap import (
    for_broker,
    is_fresh,
    look_m3,
    open_m2,
    open_m3,
    rewrap,
    seal_m3,
    tag_of,
    verify_m2,
)
from sealmq.mqtt import Connect, Decoder, MqttError, build
from sealmq.order import Order
from sealmq_spec import control, envelope, keys
from sealmq_spec.const import M2_HEAD, M3_HEAD, TAG, TLV_FIRED, USE_PUBLISH
from sealmq_spec.errors import SealError
from sealmq_spec.session import Session

from .packets import KEY, SALT, SITE, client
from .target import Draw, Finding, Target

NOW = 1_800_000_000
LABEL = 16
TOPICS = b"a/b", b"c"
INST = 9


def _ek(epoch: int) -> bytes:
    return keys.topic_key(SITE, 1, LABEL, epoch, KEY)


def _ring() -> Keyring:
    """One label at epoch 2, whose hand-over runs for 30 s more, and one client at it."""
    label = {"number": LABEL, "name": "low", "suite": 1, "epoch": 2, "ek": _ek(2).hex()}
    previous = {"epoch": 1, "handover_end": NOW + 30, "ek": _ek(1).hex()}
    link = {"gen": 1, "epoch": 2, "km": client().km.hex(), "pending": False}
    row = {"number": 7, "name": "c", "label": LABEL, "kind": "device", "suite": 1}
    return Keyring(
        SITE,
        INST,
        {
            "kseq": 5,
            "labels": [{**label, "previous": previous}],
            "clients": [{**row, "disabled": False, "links": [link]}],
            "records": [],
            "manifests": [],
        },
    )


class _Links:
    """No boot session was seen before."""

    def find(self, client: int, gen: int, boot: int, salt: bytes) -> None:
        """None, always."""


class Fuzz(Target):
    """Up to twelve packets an input, in one boot session."""

    longest: ClassVar[int] = 1200
    words: ClassVar[tuple[bytes, ...]] = (b"sealmq1", b"!s1/", b"\x11", b"\x12", b"\x13")

    def __init__(self) -> None:
        self._ring = _ring()
        # Packets that were accepted of the last input.
        self.accepted = 0

    def one(self, data: bytes) -> None:
        draw = Draw(data)
        self.accepted = 0
        session = Session(client(), make, 3, SALT)
        link = BootSession(SITE, 1, self._ring.clients[7], 1, 3, SALT)
        packet = bytearray(b"\x10\x40 the packet " + session.begin_connect(False) + bytes(22))
        session.sign(packet, 0)
        told = control.welcome(0, NOW * 1000, 3, 0, 0, 2, 5, b"\0")
        session.down(link.down(keys.u24(INST) + bytes(8) + b"\1", session.conn, told), 0)
        steps = self._m2, self._raw_m2, self._from_broker, self._connect, self._token, self._up
        for _ in range(12):
            if not draw.more():
                break
            try:
                draw.pick(steps)(draw, session, link)
                self.accepted += 1
            except (SealError, MqttError):
                continue
        if len(link.seen) > 64 or len(vars(BootSession)["_tails"].__get__(link)) > 64:
            raise Finding("a link remembers without end")

    def _judge(self, draw: Draw, link: BootSession, topic: bytes, m2: bytes, flags: int) -> None:
        """Steps 2 to 4 of §6.1, perhaps on another topic or with other flags."""
        if draw.number() % 8 == 7:
            topic, flags = draw.pick(TOPICS), draw.number()
        ring, who = self._ring, self._ring.clients[7]
        verified = verify_m2(link, topic, m2, flags & 7)
        opened = open_m2(link, ring, who, verified, flags, NOW, (40,))
        label = ring.labels[LABEL]
        if opened.kind == 2:
            items, inner = {TLV_FIRED: NOW.to_bytes(4, "big")}, (opened.body, opened.start, None)
            for_broker(ring, Order(INST), label, *inner, items, 2, topic, NOW * 1000)
        link.look(opened.ctr, 1)
        link.mark(opened.ctr, tag_of(m2))
        m3 = seal_m3(ring, label, Order(INST), 0, topic, opened.body, NOW * 1000)
        if open_m3(ring, look_m3(ring, m3), topic, m3, (40,)).sender != 7:
            raise Finding("another sender than the link's was taken")

    def _m2(self, draw: Draw, session: Session, link: BootSession) -> None:
        """Made by the portable package, with any class, life and TLV."""
        topic, flags, kind = draw.pick(TOPICS), draw.number() % 8, draw.number() % 4
        block = draw.pick((b"\0", b"\0", b"\x03\x28\x01x", b"\x03\x29\x01x", b"\x82\0"))
        plain = draw.chunk()
        at = M2_HEAD + len(block) + 27
        buf = bytearray(at) + plain + bytes(2 * TAG)
        mono = (draw.number(2) - 32768) * 1000
        session.seal_publish(
            buf, 0, len(plain), topic, flags, kind, draw.number(), max(mono, -NOW), block
        )
        self._judge(draw, link, topic, bytes(buf), flags | (0x80 if kind == 2 else 0))

    def _raw_m2(self, draw: Draw, session: Session, link: BootSession) -> None:
        """Whatever plaintext, well sealed; or nothing that was sealed."""
        if draw.number() % 4 == 0:
            self._judge(draw, link, TOPICS[0], b"\x12" + draw.chunk(), draw.number())
            return
        flags, ctr, body = draw.number() % 8, 1 + draw.number(), draw.chunk()
        head = bytearray(M2_HEAD)
        envelope.put_m2(head, 0, 0x12, 1, ctr, NOW)
        nonce = envelope.nonce_link(SALT, head)
        key = keys.link_key(SITE, USE_PUBLISH, 1, 1, 3, SALT, session.ident.km)
        tail = envelope.tail_m2(SITE, 7, 1, flags & 7, TOPICS[0])
        m2 = bytes(head) + make(1, key).seal(nonce, body, bytes(head) + tail)
        self._judge(draw, link, TOPICS[0], m2, flags)

    def _from_broker(self, draw: Draw, session: Session, link: BootSession) -> None:
        ring, topic, how = self._ring, draw.pick(TOPICS), draw.number() % 4
        if draw.number() % 8 == 0:
            m3 = b"\x13" + draw.chunk()
        else:
            epoch, s2 = 1 + draw.number() % 3, NOW + draw.number(2) - 32768
            body = self._body(draw) if draw.number() % 2 else draw.chunk()
            head = bytearray(M3_HEAD)
            envelope.put_m3(head, 0, 1, 0, how, LABEL, epoch, INST, max(0, s2) * 1000, 1)
            key = keys.outer_key(SITE, 1, LABEL, epoch, INST, _ek(epoch))
            aad = bytes(head) + envelope.tail_m3(SITE, topic)
            m3 = bytes(head) + make(1, key).seal(envelope.nonce_m3(head), body, aad)
        seen = look_m3(ring, m3)
        is_fresh(seen, NOW * 1000)
        inside = open_m3(ring, seen, topic, m3, (40,))
        new = rewrap(ring, Order(INST), seen, inside, draw.number() % 4, topic, NOW * 1000)
        again = look_m3(ring, new)
        if again.epoch != 2 or open_m3(ring, again, topic, new, (40,)).body != inside.body:
            raise Finding("sealed again it says something else")

    def _body(self, draw: Draw) -> bytes:
        """TLV and an m1 whose header is what the input says."""
        block = draw.pick((b"\0", b"\x06\x02\x04\x6b\x49\xd2\0"))
        head = bytearray(b"\x11\x10\0\0\2\0\0\7\0\0\3" + SALT + b"\0\0\1\x6b\x49\xd2\0\0")
        for _ in range(draw.number() % 4):
            head[draw.number() % len(head)] = draw.number()
        return block + bytes(head) + draw.chunk() + bytes(TAG)

    def _connect(self, draw: Draw, session: Session, link: BootSession) -> None:
        """A CONNECT as it comes from the codec, well signed or not."""
        name, ident = draw.pick(("sealmq1", "sealmq2", "")), draw.chunk().decode("utf-8", "replace")
        good = draw.number() % 2
        password = bytearray(session.begin_connect(draw.number() % 2 == 1) + bytes(22))
        for _ in range(draw.number() % 4):
            password[draw.number() % len(password)] = draw.number()
        raw = bytearray(build.connect(ident, username=name, password=bytes(password)))
        if good:
            session.sign(raw, 0)
        (packet,) = Decoder(16384).feed(bytes(raw))
        if not isinstance(packet, Connect):
            raise Finding("a CONNECT is read as something else")
        claim = claim_of(packet)
        verify(packet, claim, self._ring, 1, _Links(), None)  # type: ignore[arg-type]
        is_behind(claim, None)

    def _token(self, draw: Draw, session: Session, link: BootSession) -> None:
        op, qos, low = draw.number() % 2, draw.number() % 3, draw.number()
        text = draw.chunk().decode("utf-8", "replace")
        if draw.number() % 2:
            text, _ = session.token(text, qos, op)
        link.token(op, qos, text, low)

    def _up(self, draw: Draw, session: Session, link: BootSession) -> None:
        packet = session.up(draw.chunk(), 0) if draw.number() % 2 else b"\x14" + draw.chunk()
        link.open_control(packet)

    def seeds(self) -> Iterator[bytes]:
        now = b"\x80\0"
        live = bytes((0, 0, 2, 0, 0, 3)) + b"abc" + now + bytes((0, 0, 0))
        kept = bytes((0, 0, 3, 1, 2, 3)) + b"abc" + now + bytes((9, 0, 0))
        will = bytes((0, 0, 2, 2, 0, 1)) + b"w" + now + bytes((9, 0, 0))
        broker = bytes((2, 0, 0, 1, 1)) + now + bytes((1, 0, 0, 2)) + b"xy"
        yield live + kept + will
        for how in (1, 2, 3):
            yield broker + bytes((how,))
        yield bytes((3, 0, 2)) + b"id" + bytes((1, 0, 0))
        yield bytes((4, 0, 1, 0, 3)) + b"a/+" + b"\1" + bytes((5, 17)) + b"\x82" + b"N" * 16 + b"\1"
        yield bytes((1, 1, 2, 0, 60)) + b"\0\x11\x10\0\0\2\0\0\7\0\0\3" + SALT + bytes(40)
