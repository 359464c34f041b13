"""Cases of sections 1, 3.4, 4.3, 6 and 9: texts, TLV blocks, topics, windows, ages."""

from __future__ import annotations

from .case import Cases, Json
from .model import b64u, rnd, tlv, u


def _b64u(c: Cases) -> None:
    for name, raw in {
        "empty": b"",
        "one": b"\xff",
        "two": b"\xfb\xff",
        "three": b"\xfb\xef\xbe",
        "nineteen": rnd("b64u", 19),
    }.items():
        c.good(
            f"b64u-{name}",
            "1",
            f"{len(raw)} bytes",
            "b64u",
            {"text": b64u(raw).hex()},
            {"raw": raw.hex()},
        )
    for name, what, text in (
        ("padding", "padding is not written", b"_w=="),
        ("plus", "+ is of the other alphabet", b"+_8"),
        ("slash", "/ is of the other alphabet", b"-/8"),
        ("space", "a space in between", b"-_ 8"),
        ("newline", "a line feed at the end", b"-_8\n"),
        ("one-left", "length 1 modulo 4", b"-_8AA"),
        ("bits-of-one", "unused bits behind one byte are not 0", b"_x"),
        ("bits-of-two", "unused bits behind two bytes are not 0", b"-_9"),
        ("high-byte", "a byte above 127", b"-_\xe9A"),
    ):
        c.bad(f"b64u-{name}", "1", what, "b64u", {"text": text.hex()}, "malformed")


def _tlv(c: Cases) -> None:
    def good(name: str, what: str, *items: tuple[int, bytes], known: tuple[int, ...] = ()) -> None:
        block = tlv(*items)
        inputs = {"block": block.hex(), "known": list(known), "order": [t for t, _ in items]}
        found = [[t, v.hex()] for t, v in sorted(items)]
        c.good(
            f"tlv-{name}", "3.4", what, "tlv.unpack", inputs, {"items": found, "end": len(block)}
        )

    good("empty", "an empty block is one byte")
    good("one", "one item", (1, b"\x01\x02"))
    good("no-value", "an item without value", (40, b""))
    good("unknown-ignored", "unknown, not critical", (99, b"abc"), (1, b""))
    good("critical-known", "critical and known", (0x80 | 40, b"x"), known=(40,))
    good("127", "the longest block with a length of one byte", (33, bytes(125)))
    good("128", "the shortest block with a length of two bytes", (33, bytes(126)))
    good("long", "a block of several hundred bytes", (33, bytes(255)), (34, bytes(255)))

    def bad(name: str, what: str, block: bytes, refuse: str = "malformed") -> None:
        inputs: Json = {"block": block.hex(), "known": [], "order": []}
        c.bad(f"tlv-{name}", "3.4", what, "tlv.unpack", inputs, refuse)

    bad("missing", "no block where one must be", b"")
    bad("long-form-short", "127 in two bytes", b"\x80\x7f" + tlv((33, bytes(125)))[1:])
    bad("long-form-zero", "0 in two bytes", b"\x80\x00")
    bad("length-cut", "the second byte of the length is missing", b"\x81")
    bad("too-long", "length beyond what is there", b"\x05\x01\x02\x00\x00")
    bad(
        "long-too-long",
        "two-byte length beyond what is there",
        b"\x80\x80" + bytes([1, 125]) + bytes(125),
    )
    over = {"block": "c000", "zeros": [[t, 255] for t in range(32, 95)] + [[95, 191]], "known": []}
    what = "16,384 bytes, at most 16,383 are taken"
    c.bad("tlv-over", "3.4", what, "tlv.unpack", {**over, "order": []}, "too-large")
    bad("item-cut", "an item's length is missing", b"\x01\x01")
    bad("value-cut", "an item longer than the block", b"\x03\x01\x02\x00")
    bad("twice", "a type that occurs twice", tlv((5, b"a"), (5, b"b")))
    bad("twice-critical", "a type twice, once critical", tlv((5, b"a"), (0x85, b"b")))
    bad("critical-unknown", "critical and unknown", tlv((0x80 | 40, b"x")), "unsupported")
    bad(
        "critical-behind",
        "critical and unknown behind others",
        tlv((1, b""), (0xFF, b"")),
        "unsupported",
    )
    zeros = [[t, 255] for t in range(32, 96)]
    what = "items of 16,448 bytes, at most 16,383 fit"
    c.bad("tlv-block-over", "3.4", what, "tlv.pack", {"zeros": zeros}, "too-large")
    what = "a value of 256 bytes"
    c.bad("tlv-value-over", "3.4", what, "tlv.pack", {"zeros": [[33, 256]]}, "too-large")


def _topics(c: Cases) -> None:
    for name, topic, reserved in (
        ("plain", "machine/1/temperature", False),
        ("one-char", "a", False),
        ("slash", "/", False),
        ("utf8", "maschine/größe/温度", False),
        ("longest", "t" * 1024, False),
        ("reserved-dollar", "$SYS/broker", True),
        ("reserved-bang", "!c1", True),
        ("reserved-at", "@sm1/m/16", True),
        ("dollar-inside", "a/$b", False),
    ):
        inputs = {"topic": topic.encode().hex()}
        c.good(f"topic-{name}", "4.3, 9", "a valid topic", "topic", inputs, {"reserved": reserved})
    for name, raw in (
        ("empty", b""),
        ("plus", b"a/+/b"),
        ("hash", b"a/#"),
        ("nul", b"a\x00b"),
        ("too-long", b"t" * 1025),
        ("too-long-utf8", "é".encode() * 513),
        ("no-utf8", b"a/\xff"),
    ):
        c.bad(f"topic-{name}", "9", "no topic", "topic", {"topic": raw.hex()}, "malformed")
    for name, filt in (
        ("plain", "a/b"),
        ("plus", "+"),
        ("hash", "#"),
        ("both", "+/a//+/#"),
        ("share", "$share/g/a/+"),
        ("longest", "f" * 1022 + "/#"),
    ):
        c.good(
            f"filter-{name}", "9", "a valid filter", "filter", {"filter": filt.encode().hex()}, {}
        )
    for name, filt in (
        ("empty", ""),
        ("plus-inside", "a/b+/c"),
        ("plus-twice", "++"),
        ("hash-inside", "a/#/b"),
        ("hash-not-alone", "a/b#"),
        ("nul", "a\x00"),
        ("too-long", "f" * 1025),
    ):
        c.bad(
            f"filter-{name}",
            "9",
            "no filter",
            "filter",
            {"filter": filt.encode().hex()},
            "malformed",
        )
    for name, filt, topic, yes in (
        ("equal", "a/b", "a/b", True),
        ("plus", "a/+/c", "a/b/c", True),
        ("plus-empty", "a/+", "a/", True),
        ("hash", "a/#", "a/b/c", True),
        ("hash-parent", "a/#", "a", True),
        ("hash-all", "#", "a/b", True),
        ("dollar-named", "$SYS/#", "$SYS/x", True),
        ("public-named", "@sm1/#", "@sm1/m/16", True),
        ("case", "a/b", "A/b", False),
        ("plus-two-levels", "a/+", "a/b/c", False),
        ("plus-no-level", "a/+", "a", False),
        ("longer-filter", "a/b/c", "a/b", False),
        ("leading-slash", "+", "/a", False),
        ("hash-dollar", "#", "$SYS/x", False),
        ("plus-dollar", "+/x", "$SYS/x", False),
        ("hash-public", "#", "@sm1/m/16", False),
        ("plus-public", "+/m/16", "@sm1/m/16", False),
        ("hash-control", "#", "!c1", False),
    ):
        inputs = {"filter": filt.encode().hex(), "topic": topic.encode().hex()}
        c.good(f"match-{name}", "4.3", "topic against filter", "match", inputs, {"matches": yes})


def _windows(c: Cases) -> None:
    def put(name: str, what: str, ctrs: list[int], looks: str, top: int, mask: int) -> None:
        words = {"n": "new", "s": "seen", "o": "old"}
        out: Json = {"looks": [words[x] for x in looks], "top": top, "mask": u(mask, 8).hex()}
        c.good(f"window-{name}", "4.4, 6", what, "window", {"ctrs": ctrs}, out)

    put("rising", "in order", [1, 2, 3], "nnn", 3, 0b111)
    put("repeat", "the same again", [1, 1, 2, 2], "nsns", 2, 0b11)
    put("behind", "late but inside the window", [5, 3, 4, 3], "nnns", 5, 0b111)
    put("edge", "63 below the top is inside, 64 is not", [100, 37, 36], "nno", 100, 1 << 63 | 1)
    put("edge-repeat", "the last place remembers", [100, 37, 37], "nns", 100, 1 << 63 | 1)
    put("jump-63", "a jump that keeps one place", [1, 64, 1], "nns", 64, 1 << 63 | 1)
    put("jump-64", "a jump over the whole window", [1, 65, 1], "nno", 65, 1)
    put("bits-fall-out", "places beyond 64 are forgotten", [1, 2, 65], "nnn", 65, 1 << 63 | 1)
    put("highest", "the highest counter", [0xFFFFFE, 0xFFFFFF, 0xFFFFFE], "nns", 0xFFFFFF, 0b11)
    put("far", "a first counter far from 1", [1000000, 999999], "nn", 1000000, 0b11)


def _ages(c: Cases) -> None:
    for life, seconds in (
        (0, 60),
        (1, 60),
        (5, 60),
        (6, 64),
        (16, 65536),
        (31, 2**31),
        (255, None),
    ):
        what = "how long a message may be underway"
        c.good(f"life-{life}", "6", what, "life", {"life": life}, {"seconds": seconds})
    for name, age, allowed in (
        ("now", 0, 60),
        ("oldest", 60, 60),
        ("ahead", -60, 60),
        ("long-life", 65536, 65536),
        ("unlimited", 10**9, None),
        ("unlimited-ahead", -60, None),
    ):
        c.good(f"fresh-{name}", "6", "within bounds", "fresh", {"age": age, "allowed": allowed}, {})
    for name, age, allowed in (
        ("too-old", 61, 60),
        ("too-far-ahead", -61, 60),
        ("over-life", 65537, 65536),
        ("unlimited-too-far-ahead", -61, None),
    ):
        inputs = {"age": age, "allowed": allowed}
        c.bad(f"fresh-{name}", "6", "out of bounds", "fresh", inputs, "stale")


def add(c: Cases) -> None:
    """All cases of this file."""
    for group in (_b64u, _tlv, _topics, _windows, _ages):
        group(c)
