"""Cases of section 6.2: what a reader takes and refuses, step by step."""

from __future__ import annotations

from .case import Cases, Json
from .cases_envelopes import NAMES, PLAIN, TOPIC, T
from .envelopes import (
    CLEAR,
    LIVE,
    QUEUED,
    RETAINED,
    WILL,
    fired,
    m1,
    m1_header,
    m1_seal,
    m3,
    record,
)
from .model import Order, rnd, roots, tlv, u
from .reader_steps import INST, KG, LOW, OLD, OWN, Story, no, ok, put_record, send, sender, take


def _keys(s: Story) -> None:
    site = s.site
    for suite, name in NAMES.items():
        own, low = roots(16, 5, suite), roots(17, 2, suite)
        a, b = sender(own), sender(low)
        s.tell(f"{name}-own", "a message at the own label", ok(send(a, 1), a, flip=True), own=own)
        rec = put_record(record(site, own, low, 80, KG), flip=True)
        s.tell(f"{name}-below", "one from below", rec, ok(send(b, 1), b, flip=True), own=own)
    a, b = sender(), sender(LOW)
    mixed = sender(roots(18, 1, 2))
    rec = put_record(record(site, OWN, mixed.own, 80, KG))
    s.tell("mixed-suites", "a label of the other suite below", rec, ok(send(mixed, 1), mixed))
    s.tell("no-record", "no record for the label", no(send(b, 1), "no-key"))
    s.tell(
        "unknown-epoch", "an epoch that is not held", no(send(sender(roots(16, 6, 1)), 1), "no-key")
    )
    other = send(sender(roots(16, 5, 2)), 1)
    s.tell("other-suite", "m3 of the other suite", no(other, "unsupported"))
    packet = send(a, 1)
    step = {**take(packet), "now_ms": None, "refuse": "stale"}
    s.tell("no-time", "no verified time yet", step)
    s.tell("truncated", "79 bytes", no(packet[:79], "malformed"))
    s.tell(
        "other-topic", "on another topic", no(packet, "unauthentic", topic=b"machine/2/temperature")
    )


def _times(s: Story) -> None:
    a = sender()
    packet = send(a, 1, T, T)
    s.tell("s2-oldest", "s2 60 s old", ok(send(a, 1, T, T - 60), a))
    s.tell("s2-ahead", "s2 60 s ahead", ok(send(a, 1, T, T + 60), a))
    s.tell("s2-oldest-ms", "60.999 s are 60", ok(send(a, 1, T, T - 60), a, ms=999))
    s.tell("s2-ahead-ms", "60.999 s ahead are 60", ok(send(a, 1, T, T + 60, ms=999), a))
    s.tell("s2-too-old", "s2 61 s old", no(send(a, 1, T, T - 61, ms=999), "stale"))
    s.tell("s2-too-far-ahead", "s2 61 s ahead", no(send(a, 1, T, T + 61), "stale", ms=999))
    s.tell(
        "s2-retained",
        "s2 61 s old, how retained",
        no(send(a, 1, T, T - 61, RETAINED, RETAINED, 255), "stale"),
    )
    s.tell("age-oldest", "published 60 s ago", ok(send(a, 1, T - 60), a, age=60))
    s.tell("age-ahead", "published 60 s ahead", ok(send(a, 1, T + 60), a, age=-60))
    s.tell("age-too-old", "published 61 s ago", no(send(a, 1, T - 61), "stale"))
    s.tell("age-too-far-ahead", "published 61 s ahead", no(send(a, 1, T + 61), "stale"))
    s.tell("life-7", "128 s of 2^7", ok(send(a, 1, T - 128, life=7), a, age=128))
    s.tell("life-7-over", "129 s of 2^7", no(send(a, 1, T - 129, life=7), "stale"))
    s.tell("life-1", "life 2^1 is at least W", ok(send(a, 1, T - 60, life=1), a, age=60))
    s.tell(
        "life-unlimited",
        "ten years, unlimited",
        ok(send(a, 1, T - 315576000, T, RETAINED, RETAINED, 255), a, age=315576000, how=RETAINED),
    )
    s.tell(
        "life-unlimited-ahead",
        "unlimited, but 61 s ahead",
        no(send(a, 1, T + 61, life=255), "stale"),
    )
    s.tell("clock-wrong", "a reader's clock an hour behind", no(packet, "stale", now=T - 3600))


def _blocks(s: Story) -> None:
    a = sender()
    one = send(a, 1, block=tlv((40, b"ab")))
    s.tell("tlv-unknown", "an unknown item", ok(one, a, items={"40": "6162"}, flip=True))
    two = send(a, 1, block=tlv((0x80 | 40, b"ab")))
    s.tell(
        "tlv-critical-known", "critical and known", ok(two, a, items={"168": "6162"}), known=(40,)
    )
    s.tell("tlv-critical", "critical and unknown", no(two, "unsupported"))
    two = send(a, 1, block=tlv((0x9F, b"ab")))
    what = "critical and of the protocol's own types, which no application can know"
    s.tell("tlv-critical-own", what, no(two, "unsupported"), known=(31, 40))
    s.tell(
        "tlv-twice", "a type twice", no(send(a, 1, block=tlv((40, b""), (40, b""))), "malformed")
    )


def _classes(s: Story) -> None:
    a = sender()
    words = {LIVE: "live", RETAINED: "retained", WILL: "will", CLEAR: "clear"}
    hows = {LIVE: "live", RETAINED: "retained", WILL: "will", QUEUED: "queued"}
    allowed = {LIVE: (LIVE, RETAINED), RETAINED: (RETAINED, WILL), WILL: (WILL,)}
    allowed[QUEUED] = (LIVE, RETAINED, WILL)
    for how, word in hows.items():
        for kind, name in words.items():
            t_pub = 0 if kind == WILL else T
            packet = send(a, 1, t_pub, T, how, kind, 255)
            title, what = f"how-{word}-class-{name}", f"how {word}, class {name}"
            if kind in allowed[how]:
                s.tell(title, what, ok(packet, a, how=how))
            else:
                s.tell(title, what, no(packet, "malformed"))
    order = Order(INST, T * 1000, 0)
    for kind in (LIVE, RETAINED):
        inner = m1_seal(a, m1_header(a, 1, 0, kind), TOPIC, PLAIN)
        packet = m3(s.site, OWN, order, TOPIC, inner, block=fired(T))
        s.tell(f"untimed-{words[kind]}", "untimed, but no will", no(packet, "malformed"))


def _fired(s: Story) -> None:
    a = sender()

    def will(at: int, life: int = 0, how: int = RETAINED, block: bytes = b"") -> bytes:
        return send(a, 1, 0, T, how, WILL, life, block=block or fired(at))

    def tell(name: str, what: str, *steps: Json) -> None:
        s.tell(f"fired-{name}", what, *steps, section="3.4, 6.2")

    late = ok(will(T - 3600, 255), a, age=3600, how=RETAINED, flip=True)
    tell("hour-ago", "a retained will that fired an hour ago", late)
    queued = ok(will(T - 128, 7, QUEUED), a, age=128, how=QUEUED)
    tell("life", "128 s ago, life 2^7", queued)
    tell("life-over", "129 s ago, life 2^7", no(will(T - 129, 7, QUEUED), "stale"))
    tell("life-0", "61 s ago, life W", no(will(T - 61), "stale"))
    tell("ahead", "60 s ahead", ok(will(T + 60, 255), a, age=-60, how=RETAINED))
    tell("too-far-ahead", "61 s ahead", no(will(T + 61, 255), "stale"))
    both = tlv((2, u(T, 4)), (40, b"ab"))
    step = ok(will(T, 0, WILL, both), a, how=WILL, items={"40": "6162"})
    tell("with-others", "beside a family's item", step)
    missing = no(will(T, 0, WILL, b"\x00"), "malformed")
    tell("missing", "a will without the time at which it fired", missing)
    instead = no(will(T, 0, WILL, tlv((40, b"ab"))), "malformed")
    tell("missing-others", "another item in its place", instead)
    timed = send(a, 1, block=fired(T))
    tell("timed", "a live message with a time of its own and a second one", no(timed, "malformed"))
    timed = send(a, 1, T, T, RETAINED, RETAINED, 255, block=fired(T))
    tell("timed-retained", "a retained one with two times", no(timed, "malformed"))
    tell("short", "three bytes", no(will(T, 0, WILL, tlv((2, u(T, 4)[1:]))), "malformed"))
    tell("long", "five bytes", no(will(T, 0, WILL, tlv((2, u(T, 5)))), "malformed"))
    tell("empty", "no byte", no(will(T, 0, WILL, tlv((2, b""))), "malformed"))
    critical = no(will(T, 0, WILL, tlv((0x82, u(T, 4)))), "unsupported")
    tell("critical", "with its critical bit", critical)


def _inner(s: Story) -> None:
    a = sender()
    order = Order(INST, T * 1000, 0)

    def bad(name: str, what: str, inner: bytes, refuse: str = "unauthentic") -> None:
        packet = m3(s.site, OWN, order, TOPIC, inner)
        s.tell(f"m1-{name}", what, no(packet, refuse))

    moved = m1(a, b"machine/1/arm/height", PLAIN, 1, T)
    bad("other-topic", "a mediator moved m1 to another topic", moved)
    inner = m1(a, TOPIC, PLAIN, 1, T)
    bad("sender-forged", "another sender in m1's header", inner[:5] + b"\x00\x00\x09" + inner[8:])
    longer = inner[:26] + b"\xff" + inner[27:]
    bad("life-forged", "a mediator gave m1 a longer life", longer)
    bad("other-label", "m1 of a label below", m1(sender(roots(17, 5, 1)), TOPIC, PLAIN, 1, T))
    suite = m1(sender(roots(16, 5, 2)), TOPIC, PLAIN, 1, T)
    bad("other-suite", "m1 of the other suite", suite, "unsupported")
    bad(
        "unknown-epoch",
        "m1 of an epoch that is not held",
        m1(sender(OLD), TOPIC, PLAIN, 1, T),
        "no-key",
    )
    head = m1_header(a, 1, T, life=33)
    bad("life-33", "m1 with life 33", m1_seal(a, head, TOPIC, PLAIN), "malformed")


def _replays(s: Story) -> None:
    a = sender()
    first = send(a, 1)
    s.tell("repeat", "the same m3 twice", ok(first, a), no(first, "replay"))
    again = send(a, 1, T, T + 1)
    s.tell("repeat-resealed", "the same m1 in a new m3", ok(first, a), no(again, "replay", T + 1))
    queued = send(a, 1, T, T + 1, QUEUED)
    s.tell("repeat-queued", "the same m1 as queued", ok(first, a), no(queued, "replay", T + 1))
    s.tell("late", "late, but inside the window", ok(send(a, 64), a), ok(first, a))
    s.tell("below", "64 below the top", ok(send(a, 65), a), no(first, "replay"))
    b = sender(boot=6)
    s.tell("other-boot", "the same ctr in another boot session", ok(first, a), ok(send(b, 1), b))
    b = sender(number=9)
    s.tell("other-sender", "the same ctr of another sender", ok(first, a), ok(send(b, 1), b))
    b = a.but(salt=rnd("another salt", 8))
    s.tell("other-salt", "a cloned board: another salt", ok(first, a), ok(send(b, 1), b))
    b = a.but(client=9)
    s.tell("same-salt", "another sender, boot and salt alike", ok(first, a), ok(send(b, 1), b))
    will = send(a, 1, 0, T, WILL, WILL)
    s.tell(
        "will-late",
        "a will sealed 199 messages ago",
        ok(send(a, 200), a),
        ok(will, a, how=WILL),
    )
    second = send(a, 1, 0, T + 1, WILL, WILL)
    steps = (ok(will, a, how=WILL), no(second, "replay", T + 1))
    s.tell("will-repeat", "a will that fires twice", *steps)


def _retained(s: Story) -> None:
    a = sender()

    def kept(ctr: int, t_pub: int, topic: bytes = TOPIC) -> bytes:
        return send(a, ctr, t_pub, T, RETAINED, RETAINED, 255, topic)

    def fine(packet: bytes, age: int, topic: bytes = TOPIC) -> Json:
        return ok(packet, a, age=age, how=RETAINED, topic=topic)

    new, old = kept(9, T - 100), kept(8, T - 200)
    s.tell("retained-again", "the same retained message again", fine(new, 100), fine(new, 100))
    s.tell("retained-newer", "a newer retained message", fine(old, 200), fine(new, 100))
    s.tell(
        "retained-rolled-back",
        "an older retained message comes back",
        fine(new, 100),
        no(old, "stale"),
    )
    late = ok(send(a, 8, T - 200, T, LIVE, RETAINED, 255), a, age=200)
    what = "an older live one in between changes nothing"
    s.tell("retained-live-between", what, fine(new, 100), late, no(old, "stale"))
    lower = kept(7, T - 100)
    s.tell("retained-same-second", "same t_pub, lower ctr", fine(new, 100), no(lower, "stale"))
    elsewhere = kept(8, T - 200, b"other/topic")
    steps = (fine(new, 100), fine(elsewhere, 200, b"other/topic"))
    s.tell("retained-other-topic", "an older one on another topic", *steps)
    live = ok(send(a, 9, T, T, LIVE, RETAINED, 255), a)
    s.tell("retained-behind-live", "older than the live one", live, no(old, "stale"))
    will = send(a, 1, 0, T, RETAINED, WILL, 255)
    s.tell(
        "retained-will",
        "a retained will behind a retained message",
        fine(old, 200),
        ok(will, a, how=RETAINED),
    )
    steps = (ok(will, a, how=RETAINED), no(new, "stale"))
    s.tell("retained-behind-will", "a message older than the retained will", *steps)
    old_will = send(a, 1, 0, T, RETAINED, WILL, 255, block=fired(T - 200))
    what = "a retained will comes back behind a newer message"
    s.tell("retained-will-rolled-back", what, fine(new, 100), no(old_will, "stale"))
    b = sender(boot=6)
    newer = send(b, 1, 0, T, RETAINED, WILL, 255, block=fired(T - 50))
    steps = (ok(newer, b, age=50, how=RETAINED), no(old_will, "stale"))
    s.tell("retained-will-older", "a will older than the retained will", *steps)
    again = send(b, 1, 0, T + 9, RETAINED, WILL, 255, block=fired(T - 50))
    last = ok(again, b, T + 9, 59, RETAINED)
    s.tell("retained-will-again", "the same retained will, sealed again", steps[0], last)


def _floors(s: Story) -> None:
    a, b, c, d = (sender(number=n) for n in (8, 9, 10, 11))
    full = (ok(send(a, 1, T - 30, T - 20), a, age=30), ok(send(b, 1), b), ok(send(c, 1), c))
    steps = (*full, no(send(a, 1, T - 30, T - 20), "replay"))
    s.tell("floor-replay", "a replay behind a window that was dropped", *steps, limit=2)
    steps = (*full, no(send(d, 1, T - 30, T), "replay"))
    s.tell("floor-other", "a new sender at the floor", *steps, limit=2)
    steps = (*full, ok(send(d, 1, T - 29, T), d, age=29))
    s.tell("floor-above", "a new sender above the floor", *steps, limit=2)
    steps = (*full, ok(send(d, 1, T - 30, T - 19, QUEUED), d, age=30, how=QUEUED))
    s.tell("floor-queued", "queued: s2 counts", *steps, limit=2)
    steps = (*full, no(send(d, 1, T - 29, T - 20, QUEUED), "replay"))
    s.tell("floor-queued-replay", "queued, s2 at the floor", *steps, limit=2)
    steps = (*full, no(send(d, 1, 0, T - 20, WILL, WILL), "replay"))
    s.tell("floor-will-replay", "a will, s2 at the floor", *steps, limit=2)
    steps = (*full, ok(send(a, 1, 0, T, WILL, WILL), a, how=WILL))
    s.tell("floor-will", "a will, s2 above the floor", *steps, limit=2)


def add(cases: Cases) -> None:
    """All cases of this file."""
    story = Story(cases)
    for group in (_keys, _times, _blocks, _classes, _fired, _inner, _replays, _retained, _floors):
        group(story)
