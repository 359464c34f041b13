"""A client's session: what a mediator sends down, and what the client then seals.

The harness has the link's keys, so an input is what a dishonest mediator may say. Only SealError
comes out, of what is opened and of what is sealed afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from sealmq.aead import make
from sealmq_spec import control, keys, provision
from sealmq_spec.const import (
    OP_EPOCH,
    OP_GRANT,
    OP_NOTICE,
    OP_RECEIPT,
    OP_RECORD,
    OP_TIME,
    OP_WELCOME,
    TAG,
    USE_DOWN,
)
from sealmq_spec.errors import SealError
from sealmq_spec.session import Session
from sealmq_spec.tlv import pack

from .packets import KEY, SALT, SITE, client
from .target import Draw, Finding, Target

_NC = b"N" * 16


class Fuzz(Target):
    """Up to twenty steps an input, in one boot session."""

    longest: ClassVar[int] = 1200
    words: ClassVar[tuple[bytes, ...]] = (_NC, b"\x01\x00", b"\x06" + _NC)

    def one(self, data: bytes) -> None:
        draw = Draw(data)
        session = Session(client(), make, 3, SALT)
        self._mono, self._order = 0, 0
        last = b""
        for _ in range(20):
            if not draw.more():
                return
            step = draw.number() % 8
            try:
                if step == 0:
                    self._connect(session, draw)
                elif step == 1:
                    self._mono += draw.number(3)
                elif step == 2:
                    session.down(bytearray(b"\x15" + draw.chunk()), self._mono)
                elif step == 3 and last:
                    session.down(bytearray(last), self._mono)
                elif step == 4:
                    self._say(session, draw)
                else:
                    last = self._down(session, draw.chunk())
                    session.down(bytearray(last), self._mono)
            except SealError:
                continue
            if len(vars(session)["_prepared"]) > 16:
                raise Finding("a session prepares topics without end")

    def _connect(self, session: Session, draw: Draw) -> None:
        head = session.begin_connect(draw.number() % 2 == 1)
        packet = bytearray(b"\x10 CONNECT " + head + bytes(control.TAG_CHARS))
        session.sign(packet, self._mono)

    def _down(self, session: Session, body: bytes) -> bytes:
        i = session.ident
        key = keys.link_key(SITE, USE_DOWN, i.suite, i.mediator, session.boot, SALT, i.km)
        self._order += 1
        order = keys.u24(9) + bytes(6) + keys.u24(self._order)
        who = SITE, i.client, i.mediator
        return control.seal_down(make(i.suite, key), i.suite, order, *who, session.conn, body)

    def _say(self, session: Session, draw: Draw) -> None:
        """What the client sends, whatever it has been told before."""
        what = draw.number() % 4
        if what == 0:
            plain = draw.chunk()
            buf = bytearray(37) + plain + bytes(2 * TAG)
            life = draw.pick((0, 5, 255))
            kind = draw.number() % 4
            size = session.seal_publish(
                buf, 0, len(plain), b"a/b", kind & 1, kind, life, self._mono
            )
            if size != len(buf):
                raise Finding(f"an m2 of {size} bytes in a buffer of {len(buf)}")
        elif what == 1:
            session.token("a/+", draw.number() % 3, draw.number() % 2)
        elif what == 2:
            session.ask_time(_NC, self._mono)
        else:
            session.fetch(draw.number(3), self._mono)

    def seeds(self) -> Iterator[bytes]:
        nonce = provision.time_nonce(SALT, 3, 1)
        kg = provision.kg_time(make, SITE, KEY, 1, 7, nonce, b"o" * 12, 1_800_000_000_000, 2, 4)
        bodies = [
            control.welcome(0, 1_800_000_000_000, 3, 0, 0, 2, 4, b"\0"),
            control.welcome(0, 1_800_000_000_000, 3, 0, 0, 3, 4, pack([(1, kg)])),
            control.welcome(1, 1_800_000_000_000, 9, 0, 0, 2, 4, b"\0"),
            control.receipt(4, 7),
            control.notice(1, 2, 6, "mediator.publish.epoch", "no"),
            bytes((OP_EPOCH,)) + keys.u24(16) + keys.u24(3) + bytes(8),
            bytes((OP_TIME,)) + _NC + (1_800_000_000_000).to_bytes(6, "big") + b"\0",
            bytes((OP_RECORD,)) + bytes(130),
            bytes((OP_GRANT,)) + bytes(43),
            bytes((OP_WELCOME, OP_RECEIPT, OP_NOTICE)),
        ]
        begin = b"\0\x01"
        publish = b"\x04\0\x03abc\0\0"
        for body in bodies:
            say = b"\x05" + bytes((len(body),)) + body
            yield begin + say + publish + b"\x04\x02" + say + b"\x03"
