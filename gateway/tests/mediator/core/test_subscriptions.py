"""SUBSCRIBE and UNSUBSCRIBE, pauses and resumes as the policy says, whatever comes between."""

from __future__ import annotations

from typing import Any

import pytest

from families.gate import opened, shut
from mediator_world import HIGH, PANEL, SIBLING
from reader_scene import REFUSED, Client, Scene, payloads
from sealmq.families.api import Ask, NotYet, Verdict
from sealmq.mediator.core.effects import LIVE, Commit, Subscribe, Unsubscribe, Yield
from sealmq.mediator.core.limits import SUBSCRIPTIONS
from sealmq.mediator.core.session import Session
from sealmq.mqtt import Pingreq, Pingresp, Puback, Publish
from sealmq.mqtt import Subscribe as SubscribePacket
from sealmq.store.records import KeptSub

BILL, CARE = "!AP/machine/%23{bill}", "!AP/machine/%23{care}"


class Alone:
    """One session and what its client was told."""

    def __init__(
        self, clean: bool = True, rows: tuple[KeptSub, ...] = (), shared: bool = True
    ) -> None:
        self.scene = Scene(shared, gate=True)
        self.session: Session = self.scene.open(clean=clean, rows=rows)
        self.client = Client(self.session)

    @property
    def subs(self) -> dict[str, int]:
        """What is matched: the live table's filters, or what the broker has on the own link."""
        if self.session.clean:
            table, delivery = self.scene.outboxes.table, self.session.delivery
            return {f: table.value(delivery, f) & 3 for f in table.filters(delivery)}
        return self.scene.broker.own.get(self.session, {})

    @property
    def acks(self) -> list[tuple[str, int, tuple[int, ...]]]:
        return self.client.acks

    def subscribe(self, number: int, *filters: tuple[str, int]) -> None:
        self.scene.subscribe(self.session, number, *filters)

    def unsubscribe(self, number: int, *filters: str) -> None:
        self.scene.unsubscribe(self.session, number, *filters)

    def apply(self, records: list[Any]) -> None:
        self.scene.apply(records)

    def settle(self) -> None:
        self.scene.settle()
        if self.session.clean and self.session.state == "open":
            held = set(self.scene.broker.of(self.session))
            own = {f for f in held if f.startswith("$share")}
            assert held - own == set(self.subs), "the live link has what the table has"


def held(*filters: tuple[str, int], clean: bool = True) -> Alone:
    """A client that has these, and what was told so far is forgotten."""
    alone = Alone(clean=clean)
    alone.subscribe(1, *filters)
    alone.settle()
    alone.client.take()
    alone.client.told.clear()
    return alone


# --- pauses and resumes ---


@pytest.mark.parametrize("clean", [True, False])
def test_it_pauses_and_resumes_with_its_qos_and_the_client_hears_nothing(clean: bool) -> None:
    alone = held((BILL, 2), clean=clean)
    assert alone.subs == {"machine/#": 2}
    alone.apply(shut("bill"))
    if clean:
        assert alone.subs == {}, "at once, before the command is answered"
        assert [type(e) for e in alone.scene.asked(object)] == [Unsubscribe]
    alone.settle()
    assert alone.subs == {}
    alone.apply(opened("bill"))
    alone.settle()
    assert alone.subs == {"machine/#": 2}
    assert (alone.client.take(), alone.scene.refused()) == ([], [])


def test_one_that_resumes_fetches_what_is_retained_again() -> None:
    alone = held((BILL, 1))
    alone.apply(shut("bill"))
    alone.settle()
    scene = alone.scene
    m3 = scene.m3("machine/1", kind=1)
    raw = b"machine/1"
    scene.broker.retained["machine/1"] = Publish("machine/1", raw, m3, 1, True, False, 0)
    alone.apply(opened("bill"))
    while not scene.asked(Subscribe):
        scene.answer()
    scene.answer()
    live = scene.publish("machine/2")
    assert alone.client.messages == [], "it waits for the snapshot"
    alone.settle()
    got = alone.client.messages
    assert [p.topic for p in got] == ["machine/1", "machine/2"]
    assert got[1].payload == live
    assert got[0].retain


def test_several_purposes_share_one_subscription() -> None:
    alone = held((BILL, 0), (CARE, 1))
    assert alone.subs == {"machine/#": 1}
    alone.apply(shut("bill"))
    assert not alone.scene.questions, "the other one still reads it"
    alone.apply(shut("care"))
    alone.settle()
    assert alone.subs == {}
    alone.apply(opened("bill"))
    alone.settle()
    assert alone.subs == {"machine/#": 0}
    alone.apply(opened("care"))
    alone.settle()
    assert alone.subs == {"machine/#": 1}
    assert alone.client.take() == []


def test_each_is_told_no_more_than_it_asked_for() -> None:
    alone = Alone()
    alone.subscribe(1, (BILL, 2))
    alone.subscribe(2, (CARE, 0))
    alone.settle()
    assert alone.acks == [("suback", 1, (2,)), ("suback", 2, (0,))]
    assert alone.subs == {"machine/#": 2}


def test_two_texts_of_one_filter_keep_each_its_own_qos() -> None:
    other = "!AP/machine/HASH{bill}"
    for clean in (True, False):
        alone = Alone(clean=clean)
        alone.subscribe(1, (BILL, 0), (other, 2))
        alone.settle()
        assert alone.acks == [("suback", 1, (0, 2))]
        assert alone.subs == {"machine/#": 2}
        qos = {raw: sub.qos for raw, sub in alone.session.policy._subs.items()}
        assert qos == {BILL: 0, other: 2}
        alone.apply(shut("bill"))
        alone.settle()
        alone.apply(opened("bill"))
        alone.settle()
        assert alone.subs == {"machine/#": 2}
        if not clean:
            assert {row.filter: row.qos for row in alone.scene.rows.values()} == qos


def test_a_change_while_subscribe_is_under_way() -> None:
    alone = Alone()
    alone.subscribe(1, (BILL, 1))
    alone.apply(shut("bill"))
    alone.settle()
    assert alone.acks == [("suback", 1, (1,))]
    assert alone.subs == {}
    alone.apply(opened("bill"))
    alone.settle()
    assert alone.subs == {"machine/#": 1}
    assert len(alone.acks) == 1


def test_changes_faster_than_the_broker_answers() -> None:
    alone = held((BILL, 1))
    for _ in range(5):
        alone.apply(shut("bill"))
        alone.apply(opened("bill"))
    assert len(alone.scene.questions) == 1, "one order at a time"
    alone.settle()
    assert alone.subs == {"machine/#": 1}


def test_the_client_leaves_a_paused_one() -> None:
    alone = held((BILL, 1))
    alone.apply(shut("bill"))
    alone.settle()
    alone.unsubscribe(2, BILL)
    alone.settle()
    assert alone.acks == [("unsuback", 2, ())]
    alone.apply(opened("bill"))
    alone.settle()
    assert alone.subs == {}
    assert len(alone.scene.engine.following) == 0


def test_the_client_leaves_while_it_is_resumed() -> None:
    alone = held((BILL, 1))
    alone.apply(shut("bill"))
    alone.settle()
    alone.apply(opened("bill"))
    alone.unsubscribe(2, BILL)
    alone.settle()
    assert alone.subs == {}
    assert alone.acks == [("unsuback", 2, ())]


def test_leaving_the_allowed_one_of_two_pauses_the_other() -> None:
    alone = held((BILL, 1), (CARE, 1))
    alone.apply(shut("bill"))
    alone.unsubscribe(2, CARE)
    alone.settle()
    assert alone.subs == {}
    alone.apply(opened("bill"))
    alone.settle()
    assert alone.subs == {"machine/#": 1}


def test_leaving_what_was_never_held_harms_nobody() -> None:
    for clean in (True, False):
        alone = held((BILL, 1), clean=clean)
        alone.unsubscribe(2, "!AP/machine/%23{other}", "machine/#")
        alone.settle()
        assert alone.subs == {"machine/#": 1}
        assert alone.acks == [("unsuback", 2, ())]


def test_a_kept_session_of_before_the_store_leaves_what_only_the_broker_knows() -> None:
    alone = Alone(clean=False)
    alone.scene.broker.own[alone.session] = {"old/#": 1}
    alone.unsubscribe(2, "old/#")
    alone.settle()
    assert alone.subs == {}


def test_a_client_leaves_what_it_holds_under_another_text_for_the_same() -> None:
    """One filter for one purpose is one subscription, however it was written."""
    other = "!AP/machine/HASH{bill}"
    alone = held((other, 1), (CARE, 0))
    alone.unsubscribe(2, BILL)
    alone.settle()
    assert alone.acks == [("unsuback", 2, ())]
    assert [raw for _, raw in alone.session.policy.held()] == [CARE]
    alone.subscribe(3, (other, 1), (BILL, 2))
    alone.settle()
    alone.unsubscribe(4, other)
    alone.unsubscribe(5, CARE)
    alone.settle()
    assert alone.subs == {}
    assert len(alone.scene.engine.following) == 0


@pytest.mark.parametrize("clean", [True, False])
def test_a_broker_that_does_not_take_it_back_is_told_and_asked_again_later(clean: bool) -> None:
    alone = held((BILL, 1), clean=clean)
    alone.apply(shut("bill"))
    alone.settle()
    broker = alone.scene.broker
    broker.grants = lambda filter, qos: REFUSED
    alone.apply(opened("bill"))
    alone.scene.settle()
    assert alone.scene.refused() == [("mediator.resume.refused", BILL)]
    assert broker.of(alone.session) == {}
    broker.grants = lambda filter, qos: qos
    alone.apply(opened("bill"))
    alone.settle()
    assert alone.subs == {"machine/#": 1}


def test_what_comes_for_one_that_the_broker_does_not_take_back_holds_up_nothing() -> None:
    """It comes because of others' filters, and waited for what is retained."""
    alone = held((BILL, 1), ("!AP/other/%23{care}", 1))
    alone.apply(shut("bill"))
    alone.settle()
    alone.scene.broker.grants = lambda filter, qos: REFUSED if filter == "machine/#" else qos
    alone.apply(opened("bill"))
    alone.scene.publish("machine/1", b"between", 1)
    alone.scene.settle()
    alone.scene.publish("machine/1", b"after", 1)
    wanted = alone.scene.publish("other/1", b"wanted", 1)
    assert payloads(alone.client.messages) == [wanted]
    assert alone.subs == {"other/#": 1}


def test_what_is_allowed_again_before_its_pause_has_begun_waits_for_nothing_that_never_comes() -> (
    None
):
    """Many are paused at once, and so many wait for their turn."""
    many = [f"!AP/m{n}/%23{{bill}}" for n in range(70)]
    alone = held(*((raw, 1) for raw in many))
    for records in shut("bill"), opened("bill"):
        alone.apply(records)
        while True:
            kinds = [type(question.effect) for question in alone.scene.questions]
            if Yield not in kinds:
                break
            alone.scene.answer(kinds.index(Yield))
        assert kinds.count(Unsubscribe) == 64
    alone.settle()
    wanted = [alone.scene.publish(f"m{n}/1", b"wanted", 1) for n in range(70)]
    assert sorted(payloads(alone.client.messages)) == sorted(wanted[:64])
    for packet in alone.client.messages:
        alone.scene.receive(alone.session, Puback(packet.packet_id))
    assert sorted(payloads(alone.client.messages)) == sorted(wanted)


def test_a_broker_that_takes_it_back_with_less() -> None:
    alone = held((BILL, 2), (CARE, 1))
    alone.apply(shut("bill", "care"))
    alone.settle()
    alone.scene.broker.grants = lambda filter, qos: min(qos, 1)
    alone.apply(opened("bill", "care"))
    alone.settle()
    assert alone.subs == {"machine/#": 1}
    assert {rule for rule, _ in alone.scene.refused()} == {"mediator.resume.qos"}


def test_a_lower_qos_granted_is_the_one_that_comes_back() -> None:
    alone = Alone()
    alone.scene.broker.grants = lambda filter, qos: min(qos, 1)
    alone.subscribe(1, (BILL, 2))
    alone.settle()
    assert alone.acks == [("suback", 1, (1,))]
    alone.apply(shut("bill"))
    alone.settle()
    alone.scene.broker.grants = lambda filter, qos: qos
    alone.apply(opened("bill"))
    alone.settle()
    assert alone.subs == {"machine/#": 1}


def test_what_the_broker_refuses_is_not_held() -> None:
    alone = Alone()
    alone.scene.broker.grants = lambda filter, qos: REFUSED
    alone.subscribe(1, (BILL, 1), (CARE, 1), (BILL, 2))
    alone.settle()
    assert alone.acks == [("suback", 1, (REFUSED, REFUSED, REFUSED))]
    assert len(alone.scene.engine.following) == 0
    alone.scene.broker.grants = lambda filter, qos: qos
    alone.apply(shut("bill"))
    alone.apply(opened("bill"))
    alone.settle()
    assert alone.subs == {}


@pytest.mark.parametrize("clean", [True, False])
def test_a_refused_second_try_leaves_the_first(clean: bool) -> None:
    alone = held((BILL, 1), clean=clean)
    alone.scene.broker.grants = lambda filter, qos: REFUSED
    alone.subscribe(2, (BILL, 2))
    alone.scene.settle()
    assert alone.acks == [("suback", 2, (REFUSED,))]
    alone.scene.broker.grants = lambda filter, qos: qos
    assert alone.subs == {"machine/#": 1}
    alone.apply(shut("bill"))
    alone.scene.settle()
    alone.apply(opened("bill"))
    alone.scene.settle()
    assert alone.subs == {"machine/#": 1}


def test_the_policy_and_the_table_know_of_it_before_the_broker_answers() -> None:
    alone = Alone()
    alone.subscribe(1, (BILL, 1))
    got = alone.session.policy.deliver("machine/1/temperature", "low", 1, 1)
    assert (got.allow, got.audit[0]) == (True, ("purpose", "bill"))
    live = alone.scene.publish("machine/1")
    alone.settle()
    assert payloads(alone.client.messages) == [live]


def test_a_denied_one_is_refused_and_not_followed() -> None:
    alone = Alone()
    alone.apply(shut("bill"))
    alone.subscribe(1, (BILL, 1))
    assert alone.acks == [("suback", 1, (REFUSED,))]
    assert alone.scene.refused() == [("gate.shut", BILL)]
    assert len(alone.scene.engine.following) == 0


@pytest.mark.parametrize(
    ("filt", "rule"),
    [
        ("!other/machine/#", "mediator.subscribe.denied"),
        ("!AP/!c1{bill}", "mediator.subscribe.denied"),
        ("!AP/@sm1/%23{bill}", "mediator.subscribe.denied"),
        ("!AP/a%23{bill}", "labels.subscribe.malformed"),
        ("!AP/a", "engine.parse"),
        ("!AP/{bill}", "labels.subscribe.malformed"),
        ("@other/#", "mediator.subscribe.denied"),
    ],
)
def test_encodings_that_nobody_claims_or_that_reach_what_is_reserved(filt: str, rule: str) -> None:
    alone = Alone()
    alone.subscribe(1, (filt, 1))
    assert alone.acks == [("suback", 1, (REFUSED,))]
    assert alone.scene.refused() == [(rule, filt)]
    assert not alone.scene.questions


def test_a_filter_without_its_token_is_refused_and_the_others_go_on() -> None:
    alone = Alone()
    good, _ = alone.scene._clients[alone.session].token("!AP/good{x}", 1)
    alone.session.receive(SubscribePacket(3, (("plain", 1), (good, 1), (good, 2))))
    alone.scene.collect()
    alone.settle()
    assert alone.acks == [("suback", 3, (REFUSED, 1, REFUSED))]
    assert [rule for rule, _ in alone.scene.refused()] == [
        "mediator.subscribe.malformed",
        "mediator.subscribe.unauthentic",
    ]


def test_too_many_filters_in_one_packet_end_the_connection() -> None:
    for many in (
        SubscribePacket(1, (("x", 0),) * 513),
        SubscribePacket(1, (("x", 0),) * 512),
    ):
        alone = Alone()
        alone.session.receive(many)
        alone.scene.settle()
        assert (alone.session.state == "closed") == (len(many.filters) > 512)


# --- groups ---

GROUP = "!AP/$share/g/machine/%23{bill}"


def test_a_group_is_one_of_readers_for_one_purpose_on_the_own_link() -> None:
    for clean in (True, False):
        alone = held((GROUP, 1), clean=clean)
        at = f"$share/{HIGH}.bill.g/machine/#"
        assert alone.scene.broker.own[alone.session] == {at: 1}
        alone.scene.own(alone.session, "machine/1", alone.scene.m3("machine/1"), 1, 3)
        alone.scene.own(alone.session, "other", alone.scene.m3("other"), 1, 4)
        assert [p.topic for p in alone.client.messages] == ["machine/1"]
        alone.client.told.clear()
        # The group is named otherwise from now on: what was recorded is left.
        alone.scene.gate.mark = "-new"
        alone.unsubscribe(2, GROUP)
        alone.scene.settle()
        assert alone.scene.broker.own[alone.session] == {}


def test_a_group_that_is_named_otherwise_from_now_on_moves() -> None:
    alone = held((GROUP, 1))
    alone.scene.gate.mark = "-new"
    alone.apply(opened("bill"))
    alone.scene.settle()
    broker = alone.scene.broker
    assert broker.own[alone.session] == {f"$share/{HIGH}.bill-new.g/machine/#": 1}
    alone.subscribe(2, (GROUP, 0))
    alone.scene.gate.mark = "-newer"
    alone.scene.engine.cache.clear()
    alone.subscribe(3, (GROUP, 1))
    alone.scene.settle()
    assert broker.own[alone.session] == {f"$share/{HIGH}.bill-newer.g/machine/#": 1}


def test_a_broker_without_groups_refuses_them() -> None:
    alone = Alone(shared=False)
    alone.subscribe(1, (GROUP, 1))
    assert alone.acks == [("suback", 1, (REFUSED,))]
    assert alone.scene.refused() == [("broker.promise.shared-subscription", GROUP)]


# --- many ---


def test_many_orders_wait_for_the_broker() -> None:
    alone = Alone()
    for n in range(200):
        alone.subscribe(n + 1, (f"!AP/{n}{{bill}}", 1))
        alone.settle()
    alone.apply(shut("bill"))
    while alone.scene.asked(Yield):
        alone.scene.answer(
            next(i for i, q in enumerate(alone.scene.questions) if isinstance(q.effect, Yield))
        )
    assert len(alone.scene.questions) == 64
    alone.settle()
    assert alone.subs == {}
    alone.apply(opened("bill"))
    alone.settle()
    assert len(alone.subs) == 200


@pytest.mark.parametrize("clean", [True, False])
def test_one_that_is_shut_while_others_of_its_packet_are_judged_is_paused(clean: bool) -> None:
    alone = Alone(clean=clean)
    alone.subscribe(2, (BILL, 1), *((f"!AP/{n}{{care}}", 1) for n in range(20)))
    alone.apply(shut("bill"))
    alone.settle()
    assert alone.acks == [("suback", 2, (1,) * 21)]
    assert set(alone.subs) == {str(n) for n in range(20)}
    assert alone.scene.broker.of(alone.session).keys() == alone.subs.keys()
    alone.apply(opened("bill"))
    alone.settle()
    assert alone.subs["machine/#"] == 1


def test_a_group_named_otherwise_while_others_of_its_packet_are_judged_is_the_new_one() -> None:
    alone = Alone()
    alone.subscribe(2, (GROUP, 1), *((f"!AP/{n}{{care}}", 1) for n in range(20)))
    alone.scene.gate.mark = "-new"
    alone.apply(opened("bill"))
    alone.settle()
    assert alone.acks == [("suback", 2, (1,) * 21)]
    at = f"$share/{HIGH}.bill-new.g/machine/#"
    assert alone.scene.broker.own[alone.session] == {at: 1}


# --- what takes long to judge ---


def slow(scene: Scene, filter: str, slices: int) -> list[str]:
    """The policy needs so many slices for this filter, whoever asks; what it was asked in turn."""
    asked: list[str] = []
    gate = scene.gate
    before = gate.judge

    def judged(ask: Ask) -> Verdict:
        asked.append(ask.topic)
        if ask.topic == filter and asked.count(filter) < slices:
            raise NotYet(filter)
        return before(ask)

    gate.judge = judged
    return asked


WILD = "!AP/+/x/%23{bill}"


def test_others_are_served_while_a_filter_is_judged_and_the_order_of_suback_stays() -> None:
    alone = Alone()
    scene, client = alone.scene, alone.client
    other = scene.open(SIBLING)
    asked = slow(scene, "+/x/#", 50)
    alone.subscribe(1, ("!AP/first{bill}", 1), (WILD, 1), ("!AP/last{care}", 0))
    alone.subscribe(2, (BILL, 1))
    while len(asked) < 10:
        before = len(asked)
        scene.answer()
        assert len(asked) <= before + 1, "one slice at a time"
    scene.receive(alone.session, Pingreq())
    assert client.take() == [Pingresp()], "the client's own, too"
    scene.subscribe(other, 7, ("!AP/t{bill}", 1))
    while scene.questions and not Client(other).acks:
        scene.answer(len(scene.questions) - 1)
    assert len(asked) < 50
    assert alone.acks == []
    alone.settle()
    assert alone.acks == [("suback", 1, (1, 1, 0)), ("suback", 2, (1,))]
    assert set(alone.subs) == {"first", "+/x/#", "last", "machine/#"}


@pytest.mark.parametrize("clean", [True, False])
def test_a_session_that_goes_while_its_filter_is_judged_leaves_nothing(clean: bool) -> None:
    alone = Alone(clean=clean)
    scene = alone.scene
    asked = slow(scene, "+/x/#", 50)
    alone.subscribe(1, ("!AP/first{bill}", 1), (WILD, 1))
    for _ in range(5):
        scene.answer()
    before = len(asked)
    alone.session.close("gone")
    # As the shell does it.
    alone.session.policy.close(scene.site.now_ms)
    scene.collect()
    alone.scene.settle()
    assert len(asked) == before, "nobody asks for it any more"
    assert len(scene.engine.following) == 0
    assert len(scene.outboxes.table) == len(scene.site.searches) == 0
    assert (scene.broker.live, scene.broker.own, scene.rows) == ({}, {}, {})
    assert not scene.engine.cache.resting(("gate", "bill"))


@pytest.mark.parametrize("answers", range(6))
@pytest.mark.parametrize("clean", [True, False])
def test_a_session_that_goes_while_its_subscribe_is_under_way_is_no_reader(
    clean: bool, answers: int
) -> None:
    """Its answers still come, and nobody may be entered any more whom nobody takes out."""
    alone = Alone(clean=clean)
    scene, session = alone.scene, alone.session
    alone.subscribe(1, (GROUP, 1), (BILL, 1), (CARE, 1))
    for _ in range(answers):
        if scene.questions:
            scene.answer()
    session.close("gone")
    session.policy.close(scene.site.now_ms)
    scene.collect()
    asked = [effect for effect in scene.asked(Subscribe) if effect.link == LIVE]
    scene.settle()
    assert len(scene.outboxes.table) == 0
    assert asked or not scene.broker.live, "no more is asked for"
    for _ in range(30):
        scene.publish("machine/1", qos=1)
    assert (scene.outboxes.held, scene.counts.delivered) == (0, [])
    assert len(scene.engine.following) == 0


def test_one_filter_that_takes_long_is_judged_at_a_time_in_the_order_of_asking() -> None:
    scene = Scene(gate=True)
    sessions = [scene.open(SIBLING, client_id=f"id{n}") for n in range(4)]
    asked: list[str] = []
    gate = scene.gate
    before = gate.judge

    def judged(ask: Ask) -> Verdict:
        asked.append(ask.topic)
        if asked.count(ask.topic) < 5:
            raise NotYet(ask.topic)
        return before(ask)

    gate.judge = judged
    for n, session in enumerate(sessions):
        scene.subscribe(session, 1, (f"!AP/{n}/#{{bill}}".replace("#", "%23"), 1))
    assert asked == ["0/#"], "while one is judged no other has its first slice with its packet"
    scene.answer()
    sessions[2].close("gone while it waits")
    scene.settle()
    begun = [asked.index(f"{n}/#") for n in (0, 1, 3)]
    ended = [len(asked) - asked[::-1].index(f"{n}/#") for n in (0, 1, 3)]
    assert ended == sorted(ended)
    assert begun == sorted(begun)
    later = [topic for at, topic in enumerate(asked) if topic in asked[:at]]
    assert later == ["0/#"] * 4 + ["1/#"] * 4 + ["3/#"] * 4
    assert [Client(s).acks for s in sessions if s.state == "open"] == [[("suback", 1, (1,))]] * 3
    assert len(scene.site.searches) == 0


def test_kept_ones_and_changed_ones_are_judged_a_slice_at_a_time() -> None:
    row_ = KeptSub(PANEL, "id", WILD, 1, "+/x/#")
    alone = Alone(clean=False)
    scene = alone.scene
    asked = slow(scene, "+/x/#", 5)
    task = alone.session.subs.restore((row_,))
    alone.session.hold(task)
    scene.collect()
    assert len(asked) == 1
    alone.settle()
    assert asked == ["+/x/#"] * 5
    asked = slow(scene, "+/x/#", 5)
    alone.apply(shut("bill"))
    assert len(asked) == 1
    # It is left in the middle: what was asked for is not wanted any more.
    alone.unsubscribe(2, WILD)
    alone.settle()
    assert len(asked) == 1
    assert alone.subs == {}
    assert len(scene.site.searches) == len(scene.engine.following) == 0


def count_judged(alone: Alone) -> list[str]:
    judged: list[str] = []
    gate = alone.scene.gate
    before = gate.judge

    def counted(ask: Ask) -> Verdict:
        judged.append(ask.topic)
        return before(ask)

    gate.judge = counted
    return judged


def most_at_once(alone: Alone, judged: list[str]) -> int:
    """Answers Yields, one by one: how many were judged between two of them at most."""
    most = before = len(judged)
    while alone.scene.asked(Yield):
        assert len(alone.scene.questions) == 1, "nothing goes to the broker before all are judged"
        alone.scene.answer()
        most, before = max(most, len(judged) - before), len(judged)
    return most


def test_a_subscribe_with_many_filters_leaves_others_their_turn() -> None:
    alone = Alone()
    judged = count_judged(alone)
    many = [(f"!AP/{n}{{bill}}", 1) for n in range(300)]
    alone.subscribe(2, *many)
    assert 0 < most_at_once(alone, judged) <= 16
    assert len(judged) == 300, "each once"
    alone.settle()
    assert len(alone.subs) == 300
    assert alone.acks == [("suback", 2, (1,) * 300)]
    alone.subscribe(3, *many)
    alone.session.close("gone meanwhile")
    alone.scene.settle()
    assert alone.scene.broker.live == {}


def test_a_change_that_reaches_very_many_leaves_others_their_turn() -> None:
    alone = held(*((f"!AP/{n}{{bill}}", 1) for n in range(300)))
    judged = count_judged(alone)
    alone.apply(shut("bill"))
    assert 0 < len(judged) <= 16
    assert alone.scene.asked(Unsubscribe), "the first ones are ordered at once"
    alone.settle()
    assert len(judged) == 300
    assert alone.subs == {}


def test_a_thousand_kept_subscriptions_come_back_with_turns_for_others() -> None:
    rows = tuple(KeptSub(PANEL, "id", f"!AP/{n}{{bill}}", 1, f"{n}") for n in range(SUBSCRIPTIONS))
    alone = Alone(clean=False)
    judged = count_judged(alone)
    task = alone.session.subs.restore(rows)
    assert task is not None
    alone.session.hold(task)
    alone.scene.collect()
    assert 0 < most_at_once(alone, judged) <= 16
    assert len(judged) == SUBSCRIPTIONS, "each once"
    assert len(alone.session.subs) == SUBSCRIPTIONS


# --- kept sessions: the store ---


def row(filt: str, qos: int = 1, at: str = "machine/#") -> KeptSub:
    return KeptSub(PANEL, "id", filt, qos, at)


def test_nothing_is_answered_before_it_is_on_disk() -> None:
    alone = Alone(clean=False)
    alone.subscribe(1, (BILL, 1), ("!AP/b{x}", 0))
    while not alone.scene.asked(Commit):
        assert alone.acks == []
        alone.scene.answer()
    (commit,) = alone.scene.asked(Commit)
    assert commit.records == (row(BILL), row("!AP/b{x}", 0, "b"))
    assert alone.acks == []
    alone.settle()
    assert alone.acks == [("suback", 1, (1, 0))]
    alone.unsubscribe(2, BILL)
    alone.scene.answer()
    assert alone.subs == {"b": 0}
    assert len(alone.acks) == 1
    alone.settle()
    assert alone.acks[1] == ("unsuback", 2, ())
    assert set(alone.scene.rows) == {"!AP/b{x}"}


def test_a_slow_disk_holds_the_client_back_but_not_its_acknowledgements() -> None:
    alone = Alone(clean=False)
    alone.subscribe(1, (BILL, 1))
    alone.scene.answer()
    alone.subscribe(2, (CARE, 1))
    alone.unsubscribe(3, BILL)
    assert len(alone.scene.questions) == 1, "one commit at a time"
    alone.scene.own(alone.session, "machine/1", alone.scene.m3("machine/1"), 1, 9)
    alone.scene.receive(alone.session, Puback(9))
    assert alone.scene.answers == [Puback(9)]
    alone.settle()
    assert [ack[:2] for ack in alone.acks] == [("suback", 1), ("suback", 2), ("unsuback", 3)]
    assert set(alone.scene.rows) == {CARE}


def test_a_clean_session_writes_nothing() -> None:
    alone = held((BILL, 1))
    alone.apply(shut("bill"))
    alone.unsubscribe(3, BILL)
    assert alone.scene.asked(Commit) == []
    alone.settle()
    assert alone.scene.rows == {}


def test_what_is_stored_already_costs_no_commit() -> None:
    alone = held((BILL, 1), clean=False)
    alone.subscribe(2, (BILL, 1))
    alone.scene.answer()
    assert alone.scene.asked(Commit) == []
    assert alone.acks == [("suback", 2, (1,))]


def test_a_client_is_not_told_what_is_not_stored() -> None:
    alone = Alone(clean=False)
    alone.scene.full = True
    alone.subscribe(1, (BILL, 1))
    alone.scene.settle()
    assert alone.acks == []
    assert alone.session.state == "closed"
    events = [event for event, _ in alone.scene.audited]
    assert events.index("store-unavailable") < events.index("disconnect")


def test_a_session_keeps_so_many_and_no_more() -> None:
    names = [f"!AP/t/{n}{{x}}" for n in range(SUBSCRIPTIONS)]
    rows = tuple(KeptSub(PANEL, "id", name, 0, f"t/{n}") for n, name in enumerate(names))
    alone = Alone(clean=False, rows=rows)
    alone.settle()
    alone.subscribe(1, ("!AP/more{x}", 1))
    assert alone.acks == [("suback", 1, (REFUSED,))]
    assert alone.scene.refused() == [("mediator.subscribe.toolarge", "!AP/more{x}")]
    alone.unsubscribe(2, names[0])
    alone.settle()
    alone.subscribe(3, ("!AP/more{x}", 1), (names[1], 0))
    alone.settle()
    assert alone.acks[-1] == ("suback", 3, (1, 0))


def test_asked_twice_and_refused_once_it_is_what_it_was() -> None:
    alone = Alone(clean=False)
    alone.subscribe(1, (BILL, 1))
    alone.subscribe(2, (BILL, 2))
    alone.scene.answer()
    alone.scene.broker.grants = lambda filter, qos: REFUSED
    alone.settle()
    assert alone.acks == [("suback", 1, (1,)), ("suback", 2, (REFUSED,))]
    assert alone.scene.rows == {BILL: row(BILL)}
    assert alone.subs == {"machine/#": 1}


def test_a_session_that_comes_back_has_what_the_policy_says_now() -> None:
    rows = (row(BILL), row("!AP/x{care}", 2, ""), row("!other/y", 0, "y"))
    alone = Alone(clean=False, rows=rows)
    alone.settle()
    assert alone.subs == {"machine/#": 1, "x": 2}, "one comes back, one is nobody's"
    assert alone.scene.rows["!AP/x{care}"].at == "x"
    alone.apply(shut("bill"))
    assert alone.subs["machine/#"] == 1, "first on disk"
    alone.settle()
    assert alone.subs == {"x": 2}
    assert alone.scene.rows[BILL].at == ""
    alone.apply(opened("bill"))
    alone.settle()
    assert (alone.subs["machine/#"], alone.scene.rows[BILL].at) == (1, "machine/#")
    assert alone.client.take() == []


def test_what_was_shut_meanwhile_is_paused_when_the_session_comes_back() -> None:
    alone = Alone(clean=False)
    alone.scene.rows[BILL] = row(BILL)
    alone.scene.broker.own[alone.session] = {"machine/#": 1}
    alone.scene.engine.apply(shut("bill"))
    task = alone.session.subs.restore((row(BILL),))
    assert task is not None
    alone.session.hold(task)
    alone.scene.collect()
    alone.scene.own(alone.session, "machine/1", alone.scene.m3("machine/1"), 1, 5)
    assert alone.client.messages == [], "though the broker still had it"
    alone.settle()
    assert alone.subs == {}
    assert alone.scene.refused() == []


def test_public_records_come_back_too() -> None:
    alone = Alone(clean=False, rows=(row("@sm1/#", 0, "@sm1/#"),))
    alone.settle()
    alone.scene.own(alone.session, "@sm1/x", b"record", 0, 0)
    assert [p.topic for p in alone.client.messages] == ["@sm1/x"]
    alone.client.told.clear()
    alone.unsubscribe(1, "@sm1/#")
    alone.settle()
    alone.scene.own(alone.session, "@sm1/x", b"record", 0, 0)
    assert alone.client.messages == []
    assert alone.scene.rows == {}
    assert alone.acks == [("unsuback", 1, ())]


def test_what_one_client_leaves_stays_with_the_others() -> None:
    scene = Scene()
    one, two = scene.open(), scene.open(SIBLING)
    for session in (one, two):
        scene.subscribe(session, 1, ("t/#", 1))
    scene.settle()
    scene.unsubscribe(one, 2, "t/#")
    scene.settle()
    assert scene.broker.live == {"t/#": {two}}
    scene.publish("t/1")
    assert [len(Client(s).messages) for s in (one, two)] == [0, 1]
    two.close("test")
    scene.collect()
    assert scene.broker.live == {}
