# Provisioning and KG time (SPEC.md 7): the only packets under the pre-shared secret ps.
import struct

from .aead import check_tag, seal, tag, unseal
from .const import ANSWER, ASK, ASK_LEN, CCM, CHACHA, KGTIME, KGTIME_LEN, TAG
from .errors import Malformed, Misuse, Unauthentic, Unsupported
from .keys import provisioning_key, time_key, u24
from .tlv import span, unpack

_TYPING = False
if _TYPING:
    from typing import Any

    from .records import Make

_ZERO = bytes(12)
_HEAD = 14
_BODY = 119
_KG_BODY = 13

OK = 0
DISABLED = 1
LATER = 2


def check_ps(ps: "object") -> None:
    if not isinstance(ps, (bytes, bytearray)) or len(ps) != 32:
        raise Misuse("the pre-shared secret is exactly 32 bytes")


def _int(b: bytes) -> int:
    return int.from_bytes(b, "big")


# nonce_c: 16 fresh random bytes. gen: what the client holds, 0 for nothing. mediator: whom it asks;
# bound, not sent: the KG knows who passes the request on.
def ask(
    make: "Make",
    site: bytes,
    ps: bytes,
    suite: int,
    client: int,
    gen: int,
    boot: int,
    nonce_c: bytes,
    mediator: int,
) -> bytes:
    check_ps(ps)
    head = bytes((ASK, suite << 4)) + u24(client) + u24(gen) + u24(boot) + nonce_c
    key = provisioning_key(site, suite, 0, nonce_c, ps)
    return head + tag(make(suite, key), _ZERO, head + site + u24(mediator))


# (suite, client, gen, boot, nonce_c) of a request that nobody has verified yet.
def get_ask(packet: bytes) -> "tuple[int, int, int, int, bytes]":
    if len(packet) != ASK_LEN or packet[0] != ASK or packet[1] & 15:
        raise Malformed("no provisioning request: %d bytes, 43 expected" % len(packet))
    p = packet
    return p[1] >> 4, _int(p[2:5]), _int(p[5:8]), _int(p[8:11]), bytes(p[11:27])


def check_ask(make: "Make", site: bytes, ps: bytes, packet: bytes, mediator: int) -> None:
    suite, _, _, _, nonce_c = get_ask(packet)
    aead = make(suite, provisioning_key(site, suite, 0, nonce_c, ps))
    head = bytes(packet[: ASK_LEN - TAG])
    aad = head + site + u24(mediator)
    check_tag(aead, _ZERO, aad, bytes(packet[ASK_LEN - TAG :]), "provisioning request")


# The body of an answer with status OK; r, r_bar, km: 32 bytes each.
def body(
    gen: int,
    label: int,
    epoch: int,
    suite_label: int,
    suite_link: int,
    mediator: int,
    kseq: int,
    ms: int,
    r: bytes,
    r_bar: bytes,
    km: bytes,
    tlv: bytes,
) -> bytes:
    head = u24(gen) + u24(label) + u24(epoch) + bytes((suite_label << 4 | suite_link,))
    head += u24(mediator) + kseq.to_bytes(4, "big") + ms.to_bytes(6, "big")
    return head + r + r_bar + km + tlv


# (gen, label, epoch, suite_label, suite_link, mediator, kseq, ms, r, r_bar, km)
def get_body(
    b: bytes,
) -> "tuple[int, int, int, int, int, int, int, int, bytes, bytes, bytes]":
    if len(b) < _BODY + 1:
        raise Malformed("provisioning answer with a body of %d bytes" % len(b))
    start, end = span(b, _BODY, len(b))
    if end != len(b):
        raise Malformed("provisioning answer with %d bytes behind its TLV block" % (len(b) - end))
    unpack(b, start, end)
    for suite in (b[9] >> 4, b[9] & 15):
        if suite != CCM and suite != CHACHA:
            raise Unsupported("provisioning answer with suite %d" % suite)
    return (
        _int(b[0:3]),
        _int(b[3:6]),
        _int(b[6:9]),
        b[9] >> 4,
        b[9] & 15,
        _int(b[10:13]),
        _int(b[13:17]),
        _int(b[17:23]),
        bytes(b[23:55]),
        bytes(b[55:87]),
        bytes(b[87:119]),
    )


# order: the KG's 12 bytes (inst, ms, seq), never used before.
def answer(
    make: "Make",
    site: bytes,
    ps: bytes,
    suite: int,
    status: int,
    client: int,
    nonce_c: bytes,
    order: bytes,
    plain: bytes,
) -> bytes:
    head = bytes((ANSWER, suite << 4 | status)) + order
    aead = make(suite, provisioning_key(site, suite, 1, nonce_c, ps))
    return seal(aead, order, head, site + u24(client), plain)


# (status, body). Only the answer to this nonce_c opens.
def open_answer(
    make: "Make",
    site: bytes,
    ps: bytes,
    suite: int,
    client: int,
    nonce_c: bytes,
    packet: bytes,
) -> "tuple[int, bytes]":
    if len(packet) < _HEAD + TAG or packet[0] != ANSWER:
        raise Malformed("no provisioning answer: %d bytes" % len(packet))
    if packet[1] >> 4 != suite:
        raise Unsupported("answer of suite %d, asked in %d" % (packet[1] >> 4, suite))
    aead = make(suite, provisioning_key(site, suite, 1, nonce_c, ps))
    order = bytes(packet[2:_HEAD])
    plain = unseal(aead, order, packet, _HEAD, site + u24(client), "provisioning answer")
    return packet[1] & 15, plain


# N_c of the KG time that comes with a welcome.
def time_nonce(salt: bytes, boot: int, conn: int) -> bytes:
    return salt + (boot << 40 | conn << 16).to_bytes(8, "big")


def kg_time(
    make: "Make",
    site: bytes,
    ps: bytes,
    suite: int,
    client: int,
    nonce_c: bytes,
    order: bytes,
    ms: int,
    epoch: int,
    kseq: int,
) -> bytes:
    head = bytes((KGTIME, suite << 4)) + order
    plain = ms.to_bytes(6, "big") + u24(epoch) + kseq.to_bytes(4, "big")
    aead = make(suite, time_key(site, suite, nonce_c, ps))
    return seal(aead, order, head, site + u24(client), plain)


# (ms, epoch of the client's label, kseq)
def open_kg_time(
    make: "Make",
    site: bytes,
    ps: bytes,
    suite: int,
    client: int,
    nonce_c: bytes,
    packet: bytes,
) -> "tuple[int, int, int]":
    aead = make(suite, time_key(site, suite, nonce_c, ps))
    buf = bytearray(packet)
    at = open_time(aead, time_aad(site, client), suite, buf, 0, len(buf))
    ms, ms_low, epoch, epoch_low, kseq = struct.unpack_from(KG_TIME, buf, at)
    return ms << 32 | ms_low, epoch << 16 | epoch_low, kseq


# Associated data of KG time, with room for its header.
def time_aad(site: bytes, client: int) -> bytearray:
    return bytearray(bytes(_HEAD) + site + u24(client))


KG_TIME = ">HIBHI"  # ms, epoch, kseq


# The same with the cipher and time_aad made, in place: buf[o:end] is used up. Gives where what
# KG_TIME says stands.
def open_time(aead: "Any", aad: bytearray, suite: int, buf: bytearray, o: int, end: int) -> int:
    second = buf[o + 1] if end - o == KGTIME_LEN and buf[o] == KGTIME else 1
    if second & 15:
        raise Malformed("no KG time: %d bytes, 43 expected" % (end - o))
    if second >> 4 != suite:
        raise Unsupported("KG time of suite %d, the link's is %d" % (second >> 4, suite))
    p = o + _HEAD
    head = buf[o:p]
    aad[:_HEAD] = head
    if not aead.open_into(head[2:], aad, buf, p, _KG_BODY):
        raise Unauthentic("KG time: the tag does not verify")
    return p
