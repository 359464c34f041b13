"""Epoch hand-over with sessions that outlive their connections: nothing acknowledged is lost.

On a private Mosquitto: clients awake, asleep, cut off; key generator and mediator killed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from handover_cast import PATIENCE_S, TWICE, Cast, play, until
from running_site import Site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("handover"))
    made.up("--broker", "mosquitto")
    yield made
    made.down()


@pytest.fixture
def seed() -> int:
    return random.randrange(1 << 32)


async def _everybody(cast: Cast) -> None:
    # Readers first: what was published before they subscribed is not theirs.
    await cast.reader("m1-temp-display", "m1-temp")
    await cast.reader("m1-ctrl-display", "m1-ctrl", sleeper=True)
    await cast.reader("monitor", "monitor", sleeper=True)
    await cast.publisher("m1-temp-sensor", "m1-temp", keep=True)
    await cast.publisher("m1-temp-twin", "m1-temp", keep=True)
    await cast.publisher("m1-control-panel", "m1-ctrl", keep=True)


async def _cut(cast: Cast, cut: Callable[[], None]) -> None:
    await asyncio.sleep(cast.chance.uniform(0, 0.6))
    cut()


async def _kill(cast: Cast, role: str) -> None:
    await asyncio.sleep(cast.chance.uniform(0, 0.6))
    killed = await asyncio.to_thread(cast.site.kill, role)
    await asyncio.to_thread(cast.site.back, role, killed, PATIENCE_S)


def test_awake_clients_lose_nothing(site: Site, seed: int) -> None:
    async def story(cast: Cast) -> None:
        await _everybody(cast)
        await cast.flow(5)
        for labels, handover_s in (
            (("m1-temp",), 60),
            (("m1-temp", "m1-ctrl", "m1-arm", "monitor"), 0),
            (("m1-ctrl",), 60),
            (("m1-temp", "m1-ctrl"), 0),
            # As when many clients are put out one after the other.
            *[(("m1-temp",), 0)] * 4,
        ):
            await cast.rekey_sometime(*labels, handover_s=handover_s)
            await cast.flow(5)
        await cast.check()

    play(site, seed, story)


def test_sleepers_find_everything(site: Site, seed: int) -> None:
    async def story(cast: Cast) -> None:
        await _everybody(cast)
        sleepers = cast.readers[1:]
        await cast.flow(3)
        for handover_s in (60, 0):
            await asyncio.gather(*(reader.sleep() for reader in sleepers))
            for _ in range(2):
                await cast.rekey_sometime("m1-temp", "m1-ctrl", "monitor", handover_s=handover_s)
                await cast.flow(3)
            # From the state file, as behind a restart: old epochs come by back-links. The second
            # time they go while what has waited for them still comes in.
            await asyncio.gather(*(reader.wake() for reader in sleepers))
        await cast.flow(3)
        await cast.check()

    play(site, seed, story)


def test_who_is_cut_off_in_the_middle_loses_nothing(site: Site, seed: int) -> None:
    async def story(cast: Cast) -> None:
        await _everybody(cast)
        for _ in range(3):
            await cast.flow(3)
            rekeyed = cast.rekey_sometime("m1-temp", "m1-ctrl", "monitor", handover_s=0)
            cut = [_cut(cast, reader.cut) for reader in cast.readers[1:]]
            await asyncio.gather(rekeyed, *cut)
        await cast.flow(3)
        await cast.check(refused=TWICE)

    play(site, seed, story)


@pytest.mark.parametrize("role", ["kg", "mediator"])
def test_a_process_killed_in_the_middle_loses_nothing(site: Site, seed: int, role: str) -> None:
    async def story(cast: Cast) -> None:
        await _everybody(cast)
        # Its session ends with the mediator: only those that outlive it are promised everything.
        awake = cast.readers.pop(0)
        await cast.flow(3)
        rekeyed = cast.rekey_sometime("m1-temp", "m1-ctrl", "monitor", handover_s=0)
        await asyncio.gather(_kill(cast, role), rekeyed)
        await cast.flow(3)
        if role == "kg":
            cast.readers.append(awake)
        await cast.check(refused=TWICE)

    play(site, seed, story)


def test_the_disabled_one_gets_nothing_more(site: Site, seed: int) -> None:
    async def story(cast: Cast) -> None:
        await _everybody(cast)
        name = f"m1-leaver-{seed}"
        leaver = await cast.reader(name, "m1-temp")
        cast.readers.remove(leaver)
        sender = cast.publishers[0]
        await cast.flow(3)
        last = sender.accepted[-1]
        await leaver.hears({last})
        await cast.command("client", "disable", str(site.path), name)
        # The command ends when the key generator has it on disk; the mediator hears of it then.
        await until(lambda: "the record", lambda: bool(site.audit("disconnect", client=name)))
        before = len(sender.accepted)
        await cast.flow(5)
        await cast.check()
        later = set(sender.accepted[before + 1 :])
        assert later
        assert not later & set(leaver.heard)
        # It learns why when it connects again.
        await until(lambda: f"{leaver} to be told", lambda: leaver.client.error is not None)

    play(site, seed, story)


@pytest.mark.full
def test_many_rounds_of_everything_at_once(site: Site, seed: int) -> None:
    async def story(cast: Cast) -> None:
        await _everybody(cast)
        # Without a session that outlives its connections nothing is promised here.
        cast.readers.pop(0)
        for _ in range(30):
            acts = [
                partial(cast.rekey_sometime, "m1-temp", handover_s=0),
                partial(cast.rekey_sometime, "m1-temp", "m1-ctrl", "monitor", handover_s=60),
                partial(cast.rekey_sometime, "monitor", handover_s=0),
                partial(_cut, cast, cast.chance.choice(cast.readers).cut),
                partial(_kill, cast, "kg"),
                partial(_kill, cast, "mediator"),
            ]
            await asyncio.gather(*(act() for act in cast.chance.sample(acts, 2)))
            await cast.flow(2)
        await cast.check(refused=TWICE)

    play(site, seed, story)
