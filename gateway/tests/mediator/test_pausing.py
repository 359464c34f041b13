"""Subscriptions are paused and resumed at the broker as the policy says, whatever comes between."""

from __future__ import annotations

import asyncio
import random

import pytest

from families.gate import opened, shut
from sealmq.mqtt import Subscribe, Unsubscribe
from sealmq.store import KeptSub
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


# --- sessions that the broker keeps ---


def row(filt: str, qos: int = 1, at: str = "machine/#") -> KeptSub:
    return KeptSub(5, "id", filt, qos, at)


def test_a_session_that_comes_back_has_what_the_policy_says_now() -> None:
    async def story() -> None:
        scene = Scene([row(BILL), row("!AP/x{care}", 2, ""), row("!other/y", 0, "y")])
        assert scene.told == []
        await scene.settled()
        assert scene.broker.subs == {"machine/#": 1, "x": 2}, "one comes back, one is nobody's"
        assert scene.disk.rows["!AP/x{care}"].at == "x"
        scene.apply(shut("bill"))
        assert scene.broker.subs["machine/#"] == 1, "first on disk"
        await scene.settled()
        assert scene.broker.subs == {"x": 2}
        assert scene.disk.rows[BILL].at == ""
        scene.apply(opened("bill"))
        await scene.settled()
        assert (scene.broker.subs["machine/#"], scene.disk.rows[BILL].at) == (1, "machine/#")
        assert scene.told == []

    asyncio.run(story())


def test_what_was_shut_meanwhile_is_paused_when_the_session_comes_back() -> None:
    async def story() -> None:
        scene = Scene([])
        scene.apply(shut("bill"))
        scene.broker.subs["machine/#"] = 1
        scene.subscribing.restore([row(BILL)])
        await scene.settled()
        assert scene.broker.subs == {}
        assert scene.refused == []

    asyncio.run(story())


def test_public_records_come_back_too() -> None:
    async def story() -> None:
        scene = Scene([row("@sm1/#", 0, "@sm1/#")])
        assert scene.subscribing.wants_public("@sm1/x")
        scene.unsubscribe(1, "@sm1/#")
        await scene.settled()
        assert not scene.subscribing.wants_public("@sm1/x")
        assert scene.disk.rows == {}
        assert scene.acks == [("unsuback", 1, ())]

    asyncio.run(story())


# --- anything in any order ---


async def history(seed: int, kept: bool) -> Scene:
    """Random packets, changes, answers and commits; then everything ends."""
    dice = random.Random(seed)
    scene = Scene([] if kept else None)
    filters = [
        f"!AP/{filt}{{{p}}}" for filt in ("a", "b/%23", "$share/g/c") for p in ("x", "y", "z")
    ]
    scene.broker.grants = lambda filt, qos: REFUSED if dice.random() < 0.03 else qos
    asked: list[int] = []
    for n in range(400):
        number = dice.randrange(65_500, 65_536)
        match dice.randrange(6):
            case 0:
                some = dice.sample(filters, dice.randrange(1, 4))
                scene.subscribe(number, *((filt, dice.randrange(3)) for filt in some))
                asked.append(number)
            case 1:
                scene.unsubscribe(number, *dice.sample(filters, dice.randrange(1, 3)))
                asked.append(number)
            case 2:
                change = shut if dice.random() < 0.5 else opened
                scene.apply(change(*dice.sample("xyz", dice.randrange(1, 3))))
            case 3 | 4 if scene.broker.answers:
                scene.answer()
            case _ if scene.disk.waiting:
                scene.disk.go()
        if kept and n % 3 == 0:
            await asyncio.sleep(0)
        if dice.random() < 0.02:
            scene.gate.mark = dice.choice(("", "-m"))
    scene.broker.grants = lambda filt, qos: qos
    await scene.settled()
    # Whatever was refused is asked for again.
    scene.apply(opened(*"xyz"))
    scene.apply(shut(*dice.sample("xyz", dice.randrange(3))))
    await scene.settled()
    assert scene.closed == ""
    assert sorted(number for _, number, _ in scene.acks) == sorted(asked), "each answered once"
    return scene


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_in_the_end_the_broker_has_what_the_policy_allows(seed: int, kept: bool) -> None:
    scene = asyncio.run(history(seed, kept))
    wanted: dict[str, int] = {}
    policy = scene.conn.policy
    for _, raw in policy.held():
        decision = policy.again(raw, scene.site.now)
        sub = policy._subs[raw]
        at = scene.subscribing._at(decision)
        if decision.allow:
            wanted[at] = max(wanted.get(at, 0), sub.qos)
        if kept:
            stored = scene.disk.rows.pop(raw)
            assert (stored.qos, stored.at) == (sub.qos, at if at in scene.broker.subs else "")
    assert set(scene.broker.subs) == set(wanted)
    assert all(scene.broker.subs[at] >= qos for at, qos in wanted.items())
    assert scene.disk.rows == {}
    assert scene.subscribing._pausing.unsubacks._awaited == {}
    assert scene.subscribing._pausing.subacks._awaited == {}
    assert scene.subscribing._pausing._orders == 0
