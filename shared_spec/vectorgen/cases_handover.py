"""Cases of sections 6.2, 7.2 and 8.2: epochs that are over, new roots in an open connection."""

from __future__ import annotations

from .case import Cases, Json, client_json
from .cases_envelopes import PLAIN, TOPIC, T
from .control import down, kg_time, proof_head
from .control import up as up_packet
from .envelopes import LIVE, QUEUED, RETAINED, WILL, m1, m2, m3, manifest, record
from .model import Client, Order, Roots, client, rnd, roots, tlv, u
from .reader_steps import (
    INST,
    KG,
    LOW,
    LOWER,
    OLD,
    OLDER,
    OWN,
    Story,
    no,
    no_record,
    ok,
    put_manifest,
    put_record,
    send,
    sender,
    take_roots,
)
from .session_steps import KG as KG_ORDER
from .session_steps import MS, N_C, Talk, ask_token, hear, order, publish, ready, time_body, turn

NEXT = roots(16, 6, 1)
HOWS = {"live": (LIVE, LIVE), "retained": (RETAINED, RETAINED), "will": (WILL, WILL)}
HOWS["queued"] = (QUEUED, LIVE)


def _old_m3(s: Story) -> None:
    """m3's own epoch, whatever how says (6.2, step 1)."""
    site = s.site
    link = put_record(record(site, OWN, OLD, 80, KG))
    deep = put_record(record(site, OWN, OLDER, 80, KG))
    runs = put_manifest(manifest(site, OWN, 85, KG, T + 600))
    a, older = sender(OLD), sender(OLDER)
    for word, (how, kind) in HOWS.items():
        t_pub = 0 if kind == WILL else T
        name, what = f"m3-old-epoch-{word}", f"m3 of an epoch that is over, how {word}"
        s.tell(name, what, link, no(send(a, 1, t_pub, T, how, kind, 255), "epoch"))
        what = f"the same while its hand-over runs, how {word}"
        good = ok(send(a, 1, t_pub, T, how, kind, 255), a, how=how)
        s.tell(name + "-handover", what, runs, link, good)
    kept = send(older, 1, T, T, RETAINED, RETAINED, 255)
    s.tell("m3-two-epochs-back", "two back, hand-over running", runs, deep, no(kept, "epoch"))
    s.tell("m3-old-epoch-not-held", "no key comes before epoch", no(kept, "no-key"))
    was = put_record(record(site, OWN, LOWER, 70, KG))
    now = put_record(record(site, OWN, LOW, 80, KG))
    below = send(sender(LOWER), 1, T, T, RETAINED, RETAINED, 255)
    s.tell("m3-old-epoch-below", "of a label below", was, now, no(below, "epoch"))
    sealed = send(a, 1, T + 599, T + 599, outer=OWN)
    late = ok(sealed, a, now=T + 600, age=1)
    what = "a live m1 of the last epoch that the mediator took before the hand-over's end"
    s.tell("m1-old-epoch-taken-before", what, runs, link, late)


def _turns(s: Story) -> None:
    """New roots of the reader itself."""
    site = s.site

    def tell(name: str, what: str, *steps: Json, own: Roots = OWN, limit: int = 64) -> None:
        s.tell(f"roots-{name}", what, *steps, own=own, limit=limit, section="6.2, 8")

    was, now = sender(OWN), sender(NEXT)
    turned = take_roots(NEXT)
    tell("new", "a new epoch is read at once", turned, ok(send(now, 1), now))
    queued = ok(send(was, 1, how=QUEUED, outer=NEXT), was, how=QUEUED)
    tell("new-old-m1", "m1 of the epoch before stays readable", turned, queued)
    over = no(send(was, 1, outer=NEXT), "epoch")
    tell("new-old-live", "but not live, when no hand-over is known", turned, over)
    runs = put_manifest(manifest(site, NEXT, 95, KG, T + 60))
    good = ok(send(was, 1, outer=NEXT), was)
    tell("new-handover", "live while the manifest's hand-over runs", turned, runs, good)
    tell("new-old-m3", "m3 of the epoch before is over", turned, no(send(was, 1), "epoch"))
    first = ok(send(was, 1), was)
    again = no(send(now, 1), "replay")
    tell("new-window", "windows stay: the same ctr under the new epoch", first, turned, again)
    low = sender(LOW)
    rec = put_record(record(site, OWN, LOW, 80, KG))
    gone = no(send(low, 1), "no-key")
    tell("new-below", "what the old epoch's records brought is gone", rec, turned, gone)
    fresh = put_record(record(site, NEXT, LOW, 80, KG))
    back = ok(send(low, 1), low)
    tell("new-below-again", "and comes with new records", rec, turned, fresh, back)
    old_rec = no_record(record(site, OWN, LOW, 99, KG), "epoch")
    tell("new-old-record", "the old epoch derives nothing any more", turned, old_rec)
    forged = put_record(record(site, OWN, roots(17, 9, 1), 99, KG))
    tell("new-heals", "what it said before counts no more", forged, turned, fresh, back)
    link = put_record(record(site, OWN, OLD, 80, KG))
    unread = no(send(sender(OLD), 1, how=QUEUED, outer=NEXT), "no-key")
    tell("new-back-link", "nor does what its back-links brought stay", link, turned, unread)
    same = take_roots(OWN)
    tell("same-epoch", "the same roots again: nothing is lost", rec, same, back)
    other = take_roots(roots(18, 1, 1))
    tell("other-label", "another label: the old one is gone", other, no(send(was, 1), "no-key"))
    piled = (turned, take_roots(roots(16, 7, 1)))
    gone = no(send(was, 1, how=QUEUED, outer=roots(16, 7, 1)), "no-key")
    tell("own-bound", "old own roots are bounded, too", *piled, gone, limit=2)
    left = ok(send(now, 1, how=QUEUED, outer=roots(16, 7, 1)), now, how=QUEUED)
    tell("own-last", "the oldest go first", *piled, left, limit=2)
    b, c = sender(roots(18, 1, 1)), sender(roots(19, 1, 1))
    rec_b = put_record(record(site, OWN, b.own, 80, KG))
    rec_c = put_record(record(site, OWN, c.own, 80, KG))
    used = ok(send(low, 1), low)
    full = (rec, rec_b, used, rec_c)
    tell("bound", "the longest unused go", *full, no(send(b, 1), "no-key"), limit=3)
    tell("bound-used", "those in use stay", *full, ok(send(low, 2), low), limit=3)
    last = send(low, 1)
    forged = no(last[:-1] + bytes((last[-1] ^ 1,)), "unauthentic")
    gone = no(send(low, 2), "no-key")
    tell("bound-forged", "who seals nothing uses none", rec, rec_b, forged, rec_c, gone, limit=3)
    tell("bound-own", "the own ones stay", *full, ok(send(was, 1), was), limit=3)
    link = put_record(record(site, OWN, OLD, 80, KG))
    filled = (rec, rec_b, link, ok(send(b, 1), b))
    tell("bound-old-first", "old epochs go first", *filled, rec_c, used, limit=4)
    unread = no(send(sender(OLD), 1, how=QUEUED, outer=OWN), "no-key")
    tell("bound-old-gone", "and are gone", *filled, rec_c, unread, limit=4)
    lower = put_record(record(site, LOW, LOWER, 80, KG))
    what = "a record's source is not used by it"
    d = sender(roots(20, 1, 1))
    rec_d = put_record(record(site, OWN, d.own, 80, KG))
    source = (rec, rec_b, lower, rec_c, rec_d)
    tell("bound-source", what, *source, no(send(low, 1), "no-key"), limit=4)
    inner = m1(sender(LOWER), TOPIC, PLAIN, 1, T)
    inner = inner[:-1] + bytes((inner[-1] ^ 1,))
    sealed = m3(site, LOW, Order(INST, T * 1000, 0), TOPIC, inner, QUEUED)
    what = "an m1 that does not verify uses no roots of an old epoch"
    tried = (rec, lower, link, no(sealed, "unauthentic"), rec_b)
    a = sender(OLD)
    stays = ok(send(a, 1, how=QUEUED, outer=OWN), a, how=QUEUED)
    tell("bound-inner", what, *tried, stays, limit=4)
    no_room = put_record(record(site, OWN, OLD, 80, KG), False)
    tell("bound-back-link", "a back-link takes no current one's place", rec, no_room, used, limit=2)
    was_b = put_record(record(site, OWN, roots(18, 9, 1), 99, KG))
    what = "with a label's last roots goes what was seen of it"
    tell("bound-forgets", what, was_b, rec, used, rec_c, rec_b, limit=3)
    tell("bound-again", "a record brings them back", *full, rec_b, ok(send(b, 1), b), limit=3)


def _sessions(t: Talk) -> None:
    c = client()
    up = c.but(gen=4, km=rnd("next km", 32), own=NEXT)
    same_link = c.but(own=NEXT)
    new = turn(up, 95)

    def tell(name: str, what: str, *steps: Json) -> None:
        t.tell(f"turn-{name}", "7.2", what, c, *ready(c), *steps)

    tell("publish", "new roots, the old link", new, publish(same_link, 1, 2500, T + 1))
    one = publish(c, 1, 1500, T)
    tell("goes-on", "ctr goes on", one, new, publish(same_link, 2, 2500, T + 1))
    tell("token", "tokens are the old link's", new, ask_token(c, 1, b"a/b", 0, 0))
    receipt = down(c, order(6), 1, b"\x02" + b"\x00\x00\x01" + b"\x00" * 7 + b"\x01")
    heard = hear(receipt, 2, [1, "0000000000000001"])
    tell("down", "control packets are the old link's", new, heard)
    state: Json = {"boot_floor": 41, "top": 0, "mask": "00" * 8, "epoch": 6, "kseq": 91}
    told = hear(down(c, order(6), 1, _epoch(16, 6)), 4, [16, 6, 91, T + 600])
    done = {"do": "state", "out": {**state, "outdated": False}}
    tell("not-outdated", "op 4, new roots: nothing is due", told, new, done)
    head = {"head": proof_head(up, 2, 2, 2).hex()}
    begin = {"do": "begin", "want_kg_time": False, "low": 0, "out": head}
    step: Json = {"do": "renew", "client": client_json(up, kseq=95), "out": {}}
    tell("connect", "the new gen begins with the next CONNECT", one, new, step, begin)
    moved = c.but(gen=4, own=roots(17, 1, 1))
    step = {"do": "renew", "client": client_json(moved, kseq=95), "out": {}}
    none = {"do": "state", "out": {**state, "epoch": 0, "outdated": False}}
    what = "of another label, whose epochs are others: what was told is forgotten"
    t.tell("renew-other-label", "7.5", what, c, *ready(c), told, step, none)
    other: Json = turn(moved, 95)
    del other["out"]
    query = {"do": "ask-time", "n_c": N_C.hex(), "mono": 5000}
    query["out"] = {"packet": up_packet(c, 1, T + 3, b"\x82" + N_C).hex()}
    block = tlv((1, kg_time(c, N_C, KG_ORDER, MS + 4100, 6, 94)))
    old = down(c, order(9), 1, time_body(MS + 4000, block))
    refused = {"do": "down", "packet": old.hex(), "mono": 5500, "refuse": "stale"}
    tell("kg-time-older", "KG time with a kseq below the new one", new, query, refused)
    tell("other-label", "another label is not taken so", {**other, "refuse": "misuse"})


def _epoch(label: int, epoch: int) -> bytes:
    return b"\x04" + u(label, 3) + u(epoch, 3) + u(91, 4) + u(T + 600, 4)


def _relinks(cases: Cases) -> None:
    c = client()
    for suite, name in ((1, "ccm"), (2, "chacha")):
        new = c.but(gen=4, km=rnd("next km", 32), suite=suite, mediator=2)
        inner = m1(c, TOPIC, PLAIN, 5, T)
        was, is_now = (m2(who, TOPIC, inner, 5, T, 2, b"\x00") for who in (c, new))
        given = _relink(c, new, was)
        cases.good(
            f"relink-{name}",
            "5",
            "a stored PUBLISH under a newer gen",
            "relink",
            given,
            {"packet": is_now.hex()},
            "packet",
        )
    inner, block = m1(c, TOPIC, PLAIN, 5, T), tlv((40, b"note"))
    new = c.but(gen=4, km=rnd("next km", 32))
    was, is_now = (m2(who, TOPIC, inner, 5, T, 2, block) for who in (c, new))
    what, out = "its TLV block goes with it", {"packet": is_now.hex()}
    cases.good("relink-tlv", "5", what, "relink", _relink(c, new, was), out, "packet")
    other = m2(
        c.but(salt=rnd("another salt", 8)), TOPIC, m1(c, TOPIC, PLAIN, 5, T), 5, T, 2, b"\x00"
    )
    what = "one of another boot session"
    given = _relink(c, c.but(km=rnd("next km", 32)), other)
    cases.bad("relink-other-session", "5", what, "relink", given, "unauthentic")
    what = "for a session of another label, whose readers could not open m1"
    moved = c.but(gen=4, km=rnd("next km", 32), own=roots(17, 5, 1))
    was = m2(c, TOPIC, m1(c, TOPIC, PLAIN, 5, T), 5, T, 2, b"\x00")
    cases.bad("relink-other-label", "5", what, "relink", _relink(c, moved, was), "misuse")


def _relink(old: Client, new: Client, packet: bytes) -> Json:
    out: Json = {"old": client_json(old), "new": client_json(new), "boot": old.boot}
    out |= {"salt": old.salt.hex(), "topic": TOPIC.hex(), "flags": 2, "packet": packet.hex()}
    return out


def _retained_order(cases: Cases) -> None:
    """What a mediator has let pass of a topic and a sender (6.1, step 4)."""

    def item(passes: bool, time: int, boot: int = 5, ctr: int = 1, **of: object) -> list[object]:
        topic = str(of.get("topic", "a/b")).encode().hex()
        return [topic, of.get("sender", 8), time, boot, ctr, passes]

    def put(name: str, what: str, *items: list[object], limit: int = 64) -> None:
        out = {"passes": [i[-1] for i in items]}
        given = {"limit": limit, "messages": [i[:-1] for i in items]}
        name = f"retained-order-{name}"
        cases.good(name, "6.1", what, "retained-order", given, out)

    put("rising", "each newer than the last", item(True, T), item(True, T, 5, 2), item(True, T + 1))
    put("held-back", "an older one was held back", item(True, T, ctr=9), item(False, T - 1, ctr=8))
    put("same-second", "the ctr decides", item(True, T, ctr=9), item(False, T, ctr=8))
    put("boot", "boot before ctr", item(True, T, 6, 1), item(False, T, 5, 9))
    put("again", "the same one again", item(True, T), item(True, T))
    put("other-topic", "another topic", item(True, T), item(True, T - 1, topic="a/c"))
    put("other-sender", "another sender", item(True, T), item(True, T - 1, sender=9))
    refused = item(False, T - 1, ctr=9)
    put("refused", "what is refused counts for nothing", item(True, T), refused, item(True, T))


def add(cases: Cases) -> None:
    """All cases of this file."""
    story = Story(cases)
    _old_m3(story)
    _turns(story)
    _sessions(Talk(cases))
    _relinks(cases)
    _retained_order(cases)
