# What protects CONNECT, SUBSCRIBE and UNSUBSCRIBE, and the packets of the control topic (SPEC.md
# 4). Both sides build the same bytes here; keys and ciphers come in through the port of aead.py.
import struct

from .aead import check_tag, seal, tag, unseal
from .b64 import b64u, unb64u
from .const import (
    CCM,
    CHACHA,
    CONTROL,
    DOWN,
    DOWN_HEAD,
    FRESH_TOKENS,
    M2_HEAD,
    N_CONTROL,
    N_PROOF,
    N_TOKEN,
    OP_NOTICE,
    OP_RECEIPT,
    OP_WELCOME,
    PROOF,
    TAG,
    TOKENED,
    UP,
    WANT_KG_TIME,
)
from .envelope import get_m2, nonce_link, put_m2, tail_m2
from .errors import Malformed, Unauthentic, Unsupported
from .keys import u24

_TYPING = False
if _TYPING:
    from typing import Any

    Readable = bytes | bytearray | memoryview

_PROOF_CHARS = 32
TAG_CHARS = 22
_REASON = 200
_PROOF = bytes((PROOF,))
PROOF_FRONT = 8
# A welcome up to its TLV block, and its length with the shortest one.
WELCOME = ">BBHIBHBHQBHI"
WELCOME_LEAST = 30
CONN_AT = DOWN_HEAD + 10
_DOWN_LEAST = DOWN_HEAD + TAG
_CONTROL = len(CONTROL).to_bytes(2, "big") + CONTROL


# --- CONNECT ---


# 32 characters: the first part of the password, all of it in quarantine (gen 0).
def proof_head(
    suite: int, flags: int, gen: int, client: int, boot: int, salt: bytes, conn: int, low: int
) -> bytes:
    p = struct.pack(
        ">IHI8sHI",
        (suite << 4 | flags) << 24 | gen,
        client >> 8,
        (client & 255) << 24 | boot,
        salt,
        conn >> 8,
        (conn & 255) << 24 | low,
    )
    return b64u(p)


# P of one who connects again and again. What its first byte, what stands from PROOF_SESSION to
# PROOF_CONN (u24 boot ‖ salt) and the u24 conn ‖ u24 low after that say is still to be written.
PROOF_SESSION = 7
PROOF_CONN = 18


def proof_input(suite: int, gen: int, client: int) -> bytearray:
    head = struct.pack(">IHB", suite << 28 | gen, client >> 8, client & 255)
    return bytearray(head + bytes(24 - PROOF_SESSION))


# (suite, flags, gen, client, boot, salt, conn, low, tag or b"") of a CONNECT password.
def split_proof(password: bytes) -> "tuple[int, int, int, int, int, bytes, int, int, bytes]":
    n = len(password)
    if n != _PROOF_CHARS and n != _PROOF_CHARS + TAG_CHARS:
        raise Malformed("the password has %d characters, not 32 or 54" % n)
    p = unb64u(password[:_PROOF_CHARS])
    t = struct.unpack(">BBHBHBH8sBHBH", p)
    gen = t[1] << 16 | t[2]
    if (n == _PROOF_CHARS) != (gen == 0):
        raise Malformed("a tag comes with gen > 0 and only then: gen %d" % gen)
    flags, conn, low = t[0] & 15, t[8] << 16 | t[9], t[10] << 16 | t[11]
    if t[0] >> 4 not in (CCM, CHACHA):
        raise Unsupported("suite %d in the proof" % (t[0] >> 4))
    if flags & ~(WANT_KG_TIME | FRESH_TOKENS):
        raise Unsupported("flags %d in the proof" % flags)
    boot = t[5] << 16 | t[6]
    if not gen and (flags or conn or low):
        raise Malformed("gen 0 with flags %d, conn %d, low %d" % (flags, conn, low))
    if gen and not (boot and conn):
        raise Malformed("boot %d, conn %d: both count from 1" % (boot, conn))
    if flags & WANT_KG_TIME and conn != 1:
        raise Malformed("KG time asked for in CONNECT %d, only the first may" % conn)
    return (
        t[0] >> 4,
        flags,
        gen,
        t[3] << 16 | t[4],
        boot,
        t[7],
        conn,
        low,
        unb64u(password[_PROOF_CHARS:]),
    )


# What stands in front of the CONNECT packet in the proof's associated data: PROOF_FRONT bytes.
def proof_aad(site: bytes, mediator: int) -> bytes:
    return _PROOF + site + u24(mediator)


def _proof_nonce(salt: bytes, conn: int) -> bytes:
    return salt + (N_PROOF[0] << 24 | conn).to_bytes(4, "big")


# Fills in the last 22 bytes of a CONNECT packet whose password already begins with proof_head.
def sign_connect(
    aead: "Any", site: bytes, mediator: int, salt: bytes, conn: int, packet: bytearray
) -> None:
    aad = proof_aad(site, mediator) + packet[:-TAG_CHARS]
    packet[-TAG_CHARS:] = b64u(tag(aead, _proof_nonce(salt, conn), aad))


def check_connect(
    aead: "Any", site: bytes, mediator: int, salt: bytes, conn: int, packet: bytes, given: bytes
) -> None:
    aad = proof_aad(site, mediator) + packet[: len(packet) - TAG_CHARS]
    check_tag(aead, _proof_nonce(salt, conn), aad, given, "CONNECT")


# --- SUBSCRIBE, UNSUBSCRIBE ---


def token_aad(
    suite: int, op: int, ctr: int, site: bytes, client: int, mediator: int, qos: int, filt: bytes
) -> bytes:
    who = client << 24 | mediator
    head = struct.pack(
        ">BBHB4sHIBH",
        TOKENED,
        suite << 4 | op,
        ctr >> 8,
        ctr & 255,
        site,
        who >> 32,
        who & 0xFFFFFFFF,
        qos,
        len(filt),
    )
    return head + filt


# ctr as 3 bytes, here and below.
def token_tag(
    aead: "Any",
    suite: int,
    op: int,
    ctr: bytes,
    salt: bytes,
    site: bytes,
    client: int,
    mediator: int,
    qos: int,
    filt: str,
) -> bytes:
    number = int.from_bytes(ctr, "big")
    aad = token_aad(suite, op, number, site, client, mediator, qos, filt.encode())
    return tag(aead, salt + N_TOKEN + ctr, aad)


def check_token(
    aead: "Any",
    suite: int,
    op: int,
    ctr: bytes,
    salt: bytes,
    site: bytes,
    client: int,
    mediator: int,
    qos: int,
    filt: str,
    given: bytes,
) -> None:
    number = int.from_bytes(ctr, "big")
    aad = token_aad(suite, op, number, site, client, mediator, qos, filt.encode())
    check_tag(aead, salt + N_TOKEN + ctr, aad, given, "filter %r" % filt)


# --- control packets ---


def seal_up(
    aead: "Any",
    suite: int,
    ctr: int,
    s1: int,
    salt: bytes,
    site: bytes,
    client: int,
    mediator: int,
    body: bytes,
) -> bytes:
    head = bytearray(M2_HEAD)
    put_m2(head, 0, UP, suite, ctr, s1)
    tail = tail_m2(site, client, mediator, 0, CONTROL)
    return seal(aead, nonce_link(salt, head, 0, N_CONTROL), bytes(head), tail, body)


# (suite, ctr, s1) of a control packet up, before it is opened.
def up_header(packet: bytes) -> "tuple[int, int, int]":
    return get_m2(packet, UP, M2_HEAD + 1 + TAG)


def open_up(
    aead: "Any", salt: bytes, site: bytes, client: int, mediator: int, packet: bytes
) -> bytes:
    tail = tail_m2(site, client, mediator, 0, CONTROL)
    nonce = nonce_link(salt, packet, 0, N_CONTROL)
    return unseal(aead, nonce, packet, M2_HEAD, tail, "control packet")


# Associated data of what comes down, with room for its header and conn.
def down_aad(site: bytes, client: int, mediator: int) -> bytearray:
    who = (client << 24 | mediator).to_bytes(6, "big")
    return bytearray(b"".join((bytes(DOWN_HEAD), site, who, b"\0\0\0", _CONTROL)))


def put_conn(aad: bytearray, conn: int) -> None:
    struct.pack_into(">BH", aad, CONN_AT, conn >> 16, conn & 0xFFFF)


# order: 12 bytes (inst, ms, seq), which is the nonce.
def seal_down(
    aead: "Any",
    suite: int,
    order: bytes,
    site: bytes,
    client: int,
    mediator: int,
    conn: int,
    body: bytes,
) -> bytes:
    head = bytes((DOWN, suite << 4)) + order
    aad = down_aad(site, client, mediator)
    put_conn(aad, conn)
    return seal(aead, order, head, bytes(aad[DOWN_HEAD:]), body)


# (order, body). The caller holds order to strictly rising.
def open_down(
    aead: "Any", suite: int, site: bytes, client: int, mediator: int, conn: int, packet: bytes
) -> "tuple[bytes, bytes]":
    buf = bytearray(packet)
    aad = down_aad(site, client, mediator)
    put_conn(aad, conn)
    order = open_down_at(aead, suite, aad, buf, 0)
    return bytes(order), bytes(buf[DOWN_HEAD : len(buf) - TAG])


# Opens in place the packet that stands in buf from o to its end. aad: of down_aad, conn in it.
# Gives order.
def open_down_at(aead: "Any", suite: int, aad: bytearray, buf: bytearray, o: int) -> bytearray:
    n = len(buf) - o - _DOWN_LEAST
    if n < 1:
        raise Malformed("control packet of %d bytes" % (len(buf) - o))
    second = buf[o + 1]
    if buf[o] != DOWN or second & 15:
        raise Malformed("control packet begins with %02x %02x" % (buf[o], second))
    if second >> 4 != suite:
        raise Unsupported("control packet of suite %d, the link's is %d" % (second >> 4, suite))
    p = o + DOWN_HEAD
    aad[:DOWN_HEAD] = buf[o:p]
    order = buf[o + 2 : p]
    if not aead.open_into(order, aad, buf, p, n):
        raise Unauthentic("control packet: the tag does not verify")
    return order


def welcome(
    status: int, ms: int, boot_floor: int, top: int, mask: int, epoch: int, kseq: int, tlv: bytes
) -> bytes:
    head = bytes((OP_WELCOME, status)) + ms.to_bytes(6, "big") + u24(boot_floor) + u24(top)
    return head + mask.to_bytes(8, "big") + u24(epoch) + kseq.to_bytes(4, "big") + tlv


# (status, ms, boot_floor, top, mask, epoch, kseq, offset of the TLV block).
def get_welcome(
    body: "bytes | bytearray", o: int = 0, end: int = -1
) -> "tuple[int, int, int, int, int, int, int, int]":
    if end < 0:
        end = len(body)
    if end - o < WELCOME_LEAST or body[o] != OP_WELCOME:
        raise Malformed("welcome of %d bytes" % (end - o))
    t = struct.unpack_from(WELCOME, body, o)
    return (
        t[1],
        t[2] << 32 | t[3],
        t[4] << 16 | t[5],
        t[6] << 16 | t[7],
        t[8],
        t[9] << 16 | t[10],
        t[11],
        o + WELCOME_LEAST - 1,
    )


def receipt(top: int, mask: int) -> bytes:
    return bytes((OP_RECEIPT,)) + u24(top) + mask.to_bytes(8, "big")


def get_receipt(body: bytes) -> "tuple[int, int]":
    if len(body) != 12:
        raise Malformed("receipt of %d bytes" % len(body))
    return int.from_bytes(body[1:4], "big"), int.from_bytes(body[4:12], "big")


# what: 1 publish, 2 subscribe, 3 unsubscribe, 4 control, 5 session. code: a class of errors.py.
def notice(what: int, ctr: int, code: int, rule: str, reason: str) -> bytes:
    r = rule.encode()
    text = reason.encode()[:_REASON]
    while not _is_utf8(text):
        text = text[:-1]
    return bytes((OP_NOTICE, what)) + u24(ctr) + bytes((code, len(r))) + r + text


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
        return True
    except ValueError:
        return False


# (what, ctr, code, rule, reason)
def get_notice(body: bytes) -> "tuple[int, int, int, str, str]":
    if len(body) < 7 or len(body) < 7 + body[6]:
        raise Malformed("notice of %d bytes" % len(body))
    end = 7 + body[6]
    rule, reason = bytes(body[7:end]), bytes(body[end:])
    if len(reason) > _REASON or not _is_utf8(rule) or not _is_utf8(reason):
        raise Malformed("notice whose text is too long or no UTF-8")
    return body[1], int.from_bytes(body[2:5], "big"), body[5], rule.decode(), reason.decode()
