"""Cases of sections 3.3, 4.4 and 6.2: what is sealed to a reader's link or to a grant, and op 8."""

from __future__ import annotations

from .case import Cases, Json, client_json
from .cases_envelopes import PLAIN, TOPIC, T
from .control import grant
from .envelopes import (
    LIVE,
    QUEUED,
    RETAINED,
    WILL,
    labelled,
    m1,
    m3_grant,
    m3_link,
    manifest,
    record,
)
from .model import Client, Grant, Order, client, rnd, roots, tlv, u
from .reader_steps import INST, KG, LOW, OLD, OWN, Story, no, ok, put_manifest, put_record, sender
from .reader_steps import send as send_label

ME = client()
TO = Grant()
CONNECT: Json = {"do": "connect", "out": {}}


def _block(who: Client, s2: int, t_pub: int, *items: tuple[int, bytes]) -> bytes:
    return labelled(who.own.label, *(() if t_pub else ((2, u(s2, 4)),)), *items)


def to_link(
    who: Client,
    ctr: int,
    t_pub: int = T,
    s2: int = T,
    how: int = LIVE,
    kind: int = LIVE,
    life: int = 0,
    me: Client = ME,
    items: tuple[tuple[int, bytes], ...] = (),
    seq: int = 0,
) -> bytes:
    """m3 as an honest mediator seals it to the reader's link."""
    inner = m1(who, TOPIC, PLAIN, ctr, t_pub, kind, life)
    order, block = Order(INST, s2 * 1000, seq), _block(who, s2, t_pub, *items)
    return m3_link(me, order, TOPIC, inner, how=how, block=block)


def to_grant(
    who: Client,
    ctr: int,
    t_pub: int = T,
    s2: int = T,
    how: int = LIVE,
    kind: int = LIVE,
    life: int = 0,
    to: Grant = TO,
    items: tuple[tuple[int, bytes], ...] = (),
    inst: int = INST,
) -> bytes:
    """The same to a grant."""
    inner = m1(who, TOPIC, PLAIN, ctr, t_pub, kind, life)
    order, block = Order(inst, s2 * 1000, 0), _block(who, s2, t_pub, *items)
    return m3_grant(who.site, to, order, TOPIC, inner, block, how)


def bring(to: Grant = TO) -> Json:
    """Op 8 brings a grant."""
    return {"do": "grant", "body": grant(to).hex(), "out": {}}


def bring_not(body: bytes, refuse: str) -> Json:
    """What is refused of op 8."""
    return {"do": "grant", "body": body.hex(), "refuse": refuse}


class Deliveries:
    """Writes these cases: a reader in its first connection."""

    def __init__(self, cases: Cases) -> None:
        self.story = Story(cases)
        self.site = self.story.site

    def tell(
        self,
        name: str,
        what: str,
        *steps: Json,
        me: Client = ME,
        known: tuple[int, ...] = (),
        section: str = "3.3, 6.2",
    ) -> None:
        """One case."""
        self.story.tell(name, what, CONNECT, *steps, me=me, known=known, section=section)


def _link(d: Deliveries) -> None:
    a = sender()
    good = ok(to_link(a, 1), a, flip=True)
    d.tell("ref-1", "sealed to this reader's link", good)
    packet = m3_link(ME, Order(INST, T * 1000, 0), TOPIC, m1(a, TOPIC, PLAIN, 1, T), 5)
    d.tell("ref-5", "key reference 5", no(packet, "unsupported"))
    both = ME.but(suite=2)
    d.tell(
        "link-suite-2",
        "a link of suite 2, a label of suite 1",
        ok(to_link(a, 1, me=both), a),
        me=both,
    )
    d.tell(
        "link-other-client", "to another client", no(to_link(a, 1, me=ME.but(client=9)), "no-key")
    )
    order, inner = Order(INST, T * 1000, 0), m1(a, TOPIC, PLAIN, 1, T)
    packet = m3_link(ME, order, TOPIC, inner, epoch=5)
    d.tell("link-epoch", "to a link, with an epoch", no(packet, "malformed"))
    packet = to_link(a, 1, me=ME.but(suite=2))
    d.tell("link-other-suite", "not the link's suite", no(packet, "unsupported"))
    other = ME.but(boot=42, salt=rnd("boot 42", 8))
    d.tell("link-other-boot", "of another boot session", no(to_link(a, 1, me=other), "unauthentic"))
    boot: Json = {"do": "boot", "boot": other.boot, "salt": other.salt.hex(), "out": {}}
    steps = (ok(to_link(a, 1), a), boot, CONNECT)
    last = no(to_link(a, 2, me=ME), "unauthentic")
    d.tell("link-boot-before", "a new boot session ends the old one's key", *steps, last)
    last = ok(to_link(a, 2, me=other), a)
    d.tell("link-boot-new", "and has one of its own", *steps, last)
    again = ok(to_link(a, 2), a)
    d.tell(
        "link-reconnect",
        "the next connection of a boot session",
        ok(to_link(a, 1), a),
        CONNECT,
        again,
    )
    new = ME.but(gen=4, km=rnd("km of gen 4", 32))
    answer: Json = {"do": "provisioned", "client": client_json(new), "out": {}}
    what = "an answer in a session: the connection keeps the link of its CONNECT"
    d.tell("link-answer", what, answer, ok(to_link(a, 1), a))
    last = no(to_link(a, 1, me=new), "unauthentic")
    d.tell("link-answer-early", "the new link is none before the next CONNECT", answer, last)
    steps = (ok(to_link(a, 1), a), answer, CONNECT)
    d.tell("link-answer-next", "from the next CONNECT on", *steps, ok(to_link(a, 2, me=new), a))
    last = no(to_link(a, 2), "unauthentic")
    d.tell("link-answer-over", "and the old link is over", *steps, last)
    packet = to_link(a, 1)
    elsewhere = no(packet, "unauthentic", topic=b"machine/2/temperature")
    d.tell("link-other-topic", "on another topic", elsewhere)
    step = {**no(packet, "stale"), "now_ms": None}
    d.tell("link-no-time", "no verified time yet", step)
    d.tell("link-too-old", "s2 61 s old", no(to_link(a, 1, T, T - 61), "stale"))
    d.tell("link-ahead", "s2 61 s ahead", no(to_link(a, 1, T, T + 61), "stale"))


def _label(d: Deliveries) -> None:
    """The item that names m1's label, and m1 under it."""
    a, b = sender(), sender(LOW)
    order, inner = Order(INST, T * 1000, 0), m1(a, TOPIC, PLAIN, 1, T)
    for name, what, block in (
        ("missing", "no item names m1's label", b"\x00"),
        ("instead", "another item in its place", tlv((40, u(16, 3)))),
        ("not-critical", "without its critical bit", tlv((3, u(16, 3)))),
        ("twice", "with and without its critical bit", labelled(16, (3, u(16, 3)))),
        ("short", "a label of two bytes", tlv((0x83, u(16, 2)))),
        ("long", "a label of four bytes", tlv((0x83, u(16, 4)))),
    ):
        packet = m3_link(ME, order, TOPIC, inner, block=block)
        d.tell(f"link-label-{name}", what, no(packet, "malformed"))
        packet = m3_grant(d.site, TO, order, TOPIC, inner, block)
        d.tell(f"grant-label-{name}", what, bring(), no(packet, "malformed"))
    packet = send_label(a, 1, block=labelled(16))
    d.tell("label-named", "ref 0 that names m1's label once more", no(packet, "malformed"))
    packet = send_label(a, 1, block=tlv((0x83, b"")))
    d.tell("label-empty", "ref 0 with a label of no byte", no(packet, "malformed"))
    packet = send_label(a, 1, block=tlv((3, u(16, 3))))
    what = "ref 0 with the label's item without its critical bit"
    d.tell("label-not-critical", what, no(packet, "malformed"))
    packet = send_label(a, 1, block=tlv((31, b"ab"), (32, b"cd")))
    what = "an item of this document's that nobody knows: not for the application"
    d.tell("tlv-own", what, ok(packet, a, items={"32": "6364"}))
    packet = m3_link(ME, order, TOPIC, inner, block=labelled(17))
    low = put_record(record(d.site, OWN, LOW, 80, KG))
    d.tell("link-label-other", "another label than m1's", low, no(packet, "no-key"))
    same = roots(17, 5, 1)
    low5 = put_record(record(d.site, OWN, same, 80, KG))
    what = "another label than m1's, of the same epoch"
    d.tell("link-label-forged", what, low5, no(packet, "unauthentic"))
    d.tell("link-below", "a message from below", low, ok(to_link(b, 1), b, flip=True))
    d.tell("link-no-root", "no root of m1's label", no(to_link(b, 1), "no-key"))
    c = sender(roots(16, 6, 1))
    d.tell("link-unknown-epoch", "m1 of an epoch that is not held", no(to_link(c, 1), "no-key"))
    c = sender(roots(16, 5, 2))
    d.tell(
        "link-m1-suite", "m1 of another suite than its label's", no(to_link(c, 1), "unsupported")
    )
    forged = inner[:26] + b"\xff" + inner[27:]
    packet = m3_link(ME, order, TOPIC, forged)
    d.tell("link-m1-forged", "a mediator gave m1 a longer life", no(packet, "unauthentic"))


def _epochs(d: Deliveries) -> None:
    """m1's epoch, where m3 names none (6.2, step 5)."""
    old = sender(OLD)
    link = put_record(record(d.site, OWN, OLD, 80, KG))
    runs = put_manifest(manifest(d.site, OWN, 85, KG, T + 600))
    over = put_manifest(manifest(d.site, OWN, 85, KG, T))
    for word, packet, brought in (
        ("link", to_link(old, 1), ()),
        ("grant", to_grant(old, 1), (bring(),)),
    ):
        steps = (*brought, link)
        what = "a live m1 of an epoch that is over"
        d.tell(f"{word}-old-live", what, *steps, no(packet, "epoch"))
        what = "a live m1 of the last epoch while its hand-over runs"
        d.tell(f"{word}-old-live-handover", what, *steps, runs, ok(packet, old))
        what = "a live m1 of the last epoch, sealed when its hand-over was over"
        d.tell(f"{word}-old-live-over", what, *steps, over, no(packet, "epoch"))
    packet = to_link(old, 1, T - 90, T, QUEUED, life=255)
    d.tell("link-old-queued", "queued is not live", link, ok(packet, old, age=90, how=QUEUED))
    packet = to_link(old, 1, T - 90, T, RETAINED, RETAINED, 255)
    d.tell("link-old-retained", "nor is retained", link, ok(packet, old, age=90, how=RETAINED))


def _grants(d: Deliveries) -> None:
    a = sender()
    d.tell(
        "ref-2",
        "sealed to a grant that this reader holds",
        bring(),
        ok(to_grant(a, 1), a, flip=True),
    )
    to = TO.but(suite=2)
    d.tell("grant-suite-2", "a grant of suite 2", bring(to), ok(to_grant(a, 1, to=to), a))
    d.tell("grant-none", "no such grant", no(to_grant(a, 1), "no-key"))
    d.tell(
        "grant-other", "another grant", bring(), no(to_grant(a, 1, to=TO.but(number=6)), "no-key")
    )
    forged = to_grant(a, 1, to=TO.but(g=rnd("other G", 32)))
    d.tell("grant-forged", "under another G", bring(), no(forged, "unauthentic"))
    packet = to_grant(a, 1, to=TO.but(suite=2))
    d.tell("grant-other-suite", "not the grant's suite", bring(), no(packet, "unsupported"))
    for name, what, to in (
        ("number-0", "a grant with number 0", TO.but(number=0)),
        ("epoch-0", "a grant with epoch 0", TO.but(epoch=0)),
    ):
        d.tell(f"grant-{name}", what, bring(), no(to_grant(a, 1, to=to), "malformed"))
    steps: tuple[Json, ...]
    newer = TO.but(epoch=4, g=rnd("G 4", 32))
    steps = (bring(), bring(newer))
    d.tell("grant-newer", "a newer epoch of the grant", *steps, ok(to_grant(a, 1, to=newer), a))
    d.tell(
        "grant-old", "an epoch that a newer one has replaced", *steps, no(to_grant(a, 1), "epoch")
    )
    last = no(to_grant(a, 1, to=newer), "no-key")
    d.tell("grant-ahead", "a newer epoch than the one held", bring(), last)
    steps = (bring(), ok(to_grant(a, 1), a), ok(to_grant(a, 2, inst=10), a))
    d.tell("grant-inst", "of another mediator process", *steps)
    other = TO.but(number=6, suite=2)
    steps = (bring(), bring(other), ok(to_grant(a, 1), a), ok(to_grant(a, 2, to=other), a))
    d.tell("grant-same-g", "two grants with the same G have two keys", *steps)
    last = no(to_grant(a, 1), "no-key")
    d.tell("grant-reconnect", "a grant ends with its connection", bring(), CONNECT, last)
    steps = (bring(), CONNECT, bring(), ok(to_grant(a, 1), a))
    d.tell("grant-again", "and comes again in the next one", *steps)
    last = ok(to_link(a, 2), a)
    d.tell("grant-then-link", "grant and link side by side", bring(), ok(to_grant(a, 1), a), last)


def _until(d: Deliveries) -> None:
    a = sender()
    ends = TO.but(until=T)
    d.tell(
        "grant-until",
        "sealed a second before its end",
        bring(ends),
        ok(to_grant(a, 1, T, T - 1), a),
    )
    what = "sealed when the grant had ended"
    d.tell("grant-ended", what, bring(ends), no(to_grant(a, 1), "stale"))
    late = ok(to_grant(a, 1, T - 1, T - 1), a, T + 30, 31)
    d.tell("grant-until-late", "sealed in time, read after the end", bring(ends), late)
    steps = (bring(TO.but(until=T - 1)), bring(TO.but(until=T + 9)), ok(to_grant(a, 1), a))
    d.tell("grant-longer", "the same grant again, for longer", *steps)
    steps = (bring(), bring(ends), no(to_grant(a, 1), "stale"))
    d.tell("grant-shorter", "the same grant again, ended", *steps)


def _op8(d: Deliveries) -> None:
    a = sender()
    body = grant(TO)

    def bad(name: str, what: str, body: bytes, refuse: str = "malformed", *before: Json) -> None:
        d.tell(f"op8-{name}", what, *before, bring_not(body, refuse), section="4.4")

    bad("empty", "a grant of no byte", b"")
    bad("short", "a grant of 42 bytes", body[:-1])
    bad("long", "a grant of 44 bytes", body + b"\x00")
    bad("number-0", "a grant with number 0", grant(TO.but(number=0)))
    bad("epoch-0", "a grant with epoch 0", grant(TO.but(epoch=0)))
    bad("suite-0", "a grant of suite 0", grant(TO.but(suite=0)), "unsupported")
    bad("suite-3", "a grant of suite 3", grant(TO.but(suite=3)), "unsupported")
    old = grant(TO.but(epoch=2, g=rnd("G 2", 32)))
    bad("epoch-lower", "an epoch below the one held", old, "epoch", bring())
    other = grant(TO.but(g=rnd("other G", 32)))
    bad("other-key", "another G of the same epoch", other, "malformed", bring())
    bad(
        "other-suite", "another suite, the same epoch", grant(TO.but(suite=2)), "malformed", bring()
    )
    for name, what, wrong, refuse in (
        ("epoch-lower-keeps", "a lower epoch changes nothing", old, "epoch"),
        ("other-key-keeps", "another G changes nothing", other, "malformed"),
    ):
        steps = (bring(), bring_not(wrong, refuse), ok(to_grant(a, 1), a))
        d.tell(f"op8-{name}", what, *steps, section="4.4")


def _replays(d: Deliveries) -> None:
    """What is remembered is the same, whatever m3 was sealed to (6.2, step 7)."""
    a = sender()
    first = ok(to_link(a, 1), a)
    d.tell("link-repeat", "the same m3 twice", first, no(to_link(a, 1), "replay"))
    last = no(to_link(a, 1, T, T + 1), "replay", T + 1)
    d.tell("link-repeat-resealed", "the same m1 in a new m3", first, last)
    last = no(send_label(a, 1), "replay")
    d.tell("link-repeat-label", "and in one under its label's key", first, last)
    last = no(to_grant(a, 1), "replay")
    d.tell("grant-repeat-label", "the other way round", bring(), ok(send_label(a, 1), a), last)
    last = no(to_link(a, 1), "replay")
    what = "in a connection of the same boot session, too"
    d.tell("link-repeat-reconnect", what, first, CONNECT, last)
    new = ok(to_link(a, 9, T - 100, T, RETAINED, RETAINED, 255), a, age=100, how=RETAINED)
    back = no(to_grant(a, 8, T - 200, T, RETAINED, RETAINED, 255), "stale")
    d.tell("grant-rolled-back", "an older retained message comes back", bring(), new, back)
    will = to_link(a, 1, 0, T, WILL, WILL)
    d.tell("link-will", "a will", ok(will, a, how=WILL))
    wrong = to_link(a, 1, how=WILL)
    d.tell("link-how", "how will, class live", no(wrong, "malformed"))
    d.tell("link-age", "published 61 s ago", no(to_link(a, 1, T - 61), "stale"))


def _items(d: Deliveries) -> None:
    a = sender()
    for word, make, brought in (("link", to_link, ()), ("grant", to_grant, (bring(),))):
        item = ok(make(a, 1, items=((40, b"ab"),)), a, items={"40": "6162"})
        d.tell(f"{word}-item", "a family's item beside the label", *brought, item)
        packet = make(a, 1, items=((0x80 | 40, b"ab"),))
        unknown = no(packet, "unsupported")
        d.tell(f"{word}-item-critical", "critical and unknown", *brought, unknown)
        known = ok(packet, a, items={"168": "6162"})
        d.tell(f"{word}-item-known", "critical and known", *brought, known, known=(40,))


def add(cases: Cases) -> None:
    """All cases of this file."""
    deliveries = Deliveries(cases)
    for group in (_link, _label, _epochs, _grants, _until, _op8, _replays, _items):
        group(deliveries)
