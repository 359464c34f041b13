# Operations on single packets: each opens the packet, then seals what it found and compares.
from sealmq_spec import control, delivery, keys, topics
from sealmq_spec.const import (
    M1_HEAD,
    M2_HEAD,
    M3_HEAD,
    REF_GRANT,
    REF_LINK,
    TAG,
    TLV_FAMILIES,
    TLV_LABEL,
    UNTIMED,
    USE_CONTROL,
    USE_DELIVERY,
    USE_DOWN,
    USE_PUBLISH,
)
from sealmq_spec.envelope import (
    get_m1,
    get_m2,
    get_m3,
    nonce_link,
    nonce_m1,
    nonce_m3,
    open_at,
    put_m1,
    put_m2,
    put_m3,
    seal_at,
    tail_m1,
    tail_m2,
    tail_m3,
)
from sealmq_spec.errors import Malformed, NoKey, Unauthentic, Unsupported
from sealmq_spec.relink import relink
from sealmq_spec.tlv import fired, span, unpack

from . import expect_suite, hexed, ident_of, raw, same, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _link(make: "Any", d: "dict[str, Any]", use: int) -> "Any":
    salt, km = raw(d["salt"]), raw(d["km"])
    key = keys.link_key(raw(d["site"]), use, d["suite"], d["mediator"], d["boot"], salt, km)
    return make(d["suite"], key)


# Items, TLV block and m1 of what m2 or m3 held; unknown critical items are refused, in m2 all that
# are of the protocol's own types. ref: m3's.
def _split(inside: bytes, ref: int = -1) -> "tuple[dict[int, bytes], bytes, bytes]":
    start, end = span(inside, 0, len(inside))
    items = unpack(inside, start, end, range(TLV_FAMILIES) if ref < 0 else (TLV_LABEL,))
    if ref < 0 and [t for t in items if t & 0x7F < TLV_FAMILIES]:
        raise Malformed(f"a publisher's items {list(items)}")
    untimed = get_m1(inside, end, len(inside))[2]
    if ref >= 0:
        fired(items, untimed)
        label = items.get(TLV_LABEL | 0x80)
        size = -1 if label is None else len(label)
        if size != (3 if ref else -1) or TLV_LABEL in items:
            raise Malformed(f"label in an m3 with ref {ref}: {label!r}")
    return items, inside[:end], inside[end:]


def m1(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    packet, site = raw(d["packet"]), raw(d["site"])
    suite, kind, untimed, epoch, sender, boot, salt, ctr, t_pub, life = get_m1(
        packet, 0, len(packet)
    )
    expect_suite(suite, d["suite"])
    key = keys.inner_key(site, suite, sender, boot, salt, raw(d["r_bar"]))
    tail = tail_m1(site, d["label"], raw(d["topic"]))
    buf = bytearray(packet)
    if not open_at(make(suite, key), nonce_m1(buf, 0), buf, 0, M1_HEAD, len(buf), tail):
        raise Unauthentic("m1")
    n = len(buf) - M1_HEAD - TAG
    plain = bytes(buf[M1_HEAD : M1_HEAD + n])
    bits = kind | (UNTIMED if untimed else 0)
    put_m1(buf, 0, suite, bits, epoch, sender, boot, salt, ctr, t_pub, life)
    seal_at(make(suite, key), nonce_m1(buf, 0), buf, 0, M1_HEAD, n, tail)
    same("m1", buf, packet)
    return {
        "class": kind,
        "untimed": untimed,
        "epoch": epoch,
        "sender": sender,
        "boot": boot,
        "salt": hexed(salt),
        "ctr": ctr,
        "t_pub": t_pub,
        "life": life,
        "plain": hexed(plain),
    }


def m2(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    packet, salt = raw(d["packet"]), raw(d["salt"])
    suite, ctr, s1 = get_m2(packet)
    expect_suite(suite, d["suite"])
    tail = tail_m2(raw(d["site"]), d["client"], d["mediator"], d["flags"], raw(d["topic"]))
    buf = bytearray(packet)
    aead = _link(make, d, USE_PUBLISH)
    if not open_at(aead, nonce_link(salt, buf), buf, 0, M2_HEAD, len(buf), tail):
        raise Unauthentic("m2")
    n = len(buf) - M2_HEAD - TAG
    _, block, inner = _split(bytes(buf[M2_HEAD : M2_HEAD + n]))
    put_m2(buf, 0, 0x12, suite, ctr, s1)
    seal_at(aead, nonce_link(salt, buf), buf, 0, M2_HEAD, n, tail)
    same("m2", buf, packet)
    return {"ctr": ctr, "s1": s1, "tlv": hexed(block), "m1": hexed(inner)}


# d["ref"] says whose key it is: 0 the label's (r), 1 the link's (km), 2 a grant's (g).
def m3(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    packet, site = raw(d["packet"]), raw(d["site"])
    suite, ref, how, number, epoch, inst, s2, seq = get_m3(packet)
    if ref != d["ref"]:
        raise Unsupported(f"ref {ref}")
    if ref == REF_LINK:
        aead = _link(make, d, USE_DELIVERY)
        if epoch:
            raise Malformed(f"ref 1 with epoch {epoch}")
        who = d["client"], 0
    elif ref == REF_GRANT:
        key = keys.grant_key(site, d["suite"], d["grant"], d["epoch"], inst, raw(d["g"]))
        aead, who = make(d["suite"], key), (d["grant"], d["epoch"])
    else:
        ek = keys.topic_key(site, d["suite"], d["label"], d["epoch"], raw(d["r"]))
        outer = keys.outer_key(site, d["suite"], d["label"], d["epoch"], inst, ek)
        aead, who = make(d["suite"], outer), (d["label"], d["epoch"])
    if (number, epoch) != who:
        raise NoKey(f"{number}, {epoch}")
    expect_suite(suite, d["suite"])
    tail = tail_m3(site, raw(d["topic"]))
    buf = bytearray(packet)
    if not open_at(aead, nonce_m3(buf), buf, 0, M3_HEAD, len(buf), tail):
        raise Unauthentic("m3")
    n = len(buf) - M3_HEAD - TAG
    items, block, inner = _split(bytes(buf[M3_HEAD : M3_HEAD + n]), ref)
    put_m3(buf, 0, suite, ref, how, number, epoch, inst, s2, seq)
    if ref:
        label = int.from_bytes(items.pop(TLV_LABEL | 0x80), "big")
        head, rest = bytes(buf[:M3_HEAD]), sorted(items.items())
        topic = raw(d["topic"])
        buf = bytearray(delivery.seal_delivery(aead, head, site, topic, label, inner, rest))
    else:
        seal_at(aead, nonce_m3(buf), buf, 0, M3_HEAD, n, tail)
    same("m3", buf, packet)
    out: dict[str, Any] = {"how": how, "inst": inst, "s2": s2, "seq": seq}
    out["tlv"], out["m1"] = hexed(block), hexed(inner)
    return out


_PROOF = ("flags", "gen", "client", "boot", "salt", "conn", "low")


def _proof(fields: "tuple[Any, ...]") -> "dict[str, Any]":
    out = {_PROOF[i]: fields[i + 1] for i in range(len(_PROOF))}
    out["salt"] = hexed(out["salt"])
    return out


def connect(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    packet, site = raw(d["packet"]), raw(d["site"])
    fields = control.split_proof(packet[-54:])
    expect_suite(fields[0], d["suite"])
    out = _proof(fields)
    salt, conn = raw(out["salt"]), out["conn"]
    key = keys.link_key(
        site, USE_CONTROL, d["suite"], d["mediator"], out["boot"], salt, raw(d["km"])
    )
    aead = make(d["suite"], key)
    control.check_connect(aead, site, d["mediator"], salt, conn, packet, fields[8])
    again = bytearray(packet)
    again[-54:-22] = control.proof_head(*fields[:8])
    again[-22:] = bytes(22)
    control.sign_connect(aead, site, d["mediator"], salt, conn, again)
    same("CONNECT", again, packet)
    return out


def password(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    fields = control.split_proof(raw(d["password"]))
    out = _proof(fields)
    out["suite"] = fields[0]
    same("password", control.proof_head(*fields[:8]), raw(d["password"])[:32])
    return out


def token(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    text = text_of(raw(d["text"]))
    ctr, tag, filt = topics.split_token(text)
    topics.check_filter(filt)
    aead = _link(make, d, USE_CONTROL)
    bound = (d["suite"], d["op"], ctr, raw(d["salt"]), raw(d["site"]), d["client"], d["mediator"])
    control.check_token(aead, *bound, d["qos"], filt, tag)
    again = control.token_tag(aead, *bound, d["qos"], filt)
    same("token", topics.put_token(ctr, again, filt).encode(), raw(d["text"]))
    return {"ctr": int.from_bytes(ctr, "big")}


def up(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    packet = raw(d["packet"])
    suite, ctr, s1 = control.up_header(packet)
    expect_suite(suite, d["suite"])
    aead = _link(make, d, USE_CONTROL)
    who = (raw(d["salt"]), raw(d["site"]), d["client"], d["mediator"])
    body = control.open_up(aead, *who, packet)
    same("packet", control.seal_up(aead, suite, ctr, s1, *who, body), packet)
    return {"ctr": ctr, "s1": s1, "body": hexed(body)}


def down(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    packet = raw(d["packet"])
    aead = _link(make, d, USE_DOWN)
    who = (raw(d["site"]), d["client"], d["mediator"], d["conn"])
    order, body = control.open_down(aead, d["suite"], *who, packet)
    same("packet", control.seal_down(aead, d["suite"], order, *who, body), packet)
    return {"order": hexed(order), "body": hexed(body)}


def relinked(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    old, new = ident_of(d["old"]), ident_of(d["new"])
    topic, flags, packet = raw(d["topic"]), d["flags"], raw(d["packet"])
    boot, salt = d["boot"], raw(d["salt"])
    again = relink(make, old, new, boot, salt, topic, flags, packet)
    same("relink back", relink(make, new, old, boot, salt, topic, flags, again), packet)
    return {"packet": hexed(again)}


OPS = {
    "relink": relinked,
    "m1": m1,
    "m2": m2,
    "m3": m3,
    "connect": connect,
    "password": password,
    "token": token,
    "up": up,
    "down": down,
}
