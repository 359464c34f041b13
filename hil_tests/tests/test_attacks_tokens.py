"""Claim 18: a token counts for its filter, QoS, operation and session, and ends with UNSUBSCRIBE.

The attacker repeats and changes SUBSCRIBEs; what reaches the broker is seen at the broker.
"""

from __future__ import annotations

import pytest
from sealmq_spec.const import SUBSCRIBE, UNSUBSCRIBE

from attack_scene import again, answer, notices
from evil_scene import EvilScene
from wire import RawClient, packet, text

FILTER = "machine/1/temperature"
SUBACK, REFUSED = (0x90, b"\0\x07\0"), (0x90, b"\0\x07\x80")
UNSUBACK = (0xB0, b"\0\x08")
UNAUTHENTIC, REPLAY = 2, 4
SUBSCRIBED = 2  # what a notice is about


@pytest.fixture
def raw(evil: EvilScene) -> RawClient:
    """The panel, connected; the sensor's label is below its own."""
    made = evil.client("m1-control-panel")
    made.connect(keepalive=0)
    return made


def _subscribe(raw: RawClient, filt: str, qos: int = 0) -> tuple[int, bytes]:
    raw.wire.send(packet(0x82, b"\0\x07" + text(filt.encode()) + bytes((qos,))))
    return answer(raw)


def _unsubscribe(raw: RawClient, filt: str) -> tuple[int, bytes]:
    raw.wire.send(packet(0xA2, b"\0\x08" + text(filt.encode())))
    return answer(raw)


def _gets(evil: EvilScene, raw: RawClient) -> bool:
    """Whether the panel gets what the sensor says on the filter now: its next packet is that."""
    sensor = evil.client("m1-temp-sensor")
    sensor.connect()
    sensor.publish(FILTER.encode(), b"21.5")
    sensor.close()
    evil.heard()
    return answer(raw)[0] & 0xF0 == 0x30


def test_a_token_behind_its_unsubscribe(evil: EvilScene, raw: RawClient) -> None:
    """In the connection, and in the next one."""
    first, _ = raw.session.token(FILTER)
    assert _subscribe(raw, first) == SUBACK
    assert _subscribe(raw, first) == SUBACK, "a library's retransmission"
    leave, _ = raw.session.token(FILTER, 0, UNSUBSCRIBE)
    assert _unsubscribe(raw, leave) == UNSUBACK
    evil.fetched(raw)
    before = evil.evil.asked()
    assert _subscribe(raw, first) == REFUSED
    assert [n[2] for n in notices(raw)] == [REPLAY]
    again(raw, 0)
    raw.notices.clear()
    assert _subscribe(raw, first) == REFUSED
    assert [n[2] for n in notices(raw)] == [REPLAY]
    assert evil.evil.asked() == before


def test_an_older_token_is_refused_and_changes_nothing(evil: EvilScene, raw: RawClient) -> None:
    """Genuine as it is: the newest one of the filter stays that, and counts again."""
    elsewhere = raw.session.token("machine/1/arm/height")[0]
    older, newest = (raw.session.token(FILTER)[0] for _ in range(2))
    assert _subscribe(raw, newest) == SUBACK
    assert notices(raw) == []
    for _ in range(2):
        assert _subscribe(raw, older) == REFUSED
        assert [n[:3] for n in notices(raw)] == [(SUBSCRIBED, 0, REPLAY)]
        assert _subscribe(raw, newest) == SUBACK
    # Another filter's token may have a counter below.
    assert _subscribe(raw, elsewhere) == SUBACK
    assert notices(raw) == []


def test_an_unsubscribe_of_before(evil: EvilScene, raw: RawClient) -> None:
    """Held back until the client has subscribed again: it must not end the new subscription."""
    assert _subscribe(raw, raw.session.token(FILTER)[0]) == SUBACK
    leave, _ = raw.session.token(FILTER, 0, UNSUBSCRIBE)
    assert _subscribe(raw, raw.session.token(FILTER)[0]) == SUBACK
    assert _unsubscribe(raw, leave) == UNSUBACK
    assert [(n[0], n[2]) for n in notices(raw)] == [(3, REPLAY)]
    assert _gets(evil, raw)


def test_a_token_of_an_earlier_connection(evil: EvilScene, raw: RawClient) -> None:
    """Its counter lies below `low` of the proof, whatever it was for."""
    used, _ = raw.session.token(FILTER)
    held, _ = raw.session.token("machine/1/arm/#")
    assert _subscribe(raw, used) == SUBACK
    evil.fetched(raw)
    again(raw, raw.session.ctr + 1)
    before = evil.evil.asked()
    for filt in (used, held):
        assert _subscribe(raw, filt) == REFUSED
    assert [n[2] for n in notices(raw)] == [REPLAY] * 2
    assert evil.evil.asked() == before


def test_a_token_moved_to_another_filter_qos_or_operation(evil: EvilScene, raw: RawClient) -> None:
    token, _ = raw.session.token(FILTER, 0, SUBSCRIBE)
    head = token[: -len(FILTER)]
    before = evil.evil.asked()
    for filt in ("#", "machine/#", "machine/1/+", "machine/1/temperatures", "$share/g/" + FILTER):
        assert _subscribe(raw, head + filt) == REFUSED
    for qos in (1, 2):
        assert _subscribe(raw, token, qos) == REFUSED
    assert _unsubscribe(raw, token) == UNSUBACK
    assert _subscribe(raw, raw.session.token(FILTER, 0, UNSUBSCRIBE)[0]) == REFUSED
    assert {n[2] for n in notices(raw)} == {UNAUTHENTIC}
    assert evil.evil.asked() == before
    assert _subscribe(raw, token) == SUBACK, "the token itself is genuine"


def test_a_token_of_another_session_or_client(evil: EvilScene, raw: RawClient) -> None:
    token, _ = raw.session.token(FILTER)
    before = evil.evil.asked()
    for name in ("m1-control-panel", "m1-arm-operator"):
        other = evil.client(name)
        other.connect()
        assert _subscribe(other, token) == REFUSED
        assert [n[2] for n in notices(other)] == [UNAUTHENTIC]
        assert evil.evil.asked() == before
        other.close()


def test_a_filter_with_a_token_twice_or_none(evil: EvilScene, raw: RawClient) -> None:
    """What would be left of it must not reach the broker with a token in it."""
    inside, _ = raw.session.token(FILTER)
    before = evil.evil.asked()
    outside, _ = raw.session.token(inside)
    for filt in (outside, FILTER, "!s1/" + FILTER, "!s1/" + "A" * 26 + "/" + FILTER):
        assert _subscribe(raw, filt) == REFUSED
    assert evil.evil.asked() == before
