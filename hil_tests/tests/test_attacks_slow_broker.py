"""Attacks that need a broker which answers late, or not before the connection is cut.

The broker is an unmodified Mosquitto, stopped with SIGSTOP where it has to be slow. Whatever is
under way then must arrive once, be acknowledged once the broker has it, and open no door meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from attack_scene import (
    CLEAN,
    DUP,
    KEPT,
    LIVE,
    QOS1,
    QOS2,
    TOPIC,
    Scene,
    again,
    answer,
    hand_over,
    last_words,
    mosquitto,
    notices,
    pid_of,
    scene,
)
from running_site import Site, until
from wire import Wire, packet, publish, text

DENIED = 5
UNAVAILABLE = 0x20, b"\0\3"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder: Path = tmp_path_factory.mktemp("slow")
    with mosquitto(folder) as broker:
        site = Site(folder)
        site.up("--broker", f"mqtt://127.0.0.1:{broker.port}")
        try:
            with scene(site, broker) as made:
                yield made
        finally:
            site.down()


@pytest.fixture
def stage(running: Scene) -> Scene:
    """The scene, and nothing left to hear of the test before."""
    running.heard()
    return running


@pytest.mark.parametrize("flags", [CLEAN, KEPT])
def test_qos_2_cut_between_pubrec_and_pubrel_arrives_once(stage: Scene, flags: int) -> None:
    raw = stage.client("m1-temp-sensor")
    raw.connect(flags=flags)
    sealed = raw.seal(TOPIC, b"cut", flags=4)
    raw.wire.send(publish(TOPIC, sealed, QOS2, 9))
    assert answer(raw) == (0x50, pid_of(9))
    stage.cut(raw)
    again(raw, raw.session.ctr, flags)
    hand_over(raw, sealed, 9, QOS2 | DUP)
    assert stage.heard() == [(TOPIC, b"cut", LIVE)]


def test_what_lies_below_low_is_not_forwarded_again(stage: Scene) -> None:
    raw = stage.client("m1-temp-sensor")
    raw.connect()
    with stage.broker.asleep():
        old = raw.seal(TOPIC, b"old")
        raw.wire.send(publish(TOPIC, old, QOS1, 5))
        assert raw.barrier() == []
        stage.cut(raw)
    raw.notices.clear()
    again(raw, raw.session.ctr + 1)
    assert raw.publish(TOPIC, b"new", 6) == [(0x40, pid_of(6))]
    raw.wire.send(publish(TOPIC, old, QOS1 | DUP, 7))
    assert answer(raw) == (0x40, pid_of(7))
    assert [n[2:] for n in notices(raw)] == [(4, "mediator.publish.replay")]
    assert [payload for _, payload, _ in stage.heard()] == [b"old", b"new"]


def test_one_message_under_several_packet_ids_moves_once(stage: Scene) -> None:
    raw = stage.client("m1-temp-sensor")
    raw.connect()
    with stage.broker.asleep():
        sealed = raw.seal(TOPIC, b"many ids")
        for pid in range(10, 15):
            raw.wire.send(publish(TOPIC, sealed, QOS1, pid))
        assert raw.barrier() == []
    assert {answer(raw) for _ in range(5)} == {(0x40, pid_of(pid)) for pid in range(10, 15)}
    assert stage.heard() == [(TOPIC, b"many ids", LIVE)]


def test_receipt_and_welcome_leave_out_what_the_broker_has_not_acknowledged(stage: Scene) -> None:
    raw = stage.client("m1-temp-sensor")
    raw.connect()
    session = raw.session
    with stage.broker.asleep():
        sealed = raw.seal(TOPIC, b"not there yet")
        at = session.ctr
        raw.wire.send(publish(TOPIC, sealed, QOS1, 1))
        # QoS 0 counts when it is forwarded, so a receipt is owed.
        raw.wire.send(publish(TOPIC, raw.seal(TOPIC, b"unanswered", flags=0)))
        assert raw.barrier() == []
        assert session.receipted(at + 1)
        assert not session.receipted(at)
        stage.cut(raw)
        again(raw, at)
        assert session.receipted(at + 1)
        assert not session.receipted(at)
        raw.wire.send(publish(TOPIC, sealed, QOS1 | DUP, 1))
    assert answer(raw) == (0x40, pid_of(1))
    assert raw.barrier() == []
    assert session.receipted(at)
    stage.heard()


def more(stage: Scene, there: set[str], count: int) -> bool:
    """Whether the broker has so many callers more; some of those that were there may have gone."""
    return len(stage.broker.callers() - there) >= count


def test_two_connects_of_one_boot_session_share_one_window(stage: Scene) -> None:
    """Both sessions are kept by the broker, and each waits for its own link."""
    raw = stage.client("m1-temp-sensor")
    name = raw.client_id
    calls = []
    for raw.client_id in (name, name + b"-two"):
        calls.append(bytes(raw.connect_packet(flags=KEPT)))
    there = stage.broker.callers()
    older, newer = Wire(stage.site.port), Wire(stage.site.port)
    with stage.broker.asleep():
        for count, wire in enumerate((older, newer), 1):
            wire.send(calls[count - 1])
            until("the mediator at the broker", partial(more, stage, there, count))
    for wire in (older, newer):
        assert wire.read() == (0x20, b"\0\0")
    raw.wire = newer
    assert raw.control(newer.read())[0] == 1
    assert older.read() is not None
    sealed = raw.seal(TOPIC, b"twice?")
    raw.wire.send(publish(TOPIC, sealed, QOS1, 1))
    assert answer(raw) == (0x40, pid_of(1))
    older.send(publish(TOPIC, sealed, QOS1, 1))
    assert older.read() == (0x40, pid_of(1))
    with stage.broker.asleep():
        sealed = raw.seal(TOPIC, b"under way")
        raw.wire.send(publish(TOPIC, sealed, QOS1, 2))
        assert raw.barrier() == []
        older.send(publish(TOPIC, sealed, QOS1, 2))
        assert older.closed()
    assert answer(raw) == (0x40, pid_of(2))
    assert [payload for _, payload, _ in stage.heard()] == [b"twice?", b"under way"]


def test_a_refusal_under_an_id_that_is_under_way_ends_the_connection(stage: Scene) -> None:
    """The client would take its acknowledgement for that of the message that is under way."""
    raw = stage.client("m1-temp-sensor")
    raw.connect()
    foreign = b"machine/2/temperature"
    with stage.broker.asleep():
        sealed = raw.seal(TOPIC, b"under way", flags=4)
        low = raw.session.ctr
        raw.wire.send(publish(TOPIC, sealed, QOS2, 7))
        assert raw.barrier() == []
        raw.wire.send(publish(foreign, raw.seal(foreign, b"x", flags=4), QOS2, 7))
        assert [n[2:] for n in last_words(raw)] == [(DENIED, "labels.publish.other-label")]
    again(raw, low)
    hand_over(raw, sealed, 7, QOS2 | DUP)
    assert [payload for _, payload, _ in stage.heard()] == [b"under way"]


def removed_while_it_waits(stage: Scene, name: str) -> Wire:
    """A connection that calls, and whose client is removed while the broker sleeps. Its session is
    to be kept, so it waits for a link of its own.
    """
    raw = stage.client(name)
    made = bytes(raw.connect_packet(flags=KEPT))
    line = next(at for at in stage.site.toml.read_text().splitlines(True) if at.startswith(name))
    there, denied = stage.broker.callers(), len(refusals(stage, "mediator.connect.denied"))
    wire = Wire(stage.site.port)
    with stage.broker.asleep():
        wire.send(made)
        until("the mediator at the broker", partial(more, stage, there, 1))
        stage.site.edit(line, "")
        stage.reload()

        def known() -> bool:
            probe = Wire(stage.site.port)
            probe.send(made.replace(b"m1-", b"m2-"))
            assert probe.read() == (0x20, b"\0\x05")
            return len(refusals(stage, "mediator.connect.denied")) > denied

        until("the mediator to know", known)
    return wire


def refusals(stage: Scene, rule: str) -> list[str]:
    """The refusals by this rule so far."""
    return [row["id"] for row in stage.site.audit("connect-refused", rule=rule)]


def test_a_client_removed_while_it_waits_for_the_broker_is_not_let_in(stage: Scene) -> None:
    # A call may wait for ten seconds. On a machine that is slower, another client tries.
    said = None
    for name in ("m1-arm-operator", "m1-device", "m1-temp-sibling", "m1-reader"):
        wire = removed_while_it_waits(stage, name)
        said = wire.read()
        assert wire.closed()
        assert stage.site.audit("connect", client=name) == []
        if said not in (None, UNAVAILABLE):
            break
    assert said == (0x20, b"\0\x05")
    until("the record", lambda: stage.refused("mediator.connect.changed"))


def test_a_shared_subscription_takes_nothing_from_readers_above(stage: Scene) -> None:
    above, below = stage.client("monitor"), stage.client("m1-control-panel")
    for raw in (above, below):
        raw.connect()
        raw.subscribe("$share/g/machine/2/#", 0)
    sensor = stage.client("m2-temp-sensor")
    sensor.connect()
    for n in range(8):
        assert sensor.publish(b"machine/2/temperature", b"%d" % n) == [(0x40, pid_of(1))]
    for _ in range(8):
        assert answer(above)[0] == 0x30
    stage.heard()


@pytest.mark.full
def test_a_quiet_client_stays(stage: Scene) -> None:
    """Longer than Mosquitto lets a silent mediator be (1.5 keep alives of 60 s)."""
    raw = stage.renewed("m1-temp-sensor")
    raw.connect()
    end = time.monotonic() + 130
    while time.monotonic() < end:
        assert raw.barrier() == []
        time.sleep(5)
    assert raw.publish(TOPIC, b"still here") == [(0x40, pid_of(1))]
    filt, _ = raw.session.token("machine/1/temperature", 0)
    raw.wire.send(packet(0x82, pid_of(2) + text(filt.encode()) + b"\0"))
    assert answer(raw)[0] == 0x90
    assert stage.heard() == [(TOPIC, b"still here", LIVE)]
