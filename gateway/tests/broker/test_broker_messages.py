"""What crosses the embedded broker: large payloads, QoS, retained, sessions, reserved topics."""

from __future__ import annotations

import os

import pytest

from broker.peers import WAIT_S, BrokerProcess, MakePeer

MIB = 1024 * 1024


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_payloads_from_empty_to_one_mebibyte_cross(
    broker: BrokerProcess, peer: MakePeer, qos: int
) -> None:
    one = peer(broker)
    assert one.connect(broker.port) == 0
    assert one.subscribe(f"size/{qos}", qos) == qos
    for size in (0, 1, 127, 128, 16384, 65536, MIB, MIB + 20_000):
        payload = os.urandom(size)
        one.publish(f"size/{qos}", payload, qos)
        got = one.get()
        assert (got.topic, got.qos, got.retain) == (f"size/{qos}", qos, False)
        assert got.payload == payload


def test_a_packet_over_the_limit_ends_its_connection_only(
    broker: BrokerProcess, peer: MakePeer
) -> None:
    other = peer(broker)
    assert other.connect(broker.port) == 0
    assert other.subscribe("over/#", 0) == 0
    one = peer(broker)
    assert one.connect(broker.port) == 0
    one.client.publish("over/limit", bytes(2 * MIB + 1))
    one.lost.get(timeout=WAIT_S)
    assert other.nothing_more()


@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_a_message_comes_at_the_lower_qos(
    broker: BrokerProcess, peer: MakePeer, published: int, granted: int
) -> None:
    one = peer(broker)
    assert one.connect(broker.port) == 0
    assert one.subscribe(f"qos/{published}/{granted}", granted) == granted
    one.publish(f"qos/{published}/{granted}", b"x", published)
    assert one.get().qos == min(published, granted)


def test_overlapping_filters_bring_one_copy_at_the_highest_qos(
    broker: BrokerProcess, peer: MakePeer
) -> None:
    one = peer(broker)
    assert one.connect(broker.port) == 0
    for topic_filter, qos in (("over/+/x", 0), ("over/lap/x", 2), ("over/#", 1)):
        assert one.subscribe(topic_filter, qos) == qos
    one.publish("over/lap/x", b"x", 2)
    assert one.get().qos == 2
    assert one.nothing_more()


def test_retained_is_kept_replaced_cleared_and_only_for_who_asks(
    broker: BrokerProcess, peer: MakePeer
) -> None:
    one = peer(broker)
    assert one.connect(broker.port) == 0
    assert one.subscribe("@sm1/z/#", 1) == 1
    for payload in (b"old", b"new"):
        one.publish("@sm1/z/16/17", payload, retain=True)
        got = one.get()
        assert (got.payload, got.retain) == (payload, False)
    late = peer(broker)
    # amqtt by itself sends a newcomer what is retained for the filters of all others.
    assert late.connect(broker.port) == 0
    assert late.nothing_more()
    assert late.subscribe("@sm1/z/16/17", 1) == 1
    got = late.get()
    assert (got.topic, got.payload, got.retain, got.qos) == ("@sm1/z/16/17", b"new", True, 1)
    one.publish("@sm1/z/16/17", b"", retain=True)
    assert (one.get().payload, late.get().payload) == (b"", b"")
    last = peer(broker)
    assert last.connect(broker.port) == 0
    assert last.subscribe("@sm1/z/16/17", 1) == 1
    assert last.nothing_more()


def test_a_persistent_session_gets_what_came_meanwhile_once_and_not_as_retained(
    broker: BrokerProcess, peer: MakePeer
) -> None:
    away = peer(broker, "sealmq/1/away", clean=False)
    assert away.connect(broker.port) == 0
    assert not away.present
    assert away.subscribe("away/#", 1) == 1
    away.close()
    one = peer(broker)
    assert one.connect(broker.port) == 0
    for qos in (0, 1):
        for number in range(100):
            one.publish("away/x", b"%d" % number, qos)
    back = peer(broker, "sealmq/1/away", clean=False)
    assert back.connect(broker.port) == 0
    assert back.present
    for number in range(100):
        got = back.get()
        assert (got.payload, got.retain, got.qos) == (b"%d" % number, False, 1)
    assert back.nothing_more()


def test_the_broker_itself_publishes_nothing(broker: BrokerProcess, peer: MakePeer) -> None:
    one = peer(broker)
    assert one.connect(broker.port) == 0
    for topic_filter in ("$SYS/#", "$SYS/broker/version", "#", "+/#"):
        assert one.subscribe(topic_filter, 0) in (0, 0x80)
    one.publish("only/this", b"", 0)
    assert one.get().topic == "only/this"


def test_a_filter_subscribed_to_again_takes_the_new_qos_and_its_retained(
    broker: BrokerProcess, peer: MakePeer
) -> None:
    """MQTT-3.8.4-3."""
    one = peer(broker)
    assert one.connect(broker.port) == 0
    one.publish("anew/x", b"kept", 1, retain=True)
    for qos in (0, 2, 1):
        assert one.subscribe("anew/+", qos) == qos
        got = one.get()
        assert (got.retain, got.qos) == (True, min(qos, 1))
        one.publish("anew/x", b"live", 2)
        got = one.get()
        assert (got.retain, got.qos) == (False, qos)
    one.client.unsubscribe("anew/+")
    assert one.nothing_more()
