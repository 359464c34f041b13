# Public derivation records and manifests (SPEC.md 8; Chen and Wilson, Algorithm 1 lines 5 and 6).
import struct

from .aead import check_tag, tag
from .const import CCM, CHACHA, MANIFEST, MANIFEST_LEN, RECORD, RECORD_LEN, TAG
from .errors import Malformed, NoKey, Unsupported
from .keys import pad, record_key, u24, xor32

_TYPING = False
if _TYPING:
    from collections.abc import Callable
    from typing import Any

    Make = Callable[[int, bytes], Any]


# One (label, epoch) with its two roots and its suite, as the KG and the clients at or above it hold
# it.
class Roots:
    def __init__(self, label: int, epoch: int, suite: int, r: bytes, r_bar: bytes):
        self.label = label
        self.epoch = epoch
        self.suite = suite
        self.r = r
        self.r_bar = r_bar
        # For a reader: when it needed them last; whether provisioning brought them, not a record.
        self.used = 0
        self.given = True
        self.ek = b""  # the topic key, once a reader has derived it


# top opens n. kid, kid_bar: 8 random bytes each, never used before. order: the KG's 12 bytes.
def make_record(
    make: "Make",
    site: bytes,
    top: Roots,
    n: Roots,
    kid: bytes,
    kid_bar: bytes,
    kseq: int,
    handover_end: int,
    order: bytes,
) -> bytes:
    z = xor32(n.r, pad(site, 0, n.label, n.epoch, kid, top.r))
    z_bar = xor32(n.r_bar, pad(site, 1, n.label, n.epoch, kid_bar, top.r_bar))
    head = bytes((RECORD, top.suite << 4 | n.suite)) + u24(n.label) + u24(n.epoch)
    head += u24(top.label) + u24(top.epoch) + kid + kid_bar + z + z_bar
    head += struct.pack(">II", kseq, handover_end) + order
    aead = make(top.suite, record_key(site, top.suite, top.label, top.epoch, top.r_bar))
    return head + tag(aead, order, head + site)


# (suite_l, suite_n, n, e_n, l, e_l, kseq, handover_end) of a record that nobody has verified yet.
def get_record(p: "bytes | bytearray") -> "tuple[int, int, int, int, int, int, int, int]":
    if len(p) != RECORD_LEN or p[0] != RECORD:
        raise Malformed("no record: %d bytes, 130 expected" % len(p))
    t = struct.unpack_from(">BBBHBHBHBH", p, 0)
    kseq, end = struct.unpack_from(">II", p, 94)
    s = t[1]
    n, e_n = t[2] << 16 | t[3], t[4] << 16 | t[5]
    return s >> 4, s & 15, n, e_n, t[6] << 16 | t[7], t[8] << 16 | t[9], kseq, end


# top: the roots of exactly the record's source. Nothing in a record counts before this has passed.
def check_record(make: "Make", site: bytes, top: Roots, p: "bytes | bytearray") -> None:
    suite, _, n, _, label, epoch, _, _ = get_record(p)
    if (label, epoch) != (top.label, top.epoch):
        raise NoKey(
            "record is from label %d epoch %d, held: %d epoch %d"
            % (label, epoch, top.label, top.epoch)
        )
    if suite != top.suite:
        raise Unsupported("record of suite %d, the label's is %d" % (suite, top.suite))
    aead = make(suite, record_key(site, suite, label, epoch, top.r_bar))
    end = RECORD_LEN - TAG
    head = bytes(p[:end])
    check_tag(aead, head[102:114], head + site, bytes(p[end:]), "record %d/%d" % (label, n))


# Verifies a record under the roots of its source and gives the roots of its target.
def derive(make: "Make", site: bytes, top: Roots, p: "bytes | bytearray") -> Roots:
    check_record(make, site, top, p)
    _, suite_n, n, e_n, _, _, _, _ = get_record(p)
    if suite_n != CCM and suite_n != CHACHA:
        raise Unsupported("record for label %d of suite %d" % (n, suite_n))
    p = bytes(p)
    r = xor32(p[30:62], pad(site, 0, n, e_n, p[14:22], top.r))
    r_bar = xor32(p[62:94], pad(site, 1, n, e_n, p[22:30], top.r_bar))
    return Roots(n, e_n, suite_n, r, r_bar)


def make_manifest(
    make: "Make", site: bytes, own: Roots, kseq: int, handover_end: int, order: bytes
) -> bytes:
    head = bytes((MANIFEST, own.suite << 4)) + u24(own.label) + u24(own.epoch)
    head += struct.pack(">II", kseq, handover_end) + order
    aead = make(own.suite, record_key(site, own.suite, own.label, own.epoch, own.r_bar))
    return head + tag(aead, order, head + site)


# (suite, label, epoch, kseq, handover_end) of a manifest that nobody has verified yet.
def get_manifest(p: "bytes | bytearray") -> "tuple[int, int, int, int, int]":
    if len(p) != MANIFEST_LEN or p[0] != MANIFEST or p[1] & 15:
        raise Malformed("no manifest: %d bytes, 44 expected" % len(p))
    t = struct.unpack_from(">BBBHBHII", p, 0)
    return t[1] >> 4, t[2] << 16 | t[3], t[4] << 16 | t[5], t[6], t[7]


# own: the roots of exactly the manifest's (label, epoch).
def check_manifest(make: "Make", site: bytes, own: Roots, p: "bytes | bytearray") -> None:
    suite, label, epoch, _, _ = get_manifest(p)
    if (label, epoch) != (own.label, own.epoch):
        raise NoKey("manifest of label %d epoch %d, which is not held" % (label, epoch))
    if suite != own.suite:
        raise Unsupported("manifest of suite %d, the label's is %d" % (suite, own.suite))
    aead = make(suite, record_key(site, suite, label, epoch, own.r_bar))
    end = MANIFEST_LEN - TAG
    head = bytes(p[:end])
    check_tag(aead, head[16:28], head + site, bytes(p[end:]), "manifest of label %d" % label)


# Where a record is retained on the broker, for those who'd rather fetch it themselves.
def record_topic(p: "bytes | bytearray") -> str:
    _, _, n, e_n, label, _, _, _ = get_record(p)
    return "@sm1/b/%d/%d" % (n, e_n) if n == label else "@sm1/z/%d/%d" % (label, n)


def manifest_topic(label: int) -> str:
    return "@sm1/m/%d" % label
