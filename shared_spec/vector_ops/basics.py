# Operations on what everything else is made of: keys, ciphers, texts, TLV, topics, windows, ages.
from sealmq_spec import keys, tlv, topics, window
from sealmq_spec.b64 import b64u, unb64u
from sealmq_spec.errors import Stale, Unauthentic
from sealmq_spec.identity import Identity
from sealmq_spec.newest import Newest

from . import hexed, raw, same, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def pad(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    k = keys.pad(raw(d["site"]), d["h"], d["n"], d["e_n"], raw(d["kid"]), raw(d["root"]))
    return {"key": hexed(k)}


def topic_key(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    k = keys.topic_key(raw(d["site"]), d["suite"], d["label"], d["epoch"], raw(d["r"]))
    return {"key": hexed(k)}


def outer_key(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    k = keys.outer_key(raw(d["site"]), d["suite"], d["label"], d["epoch"], d["inst"], raw(d["ek"]))
    return {"key": hexed(k)}


def inner_key(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    salt, root = raw(d["salt"]), raw(d["r_bar"])
    k = keys.inner_key(raw(d["site"]), d["suite"], d["sender"], d["boot"], salt, root)
    return {"key": hexed(k)}


def grant_key(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    g = raw(d["g"])
    k = keys.grant_key(raw(d["site"]), d["suite"], d["grant"], d["epoch"], d["inst"], g)
    return {"key": hexed(k)}


def link_key(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    salt, km = raw(d["salt"]), raw(d["km"])
    k = keys.link_key(raw(d["site"]), d["use"], d["suite"], d["mediator"], d["boot"], salt, km)
    return {"key": hexed(k)}


def record_key(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    return {
        "key": hexed(
            keys.record_key(raw(d["site"]), d["suite"], d["label"], d["epoch"], raw(d["r_bar"]))
        )
    }


def provisioning_key(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    k = keys.provisioning_key(raw(d["site"]), d["suite"], d["dir"], raw(d["n_c"]), raw(d["ps"]))
    return {"key": hexed(k)}


def time_key(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    return {"key": hexed(keys.time_key(raw(d["site"]), d["suite"], raw(d["n_c"]), raw(d["ps"])))}


def aead(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    cipher = make(d["suite"], raw(d["key"]))
    nonce, aad, sealed = raw(d["nonce"]), raw(d["aad"]), raw(d["sealed"])
    buf = bytearray(sealed)
    n = len(sealed) - 16
    if not cipher.open_into(nonce, aad, buf, 0, n):
        for byte in buf[:n]:
            if byte:
                raise ValueError("plaintext is left behind a failed tag")
        raise Unauthentic("the tag does not verify")
    plain = bytes(buf[:n])
    buf = bytearray(plain) + bytearray(16)
    cipher.seal_into(nonce, aad, buf, 0, n)
    same("sealed", buf, sealed)
    return {"plain": hexed(plain)}


def decode(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    data = unb64u(raw(d["text"]))
    same("encoding", b64u(data), raw(d["text"]))
    return {"raw": hexed(data)}


def tlv_unpack(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    block = raw(d["block"])
    for t, n in d.get("zeros", ()):
        block += bytes((t, n)) + bytes(n)
    start, end = tlv.span(block, 0, len(block))
    items = tlv.unpack(block, start, end, d["known"])
    wanted = [(t, items[t]) for t in d["order"] if t in items]
    if len(wanted) == len(items):
        same("block", tlv.pack(wanted), block[:end])
    return {"items": [[t, hexed(items[t])] for t in sorted(items)], "end": end}


def tlv_pack(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    return {"block": hexed(tlv.pack((t, bytes(n)) for t, n in d["zeros"]))}


def topic(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    name = text_of(raw(d["topic"]))
    topics.check_topic(name)
    return {"reserved": topics.is_reserved(name)}


def filt(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    topics.check_filter(text_of(raw(d["filter"])))
    return {}


def match(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    return {"matches": topics.matches(text_of(raw(d["filter"])), text_of(raw(d["topic"])))}


# Every ctr in turn: looked up, and marked when it is new.
def slide(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    w = window.Window()
    looks = []
    for ctr in d["ctrs"]:
        look = w.look(ctr)
        looks.append(("new", "seen", "old")[look])
        if look == window.NEW:
            w.mark(ctr)
    return {"looks": looks, "top": w.top, "mask": hexed(w.mask.to_bytes(8, "big"))}


def life(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    return {"seconds": window.life_s(d["life"])}


def fresh(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    window.check_fresh("vector", d["age"], d["allowed"])
    return {}


def enrolment(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    i = Identity.from_enrolment(d["file"])
    out = {"site": hexed(i.site), "client": i.client, "mediator": i.mediator, "suite": i.suite}
    out["ps"] = hexed(i.ps)
    return out


def retained_order(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    newest = Newest(d["limit"])
    passes = []
    for topic, sender, time, boot, ctr in d["messages"]:
        key, order = (raw(topic), sender), (time, boot, ctr)
        try:
            newest.look(key, order)
        except Stale:
            passes.append(False)
        else:
            newest.mark(key, order)
            passes.append(True)
    return {"passes": passes}


OPS = {
    "retained-order": retained_order,
    "key.pad": pad,
    "key.topic": topic_key,
    "key.outer": outer_key,
    "key.inner": inner_key,
    "key.grant": grant_key,
    "key.link": link_key,
    "key.record": record_key,
    "key.provisioning": provisioning_key,
    "key.time": time_key,
    "aead": aead,
    "b64u": decode,
    "tlv.unpack": tlv_unpack,
    "tlv.pack": tlv_pack,
    "topic": topic,
    "filter": filt,
    "match": match,
    "window": slide,
    "life": life,
    "fresh": fresh,
    "enrolment": enrolment,
}
