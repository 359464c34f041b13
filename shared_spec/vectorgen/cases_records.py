"""Cases of section 8 as a reader lives them: records, back-links, manifests, hand-over."""

from __future__ import annotations

from .case import Cases, Json
from .cases_envelopes import T
from .envelopes import QUEUED, RETAINED, manifest, record
from .model import roots
from .reader_steps import (
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
)


def _records(s: Story) -> None:
    site = s.site

    def tell(name: str, what: str, *steps: Json) -> None:
        s.tell(f"record-{name}", what, *steps, section="8")

    b2, b1 = sender(LOW), sender(LOWER)
    now = record(site, OWN, LOW, 80, KG, T + 600)
    was = record(site, OWN, LOWER, 70, KG)
    tell("again", "a record that is known", put_record(now), put_record(now, False))
    tell("newer", "a newer epoch", put_record(was), put_record(now), ok(send(b2, 1), b2))
    tell("epoch-lower", "a lower epoch comes back", put_record(now), no_record(was, "epoch"))
    fresh = record(site, OWN, LOWER, 85, KG)
    tell(
        "epoch-lower-kseq", "a lower epoch, higher kseq", put_record(now), no_record(fresh, "epoch")
    )
    older = record(site, OWN, LOW, 79, KG, T + 900)
    tell("kseq-lower", "the same epoch, lower kseq", put_record(now), no_record(older, "epoch"))
    forged = now[:94] + b"\xff\xff\xff\xff" + now[98:]
    tell(
        "known-forged",
        "a known record, kseq forged",
        put_record(now),
        no_record(forged, "unauthentic"),
    )
    newer = put_record(record(site, OWN, LOW, 81, KG, T + 300), False)
    steps = (put_record(now), no_record(forged, "unauthentic"), newer)
    tell("after-forged", "a forged kseq changes nothing", *steps)
    first = record(site, OWN, LOWER, 99, KG)
    steps = (put_record(first), put_record(now), ok(send(b2, 1), b2))
    tell("epoch-higher-kseq-lower", "a newer epoch, lower kseq", *steps)
    steps = (put_record(now), no_record(fresh, "epoch"), put_record(now, False))
    tell("epoch-lower-raises-nothing", "behind it the newest is known still", *steps)
    equal = put_record(record(site, OWN, LOW, 80, KG, T + 900), False)
    tell("kseq-same", "the same epoch and kseq, another hand-over end", put_record(now), equal)
    up = record(site, LOW, roots(18, 1, 1), 80, KG)
    tell("not-held", "from a label that is not held", no_record(up, "no-key"))
    what = "from a label that was derived, not from the own one"
    tell("intermediate", what, put_record(now), no_record(up, "denied"))
    link = record(site, OWN, OLD, 80, KG)
    tell("back-link", "a back-link", put_record(link, flip=True))
    turned = record(site, OWN, roots(16, 6, 1), 80, KG)
    tell("back-link-upwards", "a back-link to a higher epoch", no_record(turned, "epoch"))
    same = record(site, OWN, OWN, 80, KG)
    tell("back-link-same", "a back-link to the same epoch", no_record(same, "epoch"))
    over = record(site, OLD, LOW, 99, KG)
    last = no_record(over, "epoch")
    tell("over-epoch", "a derivation from an epoch that is over", put_record(link), last)
    last = no_record(record(site, OLD, OLDER, 60, KG), "epoch")
    tell("back-link-over-epoch", "a back-link from an epoch that is over", put_record(link), last)
    deep = put_record(record(site, OWN, OLDER, 80, KG))
    a = sender(OLDER)
    kept = send(a, 1, T - 9000, T, RETAINED, RETAINED, 255, outer=OWN)
    last = ok(kept, a, age=9000, how=RETAINED)
    tell("back-link-retained", "old retained data stays readable", deep, last)
    low = put_record(record(site, LOW, LOWER, 80, KG))
    last = ok(send(b1, 1, T - 90, T, QUEUED, life=255, outer=LOW), b1, age=90, how=QUEUED)
    tell("back-link-below", "a back-link of a label below", put_record(now), low, last)
    unknown = roots(17, 2, 5)
    last = no_record(record(site, OWN, unknown, 80, KG), "unsupported")
    tell("suite-5", "a target of a suite that nobody knows", last)
    odd = roots(16, 4, 2)
    a = sender(odd)
    other = put_record(record(site, OWN, odd, 80, KG))
    kept = send(a, 1, T - 9000, T, RETAINED, RETAINED, 255, outer=OWN)
    last = ok(kept, a, age=9000, how=RETAINED)
    tell("back-link-suite", "an older epoch of the other suite", other, last)
    steps = (put_record(was), put_record(now), ok(send(b1, 1, outer=LOW), b1))
    tell("handover", "the old epoch while the hand-over runs", *steps)
    late = T + 600
    steps = (
        put_record(was),
        put_record(now),
        no(send(b1, 1, late, late, outer=LOW), "epoch", late),
    )
    tell("handover-over", "the old epoch when the hand-over is over", *steps)
    steps = (put_record(was), put_record(now), no(send(b1, 1, late, late), "epoch", late))
    tell("handover-over-outer", "the same with m3 of the old epoch", *steps)
    queued = send(b1, 1, late - 10, late, QUEUED, outer=LOW)
    steps = (put_record(was), put_record(now), ok(queued, b1, late, 10, QUEUED))
    tell("handover-over-queued", "queued is not live", *steps)


def _manifests(s: Story) -> None:
    site = s.site
    link, deep = record(site, OWN, OLD, 80, KG), record(site, OWN, OLDER, 80, KG)
    a, old = sender(OLD), sender(OLDER)
    m = put_manifest(manifest(site, OWN, 85, KG, T + 600), flip=True)

    def tell(name: str, what: str, *steps: Json) -> None:
        s.tell(f"manifest-{name}", what, *steps, section="8")

    def bad(packet: bytes, refuse: str) -> Json:
        return {"do": "manifest", "packet": packet.hex(), "refuse": refuse}

    before = T + 599
    last = ok(send(a, 1, before, before, outer=OWN), a, before)
    tell("handover", "the own label's old epoch, hand-over running", m, put_record(link), last)
    late = T + 600
    last = no(send(a, 1, late, late, outer=OWN), "epoch", late)
    tell("handover-over", "the own label's old epoch, hand-over over", m, put_record(link), last)
    last = no(send(a, 1, outer=OWN), "epoch")
    tell("none", "no hand-over known: the old epoch is refused", put_record(link), last)
    steps = (m, put_record(link), put_record(deep), no(send(old, 1, outer=OWN), "epoch"))
    tell("two-back", "two epochs back while a hand-over runs", *steps)
    tell(
        "shortened",
        "a newer one ends the hand-over",
        m,
        put_record(link),
        put_manifest(manifest(site, OWN, 86, KG, T - 1)),
        no(send(a, 1, outer=OWN), "epoch"),
    )
    tell(
        "kseq-lower", "kseq lower than seen", m, bad(manifest(site, OWN, 84, KG, T + 9000), "epoch")
    )
    last = bad(manifest(site, OLD, 99, KG, T + 9000), "epoch")
    tell("over-epoch", "of an epoch that is over", put_record(link), last)
    after = put_manifest(manifest(site, OWN, 85, KG, T + 600))
    what = "of an epoch that is over: its kseq counts for nothing"
    tell("over-epoch-raises-nothing", what, put_record(link), last, after)
    low = put_manifest(manifest(site, LOWER, 99, KG, T + 600))
    raised = put_record(record(site, OWN, LOW, 81, KG))
    was = put_record(record(site, OWN, LOWER, 80, KG))
    tell("then-newer-epoch", "its kseq does not hold up a newer epoch", was, low, raised)
    tell("not-held", "of a label that is not held", bad(manifest(site, LOW, 85, KG), "no-key"))
    tell(
        "below",
        "of a label below",
        put_record(record(site, OWN, LOW, 80, KG)),
        put_manifest(manifest(site, LOW, 81, KG)),
    )


def add(cases: Cases) -> None:
    """All cases of this file."""
    story = Story(cases)
    _records(story)
    _manifests(story)
