"""Attacks within a genuine session, on a site with the embedded broker.

Packets with a borrowed packet id, forged counters, wills that must not fire, sessions cut in the
middle: an honest reader gets each message once, and nobody is told more than was verified.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from attack_scene import (
    DISCONNECT,
    DUP,
    LIVE,
    QOS1,
    QOS2,
    TOPIC,
    Scene,
    again,
    answer,
    garbage,
    hand_over,
    last_words,
    notices,
    pid_of,
    scene,
    with_will,
)
from running_site import Site, until
from wire import CONTROL, RawClient, mono, packet, publish, text

FOREIGN = b"machine/2/temperature"
UNAUTHENTIC, DENIED, TOO_LARGE, UNSUPPORTED = 2, 5, 8, 10


@pytest.fixture(scope="module")
def running(shared_site: Site) -> Iterator[Scene]:
    with scene(shared_site) as made:
        yield made


@pytest.fixture
def stage(running: Scene) -> Scene:
    """The scene, and nothing left to hear of the test before."""
    running.heard()
    return running


@pytest.fixture
def raw(stage: Scene) -> Iterator[RawClient]:
    """The sensor, connected, in a boot session of its own."""
    made = stage.client("m1-temp-sensor")
    made.connect()
    yield made
    made.close()


# --- packet ids and QoS 2 ---


def test_qos_2_cut_between_pubrec_and_pubrel_arrives_once(stage: Scene) -> None:
    raw = stage.client("m1-temp-sensor")
    raw.connect()
    sealed = raw.seal(TOPIC, b"cut", flags=4)
    raw.wire.send(publish(TOPIC, sealed, QOS2, 9))
    assert answer(raw) == (0x50, pid_of(9))
    stage.cut(raw)
    again(raw, raw.session.ctr)
    hand_over(raw, sealed, 9, QOS2 | DUP)
    assert [payload for _, payload, _ in stage.heard()] == [b"cut"]


def _foreign(raw: RawClient, pid: int) -> bytes:
    """A QoS 2 message whose tag verifies, on a topic that is another label's."""
    return publish(FOREIGN, raw.seal(FOREIGN, b"99", flags=4), QOS2, pid)


def test_a_refused_packet_leaves_its_id_to_an_honest_message(stage: Scene, raw: RawClient) -> None:
    raw.wire.send(publish(TOPIC, garbage(1, 0), QOS2, 7))
    assert [n[1:3] for n in last_words(raw)] == [(0, UNAUTHENTIC)]
    again(raw, 0)
    hand_over(raw, raw.seal(TOPIC, b"behind garbage", flags=4), 7)
    raw.wire.send(_foreign(raw, 7))
    assert answer(raw) == (0x50, pid_of(7))
    hand_over(raw, raw.seal(TOPIC, b"behind a refusal", flags=4), 7)
    assert [p for _, p, _ in stage.heard()] == [b"behind garbage", b"behind a refusal"]


def test_garbage_under_an_id_that_is_under_way_is_not_acknowledged(
    stage: Scene, raw: RawClient
) -> None:
    """The connection ends; the honest message comes through in the next one."""
    sealed = raw.seal(TOPIC, b"under way", flags=4)
    low = raw.session.ctr
    raw.wire.send(publish(TOPIC, sealed, QOS2, 7))
    assert answer(raw) == (0x50, pid_of(7))
    raw.wire.send(publish(TOPIC, garbage(2, 0), QOS2, 7))
    assert [n[1:3] for n in last_words(raw)] == [(0, UNAUTHENTIC)]
    again(raw, low)
    hand_over(raw, sealed, 7, QOS2 | DUP)
    assert [payload for _, payload, _ in stage.heard()] == [b"under way"]


# --- what notices say ---


def test_a_notice_names_a_counter_only_behind_a_verified_tag(stage: Scene, raw: RawClient) -> None:
    raw.publish(TOPIC, b"genuine")
    now_ms = raw.session.now_ms(mono())
    assert now_ms is not None
    for ctr in (raw.session.ctr, raw.session.ctr + 1):
        raw.wire.send(publish(TOPIC, garbage(ctr, now_ms // 1000)))
        raw.barrier()
        assert notices(raw) == [(1, 0, UNAUTHENTIC, "mediator.publish.unauthentic")]
    raw.wire.send(publish(FOREIGN, raw.seal(FOREIGN, b"99", flags=0)))
    raw.barrier()
    assert notices(raw) == [(1, raw.session.ctr, DENIED, "labels.publish.other-label")]
    stage.heard()


def test_a_control_packet_over_the_limit_is_refused(stage: Scene, raw: RawClient) -> None:
    large = raw.session.up(b"\x81\x01x" + bytes(16_384), mono())
    raw.wire.send(publish(CONTROL, large))
    raw.barrier()
    assert notices(raw) == [(4, 0, TOO_LARGE, "mediator.control.toolarge")]


def test_records_towards_a_label_above_are_refused_with_a_notice(
    stage: Scene, raw: RawClient
) -> None:
    above = stage.client("monitor").ident.own
    assert above is not None
    raw.wire.send(publish(CONTROL, raw.session.fetch(above.label, mono())))
    raw.barrier()
    assert notices(raw) == [(4, raw.session.ctr, DENIED, "mediator.control.denied")]


def test_a_shared_subscription_is_refused_where_the_broker_has_none(
    stage: Scene, raw: RawClient
) -> None:
    filt, ctr = raw.session.token("$share/g/machine/1/#", 0)
    raw.wire.send(packet(0x82, pid_of(3) + text(filt.encode()) + b"\0"))
    assert answer(raw) == (0x90, pid_of(3) + b"\x80")
    assert notices(raw) == [(2, ctr, UNSUPPORTED, "broker.promise.shared-subscription")]


# --- ends of sessions ---


def test_a_new_topic_and_disconnect_at_once_is_published_and_has_no_will(stage: Scene) -> None:
    raw = stage.client("m1-temp-sensor")
    with_will(raw, TOPIC, b"will")
    topic = b"machine/1/brief"
    ends = {"client": "m1-temp-sensor", "reason": "DISCONNECT"}
    ended = len(stage.site.audit("disconnect", **ends))
    raw.wire.send(publish(topic, raw.seal(topic, b"hello", flags=0)) + DISCONNECT)
    raw.wire.close()
    stage.awaits("the label", "topic-labelled", topic=topic.decode())
    until("the end", lambda: len(stage.site.audit("disconnect", **ends)) > ended)
    assert stage.heard() == [(topic, b"hello", LIVE)]


def test_the_will_of_a_client_that_lost_its_label_is_not_published(stage: Scene) -> None:
    raw = stage.client("m1-control-panel")
    topic = "machine/1/arm/angle"
    with_will(raw, topic.encode(), b"will")
    changes = len(stage.site.audit("keys-changed"))
    old = 'm1-control-panel = { label = "m1-ctrl"'
    stage.site.edit(old, old.replace("m1-ctrl", "none"))
    stage.reload()
    assert raw.wire.closed()
    stage.awaits("the end", "disconnect", client="m1-control-panel")
    assert stage.heard() == []
    # Whether the changed policy or the changed keys come first, the will is refused.
    stage.awaits("the record", "publish-refused", client="m1-control-panel", topic=topic)
    # Later tests have clients with keys of the epochs that begin now.
    until("the new keys", lambda: len(stage.site.audit("keys-changed")) > changes)
    assert stage.heard() == []


@pytest.mark.full
def test_a_quiet_client_stays(stage: Scene) -> None:
    """Longer than the broker lets a silent mediator be (90 s)."""
    raw = stage.renewed("m1-temp-sensor")
    raw.connect()
    end = time.monotonic() + 130
    while time.monotonic() < end:
        assert raw.barrier() == []
        time.sleep(5)
    raw.wire.send(publish(TOPIC, raw.seal(TOPIC, b"still here"), QOS1, 1))
    assert answer(raw) == (0x40, pid_of(1))
    assert notices(raw) == []
    assert stage.heard() == [(TOPIC, b"still here", LIVE)]
