"""What holds for every packet and for any bytes, tried on generated ones.

Examples are derandomised: a run that fails here fails everywhere.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from sealmq.mqtt import (
    Connack,
    Connect,
    Decoder,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    ProtocolError,
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

QUICK = settings(deadline=None, database=None, derandomize=True, max_examples=150)

IDS = st.integers(1, 65535)
QOS = st.integers(0, 2)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
TOPICS = TEXT.map(lambda t: t.replace("+", "p").replace("#", "h") or "/")
LEVELS = st.one_of(TOPICS, st.just("+"), st.just(""))
FILTERS = st.tuples(st.lists(LEVELS, min_size=1, max_size=4), st.booleans()).map(
    lambda made: "/".join([*made[0], "#"] if made[1] else made[0]) or "+"
)
PAYLOADS = st.one_of(st.binary(max_size=40), st.binary(min_size=100, max_size=300))


@st.composite
def publishes(draw: st.DrawFn) -> Publish:
    topic, qos = draw(TOPICS), draw(QOS)
    return Publish(
        topic,
        topic.encode(),
        draw(PAYLOADS),
        qos,
        draw(st.booleans()),
        draw(st.booleans()) if qos else False,
        draw(IDS) if qos else 0,
    )


@st.composite
def connects(draw: st.DrawFn) -> Connect:
    username = draw(st.none() | TEXT)
    connect = Connect(
        draw(TEXT),
        4,
        draw(st.booleans()),
        draw(st.integers(0, 65535)),
        draw(st.none() | st.builds(Will, TOPICS, PAYLOADS, QOS, st.booleans())),
        username,
        None if username is None else draw(st.none() | PAYLOADS),
    )
    if not connect.client_id:
        connect = dataclasses.replace(connect, clean_session=True)
    return dataclasses.replace(connect, raw=encode(connect))


def encode(packet: Packet) -> bytes:
    match packet:
        case Publish(topic, _, payload, qos, retain, dup, packet_id):
            return build.publish(topic, payload, qos, retain, dup, packet_id)
        case Connect():
            return build.connect(
                packet.client_id,
                clean_session=packet.clean_session,
                keepalive=packet.keepalive,
                will=packet.will,
                username=packet.username,
                password=packet.password,
            )
    assert dataclasses.is_dataclass(packet)
    encoder: Any = getattr(build, type(packet).__name__.lower())
    # MQTT 3.1.1 has no room for these.
    five = ("wishes", "with_will")
    names = [field.name for field in dataclasses.fields(packet) if field.name not in five]
    fields = [getattr(packet, name) for name in names]
    data: bytes = encoder(*fields)
    return data


BOTH = [publishes(), *(st.builds(ack, IDS) for ack in (Puback, Pubrec, Pubrel, Pubcomp))]
TO_SERVER: st.SearchStrategy[Packet] = st.one_of(
    *BOTH,
    connects(),
    st.builds(Subscribe, IDS, st.lists(st.tuples(FILTERS, QOS), min_size=1, max_size=4).map(tuple)),
    st.builds(Unsubscribe, IDS, st.lists(FILTERS, min_size=1, max_size=4).map(tuple)),
    st.just(Pingreq()),
    st.just(Disconnect()),
)
TO_CLIENT: st.SearchStrategy[Packet] = st.one_of(
    *BOTH,
    st.builds(Connack, st.booleans(), st.just(0)),
    st.builds(Connack, st.just(False), st.integers(1, 5)),
    st.builds(
        Suback, IDS, st.lists(st.sampled_from((0, 1, 2, 128)), min_size=1, max_size=4).map(tuple)
    ),
    st.builds(Unsuback, IDS),
    st.just(Pingresp()),
)
TRAFFIC: st.SearchStrategy[tuple[Role, list[Packet]]] = st.one_of(
    st.tuples(st.just("server"), st.lists(TO_SERVER, max_size=5)),
    st.tuples(st.just("client"), st.lists(TO_CLIENT, max_size=5)),
)


def cut(data: bytes, at: list[int]) -> list[bytes]:
    marks = sorted({0, len(data), *(mark % (len(data) + 1) for mark in at)})
    return [data[a:b] for a, b in itertools.pairwise(marks)]


CUTS = st.lists(st.integers(0, 5000), max_size=12)


@QUICK
@given(TRAFFIC, CUTS)
def test_what_is_encoded_decodes_at_any_chunking(
    traffic: tuple[Role, list[Packet]], cuts: list[int]
) -> None:
    role, packets = traffic
    decoder = Decoder(4096, role)
    got: list[Packet] = []
    for piece in cut(b"".join(map(encode, packets)), cuts):
        got += decoder.feed(piece)
    assert got == packets
    assert [type(p) for p in got] == [type(p) for p in packets]
    assert decoder.buffered == 0


@QUICK
@given(TRAFFIC.filter(lambda traffic: bool(traffic[1])))
def test_a_truncated_packet_is_neither_a_packet_nor_an_error(
    traffic: tuple[Role, list[Packet]],
) -> None:
    role, packets = traffic
    data = encode(packets[0])
    for end in range(len(data)):
        assert Decoder(4096, role).feed(data[:end]) == []


def outcome(role: Role, pieces: list[bytes], limit: int = 512) -> tuple[list[Packet], str]:
    """Packets and error text; anything but a ProtocolError escapes and fails the test."""
    decoder = Decoder(limit, role, max_connect=256)
    got: list[Packet] = []
    for piece in pieces:
        try:
            got += decoder.feed(piece)
        except ProtocolError as error:
            return [*got, *error.packets], f"{type(error).__name__} {error}"
        assert decoder.buffered <= limit + 5
    return got, f"{decoder.buffered} held"


ROLES: st.SearchStrategy[Role] = st.sampled_from(("server", "client"))
# Bytes that get past the fixed header more often than plain random ones.
NEARLY = st.builds(
    lambda first, body: bytes((first, len(body))) + body,
    st.sampled_from((0x10, 0x20, 0x30, 0x32, 0x3D, 0x40, 0x62, 0x82, 0x90, 0xA2, 0xB0, 0xC0)),
    st.one_of(
        st.binary(max_size=60),
        st.binary(max_size=40).map(lambda tail: b"\0\4MQTT\4" + tail),
        st.binary(max_size=40).map(lambda tail: b"\0\2\0\2" + tail),
    ),
)


@settings(QUICK, max_examples=600)
@given(ROLES, st.one_of(st.binary(max_size=80), st.lists(NEARLY, max_size=4).map(b"".join)), CUTS)
@example("server", b"\x30\x01", [])
@example("server", b"\x10\x00", [])
def test_any_bytes_end_in_packets_or_a_protocol_error_at_any_chunking(
    role: Role, data: bytes, cuts: list[int]
) -> None:
    whole = outcome(role, [data])
    assert outcome(role, cut(data, cuts)) == whole
    assert outcome(role, [bytes((byte,)) for byte in data]) == whole


@settings(QUICK, max_examples=300)
@given(TRAFFIC, st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=3), CUTS)
def test_a_damaged_stream_ends_in_packets_or_a_protocol_error(
    traffic: tuple[Role, list[Packet]], damage: list[tuple[int, int]], cuts: list[int]
) -> None:
    role, packets = traffic
    data = bytearray(b"".join(map(encode, packets)))
    for at, value in damage:
        if data:
            data[at % len(data)] = value
    whole = outcome(role, [bytes(data)])
    assert outcome(role, cut(bytes(data), cuts)) == whole


@settings(QUICK, max_examples=300)
@given(ROLES, st.lists(NEARLY, max_size=4).map(b"".join))
def test_what_decodes_encodes_to_something_equal(role: Role, data: bytes) -> None:
    packets, _ = outcome(role, [data])
    for packet in packets:
        (again,) = Decoder(4096, role).feed(encode(packet))
        assert again == packet
