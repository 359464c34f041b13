"""Every packet type against bytes written by hand from MQTT 3.1.1 section 3.

The bytes are the oracle for both directions: they decode to the value, the value encodes to them.
"""

from __future__ import annotations

import dataclasses

import pytest

from sealmq.mqtt import (
    Connack,
    Connect,
    Decoder,
    Disconnect,
    MalformedPacket,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
    build,
)
from sealmq.mqtt.tables import Role

LONG = b"\x5a" * 200


def raw(text: str) -> bytes:
    """Bytes from hex digits and 'quoted' ASCII pieces, separated by blanks."""
    return b"".join(
        piece[1:-1].encode() if piece.startswith("'") else bytes.fromhex(piece)
        for piece in text.split()
    )


def connecting(text: str, **fields: object) -> tuple[bytes, Connect]:
    data = raw(text)
    return data, dataclasses.replace(Connect("c"), raw=data, **fields)  # type: ignore[arg-type]


MINIMAL, MINIMAL_VALUE = connecting("10 0d 0004 'MQTT' 04 02 0000 0001 'c'")
FULL, FULL_VALUE = connecting(
    "10 20 0004 'MQTT' 04 ee 012c 0003 'dev' 0003 'w/t' 0002 00ff 0001 'u' 0003 00f07f",
    client_id="dev",
    keepalive=300,
    will=Will("w/t", b"\x00\xff", 1, True),
    username="u",
    password=b"\x00\xf0\x7f",
)
WILL_ONLY, WILL_ONLY_VALUE = connecting(
    "10 12 0004 'MQTT' 04 14 ffff 0001 'c' 0001 't' 0000",
    clean_session=False,
    keepalive=65535,
    will=Will("t", b"", 2, False),
)
NO_ID, NO_ID_VALUE = connecting("10 0c 0004 'MQTT' 04 02 003c 0000", client_id="", keepalive=60)
NAME_ONLY, NAME_ONLY_VALUE = connecting(
    "10 0f 0004 'MQTT' 04 80 0000 0001 'c' 0000", clean_session=False, username=""
)
EMPTY_PASSWORD, EMPTY_PASSWORD_VALUE = connecting(
    "10 12 0004 'MQTT' 04 c2 0000 0001 'c' 0001 'u' 0000", username="u", password=b""
)

# role of the receiver, bytes, value, bytes of the encoder
SAMPLES: list[tuple[Role, bytes, Packet, bytes]] = [
    ("server", MINIMAL, MINIMAL_VALUE, build.connect("c", keepalive=0)),
    (
        "server",
        FULL,
        FULL_VALUE,
        build.connect(
            "dev",
            keepalive=300,
            will=Will("w/t", b"\x00\xff", 1, True),
            username="u",
            password=b"\x00\xf0\x7f",
        ),
    ),
    (
        "server",
        WILL_ONLY,
        WILL_ONLY_VALUE,
        build.connect("c", clean_session=False, keepalive=65535, will=Will("t", b"", 2, False)),
    ),
    ("server", NO_ID, NO_ID_VALUE, build.connect("")),
    (
        "server",
        NAME_ONLY,
        NAME_ONLY_VALUE,
        build.connect("c", clean_session=False, keepalive=0, username=""),
    ),
    (
        "server",
        EMPTY_PASSWORD,
        EMPTY_PASSWORD_VALUE,
        build.connect("c", keepalive=0, username="u", password=b""),
    ),
    ("client", raw("20 02 00 00"), Connack(False, 0), build.connack(False, 0)),
    ("client", raw("20 02 01 00"), Connack(True, 0), build.connack(True, 0)),
    ("client", raw("20 02 00 05"), Connack(False, 5), build.connack(False, 5)),
    (
        "server",
        raw("30 07 0003 'a/b' 6869"),
        Publish("a/b", b"a/b", b"hi"),
        build.publish("a/b", b"hi"),
    ),
    (
        "client",
        raw("31 03 0001 't'"),
        Publish("t", b"t", b"", 0, True),
        build.publish(b"t", b"", 0, True),
    ),
    (
        "client",
        raw("3a 06 0001 't' 0102 78"),
        Publish("t", b"t", b"x", 1, False, True, 0x0102),
        build.publish("t", b"x", 1, False, True, 0x0102),
    ),
    (
        "server",
        raw("35 05 0001 't' ffff"),
        Publish("t", b"t", b"", 2, True, False, 65535),
        build.publish("t", b"", 2, True, False, 65535),
    ),
    (
        "server",
        raw("30 cb01 0001 't'") + LONG,
        Publish("t", b"t", LONG),
        build.publish("t", memoryview(LONG)),
    ),
    (
        "server",
        # U+FEFF is kept wherever it stands (MQTT-1.5.3-3), so are U+10FFFF and a leading '$'.
        raw("30 0a 0008 24 efbbbf f48fbfbf"),
        Publish("$\ufeff\U0010ffff", b"$\xef\xbb\xbf\xf4\x8f\xbf\xbf", b""),
        build.publish("$\ufeff\U0010ffff", b""),
    ),
    ("server", raw("40 02 0001"), Puback(1), build.puback(1)),
    ("client", raw("50 02 1234"), Pubrec(0x1234), build.pubrec(0x1234)),
    ("server", raw("62 02 ffff"), Pubrel(65535), build.pubrel(65535)),
    ("client", raw("70 02 0100"), Pubcomp(256), build.pubcomp(256)),
    (
        "server",
        raw("82 0f 000a 0003 'a/b' 01 0004 '+/+/' 02"),
        Subscribe(10, (("a/b", 1), ("+/+/", 2))),
        build.subscribe(10, [("a/b", 1), ("+/+/", 2)]),
    ),
    (
        "server",
        raw("82 06 0001 0001 '#' 00"),
        Subscribe(1, (("#", 0),)),
        build.subscribe(1, [("#", 0)]),
    ),
    (
        "client",
        raw("90 06 000a 00 01 02 80"),
        Suback(10, (0, 1, 2, 128)),
        build.suback(10, [0, 1, 2, 128]),
    ),
    (
        "server",
        raw("a2 0a 0007 0003 'a/#' 0001 '/'"),
        Unsubscribe(7, ("a/#", "/")),
        build.unsubscribe(7, ["a/#", "/"]),
    ),
    ("client", raw("b0 02 0007"), Unsuback(7), build.unsuback(7)),
    ("server", raw("c0 00"), Pingreq(), build.pingreq()),
    ("client", raw("d0 00"), Pingresp(), build.pingresp()),
    ("server", raw("e0 00"), Disconnect(), build.disconnect()),
]
IDS = [f"{type(value).__name__.lower()}-{index}" for index, (_, _, value, _) in enumerate(SAMPLES)]


def test_each_packet_type_has_a_sample() -> None:
    assert len({type(value) for _, _, value, _ in SAMPLES}) == 14


@pytest.mark.parametrize(("role", "data", "value", "encoded"), SAMPLES, ids=IDS)
def test_bytes_decode_to_the_value(role: Role, data: bytes, value: Packet, encoded: bytes) -> None:
    assert Decoder(4096, role).feed(data) == [value]


@pytest.mark.parametrize(("role", "data", "value", "encoded"), SAMPLES, ids=IDS)
def test_the_value_encodes_to_the_bytes(
    role: Role, data: bytes, value: Packet, encoded: bytes
) -> None:
    assert encoded == data


@pytest.mark.parametrize(("role", "data", "value", "encoded"), SAMPLES, ids=IDS)
def test_no_prefix_says_anything(role: Role, data: bytes, value: Packet, encoded: bytes) -> None:
    for cut in range(len(data)):
        decoder = Decoder(4096, role)
        assert decoder.feed(data[:cut]) == []
        assert decoder.buffered == cut
        assert decoder.feed(data[cut:]) == [value]
        assert decoder.buffered == 0


@pytest.mark.parametrize(("role", "data", "value", "encoded"), SAMPLES, ids=IDS)
def test_byte_by_byte(role: Role, data: bytes, value: Packet, encoded: bytes) -> None:
    decoder = Decoder(4096, role)
    got: list[Packet] = []
    for byte in data + data:
        got += decoder.feed(bytes((byte,)))
    assert got == [value, value]


@pytest.mark.parametrize(("role", "data", "value", "encoded"), SAMPLES, ids=IDS)
def test_only_the_right_role_takes_it(
    role: Role, data: bytes, value: Packet, encoded: bytes
) -> None:
    both_ways = (Publish, Puback, Pubrec, Pubrel, Pubcomp)
    other: Role = "client" if role == "server" else "server"
    decoder = Decoder(4096, other)
    if isinstance(value, both_ways):
        assert decoder.feed(data) == [value]
    else:
        with pytest.raises(MalformedPacket, match=f"arrived at a {other}, which takes "):
            decoder.feed(data)


@pytest.mark.parametrize("value", [value for _, _, value, _ in SAMPLES], ids=IDS)
def test_values_are_immutable_light_and_truthy(value: Packet) -> None:
    name = next(iter(getattr(value, "__dataclass_fields__", {"qos": None})), "made_up")
    with pytest.raises((AttributeError, TypeError)):
        setattr(value, name, 1)
    with pytest.raises((AttributeError, TypeError)):
        value.something_new = 1  # type: ignore[union-attr]
    assert not hasattr(value, "__dict__")
    assert value
    assert hash(value) == hash(value)


def test_types_with_equal_fields_differ() -> None:
    acks: list[Packet] = [Puback(1), Pubrec(1), Pubrel(1), Pubcomp(1), Unsuback(1)]
    for left in acks:
        for right in acks:
            assert (left == right) == (left is right)


def test_a_repr_shows_no_secret() -> None:
    connect = Decoder(4096).feed(
        build.connect(
            "c", will=Will("w", b"secret-will"), username="secret-u", password=b"secret-p"
        )
    )
    message = Decoder(4096).feed(build.publish("t", b"secret-m"))
    shown = repr(connect) + str(connect) + repr(message) + str(message)
    assert "client_id='c'" in shown
    assert "payload=<8 bytes>" in shown
    assert "secret" not in shown


def test_the_raw_connect_ends_with_the_password() -> None:
    (connect,) = Decoder(4096).feed(FULL)
    assert isinstance(connect, Connect)
    assert connect.raw == FULL
    assert connect.password is not None
    assert connect.raw.endswith(connect.password)
