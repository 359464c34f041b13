"""Pausing and resuming in sessions that the broker keeps, and with anything in any order."""

from __future__ import annotations

import asyncio
import random

import pytest

from families.gate import opened, shut
from sealmq.store import KeptSub
from subscribing_scene import REFUSED, Scene

BILL = "!AP/machine/%23{bill}"


def row(filt: str, qos: int = 1, at: str = "machine/#") -> KeptSub:
    return KeptSub(5, "id", filt, qos, at)


def test_asked_twice_and_refused_once_it_is_what_it_was() -> None:
    """Both SUBSCRIBEs are under way together."""

    async def story() -> None:
        scene = Scene([])
        scene.subscribe(1, (BILL, 1))
        scene.broker.grants = lambda filt, qos: REFUSED
        scene.subscribe(2, (BILL, 2))
        await scene.settled()
        assert scene.acks == [("suback", 1, (1,)), ("suback", 2, (REFUSED,))]
        assert scene.disk.rows == {BILL: row(BILL)}
        assert scene.broker.subs == {"machine/#": 1}

    asyncio.run(story())


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
