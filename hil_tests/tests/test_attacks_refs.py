"""Claim 12: what is sealed to a link or to a grant is a mediator's, made as it delivers; none comes
from a broker (SPEC.md 3.3).
"""

from __future__ import annotations

import pytest

from attack_scene import LIVE, TOPIC
from evil_scene import EvilScene


@pytest.mark.parametrize("ref", [1, 2, 3, 7])
@pytest.mark.parametrize("retain", [0, 1], ids=["live", "retained"])
def test_a_broker_that_serves_another_ref_reaches_no_reader(
    evil: EvilScene, ref: int, retain: int
) -> None:
    raw = evil.client("m1-temp-sensor")
    raw.connect(keepalive=0)
    m3 = bytearray(evil.caught(TOPIC, b"genuine", raw))
    m3[1] |= ref << 2
    evil.to_reader(TOPIC, bytes(m3), 0x30 | retain)
    assert evil.heard() == []
    raw.publish(TOPIC, b"served on")
    assert evil.heard() == [(TOPIC, b"served on", LIVE)]
