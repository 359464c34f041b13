"""MQTT 5, the server's side, against packets that somebody else's codec makes and reads (`mqtt5`),
and against what no codec should take."""

from __future__ import annotations

import mqtt5
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealmq.mqtt import MalformedPacket, PacketTooLarge, ProtocolError, build
from sealmq.mqtt import five as v5

CONNECT = mqtt5.ConnectPacket(
    "id",
    username="u",
    password=b"p",
    clean_start=True,
    keep_alive=30,
    session_expiry_interval=7,
    receive_max=9,
    max_packet_size=1000,
    user_properties=[("a", "1"), ("a", "2")],
    will=mqtt5.Will("w/t", payload=b"gone", qos=mqtt5.QoS.AT_LEAST_ONCE, retain=True),
).write()


def opened() -> v5.Decoder5:
    decoder = v5.Decoder5(1000)
    decoder.feed(CONNECT)
    return decoder


def test_what_another_codec_writes_is_read_whichever_way_it_is_cut() -> None:
    subscribe = mqtt5.SubscribePacket(
        5, [mqtt5.TopicFilter("a/#", max_qos=mqtt5.QoS(1), no_local=True)],
        user_properties=[("purpose", "service")],
    )  # fmt: skip
    written = [
        CONNECT,
        mqtt5.PublishPacket(
            "a/ü", b"xyz", qos=mqtt5.QoS(2), retain=True, packet_id=4, message_expiry_interval=60
        ).write(),
        subscribe.write(),
        mqtt5.UnsubscribePacket(6, ["a/#", "b"]).write(),
        mqtt5.PubRecPacket(7, reason_code=mqtt5.PubRecReasonCode(0x87), reason_str="no").write(),
        mqtt5.PubRelPacket(8).write(),
        mqtt5.PingReqPacket().write(),
        mqtt5.DisconnectPacket(reason_code=mqtt5.DisconnectReasonCode(4)).write(),
    ]
    stream = b"".join(written)
    whole = v5.Decoder5(1000).feed(stream)
    for size in (1, 3, 17):
        decoder, found = v5.Decoder5(1000), []
        for i in range(0, len(stream), size):
            found += decoder.feed(stream[i : i + size])
        assert found == whole
    connect, publish, subscribe5, unsubscribe, pubrec, pubrel, ping, bye = whole
    assert isinstance(connect, v5.Connect5)
    assert (connect.client_id, connect.username, connect.password) == ("id", "u", b"p")
    assert (connect.clean_start, connect.keepalive) == (True, 30)
    assert connect.properties[v5.USER] == [("a", "1"), ("a", "2")]
    assert (connect.properties[v5.SESSION_EXPIRY], connect.properties[v5.RECEIVE_MAX]) == (7, 9)
    assert connect.properties[v5.MAX_PACKET] == 1000
    assert connect.will is not None
    assert connect.will[:4] == ("w/t", b"gone", 1, True)
    assert publish == v5.Publish5("a/ü", b"xyz", 2, True, False, 4, {v5.EXPIRY: 60})
    assert isinstance(subscribe5, v5.Subscribe5)
    assert subscribe5.filters == (v5.Filter5("a/#", 1, True, 0, True),)
    assert subscribe5.properties == {v5.USER: [("purpose", "service")]}
    assert unsubscribe == v5.Unsubscribe5(6, ("a/#", "b"), {})
    assert (pubrec, pubrel) == (v5.Ack5("PUBREC", 7, 0x87), v5.Ack5("PUBREL", 8, 0))
    assert (ping, bye) == (v5.Pingreq5(), v5.Disconnect5(4, {}))


def test_what_is_written_another_codec_reads() -> None:
    said = {v5.REASON: "rule: why", v5.USER: [("a", "b")]}

    def read(data: bytes) -> mqtt5.Packet:
        packet, size = mqtt5.read(memoryview(data))
        assert size == len(data)
        return packet

    connack = read(
        v5.connack(
            True, 0, {v5.RECEIVE_MAX: 20, v5.MAX_PACKET: 9, v5.ASSIGNED_ID: "x",
                      v5.SESSION_EXPIRY: 0xFFFFFFFF, v5.SUBSCRIPTION_IDS: 0},
        )
    )  # fmt: skip
    assert isinstance(connack, mqtt5.ConnAckPacket)
    assert (connack.session_present, connack.receive_max, connack.max_packet_size) == (True, 20, 9)
    assert (connack.assigned_client_id, connack.subscription_id_available) == ("x", False)
    assert connack.session_expiry_interval == 0xFFFFFFFF
    publish = read(v5.publish("a/ü", b"p" * 300, 1, True, True, 3, {v5.USER: [("n", "v")]}))
    assert isinstance(publish, mqtt5.PublishPacket)
    assert (publish.topic, publish.payload, publish.qos) == ("a/ü", b"p" * 300, 1)
    assert (publish.retain, publish.duplicate, publish.packet_id) == (True, True, 3)
    assert publish.user_properties == [("n", "v")]
    for kind, of in (("PUBACK", mqtt5.PubAckPacket), ("PUBREC", mqtt5.PubRecPacket)):
        assert isinstance(read(v5.ack(kind, 9)), of)
        acked = read(v5.ack(kind, 9, 0x87, said))
        assert isinstance(acked, mqtt5.PubAckPacket | mqtt5.PubRecPacket)
        assert (acked.packet_id, acked.reason_code, acked.reason_str) == (9, 0x87, "rule: why")
    pubcomp = read(v5.ack("PUBCOMP", 9, 0x92))
    assert isinstance(pubcomp, mqtt5.PubCompPacket)
    assert pubcomp.reason_code == 0x92
    assert isinstance(read(v5.ack("PUBREL", 9)), mqtt5.PubRelPacket)
    suback = read(v5.suback(1, [2, 0x87], said))
    assert isinstance(suback, mqtt5.SubAckPacket)
    assert (list(suback.reason_codes), suback.reason_str) == ([2, 0x87], "rule: why")
    unsuback = read(v5.unsuback(1, [0]))
    assert isinstance(unsuback, mqtt5.UnsubAckPacket)
    bye = read(v5.disconnect(0x8E, said))
    assert isinstance(bye, mqtt5.DisconnectPacket)
    assert (bye.reason_code, bye.reason_str) == (0x8E, "rule: why")
    assert isinstance(read(build.pingresp()), mqtt5.PingRespPacket)


# One defect each, after a CONNECT.
BROKEN = {
    "QoS 3": b"\x36\x06\0\1a\0\1\0",
    "DUP with QoS 0": b"\x38\x04\0\1a\0",
    "packet id 0": b"\x32\x06\0\1a\0\0\0",
    "a wildcard in a topic": b"\x30\x04\0\1#\0",
    "no topic": b"\x30\x03\0\0\0",
    "a topic alias": b"\x30\x07\0\1a\3\x23\0\1",
    "a property twice": b"\x30\x0e\0\1a\x0a\2\0\0\0\1\2\0\0\0\1",
    "a property of another packet": b"\x30\x09\0\1a\x05\x11\0\0\0\1",
    "properties longer than the packet": b"\x30\x05\0\1a\x09\1",
    "a property cut by its length": b"\x30\x07\0\1a\3\2\0\0",
    "a flag of 2": b"\x30\x06\0\1a\2\1\2",
    "a topic that is no UTF-8": b"\x30\x04\0\1\xff\0",
    "U+0000": b"\x30\x04\0\1\0\0",
    "no filter": b"\x82\x03\0\1\0",
    "a wildcard out of place": b"\x82\x08\0\1\0\0\2a#\1",
    "reserved options": b"\x82\x07\0\1\0\0\1a\x41",
    "retain handling 3": b"\x82\x07\0\1\0\0\1a\x31",
    "flags of SUBSCRIBE": b"\x80\x07\0\1\0\0\1a\1",
    "bytes after the last field": b"\xc0\x01\0",
    "CONNECT again": CONNECT,
    "what servers send": b"\xd0\0",
    "AUTH": b"\xf0\0",
    "type 0": b"\0\0",
    "five bytes of length": b"\x30\xff\xff\xff\xff\x01",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_packet_with_one_defect_ends_the_stream(name: str) -> None:
    decoder = opened()
    with pytest.raises(MalformedPacket):
        decoder.feed(b"\xc0\0" + BROKEN[name])
    with pytest.raises(ProtocolError):
        decoder.feed(b"\xc0\0")


def test_limits_hold_before_a_body_is_there_and_a_stranger_s_first() -> None:
    with pytest.raises(PacketTooLarge):
        opened().feed(b"\x30\xe9\x07")
    with pytest.raises(PacketTooLarge):
        v5.Decoder5(1 << 20, 100).feed(b"\x10\x65")
    with pytest.raises(MalformedPacket):
        v5.Decoder5(1 << 20, 100).feed(b"\x30\x05")
    pairs = v5.put_properties({v5.USER: [("a", "b")] * 65})
    body = b"\0\1a" + pairs
    with pytest.raises(MalformedPacket):
        opened().feed(b"\x30" + build.remaining_length(len(body)) + body)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60), st.integers(0, len(CONNECT) - 1), st.integers(0, 255))
def test_whatever_comes_is_a_packet_or_a_fault(tail: bytes, at: int, byte: int) -> None:
    changed = bytearray(CONNECT)
    changed[at] = byte
    for data in (bytes(changed) + tail, CONNECT + tail):
        try:
            v5.Decoder5(1000).feed(data)
        except ProtocolError:
            pass
