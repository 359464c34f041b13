"""Cases of section 3.5: messages of other sites, as a reader takes and refuses them."""

from __future__ import annotations

from dataclasses import replace

from .case import Cases, Json
from .cases_envelopes import PLAIN, TOPIC, T
from .envelopes import LIVE, QUEUED, RETAINED, m1, m3, m3_link, record
from .model import Client, Order, rnd, roots, tlv, u
from .reader_steps import INST, KG, LOW, OWN, Story, no, ok, put_record, sender

AWAY = rnd("another site", 4)
MOUNTED = b"@north/" + TOPIC


def item(site: bytes = AWAY, label: int = 40, epoch: int = OWN.epoch) -> bytes:
    """Section 3.5: what an m3 says of an m1 that has come from another site."""
    return site + u(label, 3) + u(epoch, 3)


def away(own: object = OWN, epoch: int = 77, label: int = 40) -> Client:
    """A publisher there: the roots of `own`, under the numbers that they have at its site."""
    theirs = replace(own, label=label, epoch=epoch)  # type: ignore[type-var]
    return sender().but(site=AWAY, own=theirs)


class Mounted(Story):
    """Of readers that take such messages."""

    def come(
        self,
        ctr: int = 1,
        who: Client | None = None,
        block: bytes | None = None,
        topic: bytes = MOUNTED,
        how: int = LIVE,
        kind: int = LIVE,
        seq: int = 0,
        t_pub: int = T,
    ) -> bytes:
        """m3 as a mediator makes it of what a bridge has brought."""
        inner = m1(who or away(), TOPIC, PLAIN, ctr, t_pub, kind)
        block = tlv((0x84, item())) if block is None else block
        return m3(self.site, OWN, Order(INST, T * 1000, seq), topic, inner, how, block)

    def tell_of(self, name: str, what: str, *steps: Json, takes: bool = True) -> None:
        """One case. takes: whether the reader takes messages of other sites at all."""
        self.origin = takes
        self.tell(f"origin-{name}", what, *steps, section="3.5, 6.2")


def _taken(s: Mounted) -> None:
    here = sender()
    good = ok(s.come(), here, topic=MOUNTED)
    s.tell_of("plain", "a message of another site", {**good, "flip": ["packet"]})
    far = b"@west/" + MOUNTED
    s.tell_of("two-sites", "by way of a third site", ok(s.come(topic=far), here, topic=far))
    both = tlv((0x84, item()), (40, b"ab"))
    step = ok(s.come(block=both), here, topic=MOUNTED, items={"40": "6162"})
    s.tell_of("with-others", "beside a family's item", step)
    kept = ok(s.come(how=RETAINED, kind=RETAINED), here, how=RETAINED, topic=MOUNTED)
    s.tell_of("retained", "retained there and here", kept)
    rec = put_record(record(s.site, OWN, LOW, 80, KG))
    block, low = tlv((0x84, item(epoch=LOW.epoch))), away(LOW)
    inner = m1(low, TOPIC, PLAIN, 1, T)
    packet = m3(s.site, LOW, Order(INST, T * 1000, 0), MOUNTED, inner, LIVE, block)
    step = ok(packet, sender(LOW), topic=MOUNTED)
    s.tell_of("below", "a label below the reader's", rec, step)
    order = Order(INST, T * 1000, 0)
    me = sender(number=7)
    linked = m3_link(me, order, MOUNTED, m1(away(), TOPIC, PLAIN, 1, T),
                     block=tlv((0x83, u(OWN.label, 3)), (0x84, item())))  # fmt: skip
    s.origin = True
    step = ok(linked, here, topic=MOUNTED)
    s.tell("origin-link", "sealed to the reader's link", step, section="3.5, 6.2", me=me)


def _refused(s: Mounted) -> None:
    def bad(name: str, what: str, packet: bytes, refuse: str, topic: bytes = MOUNTED) -> None:
        s.tell_of(name, what, no(packet, refuse, topic=topic))

    packet = s.come()
    what = "by a reader that takes none of other sites"
    s.tell_of("not-taken", what, no(packet, "unsupported", topic=MOUNTED), takes=False)
    for name, what, value, refuse in (
        ("other-site", "a third site", item(rnd("third", 4)), "unauthentic"),
        ("own-site", "as if it were of this site", item(s.site), "unauthentic"),
        ("other-label", "another label there", item(label=41), "unauthentic"),
        ("no-epoch", "an epoch here that is not held", item(epoch=6), "no-key"),
        ("short", "9 bytes", item()[:9], "malformed"),
        ("long", "11 bytes", item() + b"\0", "malformed"),
        ("empty", "no byte", b"", "malformed"),
    ):
        bad(name, what, s.come(block=tlv((0x84, value))), refuse)
    bad("not-critical", "without its critical bit", s.come(block=tlv((4, item()))), "malformed")
    bad("missing", "without the item", s.come(block=b"\0"), "no-key")
    bad("not-mounted", "on no topic of a peer", s.come(topic=TOPIC), "malformed", TOPIC)
    for name, topic in (("no-level", b"@north"), ("nothing-below", b"@north/")):
        bad(name, "a mount with no topic below it", s.come(topic=topic), "malformed", topic)
    own = b"@north/!c1"
    bad("control", "a control topic below a mount", s.come(topic=own), "malformed", own)
    other = b"@north/machine/2/temperature"
    bad("other-topic", "another topic there", s.come(topic=other), "unauthentic", other)
    local = sender().but(own=OWN)
    bad("local", "an m1 of this site in its place", s.come(who=local), "unauthentic")


def _again(s: Mounted) -> None:
    here = sender()
    first = ok(s.come(), here, topic=MOUNTED)
    far = b"@west/" + MOUNTED
    step = no(s.come(topic=far, seq=1), "replay", topic=far)
    s.tell_of("by-another-way", "the same message by way of a third site as well", first, step)
    again = no(s.come(seq=1, how=QUEUED), "replay", topic=MOUNTED)
    s.tell_of("repeat", "the same message, sealed again", first, again)
    old = roots(16, 4, 1)
    late = s.come(who=away(old), block=tlv((0x84, item(epoch=4))))
    back = put_record(record(s.site, OWN, old, 80, KG))
    s.tell_of(
        "old-live", "live, of an epoch that is over here", back, no(late, "epoch", topic=MOUNTED)
    )
    late = s.come(who=away(old), block=tlv((0x84, item(epoch=4))), how=QUEUED)
    step = ok(late, here, how=QUEUED, topic=MOUNTED)
    s.tell_of("old-queued", "queued, of an epoch that is over here", back, step)


def add(cases: Cases) -> None:
    """All cases of this file."""
    story = Mounted(cases)
    for group in (_taken, _refused, _again):
        group(story)
