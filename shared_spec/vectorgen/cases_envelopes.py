"""Cases of section 3: m1, m2, m3. Negative ones are right but for their one defect."""

from __future__ import annotations

from .case import Cases, Json, cut, link_json, with_byte
from .envelopes import (
    CLEAR,
    QUEUED,
    RETAINED,
    WILL,
    fired,
    labelled,
    m1,
    m1_header,
    m1_seal,
    m2,
    m3,
    m3_grant,
    m3_link,
)
from .model import Client, Grant, Order, client, lentopic, rnd, roots, seal, tlv, u

T = 1_800_000_000
TOPIC = b"machine/1/temperature"
UTF8 = "maschine/größe/温度".encode()
LONG = b"t" * 1024
PLAIN = b'{"t":21.5}'
ORDER = Order(9, T * 1000 + 123, 4)
NAMES = {1: "ccm", 2: "chacha"}


def _m1_in(c: Client, topic: bytes, packet: bytes) -> Json:
    own = c.own
    return {
        "site": c.site.hex(),
        "label": own.label,
        "suite": own.suite,
        "r_bar": own.r_bar.hex(),
        "topic": topic.hex(),
        "packet": packet.hex(),
    }


def _m1_good(
    cases: Cases,
    name: str,
    what: str,
    c: Client,
    topic: bytes = TOPIC,
    plain: bytes = PLAIN,
    ctr: int = 1,
    t_pub: int = T,
    kind: int = 0,
    life: int = 0,
) -> None:
    out = {
        "class": kind,
        "untimed": t_pub == 0,
        "epoch": c.own.epoch,
        "sender": c.client,
        "boot": c.boot,
        "salt": c.salt.hex(),
        "ctr": ctr,
        "t_pub": t_pub,
        "life": life,
        "plain": plain.hex(),
    }
    inputs = _m1_in(c, topic, m1(c, topic, plain, ctr, t_pub, kind, life))
    flip = ("packet",) if len(topic) > 100 else ("packet", "topic", "site")
    cases.good(f"m1-{name}", "3.1", what, "m1", inputs, out, *flip)


def _m1(cases: Cases) -> None:
    for suite, name in NAMES.items():
        c = client(suite)
        _m1_good(cases, f"{name}-live", "live", c)
        _m1_good(cases, f"{name}-empty", "an empty payload", c, plain=b"")
        _m1_good(cases, f"{name}-long-topic", "a topic of 1,024 bytes", c, topic=LONG, plain=b"x")
        _m1_good(cases, f"{name}-payload-500", "500 bytes", c, plain=rnd("payload", 500))
    c = client()
    _m1_good(cases, "utf8-topic", "a topic in UTF-8", c, topic=UTF8)
    _m1_good(cases, "retained", "class retained, unlimited life", c, kind=RETAINED, life=255)
    _m1_good(cases, "will-untimed", "class will, untimed", c, t_pub=0, kind=WILL, life=16)
    _m1_good(cases, "clear", "class clear, empty", c, plain=b"", kind=CLEAR)
    _m1_good(
        cases, "limits", "highest ctr, time and life", c, ctr=0xFFFFFF, t_pub=2**32 - 1, life=31
    )
    far = c.but(client=0xFFFFFF, boot=0xFFFFFF, own=roots(0xFFFFFF, 0xFFFFFF, 1))
    _m1_good(cases, "limits-numbers", "highest label, epoch, sender and boot", far)

    packet = m1(c, TOPIC, PLAIN, 5, T)
    right = _m1_in(c, TOPIC, packet)

    def bad(name: str, what: str, change: Json, refuse: str = "unauthentic") -> None:
        cases.bad(f"m1-{name}", "3.1", what, "m1", {**right, **change}, refuse)

    bad("other-topic", "moved to another topic", {"topic": b"machine/1/arm/angle".hex()})
    bad("topic-prefix", "moved to a topic that begins alike", {"topic": TOPIC[:-1].hex()})
    composed, decomposed = "gr\u00f6\u00dfe".encode(), "gro\u0308\u00dfe".encode()
    given = _m1_in(c, decomposed, m1(c, composed, PLAIN, 5, T))
    what = "the topic in another Unicode normalisation: bytes count, not letters"
    cases.bad("m1-topic-normalised", "3.1", what, "m1", given, "unauthentic")
    bad("other-label", "moved to another label", {"label": 17})
    bad("other-root", "under another label's root", {"r_bar": roots(17, 5, 1).r_bar.hex()})
    bad("other-site", "of another site", {"site": rnd("other site", 4).hex()})
    bad("other-suite", "the label has the other suite", {"suite": 2}, "unsupported")
    for name, what, at, value in (
        ("epoch-changed", "another epoch in the header", 4, 6),
        ("sender-changed", "another sender in the header", 7, 8),
        ("boot-changed", "another boot in the header", 10, 42),
        ("ctr-changed", "another ctr in the header", 21, 6),
        ("time-changed", "another time in the header", 25, packet[25] ^ 1),
        ("life-changed", "a longer life in the header", 26, 255),
        ("class-changed", "class retained in the header", 1, 0x11),
    ):
        bad(name, what, {"packet": with_byte(packet, at, value)})
    other = m1(c, TOPIC, b'{"t":99.9}', 6, T)
    bad("spliced", "header of one, body of another", {"packet": (packet[:27] + other[27:]).hex()})
    bad("tag-cut", "a tag of 15 bytes", {"packet": cut(packet, len(packet) - 1)})
    for size in (0, 1, 2, 5, 8, 11, 19, 22, 26, 27, 42):
        bad(f"truncated-{size}", f"{size} bytes", {"packet": cut(packet, size)}, "malformed")
    bad("no-plaintext", "header and tag alone", {"packet": cut(packet, 43)})
    bad("type", "first byte 0x12", {"packet": with_byte(packet, 0, 0x12)}, "malformed")

    def header(name: str, what: str, head: bytes, refuse: str = "malformed") -> None:
        bad(name, what, {"packet": m1_seal(c, head, TOPIC, PLAIN).hex()}, refuse)

    head = m1_header(c, 5, T)
    header("reserved-bit", "bit 2 of the second byte", head[:1] + b"\x14" + head[2:])
    header("untimed-with-time", "untimed with a time", m1_header(c, 5, T, WILL, untimed=1))
    header("time-zero", "t_pub 0, not untimed", m1_header(c, 5, 0, untimed=0))
    for life in (32, 254):
        header(f"life-{life}", f"life {life}", m1_header(c, 5, T, life=life))
    header("ctr-zero", "ctr 0", m1_header(c, 0, T))
    header("suite-zero", "suite 0", head[:1] + b"\x00" + head[2:], "unsupported")
    header("suite-three", "suite 3", head[:1] + b"\x30" + head[2:], "unsupported")


def _m2_in(c: Client, topic: bytes, flags: int, packet: bytes) -> Json:
    return {**link_json(c), "flags": flags, "topic": topic.hex(), "packet": packet.hex()}


def _m2(cases: Cases) -> None:
    def good(
        name: str,
        what: str,
        c: Client,
        flags: int = 0,
        topic: bytes = TOPIC,
        plain: bytes = PLAIN,
        block: bytes = b"\x00",
        kind: int = 0,
        t_pub: int = T,
    ) -> None:
        inner = m1(c, topic, plain, 5, t_pub, kind)
        inputs = _m2_in(c, topic, flags, m2(c, topic, inner, 5, t_pub, flags, block))
        out = {"ctr": 5, "s1": t_pub, "tlv": block.hex(), "m1": inner.hex()}
        cases.good(f"m2-{name}", "3.2", what, "m2", inputs, out, "packet")

    for suite, name in NAMES.items():
        c = client(suite)
        good(f"{name}-qos0", "QoS 0", c)
        good(f"{name}-empty", "an empty payload", c, plain=b"")
        good(f"{name}-qos2-retain", "QoS 2, RETAIN", c, flags=5, kind=RETAINED)
        good(f"{name}-tlv1", "a TLV block with one item", c, block=tlv((40, b"note")))
        good(f"{name}-tlv2", "a TLV length of two bytes", c, block=tlv((40, bytes(200))))
        good(f"{name}-long-topic", "a topic of 1,024 bytes", c, topic=LONG, plain=b"x")
    c = client()
    good("utf8-topic", "a topic in UTF-8", c, topic=UTF8)
    good("will", "a will: untimed, QoS 1", c, flags=2, kind=WILL, t_pub=0)
    good("label-other-suite", "label of suite 2 on a link of suite 1", client(1, 2))
    # It verifies, so its refusal is the client's own and can be named (4.5).
    good("reserved-topic", "a reserved topic, refused behind the tag", c, flags=2, topic=b"$SYS/x")
    good(
        "topic-1025",
        "a topic of 1,025 bytes, refused behind the tag",
        c,
        flags=2,
        topic=LONG + b"x",
    )

    inner = m1(c, TOPIC, PLAIN, 5, T)
    packet = m2(c, TOPIC, inner, 5, T, 2, b"\x00")
    right = _m2_in(c, TOPIC, 2, packet)

    def bad(name: str, what: str, change: Json, refuse: str = "unauthentic") -> None:
        cases.bad(f"m2-{name}", "3.2", what, "m2", {**right, **change}, refuse)

    bad("other-topic", "on another topic", {"topic": b"machine/2/temperature".hex()})
    bad("retain-set", "RETAIN set on the way", {"flags": 3})
    bad("qos-lowered", "QoS lowered on the way", {"flags": 0})
    bad("other-client", "from another client number", {"client": 8})
    bad("other-mediator", "at another mediator", {"mediator": 2})
    bad("other-boot", "in another boot session", {"boot": 42})
    bad("other-salt", "in a boot session with another salt", {"salt": rnd("other salt", 8).hex()})
    bad("other-link-root", "under another link root", {"km": rnd("other km", 32).hex()})
    bad("other-site", "at another site", {"site": rnd("other site", 4).hex()})
    bad("other-suite", "on a link of the other suite", {"suite": 2}, "unsupported")
    bad("ctr-changed", "another ctr", {"packet": with_byte(packet, 4, 6)})
    bad("time-changed", "another s1", {"packet": with_byte(packet, 8, packet[8] ^ 1)})
    bad("tag-cut", "a tag of 15 bytes", {"packet": cut(packet, len(packet) - 1)})
    for size in (0, 1, 2, 5, 9, 68):
        bad(f"truncated-{size}", f"{size} bytes", {"packet": cut(packet, size)}, "malformed")
    bad("type", "first byte 0x13", {"packet": with_byte(packet, 0, 0x13)}, "malformed")
    bad("low-nibble", "low nibble not 0", {"packet": with_byte(packet, 1, 0x11)}, "malformed")

    def sealed(name: str, what: str, ctr: int, body: bytes, refuse: str = "malformed") -> None:
        bad(name, what, {"packet": m2(c, TOPIC, body, ctr, T, 2, b"").hex()}, refuse)

    sealed("ctr-zero", "ctr 0", 0, b"\x00" + inner)
    sealed("no-m1", "a TLV block with too little behind it", 5, tlv((40, bytes(50))) + inner[:20])
    sealed("no-room", "42 bytes for m1", 5, b"\x00" + inner[:42])
    sealed("tlv-beyond", "a TLV block longer than the packet", 5, b"\x7f" + inner)
    sealed("tlv-long-form", "0 in two bytes", 5, b"\x80\x00" + inner)
    sealed("tlv-twice", "a type twice", 5, tlv((40, b""), (40, b"")) + inner)
    sealed("tlv-critical", "unknown critical type", 5, tlv((0xC0, b"")) + inner, "unsupported")
    what = "a type of the protocol's own"
    sealed("tlv-own", what, 5, tlv((2, u(T, 4))) + inner)
    sealed("tlv-own-critical", f"{what}, critical", 5, tlv((0x82, u(T, 4))) + inner)
    sealed("tlv-own-unknown", f"{what}, critical, that is none yet", 5, tlv((0x9F, b"")) + inner)
    sealed("m1-life", "m1 with life 40", 5, b"\x00" + inner[:26] + b"\x28" + inner[27:])
    key = c.key(2)
    aad = packet[:9] + c.site + u(7, 3) + u(1, 3) + u(2, 1) + lentopic(TOPIC)
    wrong = packet[:9] + seal(1, key, c.salt + b"\x01" + u(5, 3), b"\x00" + inner, aad)
    bad("other-use", "under the control key", {"packet": wrong.hex()})
    wrong = packet[:9] + seal(1, c.key(1), c.salt + b"\x00" + u(5, 3), b"\x00" + inner, aad)
    bad("other-nonce", "with m1's nonce", {"packet": wrong.hex()})


def _m3(cases: Cases) -> None:
    def inputs(c: Client, topic: bytes, packet: bytes) -> Json:
        own = c.own
        label: Json = {"label": own.label, "epoch": own.epoch, "suite": own.suite, "r": own.r.hex()}
        rest = {"topic": topic.hex(), "packet": packet.hex()}
        return {"site": c.site.hex(), "ref": 0, **label, **rest}

    def good(
        name: str,
        what: str,
        c: Client,
        how: int = 0,
        kind: int = 0,
        topic: bytes = TOPIC,
        plain: bytes = PLAIN,
        block: bytes = b"\x00",
        order: Order = ORDER,
        t_pub: int = T,
    ) -> None:
        inner = m1(c, topic, plain, 5, t_pub, kind)
        packet = m3(c.site, c.own, order, topic, inner, how, block)
        out = {"how": how, "inst": order.inst, "s2": order.ms, "seq": order.seq}
        rest = {"tlv": block.hex(), "m1": inner.hex()}
        given = inputs(c, topic, packet)
        cases.good(f"m3-{name}", "3.3", what, "m3", given, {**out, **rest}, "packet")

    for suite, name in NAMES.items():
        c = client(suite)
        good(f"{name}-live", "live", c)
        good(f"{name}-empty", "an empty payload: 80 bytes", c, plain=b"")
        good(f"{name}-tlv1", "a TLV block with one item", c, block=tlv((40, b"note")))
        good(f"{name}-tlv2", "a TLV length of two bytes", c, block=tlv((40, bytes(200))))
        good(f"{name}-long-topic", "a topic of 1,024 bytes", c, topic=LONG, plain=b"x")
    c = client()
    good("utf8-topic", "a topic in UTF-8", c, topic=UTF8)
    good("retained", "how retained", c, how=1, kind=RETAINED)
    good("will", "how will: with the time at which it fired", c, 2, WILL, block=fired(T), t_pub=0)
    good("queued", "how queued", c, how=QUEUED)
    top = Order(0xFFFFFF, 2**48 - 1, 0xFFFFFF)
    good("limits", "highest inst, ms and seq", c, order=top)

    inner = m1(c, TOPIC, PLAIN, 5, T)

    packet = m3(c.site, c.own, ORDER, TOPIC, inner)
    right = inputs(c, TOPIC, packet)

    def bad(name: str, what: str, change: Json, refuse: str = "unauthentic") -> None:
        cases.bad(f"m3-{name}", "3.3", what, "m3", {**right, **change}, refuse)

    bad("other-topic", "on another topic", {"topic": b"machine/1/arm/angle".hex()})
    bad("other-site", "at another site", {"site": rnd("other site", 4).hex()})
    bad("other-root", "under another root", {"r": roots(17, 5, 1).r.hex()})
    bad("r-bar", "under the root of the other hierarchy", {"r": c.own.r_bar.hex()})
    bad("other-suite", "the label has the other suite", {"suite": 2}, "unsupported")
    bad("ref-grant", "ref 2", {"packet": with_byte(packet, 1, 0x28)}, "unsupported")
    bad("ref-seven", "ref 7", {"packet": with_byte(packet, 1, 0x3C)}, "unsupported")
    bad("how-changed", "how retained", {"packet": with_byte(packet, 1, 0x21)})
    bad("inst-changed", "another inst", {"packet": with_byte(packet, 10, 10)})
    bad("time-changed", "another s2", {"packet": with_byte(packet, 16, packet[16] ^ 1)})
    bad("seq-changed", "another seq", {"packet": with_byte(packet, 19, 5)})
    moved = m3(c.site, roots(17, 5, 1), ORDER, TOPIC, inner)
    bad("label-spliced", "another label's body", {"packet": (packet[:20] + moved[20:]).hex()})
    bad("tag-cut", "a tag of 15 bytes", {"packet": cut(packet, len(packet) - 1)})
    for size in (0, 1, 2, 5, 8, 11, 17, 20, 79):
        bad(f"truncated-{size}", f"{size} bytes", {"packet": cut(packet, size)}, "malformed")
    bad("type", "m1's first byte", {"packet": with_byte(packet, 0, 0x11)}, "malformed")
    two = m3(c.site, c.own, ORDER, TOPIC, inner, block=tlv((0x80 | 99, b"")))
    bad("tlv-critical", "unknown critical type", {"packet": two.hex()}, "unsupported")
    will = m1(c, TOPIC, PLAIN, 5, 0, WILL)
    for name, what, body, block in (
        ("fired-missing", "untimed, and no time at which it fired", will, b"\x00"),
        ("fired-timed", "a time of its own, and one at which it fired", inner, fired(T)),
        ("fired-short", "type 2 of three bytes", will, tlv((2, u(T, 4)[1:]))),
        ("fired-long", "type 2 of five bytes", will, tlv((2, u(T, 5)))),
    ):
        raw = m3(c.site, c.own, ORDER, TOPIC, body, block=block)
        bad(name, what, {"packet": raw.hex()}, "malformed")
    raw = m3(c.site, c.own, ORDER, TOPIC, will, block=tlv((0x82, u(T, 4))))
    bad("fired-critical", "type 2 with its critical bit", {"packet": raw.hex()}, "unsupported")
    raw = m3(c.site, c.own, ORDER, TOPIC, inner, block=labelled(16))
    bad("label-named", "ref 0 that names m1's label once more", {"packet": raw.hex()}, "malformed")
    raw = m3(c.site, c.own, ORDER, TOPIC, inner[:-1] if len(inner) < 44 else inner[:42])
    bad("no-room", "42 bytes for m1", {"packet": raw.hex()}, "malformed")


def _m3_refs(cases: Cases) -> None:
    """Refs 1 and 2: under a link's delivery key, and under a grant's."""
    c = client()
    inner = m1(c, TOPIC, PLAIN, 5, T)
    block = labelled(16)
    out = {"how": 0, "inst": 9, "s2": ORDER.ms, "seq": 4, "tlv": block.hex(), "m1": inner.hex()}
    both = labelled(16, (40, b"note"))

    def of_link(link: Client, packet: bytes) -> Json:
        return {**link_json(link), "ref": 1, "topic": TOPIC.hex(), "packet": packet.hex()}

    def of_grant(to: Grant, packet: bytes) -> Json:
        held = {"grant": to.number, "epoch": to.epoch, "suite": to.suite, "g": to.g.hex()}
        rest = {"topic": TOPIC.hex(), "packet": packet.hex()}
        return {"site": c.site.hex(), "ref": 2, **held, **rest}

    def good(name: str, what: str, given: Json, found: Json = out) -> None:
        cases.good(f"m3-{name}", "3.3", what, "m3", given, found, "packet")

    for suite, name in NAMES.items():
        link, to = client(suite), Grant(suite=suite)
        packet = m3_link(link, ORDER, TOPIC, inner)
        good(f"{name}-link", "ref 1: under the link's delivery key", of_link(link, packet))
        packet = m3_grant(c.site, to, ORDER, TOPIC, inner, block)
        good(f"{name}-grant", "ref 2: under a grant's key", of_grant(to, packet))
    to = Grant()
    packet = m3_grant(c.site, to, ORDER, TOPIC, inner, both)
    good("grant-tlv", "with a family's item", of_grant(to, packet), {**out, "tlv": both.hex()})
    will, block = m1(c, TOPIC, PLAIN, 5, 0, WILL), labelled(16, (2, u(T, 4)))
    packet = m3_link(c, ORDER, TOPIC, will, how=2, block=block)
    found = {**out, "how": 2, "tlv": block.hex(), "m1": will.hex()}
    good("link-will", "a will: with the time at which it fired", of_link(c, packet), found)

    def bad(name: str, what: str, given: Json, refuse: str = "unauthentic") -> None:
        cases.bad(f"m3-{name}", "3.3", what, "m3", given, refuse)

    packet = m3_link(c, ORDER, TOPIC, inner)
    right = of_link(c, packet)
    bad("link-other-client", "another client's number", {**right, "client": 8}, "no-key")
    bad("link-other-boot", "of another boot session", {**right, "boot": 42})
    bad("link-other-mediator", "of another mediator's link", {**right, "mediator": 2})
    bad("link-other-suite", "not the link's suite", {**right, "suite": 2}, "unsupported")
    wrong = of_link(c, m3_link(c, ORDER, TOPIC, inner, epoch=1))
    bad("link-epoch", "ref 1 with an epoch", wrong, "malformed")
    right = of_grant(to, m3_grant(c.site, to, ORDER, TOPIC, inner, labelled(16)))
    bad("grant-other", "under another G", {**right, "g": rnd("other G", 32).hex()})
    bad("grant-other-number", "another grant's number", {**right, "grant": 6}, "no-key")
    bad("grant-other-suite", "not the grant's suite", {**right, "suite": 2}, "unsupported")
    for name, what, block in (
        ("no-label", "no block that names m1's label", b"\x00"),
        ("label-instead", "another item in its place", tlv((40, u(16, 3)))),
        ("label-short", "a label of two bytes", tlv((0x83, u(16, 2)))),
        ("label-long", "a label of four bytes", tlv((0x83, u(16, 4)))),
        ("label-not-critical", "the label's item without its critical bit", tlv((3, u(16, 3)))),
    ):
        given = of_grant(to, m3_grant(c.site, to, ORDER, TOPIC, inner, block))
        bad(f"grant-{name}", what, given, "malformed")
        given = of_link(c, m3_link(c, ORDER, TOPIC, inner, block=block))
        bad(f"link-{name}", what, given, "malformed")


def add(cases: Cases) -> None:
    """All cases of this file."""
    for group in (_m1, _m2, _m3, _m3_refs):
        group(cases)
