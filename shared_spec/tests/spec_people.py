"""A small site for the tests of the protocol package: clients and an honest mediator."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from sealmq_spec import const, control, envelope, keys
from sealmq_spec.identity import Identity
from sealmq_spec.records import Roots
from sealmq_spec.session import Session
from sealmq_spec.tlv import span
from spec_cipher import make

SITE = b"\x01\x02\x03\x04"
NOW = 1_800_000_000
MEDIATOR = 1
INST = 9

Make = Callable[[int, bytes], Any]


def new_roots(label: int, epoch: int = 1, suite: int = 1) -> Roots:
    """Fresh roots."""
    return Roots(label, epoch, suite, os.urandom(32), os.urandom(32))


def new_identity(number: int, own: Roots, suite: int = 1) -> Identity:
    """A provisioned client."""
    ident = Identity(SITE, number, MEDIATOR, os.urandom(32), f"client {number}", suite)
    ident.gen, ident.kseq, ident.km, ident.own = 1, 1, os.urandom(32), own
    return ident


def connect_packet(session: Session, mono: int, want_kg_time: bool = False) -> bytes:
    """Enough of a CONNECT to be signed."""
    packet = bytearray(b"\x10\x40 the packet " + session.begin_connect(want_kg_time) + bytes(22))
    session.sign(packet, mono)
    return bytes(packet)


class Mediator:
    """What §6.1 step 4 and step 6 do to a message, and control packets down."""

    def __init__(self, now: int = NOW) -> None:
        self.ms = now * 1000
        self.seq = 0

    def order(self) -> bytes:
        """The next 12 bytes."""
        self.seq += 1
        return keys.u24(INST) + self.ms.to_bytes(6, "big") + keys.u24(self.seq)

    def key(self, session: Session, use: int) -> Any:
        """A cipher of a client's boot session."""
        i = session.ident
        k = keys.link_key(i.site, use, i.suite, i.mediator, session.boot, session.salt, i.km)
        return make(i.suite, k)

    def down(self, session: Session, body: bytes) -> bytes:
        """A control packet for this connection."""
        i = session.ident
        return control.seal_down(
            self.key(session, const.USE_DOWN),
            i.suite,
            self.order(),
            i.site,
            i.client,
            i.mediator,
            session.conn,
            body,
        )

    def welcome(
        self,
        session: Session,
        mono: int = 0,
        tlv: bytes = b"\x00",
        other: dict[str, int] | None = None,
    ) -> None:
        """Verifies a CONNECT and gives the session its welcome, with other numbers in it."""
        packet = connect_packet(session, mono)
        fields = control.split_proof(packet[-54:])
        aead = self.key(session, const.USE_CONTROL)
        i = session.ident
        control.check_connect(
            aead, i.site, i.mediator, session.salt, session.conn, packet, fields[8]
        )
        said = {"status": 0, "ms": self.ms, "boot_floor": 0, "top": 0, "mask": 0}
        said |= {"epoch": i.own.epoch, "kseq": i.kseq} | (other or {})
        session.down(self.down(session, control.welcome(**said, tlv=tlv)), mono)

    def open_m2(self, session: Session, packet: bytes, topic: bytes, flags: int) -> bytes:
        """TLV and m1 of a client's m2."""
        i = session.ident
        buf = bytearray(packet)
        tail = envelope.tail_m2(i.site, i.client, i.mediator, flags, topic)
        aead = self.key(session, const.USE_PUBLISH)
        nonce = envelope.nonce_link(session.salt, buf)
        assert envelope.open_at(aead, nonce, buf, 0, const.M2_HEAD, len(buf), tail)
        body = bytes(buf[const.M2_HEAD : -const.TAG])
        envelope.get_m1(body, span(body, 0, len(body))[1], len(body))
        return body

    def seal_m3(self, label: Roots, topic: bytes, body: bytes, how: int = const.LIVE) -> bytes:
        """m3 under a label's current epoch."""
        order = self.order()
        inst, ms, seq = (int.from_bytes(x, "big") for x in (order[:3], order[3:9], order[9:]))
        buf = bytearray(const.M3_HEAD) + body + bytes(const.TAG)
        envelope.put_m3(
            buf, 0, label.suite, const.REF_LABEL, how, label.label, label.epoch, inst, ms, seq
        )
        ek = keys.topic_key(SITE, label.suite, label.label, label.epoch, label.r)
        outer = keys.outer_key(SITE, label.suite, label.label, label.epoch, inst, ek)
        tail = envelope.tail_m3(SITE, topic)
        aead = make(label.suite, outer)
        envelope.seal_at(aead, order, buf, 0, const.M3_HEAD, len(body), tail)
        return bytes(buf)


def publish(
    session: Session,
    topic: bytes,
    plain: bytes,
    mono: int = 0,
    flags: int = 0,
    kind: int = const.LIVE,
    life: int = 0,
    tlv: bytes = b"\x00",
) -> bytes:
    """What a client sends."""
    at = const.M2_HEAD + len(tlv) + const.M1_HEAD
    buf = bytearray(at) + plain + bytes(2 * const.TAG)
    n = session.seal_publish(buf, 0, len(plain), topic, flags, kind, life, mono, tlv)
    assert n == len(buf)
    return bytes(buf)
