# Operations on bodies of control packets and on what a key generator makes: answers, time, records.
from sealmq_spec import control, news, provision, records
from sealmq_spec.const import TLV_KG_TIME
from sealmq_spec.tlv import span, unpack

from . import expect_suite, hexed, raw, roots_of, same

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def welcome(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    body = raw(d["body"])
    status, ms, floor, top, mask, epoch, kseq, o = control.get_welcome(body)
    start, end = span(body, o, len(body))
    items = unpack(body, start, end, (TLV_KG_TIME,))
    again = control.welcome(status, ms, floor, top, mask, epoch, kseq, body[o:])
    same("welcome", again, body)
    return {
        "status": status,
        "ms": ms,
        "boot_floor": floor,
        "top": top,
        "mask": hexed(mask.to_bytes(8, "big")),
        "epoch": epoch,
        "kseq": kseq,
        "tlv": [[t, hexed(items[t])] for t in sorted(items)],
    }


def receipt(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    top, mask = control.get_receipt(raw(d["body"]))
    same("receipt", control.receipt(top, mask), raw(d["body"]))
    return {"top": top, "mask": hexed(mask.to_bytes(8, "big"))}


def news_(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    body = raw(d["body"])
    family, said = news.get_news(body[1:])
    same("news", news.news(family.encode(), said), body)
    return {"family": family, "said": hexed(said)}


def notice(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    what, ctr, code, rule, reason = control.get_notice(raw(d["body"]))
    same("notice", control.notice(what, ctr, code, rule, reason), raw(d["body"]))
    return {"what": what, "ctr": ctr, "class": code, "rule": rule, "reason": hexed(reason.encode())}


def request(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    packet, site, ps = raw(d["packet"]), raw(d["site"]), raw(d["ps"])
    suite, client, gen, boot, n_c = provision.get_ask(packet)
    expect_suite(suite, d["suite"])
    provision.check_ask(make, site, ps, packet, d["mediator"])
    again = provision.ask(make, site, ps, suite, client, gen, boot, n_c, d["mediator"])
    same("request", again, packet)
    return {"client": client, "gen": gen, "boot": boot, "n_c": hexed(n_c)}


_BODY = ("gen", "label", "epoch", "suite", "link_suite", "mediator", "kseq", "ms")


def answer(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    packet, site, ps, n_c = raw(d["packet"]), raw(d["site"]), raw(d["ps"]), raw(d["n_c"])
    status, body = provision.open_answer(make, site, ps, d["suite"], d["client"], n_c, packet)
    again = provision.answer(
        make, site, ps, d["suite"], status, d["client"], n_c, packet[2:14], body
    )
    same("answer", again, packet)
    out: dict[str, object] = {"status": status}
    if status == provision.OK:
        fields = provision.get_body(body)
        for i in range(len(_BODY)):
            out[_BODY[i]] = fields[i]
        out["r"], out["r_bar"], out["km"] = [hexed(k) for k in fields[8:]]
    return out


def kg_time(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    packet, site, ps, n_c = raw(d["packet"]), raw(d["site"]), raw(d["ps"]), raw(d["n_c"])
    ms, epoch, kseq = provision.open_kg_time(make, site, ps, d["suite"], d["client"], n_c, packet)
    order = packet[2:14]
    again = provision.kg_time(make, site, ps, d["suite"], d["client"], n_c, order, ms, epoch, kseq)
    same("time", again, packet)
    return {"ms": ms, "epoch": epoch, "kseq": kseq}


def record(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    packet, site, top = raw(d["packet"]), raw(d["site"]), roots_of(d["top"])
    n = records.derive(make, site, top, packet)
    _, _, _, _, _, _, kseq, end = records.get_record(packet)
    kids = (packet[14:22], packet[22:30])
    again = records.make_record(make, site, top, n, *kids, kseq, end, packet[102:114])
    same("record", again, packet)
    return {
        "label": n.label,
        "epoch": n.epoch,
        "suite": n.suite,
        "r": hexed(n.r),
        "r_bar": hexed(n.r_bar),
        "kseq": kseq,
        "handover_end": end,
        "topic": records.record_topic(packet),
    }


def manifest(make: "Any", d: "dict[str, Any]") -> "dict[str, Any]":
    packet, site, own = raw(d["packet"]), raw(d["site"]), roots_of(d["own"])
    records.check_manifest(make, site, own, packet)
    _, label, epoch, kseq, end = records.get_manifest(packet)
    same("manifest", records.make_manifest(make, site, own, kseq, end, packet[16:28]), packet)
    topic = records.manifest_topic(label)
    return {"label": label, "epoch": epoch, "kseq": kseq, "handover_end": end, "topic": topic}


OPS = {
    "body.welcome": welcome,
    "body.receipt": receipt,
    "body.news": news_,
    "body.notice": notice,
    "request": request,
    "answer": answer,
    "kg-time": kg_time,
    "record": record,
    "manifest": manifest,
}
