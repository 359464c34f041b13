# The three envelopes of a message (SPEC.md 3): headers, nonces, associated data. Sealing itself is
# the port's. Associated data is always `header + tail`; a tail depends on the topic and is worth
# keeping.
import struct

from .const import (
    LIFE_FOREVER,
    M1,
    M1_HEAD,
    M1_MIN,
    M2,
    M2_HEAD,
    M2_MIN,
    M3,
    M3_HEAD,
    M3_MIN,
    N_LINK,
    TAG,
    UNTIMED,
)
from .errors import Malformed

_TYPING = False
if _TYPING:
    from typing import Any

    Readable = bytes | bytearray | memoryview

_M1 = ">BBBHBHBH8sBHIB"
_M2 = ">BBBHI"


def tail_m1(site: bytes, label: int, topic: bytes) -> bytes:
    return site + (label << 16 | len(topic)).to_bytes(5, "big") + topic


# flags: bits 0 to 2 of PUBLISH's first byte (RETAIN, QoS).
def tail_m2(site: bytes, client: int, mediator: int, flags: int, topic: bytes) -> bytes:
    number = (client << 24 | mediator).to_bytes(6, "big")
    return b"".join((site, number, (flags << 16 | len(topic)).to_bytes(3, "big"), topic))


def tail_m3(site: bytes, topic: bytes) -> bytes:
    return site + len(topic).to_bytes(2, "big") + topic


# Where ctr, with t_pub after it, and life stand in the headers of m1 and m2.
CTR1 = 19
LIFE1 = 26
CTR2 = 2


# Associated data up to the topic's length; ctr, t_pub, life, class are still to be written, and
# boot and salt, which a boot session fills in.


def front_m1(suite: int, epoch: int, sender: int, site: bytes, label: int) -> bytearray:
    front = bytearray(M1_HEAD)
    put_m1(front, 0, suite, 0, epoch, sender, 0, bytes(8), 0, 0, 0)
    return front + site + label.to_bytes(3, "big")


# Its last byte is for the flags.
def front_m2(suite: int, site: bytes, client: int, mediator: int) -> bytearray:
    front = bytearray(M2_HEAD)
    put_m2(front, 0, M2, suite, 0, 0)
    return front + site + (client << 24 | mediator).to_bytes(6, "big") + b"\0"


# kind_class: a class, plus UNTIMED where t_pub is 0. Writes 27 bytes at buf[o].
def put_m1(
    buf: "bytearray",
    o: int,
    suite: int,
    kind_class: int,
    epoch: int,
    sender: int,
    boot: int,
    salt: bytes,
    ctr: int,
    t_pub: int,
    life: int,
) -> None:
    struct.pack_into(
        _M1,
        buf,
        o,
        M1,
        suite << 4 | kind_class,
        epoch >> 16,
        epoch & 0xFFFF,
        sender >> 16,
        sender & 0xFFFF,
        boot >> 16,
        boot & 0xFFFF,
        salt,
        ctr >> 16,
        ctr & 0xFFFF,
        t_pub,
        life,
    )


# (suite, class, untimed, epoch, sender, boot, salt, ctr, t_pub, life) of the m1 that fills
# buf[o:end].
def get_m1(
    buf: "Readable", o: int, end: int
) -> "tuple[int, int, bool, int, int, int, bytes, int, int, int]":
    if end - o < M1_MIN:
        raise Malformed("m1 has %d bytes, at least %d expected" % (end - o, M1_MIN))
    first, low, e, epoch, s, sender, b, boot, salt, c, ctr, t_pub, life = struct.unpack_from(
        _M1, buf, o
    )
    untimed = bool(low & UNTIMED)
    ctr |= c << 16
    if first != M1 or low & 4:
        raise Malformed("m1 begins with %02x %02x" % (first, low))
    if untimed != (t_pub == 0):
        raise Malformed("m1: t_pub %d with untimed=%d" % (t_pub, untimed))
    if life > 31 and life != LIFE_FOREVER:
        raise Malformed("m1: life %d is neither 0 to 31 nor 255" % life)
    if not ctr:
        raise Malformed("m1: ctr counts from 1")
    epoch |= e << 16
    sender |= s << 16
    boot |= b << 16
    return low >> 4, low & 3, untimed, epoch, sender, boot, salt, ctr, t_pub, life


# N_INNER is zero, so it and ctr are ctr as a u32.
def nonce_m1(buf: "Readable", o: int) -> bytes:
    salt, ctr = struct.unpack_from(">8sI", buf, o + 11)
    return struct.pack(">8sI", salt, ctr >> 8)


def put_m2(buf: "bytearray", o: int, first: int, suite: int, ctr: int, s1: int) -> None:
    struct.pack_into(_M2, buf, o, first, suite << 4, ctr >> 16, ctr & 0xFFFF, s1)


# (suite, ctr, s1) of an m2, or of a control packet up, which has the same header with another first
# byte.
def get_m2(buf: "Readable", first: int = M2, least: int = M2_MIN) -> "tuple[int, int, int]":
    if len(buf) < least:
        raise Malformed("%d bytes of payload, a sealed one has at least %d" % (len(buf), least))
    t = struct.unpack_from(_M2, buf, 0)
    if t[0] != first or t[1] & 15:
        raise Malformed("payload begins with %02x %02x, not %02x" % (t[0], t[1], first))
    if not t[2] and not t[3]:
        raise Malformed("ctr counts from 1")
    return t[1] >> 4, t[2] << 16 | t[3], t[4]


def nonce_link(salt: bytes, buf: "Readable", o: int = 0, kind: bytes = N_LINK) -> bytes:
    return salt + kind + bytes(buf[o + 2 : o + 5])


def put_m3(
    buf: "bytearray",
    o: int,
    suite: int,
    ref: int,
    how: int,
    number: int,
    epoch: int,
    inst: int,
    ms: int,
    seq: int,
) -> None:
    struct.pack_into(
        ">BBBHBHBHHIBH",
        buf,
        o,
        M3,
        suite << 5 | ref << 2 | how,
        number >> 16,
        number & 0xFFFF,
        epoch >> 16,
        epoch & 0xFFFF,
        inst >> 16,
        inst & 0xFFFF,
        ms >> 32,
        ms & 0xFFFFFFFF,
        seq >> 16,
        seq & 0xFFFF,
    )


# (suite, ref, how, number, epoch, inst, s2 in ms, seq) of the m3 that is buf.
def get_m3(buf: "Readable") -> "tuple[int, int, int, int, int, int, int, int]":
    if len(buf) < M3_MIN:
        raise Malformed("%d bytes of payload, m3 has at least %d" % (len(buf), M3_MIN))
    t = struct.unpack_from(">BBBHBHBHHIBH", buf, 0)
    if t[0] != M3:
        raise Malformed("payload begins with %02x, not %02x" % (t[0], M3))
    k = t[1]
    return (
        k >> 5,
        k >> 2 & 7,
        k & 3,
        t[2] << 16 | t[3],
        t[4] << 16 | t[5],
        t[6] << 16 | t[7],
        t[8] << 32 | t[9],
        t[10] << 16 | t[11],
    )


def nonce_m3(buf: "Readable") -> bytes:
    return bytes(buf[8:M3_HEAD])


# Seals in place: header of `head` bytes at buf[o], n bytes of plaintext after it, room for the tag
# after those.
def seal_at(
    aead: "Any", nonce: bytes, buf: "bytearray", o: int, head: int, n: int, tail: bytes
) -> None:
    aead.seal_into(nonce, bytes(buf[o : o + head]) + tail, buf, o + head, n)


# Opens in place what fills buf[o:end]. False means: does not verify, and the plaintext's place is
# wiped.
def open_at(
    aead: "Any", nonce: bytes, buf: "bytearray", o: int, head: int, end: int, tail: bytes
) -> bool:
    ok: bool = aead.open_into(nonce, buf[o : o + head] + tail, buf, o + head, end - o - head - TAG)
    return ok


# Bytes that a publisher's two envelopes add to a payload, with a TLV block of `tlv` bytes.
def publish_overhead(tlv: int = 1) -> int:
    return M2_HEAD + tlv + M1_HEAD + TAG + TAG
