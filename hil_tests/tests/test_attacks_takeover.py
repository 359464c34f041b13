"""Claim 7: a CONNECT counts once, and nothing upstream is touched by one that does not count.

The attacker replays, holds back and changes CONNECTs; what reaches the broker is seen there.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sealmq_spec.const import WILL

from attack_scene import KEPT, LIVE, TOPIC, WILL_FLAGS, again
from evil_scene import EvilScene
from running_site import until
from wire import RawClient, Wire, text

READY, BEHIND = 1, 1
PINGREQ = 0xC0


def _touched(evil: EvilScene) -> tuple[int, int]:
    """Links that the broker saw, and packets on those of the sensor: a session of its that is kept
    has one. But for the mediator's own pings, on links that earlier tests left.
    """
    evil.evil.settle()
    sensors = [p for p in evil.evil.packets if "m1-temp-sensor" in p[0] and p[1] != PINGREQ]
    return len(evil.evil.calls), len(sensors)


def _turned_away(raw: RawClient, made: bytes) -> bytes:
    """CONNACK's body for a CONNECT that must not count. Where it is 0, the mediator calls it
    behind, under seal; it hangs up in any case.
    """
    wire = Wire(raw.port)
    wire.send(made)
    answer = wire.read()
    assert answer is not None, "hung up without CONNACK"
    assert answer[0] == 0x20
    if answer[1] == b"\0\0":
        welcome = wire.read()
        assert welcome is not None, "hung up without a welcome"
        assert raw.session.down(welcome[1][5:], 0) == (READY, BEHIND)
    assert wire.closed()
    return answer[1]


def _behind(raw: RawClient, made: bytes) -> None:
    """The mediator knows the keys, and calls the CONNECT behind."""
    assert _turned_away(raw, made) == b"\0\0"


@pytest.fixture
def raw(evil: EvilScene) -> Iterator[RawClient]:
    """The sensor, not connected yet. No session of it is kept afterwards."""
    made = evil.client("m1-temp-sensor")
    name = made.client_id
    yield made
    over = evil.client("m1-temp-sensor")
    over.client_id = name
    assert over.connect() == b"\0\0"
    over.close()


def test_a_replay_does_not_touch_the_session(evil: EvilScene, raw: RawClient) -> None:
    made = bytes(raw.connect_packet(flags=KEPT))
    assert raw.enter(made) == b"\0\0"
    before = _touched(evil)
    for _ in range(3):
        wire = Wire(raw.port)
        wire.send(made)
        assert wire.read() == (0x20, b"\0\0")
        assert wire.closed()
    assert _touched(evil) == before
    assert raw.barrier() == []
    assert raw.publish(TOPIC, b"still the owner") == [(0x40, b"\0\x01")]
    assert evil.heard() == [(TOPIC, b"still the owner", LIVE)]


def test_a_connect_that_was_held_back(evil: EvilScene, raw: RawClient) -> None:
    """Until a newer one has been accepted: of the boot session, and of the next boot."""
    held = bytes(raw.connect_packet(flags=KEPT))
    assert raw.connect(flags=KEPT) == b"\0\0"
    before = _touched(evil)
    wire = Wire(raw.port)
    wire.send(held)
    assert wire.read() == (0x20, b"\0\0")
    assert wire.closed()
    assert _touched(evil) == before
    older = bytes(raw.connect_packet(flags=KEPT))
    fresh = evil.client("m1-temp-sensor")
    assert fresh.connect() == b"\0\0"
    before = _touched(evil)
    _behind(raw, older)
    assert _touched(evil) == before
    assert fresh.barrier() == []
    fresh.close()


def test_a_replay_behind_a_restart_of_the_mediator(evil: EvilScene, raw: RawClient) -> None:
    """The newest (gen, boot, conn) is on disk before the session or the broker is touched."""
    made = bytes(raw.connect_packet(flags=KEPT))
    assert raw.enter(made) == b"\0\0"
    pid = evil.site.kill("mediator")
    evil.site.back("mediator", pid)
    evil.gather()
    evil.heard()
    calls = len(evil.evil.calls)
    _behind(raw, made)
    assert not any("m1-temp-sensor" in c.client_id for c in evil.evil.calls[calls:])
    again(raw, raw.session.ctr + 1)
    assert raw.publish(TOPIC, b"back") == [(0x40, b"\0\x01")]
    assert evil.heard() == [(TOPIC, b"back", LIVE)]


def test_a_will_is_not_replayed_with_its_connect(evil: EvilScene, raw: RawClient) -> None:
    will = raw.seal(TOPIC, b"gone", flags=2, kind=WILL, life=255)
    made = bytes(raw.connect_packet(will=text(TOPIC) + text(will), flags=WILL_FLAGS & ~2))
    assert raw.enter(made) == b"\0\0"
    ends = {"client": "m1-temp-sensor", "clean": True}
    ended = len(evil.site.audit("disconnect", **ends))
    raw.wire.send(b"\xe0\0")
    assert raw.wire.closed()
    until("the end", lambda: len(evil.site.audit("disconnect", **ends)) > ended)
    before = len(evil.evil.seen(TOPIC))
    _behind(raw, made)
    assert evil.heard() == []
    assert len(evil.evil.seen(TOPIC)) == before


def test_a_proof_under_keys_that_newer_ones_have_ended(evil: EvilScene) -> None:
    """Once a proof under the newer generation has come, the older link root is worth nothing."""
    older = evil.client("m1-device")
    assert older.connect(flags=KEPT) == b"\0\0"
    held = bytes(older.connect_packet(flags=KEPT))
    newer = evil.client("m1-device")
    newer.ident.gen, newer.ident.own = 0, None
    newer.provision()
    assert newer.ident.gen > older.ident.gen
    assert newer.connect() == b"\0\0"
    before = _touched(evil)
    assert _turned_away(older, held) == b"\0\x05"
    assert older.connect(flags=KEPT) == b"\0\x05"
    assert _touched(evil) == before
    newer.close()
    evil.keep("m1-device", newer)


def test_every_bit_that_says_what_a_connect_wants(evil: EvilScene, raw: RawClient) -> None:
    """Clean Session, keep alive, identifier, will and the proof's numbers, one bit each."""
    will = raw.seal(TOPIC, b"gone", flags=2, kind=WILL, life=255)
    whole = bytes(raw.connect_packet(will=text(TOPIC) + text(will), flags=WILL_FLAGS & ~2))
    before = _touched(evil)
    password = len(whole) - 54
    for at, bit in [
        (whole.index(b"MQTT") + 5, 0x02),  # Clean Session
        (whole.index(b"MQTT") + 5, 0x20),  # will retain
        (whole.index(b"MQTT") + 5, 0x08),  # will QoS
        (whole.index(b"MQTT") + 7, 0x01),  # keep alive
        (whole.index(raw.client_id), 0x01),
        (whole.index(TOPIC), 0x01),
        (whole.index(will) + 40, 0x01),
        *((password + n, 0x01) for n in range(54)),
    ]:
        bent = bytearray(whole)
        bent[at] ^= bit
        wire = Wire(raw.port)
        wire.send(bent)
        wire.socket.shutdown(1)
        answer = wire.read()
        assert answer != (0x20, b"\0\0"), (at, bit)
        wire.close()
    assert _touched(evil) == before
    assert raw.enter(whole) == b"\0\0", "the packet itself is genuine"
    raw.wire.send(b"\xe0\0")
    assert raw.wire.closed()


def test_one_client_holds_sixteen_connections_at_most(evil: EvilScene, raw: RawClient) -> None:
    """The oldest ends: no client takes the places of the others. A clean session takes none at the
    broker; how many it keeps for a client is bounded (test_attacks_limits.py).
    """
    wires = []
    for n in range(20):
        raw.client_id = b"m1-temp-sensor-many-%d" % n
        assert raw.enter(raw.connect_packet()) == b"\0\0"
        wires.append(raw.wire)
    for wire in wires[:4]:
        assert wire.closed()

    for raw.wire in wires[4:]:
        assert raw.barrier() == []
    assert not any("-many-" in line.client_id for line in evil.evil.lines())
    other = evil.client("m2-temp-sensor")
    assert other.connect() == b"\0\0"
    for wire in wires:
        wire.close()
    other.close()
    evil.heard()
