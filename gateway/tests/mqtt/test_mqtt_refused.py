"""Every MUST of MQTT 3.1.1 that one packet can break, but for text rules; one defect a case.

Each case stands beside the error class and a piece of its text, so that a packet refused for
another reason than the one meant fails here.
"""

from __future__ import annotations

import pytest

from sealmq.mqtt import (
    Decoder,
    DecoderDead,
    IdentifierRejected,
    MalformedPacket,
    ProtocolError,
    UnsupportedProtocol,
    build,
    five_client,
)
from sealmq.mqtt.five import Decoder5
from sealmq.mqtt.reader import FILTERS
from sealmq.mqtt.tables import Role


def packet(first: int, body: bytes) -> bytes:
    assert len(body) < 128
    return bytes((first, len(body))) + body


def string(raw: bytes) -> bytes:
    return len(raw).to_bytes(2, "big") + raw


def connect(
    flags: int = 0x02,
    *fields: bytes,
    name: bytes = b"MQTT",
    level: int = 4,
    client_id: bytes = b"c",
    extra: bytes = b"",
) -> bytes:
    body = string(name) + bytes((level, flags, 0, 60)) + string(client_id)
    return packet(0x10, body + b"".join(string(field) for field in fields) + extra)


Case = tuple[str, Role, bytes, type[ProtocolError], str]
CASES: list[Case] = [
    # fixed header, section 2.2
    ("type 0", "server", b"\x00\x00", MalformedPacket, "type 0 is reserved"),
    ("type 15", "client", b"\xf0\x00", MalformedPacket, "type 15 is reserved"),
    (
        "length of five bytes",
        "server",
        b"\x30\xff\xff\xff\xff\x01",
        MalformedPacket,
        "remaining length ff ff ff ff goes on after four bytes",
    ),
    ("QoS 3", "server", packet(0x36, b"\0\1t\0\1"), MalformedPacket, "QoS 3"),
    ("QoS 3 with DUP", "server", packet(0x3E, b"\0\1t\0\1"), MalformedPacket, "QoS 3"),
    ("DUP at QoS 0", "client", packet(0x38, b"\0\1t"), MalformedPacket, "DUP with QoS 0"),
    ("DUP, retain, QoS 0", "client", packet(0x39, b"\0\1t"), MalformedPacket, "DUP with QoS 0"),
    # CONNECT, section 3.1
    ("HTTP", "server", b"GET / HTTP/1.1\r\n\r\n", MalformedPacket, "PUBACK: flags 0b0111"),
    ("other name", "server", connect(name=b"MQTQ"), MalformedPacket, "4d 51 54 51"),
    ("lower-case name", "server", connect(name=b"mqtt"), MalformedPacket, "protocol name"),
    ("no name", "server", connect(name=b""), MalformedPacket, "protocol name is nothing"),
    ("MQTT 3.1", "server", connect(name=b"MQIsdp", level=3), UnsupportedProtocol, "MQIsdp level 3"),
    ("3.1 as 4", "server", connect(name=b"MQIsdp", level=4), UnsupportedProtocol, "MQIsdp level 4"),
    ("level 3", "server", connect(level=3), UnsupportedProtocol, "MQTT level 3"),
    ("MQTT 5", "server", connect(level=5, extra=b"\0"), UnsupportedProtocol, "MQTT level 5"),
    ("bridge", "server", connect(level=0x84), UnsupportedProtocol, "MQTT level 132"),
    ("reserved flag", "server", connect(0x03), MalformedPacket, "reserved bit 0 is 1"),
    ("will QoS alone", "server", connect(0x0A), MalformedPacket, "a will QoS but no will"),
    ("will QoS 2 alone", "server", connect(0x12), MalformedPacket, "a will QoS but no will"),
    ("will retain alone", "server", connect(0x22), MalformedPacket, "will retain but no will"),
    ("will QoS 3", "server", connect(0x1E, b"t", b"m"), MalformedPacket, "will QoS is 3"),
    ("password alone", "server", connect(0x42, b"p"), MalformedPacket, "a password but no user"),
    (
        "no id, no clean",
        "server",
        connect(0, client_id=b""),
        IdentifierRejected,
        "clean session is 0",
    ),
    ("byte behind", "server", connect(extra=b"\0"), MalformedPacket, "CONNECT: 1 bytes follow"),
    (
        "field unannounced",
        "server",
        connect(0x02, b"u"),
        MalformedPacket,
        "CONNECT: 3 bytes follow",
    ),
    ("no will topic", "server", connect(0x06), MalformedPacket, "will topic needs 2 bytes, 0 are"),
    ("no will message", "server", connect(0x06, b"t"), MalformedPacket, "will message needs 2"),
    ("no user name", "server", connect(0x82), MalformedPacket, "user name needs 2 bytes, 0 are"),
    ("no password", "server", connect(0xC2, b"u"), MalformedPacket, "password needs 2 bytes"),
    (
        "password cut",
        "server",
        connect(0xC2, b"u", extra=b"\0\5abcd"),
        MalformedPacket,
        "password needs 5 bytes, 4 are left",
    ),
    ("empty CONNECT", "server", b"\x10\x00", MalformedPacket, "protocol name needs 2 bytes, 0"),
    ("id with NUL", "server", connect(client_id=b"a\0"), MalformedPacket, "client id holds U+0000"),
    ("user with NUL", "server", connect(0x82, b"\0"), MalformedPacket, "user name holds U+0000"),
    # CONNACK, section 3.2
    ("ack flags", "client", packet(0x20, b"\2\0"), MalformedPacket, "acknowledge flags 0x02"),
    ("return code 6", "client", packet(0x20, b"\0\6"), MalformedPacket, "return code 6"),
    ("present, refused", "client", packet(0x20, b"\1\5"), MalformedPacket, "session present with"),
    # PUBLISH, section 3.3
    ("no topic", "server", packet(0x30, b""), MalformedPacket, "topic name needs 2 bytes, 0 are"),
    (
        "half a length",
        "server",
        packet(0x30, b"\0"),
        MalformedPacket,
        "topic name needs 2 bytes, 1",
    ),
    ("topic cut", "server", packet(0x30, b"\0\3ab"), MalformedPacket, "needs 3 bytes, 2 are left"),
    ("id missing", "server", packet(0x32, b"\0\1t"), MalformedPacket, "packet id needs 2 bytes, 0"),
    (
        "half an id",
        "server",
        packet(0x34, b"\0\1t\1"),
        MalformedPacket,
        "packet id needs 2 bytes, 1",
    ),
    ("id 0", "server", packet(0x32, b"\0\1t\0\0x"), MalformedPacket, "packet id 0"),
    # SUBSCRIBE, SUBACK, UNSUBSCRIBE, sections 3.8 to 3.10
    ("subscribe, id 0", "server", packet(0x82, b"\0\0\0\1t\0"), MalformedPacket, "packet id 0"),
    ("subscribe, no id", "server", packet(0x82, b"\1"), MalformedPacket, "packet id needs 2"),
    ("no filter", "server", packet(0x82, b"\0\1"), MalformedPacket, "no topic filter"),
    ("no QoS", "server", packet(0x82, b"\0\1\0\1t"), MalformedPacket, "requested QoS needs 1"),
    ("QoS 3", "server", packet(0x82, b"\0\1\0\1t\3"), MalformedPacket, "QoS byte 0x03"),
    ("reserved QoS bit", "server", packet(0x82, b"\0\1\0\1t\4"), MalformedPacket, "QoS byte 0x04"),
    (
        "second filter cut",
        "server",
        packet(0x82, b"\0\1\0\1t\0\0\2a"),
        MalformedPacket,
        "topic filter needs 2 bytes, 1 are left",
    ),
    ("suback, id 0", "client", packet(0x90, b"\0\0\0"), MalformedPacket, "packet id 0"),
    ("suback, no code", "client", packet(0x90, b"\0\1"), MalformedPacket, "no return code"),
    ("suback, code 3", "client", packet(0x90, b"\0\1\0\3"), MalformedPacket, "return code 0x03"),
    ("suback, code 81", "client", packet(0x90, b"\0\1\x81"), MalformedPacket, "return code 0x81"),
    ("unsubscribe, id 0", "server", packet(0xA2, b"\0\0\0\1t"), MalformedPacket, "packet id 0"),
    ("unsubscribe nothing", "server", packet(0xA2, b"\0\1"), MalformedPacket, "no topic filter"),
]
# Reserved flags of every type but PUBLISH, all values (section 2.2.2).
for first, right, taker in (
    (0x10, 0, "server"),
    (0x20, 0, "client"),
    (0x40, 0, "server"),
    (0x50, 0, "client"),
    (0x60, 2, "server"),
    (0x70, 0, "client"),
    (0x80, 2, "server"),
    (0x90, 0, "client"),
    (0xA0, 2, "server"),
    (0xB0, 0, "client"),
    (0xC0, 0, "server"),
    (0xD0, 0, "client"),
    (0xE0, 0, "server"),
):
    role: Role = "server" if taker == "server" else "client"
    for flags in set(range(16)) - {right}:
        text = f"flags 0b{flags:04b}; they are 0b{right:04b}"
        CASES.append(
            (f"flags {first | flags:02x}", role, bytes((first | flags,)), MalformedPacket, text)
        )
# Packets of one size: an id of 0, too short, too long.
for first, role in (
    (0x40, "server"),
    (0x50, "client"),
    (0x62, "server"),
    (0x70, "client"),
    (0xB0, "client"),
):
    CASES += [
        (f"{first:02x} id 0", role, packet(first, b"\0\0"), MalformedPacket, "packet id 0"),
        (f"{first:02x} empty", role, packet(first, b""), MalformedPacket, "needs 2 bytes, 0 are"),
        (f"{first:02x} short", role, packet(first, b"\1"), MalformedPacket, "needs 2 bytes, 1 are"),
        (f"{first:02x} long", role, bytes((first, 3)), MalformedPacket, "3; it is always 2"),
    ]
CASES += [
    ("connack short", "client", packet(0x20, b"\0"), MalformedPacket, "return code needs 1"),
    ("connack long", "client", b"\x20\x03", MalformedPacket, "3; it is always 2"),
    (
        "pingreq long",
        "server",
        b"\xc0\x01",
        MalformedPacket,
        "PINGREQ: remaining length 1; it is always 0",
    ),
    ("pingresp long", "client", b"\xd0\x01", MalformedPacket, "1; it is always 0"),
    ("disconnect long", "server", b"\xe0\x02", MalformedPacket, "2; it is always 0"),
]


def feed_all(decoder: Decoder, pieces: list[bytes]) -> None:
    for piece in pieces:
        assert decoder.feed(piece) == []


@pytest.mark.parametrize(
    ("name", "role", "data", "error", "text"), CASES, ids=[c[0] for c in CASES]
)
def test_refused(name: str, role: Role, data: bytes, error: type[ProtocolError], text: str) -> None:
    # Whole, byte by byte, and in front of a good packet whose bytes must not fill the gap.
    for pieces in ([data], [bytes((byte,)) for byte in data], [data + b"\x40\x02\x00\x01" * 4]):
        decoder = Decoder(4096, role)
        with pytest.raises(ProtocolError) as caught:
            feed_all(decoder, pieces)
        assert type(caught.value) is error
        assert text in str(caught.value)
        with pytest.raises(DecoderDead):
            decoder.feed(b"\x40\x02\x00\x01")


def test_only_two_errors_owe_a_connack() -> None:
    owed = {error: error.connack for error in {case[3] for case in CASES}}
    assert owed == {MalformedPacket: None, UnsupportedProtocol: 1, IdentifierRejected: 2}


@pytest.mark.parametrize(
    "data",
    [
        connect(0xC2, b"s3cret\0", b"s3cret"),
        connect(0xC2, b"s3cret\xff", b"s3cret"),
        connect(0xC2, b"u", b"s3cret", extra=b"s3cret"),
        connect(0xC2, b"u", extra=b"\0\x09s3cret"),
        connect(0x06, b"t", extra=b"\0\x09s3cret"),
        connect(0x1E, b"t", b"s3cret"),
        packet(0x32, b"\0\1t\0\0s3cret"),
    ],
)
def test_no_text_holds_a_secret(data: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        Decoder(4096).feed(data)
    assert "s3cret" not in f"{caught.value!r} {caught.value}"
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("five", [False, True])
@pytest.mark.parametrize("name", ["SUBSCRIBE", "UNSUBSCRIBE"])
def test_more_filters_than_any_client_needs_are_refused_before_they_are_all_read(
    name: str, five: bool
) -> None:
    """One packet of a MiB could have a quarter of a million, each of which takes memory."""
    first, one = (0x82, string(b"f") + b"\0") if name == "SUBSCRIBE" else (0xA2, string(b"f"))
    head = bytes((0, 1, 0)) if five else bytes((0, 1))

    def fed(count: int) -> int:
        body = head + one * count
        data = bytes((first,)) + build.remaining_length(len(body)) + body
        if five:
            decoder = Decoder5(1 << 20)
            decoder.feed(five_client.connect("c"))
            (packet,) = decoder.feed(data)
        else:
            (packet,) = Decoder(1 << 20).feed(data)
        return len(packet.filters)

    assert fed(FILTERS) == FILTERS
    with pytest.raises(MalformedPacket, match=f"{name}: more than {FILTERS} topic filters"):
        fed(FILTERS + 1)
