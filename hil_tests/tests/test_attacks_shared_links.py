"""Claim 24: what many clients share at the broker is no way from one of them to the others.

All publish over one link, and all clean sessions are delivered to over another one. The attackers
are a client that ends or fills such a link, and a broker that mixes up whose is what.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from attack_scene import KEPT, LIVE, QOS1, TOPIC, again, answer, notices, pid_of
from evil_broker import LIVE_LINK, PUBLISH_LINK
from evil_scene import EvilScene
from running_site import sealmq, until
from wire import RawClient, packet, publish, text

POISON = b"machine/1/poison"
REFUSED = 0x90, b"\0\x07\x80"


@pytest.fixture
def stage(evil: EvilScene) -> Iterator[EvilScene]:
    """The scene. A link may fall, and the honest reader's session with it: it connects anew."""
    yield evil
    evil.evil.honest()
    _again(evil)


def _again(evil: EvilScene) -> None:
    """The honest reader is there again, and has taken what is retained: of tests before as well."""
    # A link that ended may still be counted.
    evil.evil.settle()
    until("both links", lambda: _links(evil) == 2)
    evil.gather()
    evil.heard()


def _links(evil: EvilScene) -> int:
    names = [line.client_id for line in evil.evil.lines()]
    return sum(name.endswith((LIVE_LINK, PUBLISH_LINK)) for name in names)


def _connected(evil: EvilScene, name: str, flags: int = 0xC2) -> RawClient:
    raw = evil.client(name)
    until("the mediator to let in", lambda: raw.connect(keepalive=0, flags=flags) == b"\0\0")
    return raw


def _asks(raw: RawClient, filt: str) -> tuple[int, bytes] | None:
    """SUBACK, or None if the mediator hung up."""
    token, _ = raw.session.token(filt, 1)
    raw.wire.send(packet(0x82, b"\0\x07" + text(token.encode()) + b"\x01"))
    while (got := raw.wire.read()) is not None:
        if got[0] == 0x90:
            return got
    return None


def _ends(evil: EvilScene, client: str) -> int:
    return len(evil.site.audit("disconnect", client=client))


@pytest.mark.parametrize("form", ["machine/1/poison%d", "machine/1/poison%d/#"])
def test_filters_on_which_the_broker_hangs_up_end_the_live_link_once_at_most(
    stage: EvilScene, form: str
) -> None:
    """With a new filter each time: after the first, all are tried where they end nobody else."""
    stage.evil.ends = lambda first, body: first == 0x82 and b"poison" in body
    raw = _connected(stage, "m1-control-panel")
    if _asks(raw, form % 0) is None:
        _again(stage)
    ends = _ends(stage, "monitor")
    for n in range(1, 5):
        raw = _connected(stage, "m1-control-panel")
        assert _asks(raw, form % n) == REFUSED
        raw.close()
    assert _ends(stage, "monitor") == ends
    sensor = _connected(stage, "m1-temp-sensor")
    sensor.publish(TOPIC, b"21.5")
    assert stage.heard() == [(TOPIC, b"21.5", LIVE)]
    # Until this one is answered every new filter is tried first, in later tests too.
    stage.evil.honest()
    _connected(stage, "m1-control-panel").subscribe(form % 0)


@pytest.mark.parametrize("first", [0x30, QOS1, 0x34])
def test_messages_on_which_the_broker_hangs_up_end_nobody_s_session(
    stage: EvilScene, first: int
) -> None:
    stage.evil.ends = lambda kind, body: kind & 0xF0 == 0x30 and POISON in body
    raw, sensor = _connected(stage, "m1-control-panel"), _connected(stage, "m1-temp-sensor")
    ends = _ends(stage, "monitor")
    for n in range(3):
        sealed = raw.seal(POISON, b"%d" % n, flags=first & 6)
        raw.wire.send(publish(POISON, sealed, first, n + 1))
        sensor.publish(TOPIC, b"%d" % n)
        if first & 6:
            assert answer(raw) == ({QOS1: 0x40, 0x34: 0x50}[first], pid_of(n + 1))
            assert [n[3] for n in notices(raw)] == ["broker.takes.message"]
    # Those of earlier tests may end meanwhile: that this one has not, shows when it goes on.
    sensor.publish(TOPIC, b"3")
    assert [payload for _, payload, _ in stage.heard()] == [b"0", b"1", b"2", b"3"]
    assert _ends(stage, "monitor") == ends


def test_a_reader_that_never_reads_stalls_nobody(stage: EvilScene) -> None:
    """It is ended when too much waits for it. All others get every message."""
    deaf = _connected(stage, "m1-control-panel")
    deaf.subscribe(TOPIC.decode(), 1)
    sensor = _connected(stage, "m1-temp-sensor")
    heard = []
    for n in range(120):
        sensor.publish(TOPIC, b"%d %s" % (n, bytes(60_000)))
        heard += [int(payload.split()[0]) for _, payload, _ in stage.heard()]
    assert heard == list(range(120))
    stage.awaits("its end", "disconnect", client="m1-control-panel")


def test_a_delivery_on_another_client_s_own_link_reaches_neither(stage: EvilScene) -> None:
    """The broker mixes up two sessions that it keeps. What was not subscribed to is acknowledged to
    the broker and goes no further; what was, the label allows, and it is genuine.
    """
    above, below = (_connected(stage, n, KEPT) for n in ("m1-arm-operator", "m1-control-panel"))
    above.subscribe("machine/1/arm/#", 1)
    below.subscribe(TOPIC.decode(), 1)
    panel, sensor = (_connected(stage, n) for n in ("m1-control-panel", "m1-temp-sensor"))
    secret = stage.caught(b"machine/1/arm/angle", b"90", panel)
    assert answer(above)[0] & 0xF0 == 0x30
    reading = stage.caught(TOPIC, b"21.5", sensor)
    assert answer(below)[0] & 0xF0 == 0x30
    below_id, above_id = below.client_id.decode(), above.client_id.decode()
    stage.evil.tell(below_id, b"machine/1/arm/angle", secret, QOS1, 901)
    stage.evil.acknowledged(below_id, 901)
    stage.evil.tell(above_id, TOPIC, reading, QOS1, 902)
    stage.evil.acknowledged(above_id, 902)
    for name in (below_id, above_id):
        # Under the other's filter, too: the seal is bound to its topic.
        stage.evil.line(name).send(packet(0x62, pid_of(903)) + packet(0x50, pid_of(904)))
    stage.heard()
    for raw in (above, below):
        assert [got for got in raw.barrier() if got[0] & 0xF0 == 0x30] == []
        again(raw, 0)


def test_retained_messages_that_never_end_hold_up_no_other_subscription(stage: EvilScene) -> None:
    """Sixteen of them, of one client; another one gets its own meanwhile."""
    filters = [f"machine/1/endless{n}" for n in range(16)]
    stage.evil.endless = set(filters)
    raw = _connected(stage, "m1-control-panel")
    for filt in filters:
        raw.subscribe(filt)
    state = b"machine/1/state"
    sensor = _connected(stage, "m1-temp-sensor")
    stage.caught(state, b"shut", sensor, QOS1 | 1)
    other = _connected(stage, "m1-arm-operator")
    other.subscribe(state.decode())
    assert answer(other)[0] & 0xF0 == 0x30, "its retained message"
    # The client is told that not all came, and its subscription goes on.
    while not raw.notices:
        raw.control(raw.next("a notice"))
    assert notices(raw)[0][3] == "mediator.snapshot.unavailable"
    sensor.publish(filters[0].encode(), b"later")
    assert answer(raw)[0] & 0xF0 == 0x30
    # No other test is to see these SUBSCRIBEs among its own: snapshots come one after the other.
    stage.evil.endless = set()
    until("the last of the snapshots", lambda: filters[-1] in stage.evil.fetched)
    stage.heard()


@pytest.mark.parametrize("how", ["under way", "waits"])
def test_what_a_disabled_client_had_under_way_when_the_link_fell_is_not_published_again(
    stage: EvilScene, how: str
) -> None:
    """The command is answered: nothing of that client reaches the broker after it."""
    # A client for each case: one that is enabled again has new keys.
    name = {"under way": "m1-device", "waits": "m1-temp-sibling"}[how]
    raw = _connected(stage, name)
    if how == "waits":
        refused: list[str] = []

        def refuses(client_id: str) -> bool:
            if client_id.endswith(PUBLISH_LINK):
                refused.append(client_id)
            return client_id.endswith(PUBLISH_LINK)

        stage.evil.refuses = refuses
        stage.evil.shared(PUBLISH_LINK).close()
        # Before the mediator has heard of it, it would send the message there, and again on another
        # connection, all while the client may.
        until("the mediator to call again", lambda: refused)
    else:
        stage.evil.holds = lambda came: came.topic == TOPIC
    # All at once: while the link is away nothing more is read from a client that has published.
    raw.wire.send(publish(TOPIC, raw.seal(TOPIC, b"too late"), QOS1, 1) + b"\xc0\0")
    assert answer(raw)[0] == 0xD0
    if how == "under way":
        until("the message at the broker", lambda: stage.evil.seen(TOPIC))
    assert sealmq("client", "disable", stage.site.path, name).returncode == 0
    assert raw.wire.closed()
    before = len(stage.evil.seen(TOPIC))
    stage.evil.honest()
    if how == "under way":
        stage.evil.shared(PUBLISH_LINK).close()
    until("the publish link", lambda: _links(stage) == 2)
    # Messages that wait go out before this one.
    assert stage.heard() == []
    assert len(stage.evil.seen(TOPIC)) == before
    # Later tests need it enabled. When it was disabled, its labels got new epochs.
    assert sealmq("client", "enable", stage.site.path, name).returncode == 0
    stage.all_renewed()
