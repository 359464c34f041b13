"""The rules for text, topic names and topic filters (MQTT 3.1.1 sections 1.5.3 and 4.7).

Each bad text is tried in every field that it is bad in; the error says which field and why.
"""

from __future__ import annotations

import pytest

from sealmq.mqtt import Decoder, MalformedPacket
from sealmq.mqtt.tables import Role


def packet(first: int, body: bytes) -> bytes:
    assert len(body) < 128
    return bytes((first, len(body))) + body


def string(raw: bytes) -> bytes:
    return len(raw).to_bytes(2, "big") + raw


def connect(flags: int, *fields: bytes, client_id: bytes = b"c") -> bytes:
    body = b"\0\4MQTT\4" + bytes((flags, 0, 60)) + string(client_id)
    return packet(0x10, body + b"".join(map(string, fields)))


# What is never MQTT text: (bytes, where the fault starts)
NOT_UTF8 = [
    (b"\xff", 0),
    (b"ab\xc3", 2),  # cut off
    (b"\xc0\xaf", 0),  # overlong '/'
    (b"\xe0\x80\xaf", 0),  # overlong '/', three bytes
    (b"\xed\xa0\x80", 0),  # U+D800
    (b"x\xed\xbf\xbf", 1),  # U+DFFF
    (b"\xed\xa0\xbd\xed\xb8\x80", 0),  # a pair of surrogates
    (b"\xf4\x90\x80\x80", 0),  # above U+10FFFF
    (b"\x80", 0),
]
BAD_TOPICS = [
    (b"", "is empty"),
    (b"a/+/b", "holds the wildcard '+'"),
    (b"a/#", "holds the wildcard '#'"),
    (b"a+b", "holds the wildcard '+'"),
    (b"a\x00b", "U+0000 at character 1"),
]
BAD_FILTERS = [
    (b"", "is empty"),
    (b"a/#/b", "misplaced '#'"),
    (b"a#", "misplaced '#'"),
    (b"a/b#", "misplaced '#'"),
    (b"##", "misplaced '#'"),
    (b"#/", "misplaced '#'"),
    (b"#/#", "misplaced '#'"),
    (b"a+", "misplaced '+'"),
    (b"a/+b/c", "misplaced '+'"),
    (b"++", "misplaced '+'"),
    (b"a/+#", "misplaced '#'"),
    (b"+a/#", "misplaced '+'"),
    (b"a/\x00", "U+0000 at character 2"),
]

Case = tuple[str, Role, bytes, str]
CASES: list[Case] = []
for raw, at in NOT_UTF8:
    text = f"is not UTF-8 at byte {at}"
    CASES += [
        (f"id {raw!r}", "server", connect(0x02, client_id=raw), f"client id {text}"),
        (f"will {raw!r}", "server", connect(6, raw, b""), f"will topic {text}"),
        (f"user {raw!r}", "server", connect(0x82, raw), f"user name {text}"),
        (f"topic {raw!r}", "client", packet(0x30, string(raw)), f"name {text}"),
        (
            f"filter {raw!r}",
            "server",
            packet(0x82, b"\0\1" + string(raw) + b"\0"),
            f"filter {text}",
        ),
        (
            f"unfilter {raw!r}",
            "server",
            packet(0xA2, b"\0\1" + string(raw)),
            f"filter {text}",
        ),
    ]
for raw, text in BAD_TOPICS:
    CASES += [
        (f"topic {raw!r}", "server", packet(0x30, string(raw)), text),
        (f"topic 1 {raw!r}", "client", packet(0x32, string(raw) + b"\0\1"), text),
        (f"will {raw!r}", "server", connect(6, raw, b"m"), text),
    ]
for raw, text in BAD_FILTERS:
    CASES += [
        (
            f"filter {raw!r}",
            "server",
            packet(0x82, b"\0\1" + string(b"ok") + b"\1" + string(raw) + b"\0"),
            text,
        ),
        (
            f"unfilter {raw!r}",
            "server",
            packet(0xA2, b"\0\1" + string(b"ok") + string(raw)),
            text,
        ),
    ]


@pytest.mark.parametrize(("name", "role", "data", "text"), CASES, ids=[c[0] for c in CASES])
def test_refused(name: str, role: Role, data: bytes, text: str) -> None:
    with pytest.raises(MalformedPacket) as caught:
        Decoder(4096, role).feed(data)
    assert text in str(caught.value)


FILTERS = [
    "a",
    "/",
    "//",
    "a/+",
    "+",
    "+/+",
    "+/a/+",
    "/+",
    "#",
    "a/#",
    "+/#",
    "/#",
    "a b",
    "$SYS/#",
]


@pytest.mark.parametrize("good", [*FILTERS, "$share/g/+/#", "!s1/AbC-_/a/#", "\ufeff", "x" * 100])
def test_good_filters_are_taken(good: str) -> None:
    body = b"\0\1" + string(good.encode())
    assert len(Decoder(4096).feed(packet(0x82, body + b"\2") + packet(0xA2, body))) == 2


def test_a_long_topic_is_cut_in_the_text() -> None:
    topic = b"x" * 5000 + b"+"
    with pytest.raises(MalformedPacket) as caught:
        Decoder(8192).feed(b"\x30\x8b\x27" + string(topic))
    assert "(5001 characters)" in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(("size", "cut"), [(64, False), (65, True)])
def test_a_text_of_64_characters_is_shown_whole(size: int, cut: bool) -> None:
    topic = b"x" * (size - 1) + b"+"
    with pytest.raises(MalformedPacket) as caught:
        Decoder(8192).feed(packet(0x30, string(topic)))
    assert (repr(topic.decode()) in str(caught.value)) is not cut
    assert (f"({size} characters)" in str(caught.value)) is cut
