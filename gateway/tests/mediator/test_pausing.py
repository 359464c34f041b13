"""Subscriptions are paused and resumed at the broker as the policy says, whatever comes between."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from families.gate import opened, shut
from sealmq.families.api import Ask, Verdict
from sealmq.mediator.answers import OwnIds
from sealmq.mediator.controlling import Controlling
from sealmq.mediator.core.limits import FOLLOWED
from sealmq.mediator.hub import Hub
from sealmq.mqtt import Subscribe, Unsubscribe
from subscribing_scene import LABEL, REFUSED, Scene

BILL, CARE = "!AP/machine/%23{bill}", "!AP/machine/%23{care}"


def held(*filters: tuple[str, int]) -> Scene:
    """A client that has these, and what was told so far is forgotten."""
    scene = Scene()
    scene.subscribe(1, *filters)
    scene.settle()
    scene.told.clear()
    scene.broker.got.clear()
    return scene


def test_it_pauses_and_resumes_with_its_qos_and_the_client_hears_nothing() -> None:
    scene = held((BILL, 2))
    assert scene.broker.subs == {"machine/#": 2}
    scene.apply(shut("bill"))
    assert scene.broker.subs == {}, "at once, before the command is answered"
    scene.settle()
    scene.apply(opened("bill"))
    assert scene.broker.subs == {"machine/#": 2}
    scene.settle()
    assert (scene.told, scene.refused) == ([], [])
    kinds = [type(packet) for packet in scene.broker.got]
    assert kinds == [Unsubscribe, Subscribe]


def test_several_purposes_share_one_subscription() -> None:
    scene = held((BILL, 0), (CARE, 1))
    assert scene.broker.subs == {"machine/#": 1}
    scene.apply(shut("bill"))
    assert scene.broker.got == [], "the other one still reads it"
    scene.apply(shut("care"))
    assert scene.broker.subs == {}
    scene.settle()
    scene.apply(opened("bill"))
    scene.settle()
    assert scene.broker.subs == {"machine/#": 0}
    scene.apply(opened("care"))
    scene.settle()
    assert scene.broker.subs == {"machine/#": 1}
    assert scene.told == []


def test_each_is_told_no_more_than_it_asked_for() -> None:
    scene = Scene()
    scene.subscribe(1, (BILL, 2))
    scene.subscribe(2, (CARE, 0))
    scene.settle()
    assert scene.acks == [("suback", 1, (2,)), ("suback", 2, (0,))]
    assert scene.broker.subs == {"machine/#": 2}


def test_a_change_while_subscribe_is_under_way() -> None:
    scene = Scene()
    scene.subscribe(1, (BILL, 1))
    scene.apply(shut("bill"))
    scene.settle()
    assert scene.acks == [("suback", 1, (1,))]
    assert scene.broker.subs == {}
    scene.apply(opened("bill"))
    scene.settle()
    assert scene.broker.subs == {"machine/#": 1}
    assert len(scene.acks) == 1


def test_changes_faster_than_the_broker_answers() -> None:
    scene = held((BILL, 1))
    for _ in range(5):
        scene.apply(shut("bill"))
        scene.apply(opened("bill"))
    assert len(scene.broker.got) == 1, "one order at a time"
    scene.settle()
    assert scene.broker.subs == {"machine/#": 1}
    assert len(scene.broker.got) == 2


def test_the_client_leaves_a_paused_one() -> None:
    scene = held((BILL, 1))
    scene.apply(shut("bill"))
    scene.settle()
    scene.unsubscribe(2, BILL)
    scene.settle()
    assert scene.acks == [("unsuback", 2, ())]
    scene.apply(opened("bill"))
    scene.settle()
    assert scene.broker.subs == {}
    assert len(scene.engine.following) == 0


def test_the_client_leaves_while_it_is_resumed() -> None:
    scene = held((BILL, 1))
    scene.apply(shut("bill"))
    scene.settle()
    scene.apply(opened("bill"))
    scene.unsubscribe(2, BILL)
    scene.settle()
    assert scene.broker.subs == {}
    assert scene.acks == [("unsuback", 2, ())]


def test_leaving_the_allowed_one_of_two_pauses_the_other() -> None:
    scene = held((BILL, 1), (CARE, 1))
    scene.apply(shut("bill"))
    scene.unsubscribe(2, CARE)
    scene.settle()
    assert scene.broker.subs == {}
    scene.apply(opened("bill"))
    scene.settle()
    assert scene.broker.subs == {"machine/#": 1}


def test_leaving_what_was_never_held_harms_nobody() -> None:
    scene = held((BILL, 1))
    scene.unsubscribe(2, "!AP/machine/%23{other}", "machine/#")
    scene.settle()
    assert scene.broker.subs == {"machine/#": 1}
    assert scene.acks == [("unsuback", 2, ())]


def test_a_client_leaves_what_it_holds_under_another_text_for_the_same() -> None:
    """One filter for one purpose is one subscription, however it was written."""
    other = "!AP/machine/HASH{bill}"
    scene = held((other, 1), (CARE, 0))
    scene.unsubscribe(2, BILL)
    scene.settle()
    assert scene.acks == [("unsuback", 2, ())]
    assert [raw for _, raw in scene.conn.policy.held()] == [CARE]
    scene.subscribe(3, (other, 1), (BILL, 2))
    scene.settle()
    scene.unsubscribe(4, other)
    scene.unsubscribe(5, CARE)
    scene.settle()
    assert scene.broker.subs == {}
    assert len(scene.engine.following) == 0


def test_packet_ids_are_not_mixed_up() -> None:
    scene = held((BILL, 1), ("!AP/x{x}", 0))
    scene.apply(shut("bill"))
    own = scene.broker.got[-1]
    assert isinstance(own, Unsubscribe)
    # The client takes the very same id, for the same kind of packet.
    scene.unsubscribe(own.packet_id, "!AP/x{x}")
    scene.answer()
    assert scene.told == [], "that was ours"
    scene.answer()
    assert scene.acks == [("unsuback", own.packet_id, ())]
    scene.apply(opened("bill"))
    own_again = scene.broker.got[-1]
    assert isinstance(own_again, Subscribe)
    assert own_again.packet_id != own.packet_id
    scene.subscribe(own_again.packet_id, (CARE, 2), ("a", 0))
    scene.settle()
    assert scene.acks[1:] == [("suback", own_again.packet_id, (2, REFUSED))]


def test_a_broker_that_does_not_take_it_back_is_told_and_asked_again_later() -> None:
    scene = held((BILL, 1))
    scene.apply(shut("bill"))
    scene.settle()
    scene.broker.grants = lambda filt, qos: REFUSED
    scene.apply(opened("bill"))
    scene.settle()
    assert scene.refused == [("mediator.resume.refused", BILL)]
    assert scene.broker.subs == {}
    scene.broker.grants = lambda filt, qos: qos
    scene.apply(opened("bill"))
    scene.settle()
    assert scene.broker.subs == {"machine/#": 1}


def test_a_broker_that_takes_it_back_with_less() -> None:
    scene = held((BILL, 2), (CARE, 1))
    scene.apply(shut("bill", "care"))
    scene.settle()
    scene.broker.grants = lambda filt, qos: min(qos, 1)
    scene.apply(opened("bill", "care"))
    scene.settle()
    assert scene.broker.subs == {"machine/#": 1}
    assert {rule for rule, _ in scene.refused} == {"mediator.resume.qos"}


def test_a_lower_qos_granted_is_the_one_that_comes_back() -> None:
    scene = Scene()
    scene.broker.grants = lambda filt, qos: min(qos, 1)
    scene.subscribe(1, (BILL, 2))
    scene.settle()
    assert scene.acks == [("suback", 1, (1,))]
    scene.broker.grants = lambda filt, qos: qos
    scene.apply(shut("bill"))
    scene.settle()
    scene.apply(opened("bill"))
    scene.settle()
    assert scene.broker.subs == {"machine/#": 1}


def test_what_the_broker_refuses_is_not_held() -> None:
    scene = Scene()
    scene.broker.grants = lambda filt, qos: REFUSED
    scene.subscribe(1, (BILL, 1), (CARE, 1), (BILL, 2))
    scene.settle()
    assert scene.acks == [("suback", 1, (REFUSED, REFUSED, REFUSED))]
    assert len(scene.engine.following) == 0
    scene.broker.grants = lambda filt, qos: qos
    scene.apply(shut("bill"))
    scene.apply(opened("bill"))
    scene.settle()
    assert scene.broker.subs == {}


def test_a_refused_second_try_leaves_the_first() -> None:
    scene = held((BILL, 1))
    scene.broker.grants = lambda filt, qos: REFUSED
    scene.subscribe(2, (BILL, 2))
    scene.settle()
    scene.broker.grants = lambda filt, qos: qos
    assert scene.broker.subs == {"machine/#": 1}
    scene.apply(shut("bill"))
    scene.settle()
    scene.apply(opened("bill"))
    scene.settle()
    assert scene.broker.subs == {"machine/#": 1}


def test_the_policy_knows_of_it_before_the_broker_answers() -> None:
    scene = Scene()
    scene.subscribe(1, (BILL, 1))
    got = scene.conn.policy.deliver("machine/1/temperature", "m1-temp", 1, 1)
    assert (got.allow, got.purpose) == (True, "bill")


def test_a_denied_one_is_refused_and_not_followed() -> None:
    scene = Scene()
    scene.apply(shut("bill"))
    scene.subscribe(1, (BILL, 1))
    assert scene.acks == [("suback", 1, (REFUSED,))]
    assert scene.refused == [("gate.shut", BILL)]
    assert len(scene.engine.following) == 0


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
    scene = Scene()
    scene.subscribe(1, (filt, 1))
    assert scene.acks == [("suback", 1, (REFUSED,))]
    assert [rule for rule, _ in scene.refused] == [rule]
    assert scene.broker.got == []


GROUP = "!AP/$share/g/machine/%23{bill}"


def test_a_group_is_one_of_readers_for_one_purpose() -> None:
    scene = held((GROUP, 1))
    at = f"$share/{LABEL}.bill.g/machine/#"
    assert scene.broker.subs == {at: 1}
    # The group is named otherwise from now on: what was recorded is left.
    scene.gate.mark = "-new"
    scene.unsubscribe(2, GROUP)
    scene.settle()
    assert scene.broker.subs == {}


def test_a_group_that_is_named_otherwise_from_now_on_moves() -> None:
    scene = held((GROUP, 1))
    scene.gate.mark = "-new"
    scene.apply(opened("bill"))
    scene.settle()
    assert scene.broker.subs == {f"$share/{LABEL}.bill-new.g/machine/#": 1}
    scene.subscribe(2, (GROUP, 0))
    scene.gate.mark = "-newer"
    scene.engine.cache.clear()
    scene.subscribe(3, (GROUP, 1))
    scene.settle()
    assert scene.broker.subs == {f"$share/{LABEL}.bill-newer.g/machine/#": 1}


def test_many_orders_wait_for_the_broker() -> None:
    scene = Scene()
    for n in range(200):
        scene.subscribe(n + 1, (f"!AP/{n}{{bill}}", 1))
        scene.settle()
    scene.broker.got.clear()
    scene.apply(shut("bill"))
    assert len(scene.broker.got) == 64
    scene.settle()
    assert scene.broker.subs == {}
    scene.apply(opened("bill"))
    scene.settle()
    assert len(scene.broker.subs) == 200


def test_a_change_that_reaches_very_many_leaves_others_their_turn() -> None:
    """None is forgotten, also not those of a change that comes between."""

    async def story() -> None:
        scene = Scene()
        for n in range(2 * FOLLOWED + 10):
            scene.subscribe(n + 1, (f"!AP/{n}{{bill}}", 1), (f"!AP/{n}/x{{care}}", 1))
            scene.settle()
        again, asked = scene.subscribing.again, list[int]()

        def counted(filters: Any) -> None:
            asked.append(len(filters))
            again(filters)

        scene.subscribing.again = counted  # type: ignore[method-assign]
        scene.apply(shut("bill"))
        scene.apply(shut("care"))
        assert asked == [FOLLOWED], "at once"
        await asyncio.sleep(0)
        assert asked == [FOLLOWED] * 2
        while scene.hub.due or scene.broker.answers:
            await asyncio.sleep(0)
            scene.settle()
        assert max(asked) == FOLLOWED
        assert scene.broker.subs == {}

    asyncio.run(story())


def test_a_subscribe_with_many_filters_leaves_others_their_turn() -> None:
    async def story() -> None:
        scene = Scene()
        judged: list[str] = []
        before = scene.gate.subscribe

        def counted(ask: Ask) -> Verdict:
            judged.append(ask.topic)
            return before(ask)

        scene.gate.subscribe = counted  # type: ignore[method-assign]
        few = Subscribe(1, tuple((f"!AP/few/{n}{{bill}}", 1) for n in range(4)))
        assert scene.subscribing.asked(few) is None
        assert len(judged) == 4
        many = Subscribe(2, tuple((f"!AP/{n}{{bill}}", 1) for n in range(20)))
        work = scene.subscribing.asked(many)
        assert work is not None
        working = asyncio.ensure_future(work)
        for n in range(1, 10):
            await asyncio.sleep(0)
            assert len(judged) == 4 + n
        await working
        assert len(judged) == 24, "each once"
        scene.settle()
        assert len(scene.broker.subs) == 24
        assert scene.acks[1] == ("suback", 2, (1,) * 20)
        gone = scene.subscribing.asked(Subscribe(3, many.filters))
        assert gone is not None
        scene.conn.state = "closed"
        await gone
        assert len(scene.broker.got) == 2

    asyncio.run(story())


def test_a_packet_id_is_found_though_the_client_has_all_of_them_under_way() -> None:
    asked: list[int] = []

    def taken(number: int) -> bool:
        asked.append(number)
        return True

    ids = OwnIds(taken)
    assert 0 < ids.take() <= 65_535
    assert len(asked) <= 1024


def test_a_command_is_answered_when_all_that_it_changes_is_in_force() -> None:
    """Commit, audit, apply, pause, answer."""

    async def story() -> None:
        scene = held((BILL, 1))
        happened: list[str] = []
        commit, hub = scene.disk.commit, scene.hub

        async def committed(records: Any, urgent: bool = False) -> Any:
            done = await commit(records)
            happened.append(f"commit, {len(scene.broker.got)} sent")
            return [SimpleNamespace(record=record) for record in records] or done

        def told(body: bytes) -> None:
            happened.append(f"reply {body[4:].decode()}, {len(scene.broker.got)} sent")

        scene.disk.commit = committed  # type: ignore[method-assign]
        hub.audit = SimpleNamespace(write=lambda event, **_: happened.append(event))
        hub.apply = scene.apply
        hub.commit = partial(Hub.commit, hub)
        scene.conn.down = told
        working = asyncio.ensure_future(Controlling(scene.conn)._command(7, b"gate", b"shut bill"))
        await asyncio.sleep(0)
        assert (happened, scene.broker.subs) == ([], {"machine/#": 1}), "not before the disk"
        scene.disk.go()
        await working
        assert happened == ["commit, 0 sent", "command", "reply ok, 1 sent"]
        assert scene.broker.subs == {}

    asyncio.run(story())
