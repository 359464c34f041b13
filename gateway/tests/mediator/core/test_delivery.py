"""What a reader is sent, in which order and how much of it waits (GATEWAY.md G2)."""

from __future__ import annotations

from typing import Any

import pytest

from mediator_world import HIGH, LOW, PANEL, SENSOR, SIBLING
from reader_scene import Client, Scene, payloads
from sealmq.aead import make
from sealmq.mediator.core.delivery import WINDOW
from sealmq.mediator.core.effects import LOST, MAYBE, Snapshot
from sealmq.mediator.core.limits import HELD_ALL, HOLD_S, SLOW_BYTES, SLOW_SURE_BYTES
from sealmq.mediator.core.session import Session
from sealmq.mqtt import FilterWishes, Puback, Pubcomp, Publish, Pubrec, Pubrel, Subscribe
from sealmq.order import Order
from sealmq_spec.const import LIVE, QUEUED, RETAINED, WINDOW_S
from sealmq_spec.envelope import get_m3
from sealmq_spec.keys import topic_key
from sealmq_spec.reader import Reader
from sealmq_spec.records import Roots


def reader(
    scene: Scene, *filters: tuple[str, int], number: int = PANEL, client_id: str = "id"
) -> tuple[Session, Client]:
    """A clean session that has these filters."""
    session = scene.open(number, client_id=client_id)
    scene.subscribe(session, 1, *(filters or (("t/#", 2),)))
    scene.settle()
    client = Client(session)
    client.take()
    client.told.clear()
    scene.audited.clear()
    return session, client


def how_of(payload: bytes) -> int:
    return get_m3(payload)[2]


# --- a message ---


def test_a_message_goes_out_at_once_and_unchanged() -> None:
    scene = Scene()
    _, client = reader(scene)
    m3 = scene.publish("t/1")
    assert payloads(client.messages) == [m3]
    assert scene.counts.delivered == [("panel", "t/1")]


def test_qos_is_the_lesser_of_published_and_granted() -> None:
    scene = Scene()
    _, client = reader(scene, ("t/#", 1), ("u", 2), ("v", 0))
    for topic in ("t/1", "u", "v"):
        for qos in (0, 1, 2):
            scene.publish(topic, qos=qos)
    got = [(p.topic, p.qos, p.dup, p.retain) for p in client.messages]
    assert [qos for topic, qos, *_ in got if topic == "t/1"] == [0, 1, 1]
    assert [qos for topic, qos, *_ in got if topic == "u"] == [0, 1, 2]
    assert [qos for topic, qos, *_ in got if topic == "v"] == [0, 0, 0]
    assert not any(dup or retain for *_, dup, retain in got)


def test_of_overlapping_filters_the_highest_qos_counts_and_the_message_comes_once() -> None:
    scene = Scene()
    _, client = reader(scene, ("t/#", 0), ("t/1", 2), ("+/1", 1))
    m3 = scene.publish("t/1", qos=2)
    scene.live("t/1", m3, 2)
    scene.live("t/1", m3, 1)
    assert [(p.payload, p.qos) for p in client.messages] == [(m3, 2)]


def test_another_message_with_the_number_of_one_is_no_copy_of_it() -> None:
    """Whoever can publish at the broker cannot make a real message look like a copy."""
    scene = Scene()
    _, client = reader(scene)
    m3 = scene.m3("t/1")
    junk = m3[:40] + bytes((m3[40] ^ 1,)) + m3[41:]
    scene.live("t/1", junk)
    scene.live("t/2", m3)
    scene.live("t/1", m3)
    assert payloads(client.messages) == [junk, m3, m3]


def test_what_nobody_subscribed_to_reaches_nobody() -> None:
    scene = Scene()
    session, client = reader(scene)
    scene.publish("other")
    scene.own(session, "t/1", scene.m3("t/1"), 1, 9)
    assert client.messages == []
    assert [type(p) for p in scene.answers] == [Puback], "the broker's window goes on"


@pytest.mark.parametrize(
    ("topic", "payload", "rule"),
    [
        ("t/1", b"plain text", "malformed"),
        ("t/1", b"", None),
        ("$SYS/x", b"1", None),
        ("!s1/x", b"1", None),
        ("@other/x", b"1", None),
    ],
)
def test_what_no_mediator_sealed_is_dropped_and_counted(
    topic: str, payload: bytes, rule: str | None
) -> None:
    scene = Scene()
    _, client = reader(scene, ("t/#", 1), ("$SYS/#", 1), ("#", 1))
    scene.live(topic, payload, 1)
    assert client.messages == []
    expected = [] if rule is None else [("panel", topic, f"mediator.deliver.{rule}")]
    assert scene.counts.denied == expected


def test_a_label_that_is_not_known_and_how_retained_are_refused() -> None:
    scene = Scene()
    _, client = reader(scene)
    m3 = bytearray(scene.m3("t/1"))
    scene.live("t/1", bytes(m3[:2]) + b"\x00\x00\x63" + bytes(m3[5:]))
    scene.live("t/1", scene.m3("t/1", how=RETAINED))
    rules = [rule for *_, rule in scene.counts.denied]
    assert rules == ["mediator.deliver.nokey", "mediator.deliver.malformed"]
    assert client.messages == []


def test_retained_copies_on_the_live_link_are_nobodys() -> None:
    scene = Scene()
    _, client = reader(scene)
    scene.live("t/1", scene.m3("t/1", kind=1), 1, retain=True)
    assert client.messages == []


def test_what_policy_denies_is_withheld_and_counted() -> None:
    scene = Scene()
    _, client = reader(scene, number=SIBLING)
    m3 = scene.m3("t/1")
    scene.live("t/1", m3)
    high = scene.world.ring.labels[HIGH]
    swapped = m3[:2] + HIGH.to_bytes(3, "big") + high.epoch.to_bytes(3, "big") + m3[8:]
    scene.live("t/1", swapped)
    assert payloads(client.messages) == [m3]
    assert [row[:2] for row in scene.counts.denied] == [("sibling", "t/1")]


def test_late_it_is_sealed_anew_as_queued_once_for_all() -> None:
    scene = Scene()
    readers = [reader(scene, client_id=str(n))[1] for n in range(3)]
    old = scene.m3("t/1", at_ms=scene.site.now_ms - (WINDOW_S + 5) * 1000, life=255)
    scene.live("t/1", old)
    got = [client.messages[0].payload for client in readers]
    assert {how_of(m3) for m3 in got} == {QUEUED}
    assert len(set(got)) == 1
    peer = Reader(scene.world.identities[PANEL], make)
    peer.add_record(scene.world.record)
    assert peer.open(b"t/1", bytearray(got[0]), scene.site.now_ms).payload == b"21.5"


def test_an_older_mediators_journal_is_told_apart_by_readers_alone() -> None:
    """Sealed anew it has another number: it passes, and the reader's window drops it."""
    scene = Scene()
    _, client = reader(scene)
    m3 = scene.publish("t/1", qos=1)
    again = bytearray(scene.m3("t/1", how=QUEUED))
    scene.live("t/1", bytes(again), 1)
    assert payloads(client.messages) == [m3, bytes(again)]


def test_a_fault_with_one_reader_is_not_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    faulty, _ = reader(scene, client_id="1")
    _, fine = reader(scene, client_id="2")

    monkeypatch.setattr(faulty.delivery, "_policy", None)
    with pytest.raises(AttributeError):
        scene.publish("t/1")
    assert len(fine.messages) == 1
    assert faulty.state == "closed"


# --- the window ---


def test_qos_1_and_2_wait_for_a_window_of_twenty() -> None:
    scene = Scene()
    session, client = reader(scene)
    sent = [scene.publish("t/1", b"%d" % n, qos=1 + n % 2) for n in range(WINDOW + 5)]
    got = client.messages
    assert payloads(got) == sent[:WINDOW]
    assert len({p.packet_id for p in got}) == WINDOW
    scene.receive(session, Puback(got[0].packet_id))
    assert payloads(client.messages) == sent[: WINDOW + 1]
    scene.receive(session, Pubrec(got[1].packet_id))
    assert payloads(client.messages) == sent[: WINDOW + 1], "QoS 2 ends with PUBCOMP"
    assert client.told[-1] == Pubrel(got[1].packet_id)
    scene.receive(session, Pubcomp(got[1].packet_id))
    assert payloads(client.messages) == sent[: WINDOW + 2]


def test_the_wrong_acknowledgement_ends_nothing() -> None:
    scene = Scene()
    session, client = reader(scene)
    for n in range(WINDOW + 1):
        scene.publish("t/1", b"%d" % n, qos=2)
    scene.receive(session, Puback(client.messages[0].packet_id), Pubcomp(999))
    assert len(client.messages) == WINDOW
    scene.receive(session, Pubrec(999))
    client.take()
    assert client.told[-1] == Pubrel(999), "what is over is ended for the client too"


def test_after_what_waits_for_the_window_qos_0_waits_too() -> None:
    """A reader's windows look 64 messages of a sender back: nothing may overtake."""
    scene = Scene()
    session, client = reader(scene)
    sent = [scene.publish("t/1", b"%d" % n, qos=1) for n in range(WINDOW + 1)]
    sent.append(scene.publish("t/2", b"last"))
    got = client.messages
    assert len(got) == WINDOW
    scene.receive(session, *(Puback(p.packet_id) for p in got))
    assert payloads(client.messages) == sent


def test_packet_ids_in_use_are_not_given_twice() -> None:
    scene = Scene()
    session, client = reader(scene)
    scene.publish("t/1", qos=1)
    first = client.messages[0].packet_id
    session.delivery._newest_id = (first - 2) % 65_535
    for _ in range(3):
        scene.publish("t/1", qos=1)
    ids = [p.packet_id for p in client.messages]
    assert len(set(ids)) == 4
    assert all(0 < number < 65_536 for number in ids)


# --- who does not read ---


def test_the_oldest_of_qos_0_are_dropped_and_counted_and_qos_1_keeps_its_place() -> None:
    scene = Scene()
    session, client = reader(scene)
    session.writable(False)
    sure = scene.publish("t/sure", b"x", qos=1)
    sent = [scene.publish(f"t/{n}", bytes(SLOW_BYTES // 8)) for n in range(40)]
    assert scene.outboxes.held <= SLOW_BYTES * 1.2
    dropped = scene.counts.denied
    assert dropped == [("panel", f"t/{n}", "mediator.deliver.slow") for n in range(len(dropped))]
    assert len(dropped) >= 32
    session.writable(True)
    scene.settle()
    assert payloads(client.messages) == [sure, *sent[len(dropped) :]]
    assert scene.outboxes.held == 0


@pytest.mark.parametrize("qos", [0, 1])
def test_one_message_may_be_larger_than_the_bound(qos: int) -> None:
    scene = Scene()
    session, client = reader(scene)
    session.writable(False)
    large = scene.publish("t/1", bytes(SLOW_SURE_BYTES), qos=qos)
    session.writable(True)
    assert payloads(client.messages) == [large]


def test_a_live_reader_of_qos_1_beyond_the_bound_is_ended_and_audited() -> None:
    scene = Scene()
    slow, _ = reader(scene, client_id="slow")
    fine, client = reader(scene, client_id="fine")
    slow.writable(False)
    sent = []
    while slow.state == "open":
        sent.append(scene.publish("t/1", bytes(100_000), qos=1))
        scene.receive(fine, *(Puback(p.packet_id) for p in client.messages))
        assert len(sent) < 100
    assert len(sent) > SLOW_SURE_BYTES // 110_000
    assert payloads(client.messages) == sent, "nobody else notices"
    (event, fields) = scene.audited[-1]
    assert (event, fields["client"], fields["clean"]) == ("disconnect", "panel", False)
    assert "does not take its messages" in fields["reason"]
    assert scene.counts.denied == [("panel", "t/1", "mediator.deliver.full")]
    assert scene.outboxes.held == 0
    assert len(scene.outboxes.table) == 1
    scene.settle()
    assert scene.broker.live == {"t/#": {fine}}


def test_what_waits_goes_out_piece_by_piece_so_that_others_have_their_turn() -> None:
    scene = Scene()
    session, client = reader(scene)
    session.writable(False)
    sent = [scene.publish("t/1", bytes(5_000)) for n in range(40)]
    session.writable(True)
    scene.collect()
    got = len(client.messages)
    assert 0 < got < 40
    sent.append(scene.publish("t/1", b"after"))
    assert len(client.messages) == got
    scene.answer()
    session.writable(False)
    scene.settle()
    assert len(client.messages) < 41
    session.writable(True)
    scene.settle()
    assert payloads(client.messages) == sent


def test_all_outboxes_together_are_bounded_the_fuller_ones_give_way() -> None:
    scene = Scene()
    session, _ = reader(scene)
    session.writable(False)
    scene.outboxes.held = HELD_ALL
    count = 0
    while session.state == "open":
        scene.publish("t/1", bytes(50_000), qos=1)
        count += 1
    assert count < 10
    assert scene.outboxes.held == HELD_ALL


def test_what_waited_too_long_is_sealed_anew_before_a_reader_would_refuse_it() -> None:
    scene = Scene()
    session, client = reader(scene)
    session.writable(False)
    scene.live("t/1", scene.m3("t/1", life=255), 1)
    fresh = scene.m3("t/2", life=255)
    scene.passes(WINDOW_S - 3)
    session.writable(True)
    (got,) = client.messages
    assert how_of(got.payload) == QUEUED
    assert how_of(fresh) == LIVE
    peer = Reader(scene.world.identities[PANEL], make)
    peer.add_record(scene.world.record)
    later = scene.site.now_ms + 10_000
    assert peer.open(b"t/1", bytearray(got.payload), later).payload == b"21.5"


def test_what_waited_is_judged_when_it_is_written() -> None:
    scene = Scene()
    session, client = reader(scene, number=SIBLING)
    session.writable(False)
    scene.publish("t/1", qos=1)
    scene.engine.close_site("lost")
    session.writable(True)
    assert client.messages == []
    assert scene.counts.denied == [("sibling", "t/1", "engine.closed")]


def test_of_a_denied_one_it_is_counted_whose_it_was_where_it_was_opened_anyway() -> None:
    scene = Scene()
    retained(scene, "t/1", age_s=3600)
    scene.engine.close_site("lost")
    reader(scene)
    scene.publish("t/2")
    closed = "engine.closed"
    assert scene.counts.denied == [("panel", "t/1", closed), ("panel", "t/2", closed)]
    assert scene.counts.whose == [("sensor",), ("",)]


def test_what_outlived_its_life_while_it_waited_is_dropped() -> None:
    scene = Scene()
    session, client = reader(scene)
    session.writable(False)
    scene.live("t/1", scene.m3("t/1", life=0), 1)
    scene.passes(10_000)
    session.writable(True)
    assert client.messages == []
    assert scene.counts.denied == [("panel", "t/1", "mediator.deliver.stale")]


def test_what_was_left_goes_from_the_outbox_but_what_was_begun_is_ended() -> None:
    scene = Scene()
    session, client = reader(scene, ("t/#", 2), ("u", 2))
    sent = [scene.publish("t/1", b"%d" % n, qos=2) for n in range(WINDOW + 3)]
    kept = scene.publish("u", qos=2)
    scene.unsubscribe(session, 5, "t/#")
    scene.settle()
    got = client.messages
    assert payloads(got) == sent[:WINDOW]
    scene.receive(session, Pubrec(got[0].packet_id), Pubcomp(got[0].packet_id))
    assert payloads(client.messages) == [*sent[:WINDOW], kept]
    assert Pubrel(got[0].packet_id) in client.told


# --- snapshots ---


def retained(
    scene: Scene, topic: str, payload: bytes = b"r", qos: int = 1, age_s: int = 0
) -> bytes:
    """A message that stands retained at the broker; its m3."""
    at = scene.site.now_ms - age_s * 1000
    m3 = scene.m3(topic, payload, kind=1, at_ms=at, life=255, order=Order(9) if age_s else None)
    scene.broker.retained[topic] = Publish(topic, topic.encode(), m3, qos, True, False, 0)
    return m3


def test_suback_comes_first_then_what_is_retained_then_what_waited() -> None:
    scene = Scene()
    retained(scene, "t/1", age_s=3600)
    session = scene.open()
    client = Client(session)
    scene.subscribe(session, 4, ("t/#", 1))
    early = scene.publish("t/1", b"early")
    assert client.take() == []
    scene.answer()
    assert client.acks == [("suback", 4, (1,))]
    late = scene.publish("t/2", b"late", qos=2)
    assert client.messages == []
    scene.settle()
    got = client.messages
    assert [(p.retain, p.qos) for p in got] == [(True, 1), (False, 0), (False, 1)]
    assert how_of(got[0].payload) == RETAINED
    assert payloads(got[1:]) == [early, late]


def test_what_also_matches_a_filter_that_waits_for_nothing_goes_at_once() -> None:
    scene = Scene()
    session, client = reader(scene, ("t/1", 0))
    scene.subscribe(session, 4, ("t/#", 1))
    scene.answer()
    now = scene.publish("t/1", b"now", qos=1)
    assert [(p.payload, p.qos) for p in client.messages] == [(now, 1)]
    waits = scene.publish("t/2", b"waits", qos=1)
    then = scene.publish("t/1", b"then", qos=1)
    assert len(client.messages) == 1
    scene.settle()
    assert payloads(client.messages) == [now, waits, then]


def test_a_copy_of_the_snapshot_that_waits_as_a_live_message_comes_once_in_its_place() -> None:
    scene = Scene()
    session = scene.open()
    client = Client(session)
    scene.subscribe(session, 4, ("t/#", 1))
    before = scene.publish("t/1", b"not retained", qos=1)
    both = scene.publish("t/1", b"retained", qos=1, retain=True)
    scene.settle()
    assert payloads(client.messages) == [before, both]


def test_a_live_copy_that_comes_after_the_snapshot_is_dropped() -> None:
    scene = Scene()
    session = scene.open()
    client = Client(session)
    scene.subscribe(session, 4, ("t/#", 1))
    m3 = retained(scene, "t/1")
    scene.settle()
    scene.live("t/1", m3, 1)
    after = scene.publish("t/1", b"after", qos=1)
    got = client.messages
    assert [p.retain for p in got] == [True, False]
    assert got[1].payload == after


def test_a_copy_newer_than_what_waits_for_its_topic_goes_after_it() -> None:
    scene = Scene()
    session = scene.open()
    client = Client(session)
    scene.subscribe(session, 4, ("t/#", 1))
    waits = scene.publish("t/1", b"older", qos=1)
    m3 = retained(scene, "t/1", b"newer")
    scene.settle()
    scene.live("t/1", m3, 1)
    got = client.messages
    assert [p.retain for p in got] == [False, True]
    assert got[0].payload == waits


def test_a_retained_message_that_was_set_back_is_dropped() -> None:
    scene = Scene()
    m3 = retained(scene, "t/1")
    scene.site.retained.passed("t/1", scene.site.now_ms + 1, 0)
    session = scene.open()
    client = Client(session)
    scene.subscribe(session, 4, ("t/#", 1))
    scene.settle()
    assert m3
    assert client.messages == []
    assert scene.counts.denied == [("panel", "t/1", "mediator.deliver.stale")]


def test_a_snapshot_is_fetched_as_fast_as_its_reader_takes_it() -> None:
    scene = Scene()
    for n in range(200):
        retained(scene, f"t/{n}")
    session = scene.open()
    client = Client(session)
    scene.subscribe(session, 4, ("t/#", 1))
    while len(scene.questions):
        scene.answer()
    assert len(client.messages) == WINDOW
    assert scene.questions == scene.questions.__class__()
    while len(client.messages) < 200:
        last = client.messages[-WINDOW:]
        scene.receive(session, *(Puback(p.packet_id) for p in last))
        scene.settle()
    assert {p.topic for p in client.messages} == {f"t/{n}" for n in range(200)}
    assert scene.broker.snapshots == {}


def test_what_came_for_a_filter_that_the_broker_refuses_holds_up_nothing() -> None:
    """It came because of another client's filter, and had to wait for what is retained."""
    scene = Scene()
    panel, client = reader(scene, ("a/#", 1))
    scene.broker.grants = lambda filter, qos: 0x80 if filter == "b/#" else qos
    scene.subscribe(panel, 2, ("b/#", 1))
    scene.publish("b/1", b"nobody's", 1)
    scene.settle()
    assert client.acks == [("suback", 2, (0x80,))]
    scene.publish("a/1", b"wanted", 1)
    assert [packet.topic for packet in client.messages] == ["a/1"]


def test_a_filter_that_stands_twice_in_one_packet_is_fetched_if_either_wants_it() -> None:
    """The last one counts, and what the first one had begun to wait for never came."""
    scene = Scene()
    panel = scene.open()
    client, peer = Client(panel), scene.peer(panel)
    scene.publish("a/1", b"kept", 1, retain=True)
    texts = tuple((peer.token("a/#", 1)[0], 1) for _ in range(2))
    panel.receive(Subscribe(1, texts, (FilterWishes(), FilterWishes(retained=2))))
    scene.settle()
    scene.publish("a/1", b"live", 1)
    assert [packet.retain for packet in client.messages] == [True, False]


def test_a_filter_that_is_subscribed_to_again_and_again_waits_once_to_be_fetched() -> None:
    """Each SUBSCRIBE took memory until what is retained had been fetched for it alone."""
    scene, snapshots = Scene(), 0
    panel = scene.open()
    scene.publish("machine/1", b"kept", 1, retain=True)

    def others() -> int | None:
        kinds = [type(question.effect) for question in scene.questions]
        return next((at for at, kind in enumerate(kinds) if kind is not Snapshot), None)

    for number in range(1, 31):
        scene.subscribe(panel, number, ("machine/#", number % 3), ("machine/1", 1))
        while (at := others()) is not None:
            scene.answer(at)
    client = Client(panel)
    assert len(client.acks) == 30
    assert client.messages == []
    assert len(panel.delivery.fetches._rows) == 3
    scene.publish("machine/1", b"live", 1)
    while scene.questions:
        snapshots += isinstance(scene.questions[0].effect, Snapshot)
        scene.answer()
    assert snapshots == 3, "the first one was under way, and each filter has one for all the others"
    assert [packet.retain for packet in client.messages].count(True) == 3
    assert [packet.qos for packet in client.messages if not packet.retain] == [1]


def test_a_reader_that_goes_drops_the_rest_of_its_snapshot() -> None:
    for how in ("close", "leave"):
        scene = Scene()
        for n in range(200):
            retained(scene, f"t/{n}")
        session = scene.open()
        scene.subscribe(session, 4, ("t/#", 1))
        while scene.questions:
            scene.answer()
        assert len(scene.broker.snapshots) == 1
        if how == "close":
            session.close("test")
            scene.collect()
        else:
            scene.unsubscribe(session, 5, "t/#")
            scene.settle()
        assert scene.broker.snapshots == {}


def test_what_is_retained_does_not_count_for_the_bound_that_ends_a_reader() -> None:
    scene = Scene()
    for n in range(60):
        retained(scene, f"t/{n}", bytes(60_000))
    session = scene.open()
    client = Client(session)
    scene.subscribe(session, 4, ("t/#", 1))
    session.writable(False)
    scene.settle()
    live = [scene.publish("t/x", bytes(100_000), qos=1) for _ in range(9)]
    assert session.state == "open"
    session.writable(True)
    scene.settle()
    while len(client.messages) < 69:
        last = client.messages[-WINDOW:]
        scene.receive(session, *(Puback(p.packet_id) for p in last))
        scene.settle()
    got = client.messages
    assert payloads(p for p in got if not p.retain) == live
    assert sum(p.retain for p in got) == 60
    assert scene.outboxes.held == 0


def test_a_snapshot_that_cannot_be_had_is_told_and_opens_the_subscription() -> None:
    scene = Scene()
    session = scene.open()
    client = Client(session)
    scene.subscribe(session, 4, ("t/#", 1))
    scene.answer()
    waited = scene.publish("t/1")
    (question,) = scene.questions
    scene.questions.clear()
    session.reply(question.effect.task, OSError("the broker is away"))
    scene.collect()
    assert payloads(client.messages) == [waited]
    assert scene.refused() == [("mediator.snapshot.unavailable", "t/#")]
    now = scene.publish("t/2")
    assert client.messages[-1].payload == now


# --- public records ---


def test_public_records_need_a_filter_that_begins_with_them() -> None:
    scene = Scene()
    _, all_of_it = reader(scene, ("#", 1), client_id="a")
    _, records = reader(scene, ("@sm1/#", 1), client_id="b")
    scene.live("@sm1/r/1/2", b"record", 1)
    scene.publish("t/1")
    assert [p.topic for p in all_of_it.messages] == ["t/1"]
    assert [(p.topic, p.payload, p.qos) for p in records.messages] == [("@sm1/r/1/2", b"record", 1)]


def test_a_snapshot_of_public_records() -> None:
    scene = Scene()
    scene.broker.retained["@sm1/r"] = Publish("@sm1/r", b"@sm1/r", b"record", 1, True, False, 0)
    session = scene.open()
    client = Client(session)
    scene.subscribe(session, 4, ("@sm1/#", 0))
    scene.settle()
    assert client.acks == [("suback", 4, (0,))]
    assert [(p.payload, p.retain) for p in client.messages] == [(b"record", True)]


# --- a kept session: its own link ---


def kept(scene: Scene, *filters: tuple[str, int], doubtful: int = 0) -> tuple[Session, Client]:
    session = scene.open(clean=False, doubtful=doubtful)
    scene.subscribe(session, 1, *(filters or (("t/#", 2),)))
    scene.settle()
    client = Client(session)
    client.take()
    client.told.clear()
    return session, client


def test_a_kept_session_has_the_brokers_packet_ids_and_its_acknowledgements_go_there() -> None:
    scene = Scene()
    session, client = kept(scene)
    one, two = scene.m3("t/1"), scene.m3("t/2")
    scene.own(session, "t/1", one, 1, 400)
    scene.own(session, "t/2", two, 2, 401, dup=True)
    got = client.messages
    assert [(p.packet_id, p.qos, p.dup) for p in got] == [(400, 1, False), (401, 2, True)]
    scene.receive(session, Puback(400), Pubrec(401))
    assert scene.answers == [Puback(400), Pubrec(401)]
    session.link_packet(Pubrel(401))
    client.take()
    assert client.told[-1] == Pubrel(401)
    scene.receive(session, Pubcomp(401))
    assert scene.answers[-1] == Pubcomp(401)
    scene.publish("t/1")
    assert len(client.messages) == 2, "nothing comes over the live link"


def test_what_an_earlier_connection_began_is_passed_on() -> None:
    scene = Scene()
    session, client = kept(scene)
    session.link_packet(Pubrel(77))
    client.take()
    assert client.told == [Pubrel(77)]
    scene.receive(session, Pubcomp(77), Puback(78))
    assert scene.answers == [Pubcomp(77), Puback(78)]


def test_what_is_withheld_from_a_kept_client_is_acknowledged_and_its_id_is_free_again() -> None:
    """The client may hold the id from an earlier connection: only PUBREL makes it forget."""
    scene = Scene()
    session, client = kept(scene)
    scene.own(session, "t/1", b"junk", 2, 5, dup=True)
    scene.own(session, "t/1", b"junk", 1, 6)
    assert scene.answers == [Pubrec(5), Puback(6)]
    assert client.take() == []
    session.link_packet(Pubrel(5))
    assert client.take() == [Pubrel(5)]
    scene.receive(session, Pubcomp(5))
    assert scene.answers[-1] == Pubcomp(5)


def test_where_ids_may_be_drawn_anew_a_kept_client_is_made_to_forget_each_before_it_comes() -> None:
    """A broker that lost what it had gives ids again that the client may hold for others."""
    scene = Scene()
    session, client = kept(scene, doubtful=LOST)
    scene.own(session, "t/1", scene.m3("t/1"), 2, 5)
    first = client.take()
    assert [type(packet) for packet in first] == [Pubrel, Publish]
    assert first[0] == Pubrel(5)
    scene.receive(session, Pubcomp(5))
    assert scene.answers == [], "the broker did not ask for that"
    scene.receive(session, Pubrec(5))
    session.link_packet(Pubrel(5))
    scene.receive(session, Pubcomp(5))
    assert scene.answers == [Pubrec(5), Pubcomp(5)]
    client.take()
    scene.own(session, "t/1", scene.m3("t/1"), 2, 5)
    scene.own(session, "t/1", scene.m3("t/1"), 1, 7)
    assert [type(packet) for packet in client.take()] == [Publish] * 2
    scene.own(session, "t/1", scene.m3("t/1"), 2, 6, dup=True)
    assert [type(packet) for packet in client.take()] == [Pubrel, Publish], "sent, not received"


def test_a_client_that_leaves_out_an_answer_to_that_is_not_waited_for() -> None:
    scene = Scene()
    session, client = kept(scene, doubtful=MAYBE)
    scene.own(session, "t/1", scene.m3("t/1"), 2, 6, dup=True)
    assert [type(packet) for packet in client.take()] == [Publish], "it may be the one that it has"
    scene.own(session, "t/1", scene.m3("t/1"), 2, 5)
    scene.receive(session, Pubrec(5))
    session.link_packet(Pubrel(5))
    scene.receive(session, Pubcomp(5))
    assert scene.answers == [Pubrec(5), Pubcomp(5)]


def test_what_is_withheld_of_a_share_is_acknowledged_to_the_broker_to_the_end() -> None:
    scene = Scene()
    session, client = reader(scene, ("$share/g/s/#", 2))
    scene.own(session, "s/1", b"junk", 2, 5)
    session.link_packet(Pubrel(5))
    scene.collect()
    assert scene.answers == [Pubrec(5), Pubcomp(5)]
    assert client.messages == []


def test_a_link_whose_pubrels_the_whole_window_waits_for_is_read_on() -> None:
    """They come after all that the broker has sent before: paused, nothing would ever move."""
    scene = Scene()
    session, client = kept(scene)
    for n in range(WINDOW + 12):
        scene.own(session, "t/1", scene.m3("t/1", bytes(SLOW_SURE_BYTES // 10)), 2, n + 1)
    scene.collect()
    assert scene.paused[session]
    assert len(client.messages) == WINDOW
    scene.receive(session, *(Pubrec(n + 1) for n in range(WINDOW - 1)))
    assert scene.paused[session], "the client has still to answer"
    scene.receive(session, Pubrec(WINDOW))
    assert not scene.paused[session]
    session.link_packet(Pubrel(1))
    scene.receive(session, Pubcomp(1))
    scene.collect()
    assert len(client.messages) == WINDOW + 1
    assert scene.paused[session], "the client has to answer again"


def test_behind_much_of_qos_1_the_own_link_is_paused_and_order_stays() -> None:
    scene = Scene()
    session, client = kept(scene)
    session.writable(False)
    sent = []
    for n in range(12):
        sent.append(scene.m3("t/1", b"%02d" % n + bytes(SLOW_SURE_BYTES // 10)))
        scene.own(session, "t/1", sent[-1], 1, n + 1)
    assert scene.paused[session]
    session.writable(True)
    scene.settle()
    assert not scene.paused[session]
    assert payloads(client.messages) == sent
    assert session.state == "open"


def test_what_is_retained_comes_over_the_own_link_and_is_sealed_anew() -> None:
    scene = Scene()
    session, client = kept(scene)
    m3 = retained(scene, "t/1", age_s=3600)
    scene.own(session, "t/1", m3, 1, 3, retain=True)
    (got,) = client.messages
    assert (got.retain, how_of(got.payload)) == (True, RETAINED)
    assert scene.asked(object) == []


def test_a_clean_session_with_a_share_has_one_set_of_packet_ids() -> None:
    scene = Scene()
    session, client = reader(scene, ("t/#", 2), ("$share/g/s/#", 2))
    scene.own(session, "s/1", scene.m3("s/1"), 2, 1)
    scene.publish("t/1", qos=1)
    scene.own(session, "s/2", scene.m3("s/2"), 1, 2)
    got = client.messages
    assert [p.topic for p in got] == ["s/1", "t/1", "s/2"]
    ids = [p.packet_id for p in got]
    assert len(set(ids)) == 3
    scene.receive(session, Pubrec(ids[0]), Puback(ids[1]), Puback(ids[2]))
    assert scene.answers == [Pubrec(1), Puback(2)]
    session.link_packet(Pubrel(1))
    client.take()
    assert client.told[-1] == Pubrel(ids[0])
    scene.receive(session, Pubcomp(ids[0]))
    assert scene.answers[-1] == Pubcomp(1)


# --- epochs (SPEC.md 7.2) ---


def rekeyed(scene: Scene, epoch: int, handover_s: int = 60, label: int = HIGH) -> None:
    """The label has a new epoch; panel's generation 1 is of epoch 1 and sensor's of 3."""

    def change(rows: dict[str, Any]) -> None:
        for row in rows["labels"]:
            if row["number"] == label:
                ended = scene.site.now_ms // 1000 + handover_s
                before = {"epoch": row["epoch"], "ek": row["ek"], "handover_end": ended}
                world = scene.world
                old = world.high if label == HIGH else world.low
                roots = Roots(label, epoch, old.suite, old.r, old.r_bar)
                ek = topic_key(world.site, roots.suite, label, epoch, roots.r)
                row.update(epoch=epoch, ek=ek.hex(), previous=before)
        for row in rows["clients"]:
            held = 1 if row["label"] == HIGH else 3
            row["links"][0]["epoch"] = held

    scene.ring(change)


def test_messages_wait_for_the_answer_with_the_new_epoch_and_keep_their_order() -> None:
    scene = Scene()
    session, client = reader(scene)
    rekeyed(scene, 2)
    assert session.delivery.holds
    sent = [scene.publish("t/1", b"%d" % n) for n in range(3)]
    assert client.messages == []
    assert session.delivery.epoch_answered(2)
    assert payloads(client.messages) == sent
    assert not session.delivery.epoch_answered(2), "nothing new"
    assert scene.outboxes.held == 0


def test_who_holds_the_current_epoch_waits_for_nothing() -> None:
    scene = Scene()
    session, client = reader(scene)
    rekeyed(scene, 7, label=LOW)
    assert not session.delivery.holds
    sent = scene.publish("t/1")
    assert payloads(client.messages) == [sent]


def test_an_answer_that_is_overtaken_lets_nothing_go() -> None:
    scene = Scene()
    session, client = reader(scene)
    rekeyed(scene, 2)
    scene.publish("t/1")
    rekeyed(scene, 3)
    session.delivery.epoch_answered(2)
    assert client.messages == []
    session.delivery.epoch_answered(3)
    assert len(client.messages) == 1


def test_after_a_minute_it_goes_on_and_is_told() -> None:
    scene = Scene()
    session, client = reader(scene)
    rekeyed(scene, 2)
    scene.publish("t/1")
    scene.passes(HOLD_S - 1)
    assert client.messages == []
    # Nobody can get new roots while the key generator is away.
    scene.site.kg_there = False
    scene.passes(2)
    assert client.messages == []
    scene.site.kg_there = True
    scene.passes(6)
    assert len(client.messages) == 1
    missed = [fields for event, fields in scene.audited if event == "handover-missed"]
    assert missed == [{"client": "panel", "label": "high", "epoch": 2}]
    # The same epoch is not waited for a second time, the next one is.
    rekeyed(scene, 2)
    assert not session.delivery.holds
    rekeyed(scene, 3)
    assert session.delivery.holds


def test_what_is_held_for_an_epoch_obeys_the_bounds() -> None:
    scene = Scene()
    session, _ = reader(scene)
    own, _ = kept(scene)
    rekeyed(scene, 2)
    n = 0
    while session.state == "open":
        n += 1
        scene.own(own, "t/1", scene.m3("t/1", bytes(100_000)), 1, n)
        scene.publish("t/1", bytes(100_000), qos=1)
    assert n > SLOW_SURE_BYTES // 110_000
    assert scene.paused[own]
    assert own.state == "open"
    assert own.delivery.epoch_answered(2)
    scene.settle()
    assert not scene.paused[own]


def test_of_an_epoch_that_is_over_it_is_sealed_anew_when_it_is_let_go() -> None:
    scene = Scene()
    session, client = reader(scene, number=SENSOR)
    session.writable(False)
    scene.live("t/1", scene.m3("t/1"), 1)
    rekeyed(scene, 4, label=LOW)
    session.writable(True)
    assert client.messages == []
    session.delivery.epoch_answered(4)
    (got,) = client.messages
    assert (how_of(got.payload), get_m3(got.payload)[4]) == (QUEUED, 4)


@pytest.mark.parametrize("clean", [True, False])
def test_what_waits_for_a_client_whose_key_was_rotated_never_goes_out(clean: bool) -> None:
    scene = Scene()
    session, client = reader(scene) if clean else kept(scene)
    session.writable(False)
    for n in range(3):
        if clean:
            scene.publish("t/1", b"%d" % n, qos=1)
        else:
            scene.own(session, "t/1", scene.m3("t/1"), 1, n + 1)
    session.out.append(b"not sent yet")
    number = session.client.number

    def rotate(rows: dict[str, Any]) -> None:
        for row in rows["clients"]:
            if row["number"] == number:
                row["ended"] = 1
                row["links"] = [{**row["links"][0], "gen": 2}]

    scene.ring(rotate)
    assert session.state == "closed"
    session.writable(True)
    scene.passes(1)
    assert (session.out, client.told, scene.outboxes.held) == ([], [], 0)
    assert scene.answers == [], "what its own link brought is the broker's still"


@pytest.mark.parametrize("answered", [[4], [5], [4, 5], [5, 4]])
def test_what_waits_goes_out_under_the_newest_epoch_once_its_reader_has_that(
    answered: list[int],
) -> None:
    """It waited while its label was rekeyed twice; the epochs come in provisioning answers."""
    scene = Scene()
    session, client = reader(scene, number=SENSOR)
    session.writable(False)
    scene.publish("t/1")
    rekeyed(scene, 4, label=LOW)
    rekeyed(scene, 5, label=LOW)
    session.writable(True)
    held = 3
    for epoch in answered:
        held = max(held, epoch)
        session.delivery.epoch_answered(epoch)
        epochs = [get_m3(packet.payload)[4] for packet in client.messages]
        assert epochs == [5] * (held == 5), "once, and under no epoch that is over"


def test_an_end_drops_what_waits_and_frees_its_room() -> None:
    scene = Scene()
    session, client = reader(scene)
    rekeyed(scene, 2)
    scene.publish("t/1", bytes(1000), qos=1)
    assert scene.outboxes.held
    session.close("test")
    assert scene.outboxes.held == 0
    assert client.messages == []
    assert len(scene.outboxes.table) == 0
