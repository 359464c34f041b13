"""A PUBLISH from the broker that nobody should take is left out; its link, and all others', go on.

What breaks MQTT so that nobody can say where a packet ends still ends the link.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from itertools import cycle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from links_scene import Scripted, played, real_amqtt, real_mosquitto, running, so
from sealmq.mediator.core.limits import MAX_PACKET
from sealmq.mediator.links import BrokerAddress, BrokerLink, LiveLink, OwnLink, Snapshots
from sealmq.mqtt import (
    Decoder,
    MalformedPacket,
    MqttError,
    Packet,
    ProtocolError,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Unfit,
    build,
)

END = "@sealmq/site/end"
LIMIT = 1000


def raw(topic: bytes, payload: bytes, qos: int = 0, packet_id: int = 7) -> bytes:
    """A PUBLISH whose topic may be anything."""
    body = len(topic).to_bytes(2, "big") + topic
    body += packet_id.to_bytes(2, "big") if qos else b""
    body += payload
    length, size = b"", len(body)
    while True:
        size, seven = divmod(size, 128)
        length += bytes([seven | (128 if size else 0)])
        if not size:
            return bytes([0x30 | qos << 1]) + length + body


GOOD = raw(b"t", b"good", 1, 5)
UNFIT = {
    "too large": raw(b"t", bytes(5000)),
    "too large at QoS 1": raw(b"t", bytes(5000), 1),
    "too large at QoS 2 on a long topic": raw(b"t" * 900, bytes(500), 2),
    "a topic that alone is too large": raw(b"t" * 60_000, b"", 2),
    "a wildcard": raw(b"a/+", b"x", 1),
    "no topic": raw(b"", b"x"),
    "not UTF-8": raw(b"\xff\xfe", b"x", 2),
    "U+0000": raw(b"a\0b", b"x", 1),
    "a wildcard, too large": raw(b"#", bytes(3000), 1),
}


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 100, 1 << 20])
@pytest.mark.parametrize("what", UNFIT)
def test_it_is_told_of_in_its_place_however_its_bytes_come(what: str, chunk: int) -> None:
    stream = GOOD + UNFIT[what] + GOOD + UNFIT[what] + UNFIT[what] + GOOD
    decoder = Decoder(LIMIT, "client", lenient=True)
    came: list[Packet] = []
    for at in range(0, len(stream), chunk):
        came += decoder.feed(stream[at : at + chunk])
    assert [type(packet) for packet in came] == [Publish, Unfit, Publish, Unfit, Unfit, Publish]
    unfit = came[1]
    assert isinstance(unfit, Unfit)
    assert unfit.qos == UNFIT[what][0] >> 1 & 3
    assert unfit.packet_id == (7 if unfit.qos else 0)
    assert len(unfit.topic) <= 200
    assert not decoder.buffered


@pytest.mark.parametrize("what", UNFIT)
def test_a_decoder_that_is_not_lenient_ends_there(what: str) -> None:
    decoder = Decoder(LIMIT, "client")
    with pytest.raises(MqttError):
        decoder.feed(UNFIT[what])


@pytest.mark.parametrize(
    "broken",
    [
        raw(b"t", bytes(5000), 1, 0),  # packet id 0
        raw(b"+", b"x", 2, 0),
        b"\x32\x03\x00\x05t",  # a topic longer than its packet
        b"\x30\x01\x00",
        b"\x36\x05\x00\x01txx",  # QoS 3
        b"\x38\x03\x00\x01t",  # DUP at QoS 0
        b"\x90\xff\xff\xff\x7f",  # SUBACK of 256 MB
        b"\x32\xff\xff\xff\xff\x7f",  # a length of five bytes
    ],
)
def test_what_has_no_clear_end_or_no_packet_id_ends_the_stream(broken: bytes) -> None:
    decoder = Decoder(LIMIT, "client", lenient=True)
    with pytest.raises(MalformedPacket if broken[0] != 0x90 else MqttError):
        decoder.feed(GOOD + broken + GOOD)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(
    parts=st.lists(
        st.one_of(st.sampled_from([GOOD, *UNFIT.values()]), st.binary(min_size=1, max_size=40)),
        max_size=6,
    ),
    cuts=st.lists(st.integers(1, 3000), min_size=1, max_size=20),
)
def test_however_bytes_come_the_same_packets_or_the_same_fault_come(
    parts: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(parts)

    def taken(sizes: Iterable[int]) -> tuple[list[Packet], bool]:
        decoder, came, at = Decoder(LIMIT, "client", lenient=True), list[Packet](), 0
        for size in sizes:
            try:
                came += decoder.feed(stream[at : at + size])
            except ProtocolError as error:
                return [*came, *error.packets], True
            at += size
            if at >= len(stream):
                break
        return came, False

    assert taken(cycle(cuts)) == taken([len(stream)])


def test_of_one_that_is_too_large_nothing_is_held() -> None:
    head, chunk = raw(b"t", b"", 1)[2:], bytes(1 << 20)
    decoder = Decoder(LIMIT, "client", lenient=True)
    tracemalloc.start()
    try:
        size = len(head) + 200 * len(chunk)
        length = bytes(
            [size & 127 | 128, size >> 7 & 127 | 128, size >> 14 & 127 | 128, size >> 21]
        )
        assert decoder.feed(b"\x32" + length + head) == []
        for _ in range(199):
            assert decoder.feed(chunk) == []
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
        [unfit] = decoder.feed(chunk)
    finally:
        tracemalloc.stop()
    assert isinstance(unfit, Unfit)
    assert (unfit.topic, unfit.qos, unfit.packet_id) == (b"t", 1, 7)


def test_links_acknowledge_and_leave_it_out(tmp_path: Path) -> None:
    """The live link, and an own link, whose broker would else send it again for ever."""

    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            broker.does = lambda packet, peer: isinstance(packet, Pubrec)
            came: list[Packet] = []
            lost: list[str] = []
            left: list[Unfit] = []
            live = LiveLink(broker.address, "live", came.append, lost.append, on_unfit=left.append)
            own = OwnLink(came.append, lost.append, left.append)
            async with running(live.run()):
                await so(lambda: live.away is None)
                await own.open(broker.address, "own", False)
                own.pause(False)
                for name in ("live", "own"):
                    [peer] = broker.of(name)
                    del came[:], left[:], peer.came[:]
                    large = bytes(MAX_PACKET)
                    peer.send(raw(b"a/+", b"x", 1, 11) + raw(b"t", large, 1, 12))
                    peer.send(raw(b"t", large, 2, 13) + raw(b"t", large) + GOOD)
                    await so(lambda: len(came) == 1)
                    assert [(one.qos, one.packet_id) for one in left] == [
                        (1, 11),
                        (1, 12),
                        (2, 13),
                        (0, 0),
                    ]
                    assert all("PUBLISH" in one.reason for one in left)
                    await so(lambda: Pubrec(13) in peer.came)  # noqa: B023
                    peer.send(build.pubrel(13))
                    await so(lambda: Pubcomp(13) in peer.came)  # noqa: B023
                    assert not any(isinstance(packet, Pubrel) for packet in came)
                own.close()
            assert not lost

    played(story())


@pytest.mark.parametrize("kind", ["mosquitto", "amqtt"])
def test_what_a_stranger_publishes_at_the_broker_ends_no_link_of_ours(
    kind: str, tmp_path: Path
) -> None:
    """Larger than we take, live and retained: subscriptions and all other deliveries go on."""

    async def story(address: BrokerAddress) -> None:
        came: list[Publish] = []
        lost: list[str] = []
        left: list[Unfit] = []
        snapshots = Snapshots(address, "sealmq/scratch", END, left.append)
        live = LiveLink(
            address,
            "sealmq/live",
            came.append,
            lost.append,
            snapshots=snapshots,
            on_unfit=left.append,
        )

        def answers(packet: Packet) -> None:
            if isinstance(packet, Pubrec):
                stranger.send(build.pubrel(packet.packet_id))

        stranger = BrokerLink(answers, lambda reason: None)
        await stranger.open(address, "sealmq/stranger")
        large = bytes(MAX_PACKET)
        stranger.send(build.publish(END, b"end", 2, True, packet_id=1))
        stranger.send(build.publish("r/large", large, 1, True, packet_id=2))
        stranger.send(build.publish("r/small", b"kept", 1, True, packet_id=3))
        await stranger.answers()
        async with running(live.run()):
            await so(lambda: live.away is None)
            assert list(await live.subscribe("reader", ["r/#"])) == [2]
            found, _ = await snapshots.of(1, "r/#").more()
            assert [packet.topic for packet in found] == ["r/small"]
            for qos in range(3):
                stranger.send(build.publish("r/large", large, qos, packet_id=qos and 10 + qos))
                stranger.send(build.publish("r/x", b"%d" % qos, qos, packet_id=qos and 20 + qos))
            await so(lambda: sum(not p.retain for p in came) == 3)
            assert not lost
            assert len(left) >= 3
        stranger.close()
        snapshots.close()

    with real_mosquitto(tmp_path) if kind == "mosquitto" else real_amqtt() as address:
        played(story(address))
