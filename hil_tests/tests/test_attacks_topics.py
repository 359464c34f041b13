"""Claim 16: no empty retained message and no reserved topic crosses, in either direction.

The attackers are a client towards the broker, and the broker towards clients.
"""

from __future__ import annotations

import os

import pytest
from sealmq_spec.const import CLEAR, RETAINED, WILL

from attack_scene import LIVE, QOS1, TOPIC, WILL_FLAGS, again, answer, last_words, notices, pid_of
from evil_scene import LINKS, EvilScene
from wire import CONTROL, RawClient, packet, publish, text

DENIED = "mediator.publish.denied"
RESERVED = [b"!c1/x", b"!c2", b"!", b"!s1/x", b"$SYS/broker/uptime", b"$", b"@sm1/m/16", b"@x"]
STATE = b"machine/1/door"


@pytest.fixture
def raw(evil: EvilScene) -> RawClient:
    """The sensor, connected."""
    made = evil.client("m1-temp-sensor")
    made.connect(keepalive=0)
    return made


@pytest.mark.parametrize("first", [0x30, QOS1, 0x33, 0x35])
def test_a_client_publishes_to_reserved_topics(evil: EvilScene, raw: RawClient, first: int) -> None:
    """Sealed for that topic, so that only the rule refuses it."""
    before = len(evil.evil.published)
    kind = RETAINED if first & 1 else LIVE
    for topic in RESERVED:
        raw.wire.send(publish(topic, raw.seal(topic, b"x", first & 7, kind), first, 1))
    raw.barrier()
    assert {n[3] for n in notices(raw)} == {DENIED}
    assert evil.heard() == []
    assert len(evil.evil.published) == before + 1


@pytest.mark.parametrize("topic", [b"!c1", b"!c2", b"$SYS/x", b"@sm1/m/16"])
def test_a_will_on_a_reserved_topic(evil: EvilScene, topic: bytes) -> None:
    """Of a session that is kept, which would have a link of its own at the broker."""
    raw = evil.client("m1-temp-sensor")
    calls = len(evil.evil.calls)
    will = raw.seal(topic, b"x", flags=2, kind=WILL, life=255)
    assert raw.connect(will=text(topic) + text(will), flags=WILL_FLAGS & ~2) == b"\0\x05"
    assert len(evil.evil.calls) == calls


def test_a_client_subscribes_to_reserved_topics(evil: EvilScene, raw: RawClient) -> None:
    before = evil.evil.asked()
    for filt in ("!c1", "!/#", "!c1/#", "@/#", "@sm2/#", "@/+"):
        token, _ = raw.session.token(filt)
        raw.wire.send(packet(0x82, b"\0\x07" + text(token.encode()) + b"\0"))
        assert answer(raw) == (0x90, b"\0\x07\x80")
    assert evil.evil.asked() == before


@pytest.mark.parametrize("first", [0x31, 0x33, 0x35])
def test_a_client_clears_what_is_retained_without_a_seal(
    evil: EvilScene, raw: RawClient, first: int
) -> None:
    evil.caught(STATE, b"shut", raw, QOS1 | 1)
    before = len(evil.evil.published)
    raw.wire.send(publish(STATE, b"", first, 9))
    if first & 6:
        assert [n[:3] for n in last_words(raw)] == [(1, 0, 1)]
        again(raw, 0)
    else:
        assert raw.barrier() == []
    assert evil.evil.retained[STATE] != b""
    # Nor with the seal of something else.
    raw.wire.send(publish(STATE, raw.seal(STATE, b"full", 1, CLEAR), 0x31))
    raw.wire.send(publish(STATE, raw.seal(STATE, b"", 0, CLEAR), 0x30))
    assert raw.barrier() == []
    assert len(evil.evil.published) == before
    assert {n[2] for n in notices(raw)} == {1}
    raw.wire.send(publish(STATE, raw.seal(STATE, b"", 3, CLEAR), QOS1 | 1, 2))
    assert answer(raw) == (0x40, pid_of(2))
    assert evil.evil.retained[STATE] == b"", "a sealed clear does"
    evil.heard()


@LINKS
def test_a_broker_sends_control_packets(evil: EvilScene) -> None:
    """A client would take them for its mediator's: a genuine one again, another client's, noise."""
    monitor = evil.listener.raw
    name = monitor.client_id.decode()
    monitor.wire.send(publish(CONTROL, monitor.session.ask_time(os.urandom(16), 0)))
    _, body = _next_raw(monitor)
    for topic in (CONTROL, b"!c2", b"!", b"!s1/x"):
        evil.evil.tell(name, topic, body[5:])
        evil.evil.tell(name, topic, body[5:], 0x33, 77)
        evil.evil.acknowledged(name, 77)
    assert evil.heard() == []


def _next_raw(raw: RawClient) -> tuple[int, bytes]:
    got = raw.next("a control packet")
    raw.control(got)
    return got


@LINKS
def test_a_broker_sends_reserved_topics_and_empty_messages(evil: EvilScene, raw: RawClient) -> None:
    """An m3 of an honest client on it or not: nothing of it comes to a reader of everything."""
    name = evil.listener.raw.client_id.decode()
    m3 = evil.caught(TOPIC, b"21.5", raw)
    record = evil.evil.seen(b"@sm1/m/16")[-1]
    for topic in (b"$SYS/x", b"$share/x", b"@x", b"@sm1", b"@sm1/m/16", b"@sm1/z/18/16"):
        for payload in (m3, record, b"", b"plain text"):
            evil.to_reader(topic, payload)
            evil.to_reader(topic, payload, 0x31)
    for first, pid in ((0x30, 0), (0x31, 0), (0x32, 88)):
        evil.to_reader(TOPIC, b"", first, pid)
    evil.evil.acknowledged(name, 88)
    assert evil.heard() == []


@LINKS
def test_a_broker_says_what_no_mediator_sealed(evil: EvilScene) -> None:
    """Plain text, noise, half an envelope: acknowledged to the broker, and dropped."""
    name = evil.listener.raw.client_id.decode()
    noise = [b"21.5", b"\x13", b"\x13\x20" + bytes(200), os.urandom(300), b"\x12\x10" + bytes(99)]
    for pid, payload in enumerate(noise, 200):
        evil.to_reader(TOPIC, payload, 0x32, pid)
        evil.evil.acknowledged(name, pid)
    assert evil.heard() == []


def test_a_broker_acknowledges_and_grants_what_nobody_asked_for(
    evil: EvilScene, raw: RawClient
) -> None:
    """On every link that there is."""
    for line in evil.evil.lines():
        for first in (0x40, 0x50, 0x70, 0x90, 0xB0):
            body = b"\x03\x09" + (b"\0" if first == 0x90 else b"")
            line.send(packet(first, body))
        line.send(packet(0x62, b"\x03\x09"))
    raw.wire.send(publish(TOPIC, raw.seal(TOPIC, b"honest"), QOS1, 1))
    while answer(raw) != (0x40, pid_of(1)):
        pass
    assert evil.heard() == [(TOPIC, b"honest", LIVE)]
