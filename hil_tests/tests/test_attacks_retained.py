"""Claim 10: a retained message never goes back on its topic, and RETAIN on the wire opens nothing.

The attacker is the broker that keeps retained messages, or the network that delivers them late.
"""

from __future__ import annotations

import pytest
from sealmq_spec.const import RETAINED

from attack_scene import QOS1, TOPIC, answer, notices
from evil_scene import LINKS, EvilScene
from wire import RawClient, publish

STALE = 3
RETAIN = 1
STATE = b"machine/1/state"


@pytest.fixture
def raw(evil: EvilScene) -> RawClient:
    """The sensor, connected."""
    made = evil.client("m1-temp-sensor")
    made.connect(keepalive=0)
    return made


@LINKS
def test_a_retained_message_never_goes_back(evil: EvilScene, raw: RawClient) -> None:
    topic = b"machine/1/mode"
    older = evil.caught(topic, b"manual", raw, QOS1 | RETAIN)
    newer = evil.caught(topic, b"automatic", raw, QOS1 | RETAIN)
    evil.to_reader(topic, newer, 0x31)
    assert evil.heard() == [(topic, b"automatic", RETAINED)]
    evil.to_reader(topic, older, 0x31)
    assert evil.heard() == []
    evil.to_reader(topic, older, 0x30)
    assert {payload for _, payload, _ in evil.heard()} <= {b"again"}


def test_a_retained_message_held_back_by_the_network(evil: EvilScene, raw: RawClient) -> None:
    """Delivered behind a newer one it must not become what later readers get."""

    def state(payload: bytes) -> bytes:
        return raw.seal(STATE, payload, QOS1 & 6 | RETAIN, RETAINED, 255)

    older, newer = state(b"open"), state(b"shut")
    for sealed in (newer, older):
        raw.wire.send(publish(STATE, sealed, QOS1 | RETAIN, 1))
        assert answer(raw)[0] == 0x40
    assert (STALE, "mediator.publish.stale") in [n[2:] for n in notices(raw)]
    late = evil.client("m1-control-panel")
    late.connect()
    late.subscribe(STATE.decode())
    assert [p for _, p, _ in evil.heard()] == [b"shut"]


@LINKS
def test_what_a_mediator_sealed_for_one_reader_is_none_from_the_broker(
    evil: EvilScene, raw: RawClient
) -> None:
    """A copy re-wrapped for a reader, taken on its way to it, would be fresh once more."""
    topic = b"machine/1/program"
    evil.caught(topic, b"first", raw, QOS1 | RETAIN)
    late = evil.client("m1-control-panel")
    late.connect()
    late.subscribe(topic.decode())
    _, body = answer(late)
    rewrapped = body[2 + len(topic) :]
    assert rewrapped[1] & 3 == RETAINED
    evil.to_reader(topic, rewrapped)
    evil.to_reader(topic, rewrapped, 0x31)
    assert evil.heard() == []


@LINKS
def test_the_wire_s_retain_bit_opens_nothing(evil: EvilScene, raw: RawClient) -> None:
    """A live message with RETAIN set is neither re-wrapped nor passed on."""
    m3 = evil.caught(TOPIC, b"live", raw)
    evil.to_reader(TOPIC, m3, 0x31)
    assert evil.heard() == []
