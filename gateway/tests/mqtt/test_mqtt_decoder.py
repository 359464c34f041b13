"""The decoder as a stream: limits, bounded memory and work, order, death after a fault."""

from __future__ import annotations

import tracemalloc

import pytest

from sealmq.mqtt import (
    Connect,
    Decoder,
    DecoderDead,
    MalformedPacket,
    Packet,
    PacketTooLarge,
    Pingreq,
    Puback,
    Pubacks,
    Publish,
    UsageError,
    build,
    parse,
)
from sealmq.mqtt.parse import RUN

MEBIBYTE = 1 << 20


def feed_all(decoder: Decoder, data: bytes, step: int, got: list[Packet]) -> None:
    """Feed `data` in pieces of `step` bytes; `got` keeps what came before an error."""
    for at in range(0, len(data), step):
        got += decoder.feed(data[at : at + step])


def test_many_packets_in_one_feed_keep_their_order() -> None:
    data = b"".join(
        build.publish("t", b"%d" % n, 1, packet_id=n) + build.puback(n) for n in range(1, 200)
    )
    got = Decoder(4096).feed(data)
    assert got[::2] == [Publish("t", b"t", b"%d" % n, 1, False, False, n) for n in range(1, 200)]
    assert got[1::2] == [Puback(n) for n in range(1, 200)]


@pytest.mark.parametrize("step", [1, 3, 7, 1 << 20])
def test_pubacks_that_follow_one_another_are_given_together(step: int) -> None:
    data = b"".join(build.puback(n) for n in range(1, 700))
    data += build.publish("t", b"x") + build.puback(700) + build.pingreq()
    decoder, got = Decoder(4096, together=True), list[Packet]()
    feed_all(decoder, data, step, got)
    ids = [n for packet in got if isinstance(packet, Pubacks) for n in packet.packet_ids]
    assert ids == list(range(1, 701))
    assert got[-3:] == [Publish("t", b"t", b"x"), Pubacks((700,)), Pingreq()]
    assert decoder.buffered == 0
    if step > len(data):
        assert [len(p.packet_ids) for p in got[:3] if isinstance(p, Pubacks)] == [RUN, RUN, 187]


@pytest.mark.parametrize(
    "wrong", [b"\x40\x02\x00\x00", b"\x40\x03\x00\x01\x00", b"\x41\x02\x00\x01", b"\x40\x00"]
)
def test_pubacks_before_a_wrong_one_are_given_and_that_ends_the_stream(wrong: bytes) -> None:
    decoder = Decoder(4096, together=True)
    with pytest.raises(MalformedPacket) as caught:
        decoder.feed(build.puback(1) + build.puback(2) + wrong + build.puback(3))
    assert caught.value.packets == (Pubacks((1, 2)),)


def test_topic_names_that_are_known_are_bounded_and_none_that_is_wrong_is_among_them() -> None:
    decoder = Decoder(1 << 20)
    for n in range(3000):
        [packet] = decoder.feed(build.publish(f"a/{n}", b""))
        assert isinstance(packet, Publish)
        assert (packet.topic, packet.topic_raw) == (f"a/{n}", b"a/%d" % n)
    decoder.feed(build.publish("x" * 5000, b""))
    assert 0 < len(parse._topics) <= 1024
    assert max(map(len, parse._topics)) < 1000
    for wrong in (b"a/#", b"a/+", b"a\0", b"\xff", b""):
        for _ in range(2):
            with pytest.raises(MalformedPacket):
                Decoder(4096).feed(b"0" + bytes((len(wrong) + 2, 0, len(wrong))) + wrong)
        assert wrong not in parse._topics


def test_a_stranger_s_pubacks_before_its_connect_are_refused() -> None:
    with pytest.raises(MalformedPacket):
        Decoder(4096, connect_first=True, together=True).feed(build.puback(1))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_buffer_type_is_taken_and_copied(kind: type[bytes | bytearray | memoryview]) -> None:
    source = bytearray(build.publish("t", b"payload") * 2)
    whole = len(source) // 2 + 3
    decoder = Decoder(4096)
    first, rest = kind(source[:whole]), kind(source[whole:])
    got = decoder.feed(first)
    if isinstance(first, bytearray):
        first[:] = bytes(len(first))
    got += decoder.feed(rest)
    assert got == [Publish("t", b"t", b"payload")] * 2
    assert all(type(p.payload) is bytes for p in got if isinstance(p, Publish))


def test_a_memoryview_counts_in_bytes() -> None:
    data = build.publish("t", b"12345")
    assert len(data) % 2 == 0
    assert Decoder(64).feed(memoryview(data).cast("H")) == [Publish("t", b"t", b"12345")]


def test_what_is_no_buffer_is_a_type_error() -> None:
    for wrong in (5, "text", None):
        with pytest.raises(TypeError):
            Decoder(64).feed(wrong)  # type: ignore[arg-type]


def test_a_length_longer_than_needed_is_taken() -> None:
    for length in (b"\x85\x00", b"\x85\x80\x00", b"\x85\x80\x80\x00"):
        data = b"\x30" + length + b"\x00\x01thi" + b"\xc0\x80\x80\x00"
        assert Decoder(64).feed(data) == [Publish("t", b"t", b"hi"), Pingreq()]


def test_the_largest_packet_passes_and_one_byte_more_does_not() -> None:
    for limit in (5, 127, 128, 16383, 16384):
        size = limit - 3
        assert Decoder(limit).feed(build.publish("t", bytes(size)))
        with pytest.raises(
            PacketTooLarge, match=rf"PUBLISH: remaining length {limit + 1}; at most {limit} "
        ):
            Decoder(limit).feed(build.publish("t", bytes(size + 1)))


@pytest.mark.parametrize("first", [0x30, 0x3D, 0x82, 0xA2])
def test_too_large_is_said_before_the_body_arrives(first: int) -> None:
    decoder = Decoder(16383)
    decoder.feed(bytes((first, 0x80, 0x80)))
    with pytest.raises(PacketTooLarge):
        decoder.feed(b"\x01")
    assert decoder.buffered == 0


def test_connect_has_a_limit_of_its_own() -> None:
    head = b"\x10\x80\x80\x01"  # 16384
    assert Decoder(64).feed(head) == []
    with pytest.raises(PacketTooLarge, match="CONNECT: remaining length 16385; at most 16384"):
        Decoder(MEBIBYTE).feed(b"\x10\x81\x80\x01")
    with pytest.raises(PacketTooLarge, match="at most 16383"):
        Decoder(MEBIBYTE, max_connect=16383).feed(head)


@pytest.mark.parametrize("limit", [0, -1, 268_435_456])
def test_senseless_limits_are_refused(limit: int) -> None:
    with pytest.raises(UsageError, match="max_packet"):
        Decoder(limit)
    with pytest.raises(UsageError, match="max_connect"):
        Decoder(64, max_connect=limit)
    with pytest.raises(UsageError, match="role"):
        Decoder(64, "broker")  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [1, 268_435_455])
def test_the_smallest_and_the_largest_limit(limit: int) -> None:
    assert Decoder(limit, max_connect=limit).feed(build.pingreq()) == [Pingreq()]


@pytest.mark.parametrize("step", [1, 2, 3, 1000])
def test_packets_before_a_fault_are_known_at_any_chunking(step: int) -> None:
    data = build.pingreq() + build.publish("t", b"x") + b"\x38" + build.pingreq()
    decoder = Decoder(64)
    got: list[Packet] = []
    with pytest.raises(MalformedPacket) as caught:
        feed_all(decoder, data, step, got)
    assert [*got, *caught.value.packets] == [Pingreq(), Publish("t", b"t", b"x")]


def test_a_dead_decoder_stays_dead_and_says_why() -> None:
    decoder = Decoder(64)
    with pytest.raises(MalformedPacket):
        decoder.feed(b"\xf0")
    for data in (b"", b"\xc0\x00"):
        with pytest.raises(DecoderDead, match="type 15 is reserved") as caught:
            decoder.feed(data)
        assert caught.value.packets == ()
    assert decoder.buffered == 0


CONNECT = build.connect("c")


def test_without_connect_first_the_order_is_free() -> None:
    assert len(Decoder(64).feed(build.pingreq() + CONNECT + CONNECT)) == 3


@pytest.mark.parametrize("step", [1, 5, 1000])
def test_connect_first_takes_one_connect_at_the_start(step: int) -> None:
    decoder = Decoder(64, connect_first=True)
    data = CONNECT + build.pingreq() + build.publish("t", b"") + CONNECT
    got: list[Packet] = []
    with pytest.raises(MalformedPacket, match="CONNECT: arrived again") as caught:
        feed_all(decoder, data, step, got)
    got += caught.value.packets
    assert [type(p) for p in got] == [Connect, Pingreq, Publish]


def test_connect_first_refuses_anything_else_at_its_first_byte() -> None:
    for first in set(range(256)) - {0x10}:
        with pytest.raises(MalformedPacket):
            Decoder(64, connect_first=True).feed(bytes((first,)))
    with pytest.raises(
        MalformedPacket, match="PUBLISH: arrived first; the first packet is CONNECT"
    ):
        Decoder(64, connect_first=True).feed(b"\x30")


def test_connect_first_means_nothing_to_a_client() -> None:
    assert len(Decoder(64, "client", connect_first=True).feed(build.connack(False, 0))) == 1


def test_memory_follows_what_arrived_not_what_was_announced() -> None:
    decoder = Decoder(MEBIBYTE * 256 - 1)
    tracemalloc.start()
    try:
        decoder.feed(b"\x30\xff\xff\xff\x7f" + bytes(100))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert decoder.buffered == 105
    assert peak < 4096


def test_a_large_packet_takes_a_few_times_its_size() -> None:
    packet = build.publish("t", bytes(MEBIBYTE - 3))
    decoder = Decoder(MEBIBYTE)
    got: list[Packet] = []
    tracemalloc.start()
    try:
        for at in range(0, len(packet), 1024):
            got += decoder.feed(packet[at : at + 1024])
        _, peak = tracemalloc.get_traced_memory()
        assert len(got) == 1
        got.clear()
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2.5 * MEBIBYTE
    assert left < MEBIBYTE / 32  # what else the process keeps meanwhile is counted too


@pytest.mark.parametrize("step", [1, 100, 1024, 65536])
def test_small_pieces_are_looked_at_once(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder that starts over with each piece would look at size * size / step bytes."""
    looked_at = 0
    scan = Decoder._scan

    def counting(self: Decoder, data: bytes, pos: int, packets: list[Packet]) -> None:
        nonlocal looked_at
        looked_at += len(data) - pos
        scan(self, data, pos, packets)

    monkeypatch.setattr(Decoder, "_scan", counting)
    size = min(MEBIBYTE, 40_000 * step)
    packet = build.publish("t", bytes(size)) + build.pingreq()
    decoder = Decoder(2 * MEBIBYTE)
    got: list[Packet] = []
    feed_all(decoder, packet, step, got)
    assert [type(p) for p in got] == [Publish, Pingreq]
    assert looked_at < 2 * len(packet) + 64


def test_packets_without_fields_are_shared() -> None:
    first, second = Decoder(64).feed(build.pingreq() * 2)
    assert first is second
