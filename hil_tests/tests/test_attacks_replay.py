"""Claims 9 and 10: what was sent once counts once, at every hop; what is old stays old.

The attacker is the network in front of the mediator, and the broker behind it.
"""

from __future__ import annotations

import pytest
from sealmq_spec.const import RETAINED, WILL

from attack_scene import DISCONNECT, DUP, LIVE, QOS1, TOPIC, again, answer, notices, pid_of
from evil_scene import LINKS, EvilScene
from running_site import until
from wire import RawClient, publish, text

REPLAY, STALE = 4, 3
RETAIN = 1


@pytest.fixture
def raw(evil: EvilScene) -> RawClient:
    """The sensor, connected."""
    made = evil.client("m1-temp-sensor")
    made.connect(keepalive=0)
    return made


# --- client to mediator ---


def test_a_retransmission_reaches_the_broker_once(evil: EvilScene, raw: RawClient) -> None:
    """Whatever DUP says, in the same connection and in the next one."""
    before = len(evil.evil.seen(TOPIC))
    sealed = raw.seal(TOPIC, b"once")
    low = raw.session.ctr
    for first in (QOS1, QOS1 | DUP, QOS1):
        raw.wire.send(publish(TOPIC, sealed, first, 1))
        assert answer(raw) == (0x40, pid_of(1))
    again(raw, low)
    raw.wire.send(publish(TOPIC, sealed, QOS1 | DUP, 1))
    assert answer(raw) == (0x40, pid_of(1))
    assert notices(raw) == []
    assert evil.heard() == [(TOPIC, b"once", LIVE)]
    assert len(evil.evil.seen(TOPIC)) == before + 1


def test_a_qos_0_message_comes_again_in_vain(evil: EvilScene, raw: RawClient) -> None:
    sealed = raw.seal(TOPIC, b"once", flags=0)
    for _ in range(3):
        raw.wire.send(publish(TOPIC, sealed))
    assert raw.barrier() == []
    assert [n[2] for n in notices(raw)] == [REPLAY, REPLAY]
    assert evil.heard() == [(TOPIC, b"once", LIVE)]


def test_a_session_s_publish_in_another_session(evil: EvilScene, raw: RawClient) -> None:
    """Of the same client, after a restart; and of its neighbour."""
    before = len(evil.evil.seen(TOPIC))
    sealed = raw.seal(TOPIC, b"of a session that is over", flags=0)
    raw.close()
    for name in ("m1-temp-sensor", "m2-temp-sensor"):
        other = evil.client(name)
        other.connect()
        other.wire.send(publish(TOPIC, sealed))
        assert other.barrier() == []
        assert [n[3] for n in notices(other)] == ["mediator.publish.unauthentic"]
        other.close()
    assert evil.heard() == []
    assert len(evil.evil.seen(TOPIC)) == before


# --- broker to mediator to reader ---


@LINKS
def test_a_live_message_served_again_is_delivered_once(evil: EvilScene, raw: RawClient) -> None:
    m3 = evil.caught(TOPIC, b"live", raw)
    for first, pid in ((0x30, 0), (0x30, 0), (0x3A, 7)):
        evil.to_reader(TOPIC, m3, first, pid)
    # Copies on the live link end at the mediator already.
    heard = [payload for _, payload, _ in evil.heard()]
    assert heard == ([b"again"] * 3 if evil.own else [])


@LINKS
def test_a_will_fires_once(evil: EvilScene) -> None:
    raw = evil.client("m1-temp-sensor")
    before = len(evil.evil.seen(TOPIC))
    will = raw.seal(TOPIC, b"gone", flags=2, kind=WILL, life=255)
    made = raw.connect_packet(will=text(TOPIC) + text(will), flags=0xCC)
    assert raw.enter(made) == b"\0\0"
    raw.wire.close()
    until("the will", lambda: len(evil.evil.seen(TOPIC)) > before)
    m3 = evil.evil.seen(TOPIC)[-1]
    assert evil.heard() == [(TOPIC, b"gone", WILL)]
    evil.to_reader(TOPIC, m3)
    assert evil.heard() == ([(TOPIC, b"again", LIVE)] if evil.own else [])
    # Its CONNECT once more: no session, so no will of it either.
    calls = len(evil.evil.calls)
    raw.enter(made)
    assert raw.wire.closed()
    assert evil.heard() == []
    assert len(evil.evil.calls) == calls
    # And its m2 as a message of the next session.
    raw.connect()
    raw.wire.send(publish(TOPIC, will))
    assert raw.barrier() == []
    assert [n[2] for n in notices(raw)] != []
    raw.wire.send(DISCONNECT)
    assert evil.heard() == []


@LINKS
def test_a_minute_later_all_that_was_live_is_stale(evil: EvilScene, raw: RawClient) -> None:
    m3 = evil.caught(TOPIC, b"live", raw)
    kept = evil.caught(b"machine/1/kept", b"kept", raw, QOS1 | RETAIN)
    sealed = raw.seal(TOPIC, b"held back for a minute", flags=0)
    evil.later(61)
    evil.heard()
    for first, pid in ((0x30, 0), (0x32, 5), (0x31, 0)):
        evil.to_reader(TOPIC, m3, first, pid)
    assert evil.heard() == []
    evil.evil.acknowledged(evil.listener.raw.client_id.decode(), 5)
    raw.wire.send(publish(TOPIC, sealed))
    raw.barrier()
    assert [n[2] for n in notices(raw)] == [STALE]
    # Old by nature is another thing: the publisher said that it stays valid.
    evil.to_reader(b"machine/1/kept", kept, 0x31)
    assert evil.heard() == [(b"machine/1/kept", b"kept", RETAINED)]
