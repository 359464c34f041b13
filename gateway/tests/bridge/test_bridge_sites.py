"""Two real sites with brokers of their own, joined by their bridges: what crosses, what does not.

One pair for all tests, in their order: the last one takes the peer out.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest

from bridge.joined import LIFE, Heard, client, standing
from bridge.pair import Pair, join, joined, line, ran, two_sites, up, written
from run.sites import sealmq, until
from sealmq.client import Options
from sealmq_spec.errors import Denied

FACTS = {
    "north": ("heat = []\nplant = []", 'boiler = { label = "heat" }\nmill = { label = "plant" }'),
    "south": (
        'control = ["heat@north"]\nguests = []',
        'panel = { label = "control", kind = "app" }\nguest = { label = "guests", kind = "app" }',
    ),
}


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with two_sites() as sites:
        labels, clients = FACTS["north"]
        written(sites["north"], labels, clients)
        join(sites, "heat")
        # Its label is over one that its peer brings.
        labels, clients = FACTS["south"]
        written(sites["south"], labels, clients)
        up(sites)
        joined(sites)
        yield sites


@asynccontextmanager
async def hearing(pair: Pair, name: str = "panel") -> AsyncIterator[Heard]:
    async with client(pair["south"], name) as reader:
        await reader.subscribe("@north/#", qos=1)
        yield Heard(reader)


async def publish(pair: Pair, texts: list[str], **more: Any) -> None:
    async with client(pair["north"], "boiler") as boiler:
        for text in texts:
            await boiler.publish("boiler/1", text, qos=1, life=LIFE, **more)


def test_a_reader_above_an_imported_label_opens_what_another_site_has_sealed(pair: Pair) -> None:
    async def scene() -> None:
        async with hearing(pair) as heard:
            await publish(pair, ["a"])
            await heard.until(lambda texts: texts == ["a"])
            [one] = heard.messages
            assert (one.topic, one.label) == ("@north/boiler/1", "heat@north")
            assert one.sender == f"#{one.sender_number}", "no client of this site"

    asyncio.run(scene())


def test_what_is_retained_there_is_retained_here(pair: Pair) -> None:
    async def scene() -> None:
        async with client(pair["north"], "boiler") as boiler:
            await boiler.publish("boiler/state", "on", qos=1, life=255, retain=True)
        async with hearing(pair) as heard:
            await heard.until(lambda texts: texts == ["on"])
        async with hearing(pair) as heard:
            await heard.until(lambda texts: texts == ["on"])
            assert heard.messages[0].topic == "@north/boiler/state"

    asyncio.run(scene())


def test_what_is_cleared_there_is_cleared_here(pair: Pair) -> None:
    """Also while the bridge here is killed; what is retained anew afterwards stays."""

    async def retained(marker: str) -> set[str]:
        return await standing(partial(hearing, pair), lambda text: publish(pair, [text]), marker)

    async def scene() -> None:
        async with client(pair["north"], "boiler") as boiler:
            await boiler.publish("boiler/state", "on", qos=1, life=255, retain=True)
            async with hearing(pair) as heard:
                await heard.until(lambda texts: "on" in texts)
            await boiler.clear("boiler/state", qos=1, life=LIFE)
            assert await retained("first") == set()
            await boiler.publish("boiler/state", "off", qos=1, life=255, retain=True)
            assert await retained("second") == {"off"}
            os.kill(pair["south"].pid(), signal.SIGKILL)
            await boiler.clear("boiler/state", qos=1, life=LIFE)
            assert await retained("third") == set()

    asyncio.run(scene())


def test_what_is_not_exported_stays_and_who_may_not_read_gets_nothing(pair: Pair) -> None:
    async def scene() -> None:
        async with hearing(pair) as heard, hearing(pair, "guest") as guest:
            async with client(pair["north"], "mill") as mill:
                await mill.publish("mill/1", "secret", qos=1)
            await publish(pair, ["b"])
            await heard.until(lambda texts: "b" in texts)
            assert "secret" not in heard.texts
            assert guest.texts == []

    asyncio.run(scene())


def test_nobody_here_publishes_in_the_name_of_another_site(pair: Pair) -> None:
    async def scene() -> None:
        async with client(pair["south"], "panel") as panel:
            with pytest.raises(Denied):
                await panel.publish("@north/boiler/1", "x", qos=1)
            for filt in ("@west/#", "@sealmq/#"):
                with pytest.raises(Denied):
                    await panel.subscribe(filt)

    asyncio.run(scene())


def test_a_rekey_there_goes_unnoticed_here(pair: Pair) -> None:
    async def scene() -> None:
        async with hearing(pair) as heard:
            for number in range(2):
                ran("rekey", str(pair["north"].root), "--label", "heat")
                await publish(pair, [f"rekeyed {number}"])
            await heard.until(lambda texts: {"rekeyed 0", "rekeyed 1"} <= set(texts))

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("site", "name"), [("north", "heat.to.south"), ("south", "heat.from.north")]
)
def test_a_label_crosses_again_once_its_bridges_client_is_enabled(
    pair: Pair, site: str, name: str
) -> None:
    async def scene() -> None:
        async with hearing(pair) as heard:
            ran("client", "disable", str(pair[site].root), name)
            until(lambda: line(pair[site]) == f"up; disabled here: {name}", "the line's word")
            ran("client", "enable", str(pair[site].root), name)
            joined(pair)
            await publish(pair, [f"enabled {name}"])
            await heard.until(lambda texts: f"enabled {name}" in texts)

    asyncio.run(scene())


@pytest.mark.parametrize("who", ["north", "south"])
def test_a_bridge_that_is_killed_loses_and_doubles_nothing(pair: Pair, who: str) -> None:
    async def scene() -> None:
        async with hearing(pair) as heard, client(pair["north"], "boiler") as boiler:
            for number in range(60):
                if number == 20:
                    os.kill(pair[who].pid(), signal.SIGKILL)
                await boiler.publish("boiler/1", f"{who} {number}", qos=1, life=LIFE)
            want = [f"{who} {number}" for number in range(60)]
            await heard.until(lambda texts: set(want) <= set(texts))
            await asyncio.sleep(0.5)
            assert sorted(t for t in heard.texts if t.startswith(who)) == sorted(want)

    asyncio.run(scene())
    joined(pair)
    assert pair["north"].dropped() == set()
    assert pair["south"].dropped() == set()


@pytest.mark.full
def test_bridges_that_are_killed_again_and_again_lose_and_double_nothing(pair: Pair) -> None:
    """Some messages are in a bridge's memory, some on disk, some on the line."""
    want = [f"often {number}" for number in range(600)]

    async def scene() -> None:
        async with hearing(pair) as heard, client(pair["north"], "boiler") as boiler:
            for number, text in enumerate(want):
                if number % 50 == 25:
                    for who in ("north", "south", "north south")[number // 50 % 3].split():
                        with suppress(ProcessLookupError):
                            os.kill(pair[who].pid(), signal.SIGKILL)
                await boiler.publish("boiler/1", text, qos=1, life=LIFE)
            await heard.until(lambda texts: set(want) <= set(texts), 240)
            await asyncio.sleep(1)
            assert sorted(t for t in heard.texts if t.startswith("often")) == sorted(want)

    asyncio.run(scene())
    joined(pair)
    assert pair["north"].dropped() | pair["south"].dropped() == set()


def test_what_is_published_while_the_other_site_is_down_comes_when_it_is_back(pair: Pair) -> None:
    async def scene() -> None:
        # What waits may be there before somebody can subscribe anew.
        kept = Options(client_id="kept", clean=False)
        async with client(pair["south"], "panel", kept) as reader:
            await reader.subscribe("@north/#", qos=1)
        until(lambda: pair["north"].waiting("south") == 0, "what came before to be acknowledged")
        assert pair["south"].ups[-1].end() == 0
        await publish(pair, [f"down {number}" for number in range(30)])
        async with client(pair["north"], "boiler") as boiler:
            await boiler.publish("boiler/1", "short-lived", qos=1, life=0)
        until(lambda: pair["north"].waiting("south") == 31, "what waits to be counted")
        pair["south"].up().ready()
        async with client(pair["south"], "panel", kept) as reader:
            heard = Heard(reader)
            want = [f"down {number}" for number in range(30)]
            await heard.until(lambda texts: set(want) <= set(texts))
            assert [t for t in heard.texts if t.startswith("down")] == want
        until(lambda: pair["north"].waiting("south") == 0, "the spool to be empty")

    asyncio.run(scene())


def test_a_topic_that_is_too_long_here_is_named_and_holds_up_nobody(pair: Pair) -> None:
    """It has 1,020 bytes, and 7 more below @north/."""

    async def scene() -> None:
        async with hearing(pair) as heard, client(pair["north"], "boiler") as boiler:
            await boiler.publish("b/" + "x" * 1018, "long", qos=1, life=LIFE)
            await boiler.publish("boiler/1", "after the long one", qos=1, life=LIFE)
            await heard.until(lambda texts: "after the long one" in texts)
            assert "long" not in heard.texts

    asyncio.run(scene())
    dropped = pair["south"].events("bridge-dropped")
    assert any("this one 1027" in row["reason"] for row in dropped)


@pytest.mark.parametrize(
    ("site", "words", "says"),
    [
        ("south", ("panel", "-t", "@nroth/#"),
         "@nroth/#: there is no peer 'nroth'\nhint: did you mean @north/...?\n"),
        ("south", ("panel", "-t", "@north"), "hint: @north/#, or @north/TOPIC\n"),
        ("north", ("boiler", "-t", "@south/#"), "@south/#: nothing is imported of south\n"),
        ("south", ("panel", "-t", "a", "--purpose", "service"),
         "a: this site's policy has no purposes\nhint: leave --purpose out\n"),
    ],
)  # fmt: skip
def test_a_filter_that_nobody_has_is_refused_with_what_was_meant(
    pair: Pair, site: str, words: tuple[str, ...], says: str
) -> None:
    done = sealmq("sub", str(pair[site].root), "--client", *words, "-W", "20")
    assert done.returncode == 12
    assert says in done.stderr


def test_a_peer_that_is_removed_gets_nothing_more(pair: Pair) -> None:
    async def scene() -> None:
        async with hearing(pair) as heard:
            await publish(pair, ["before"])
            await heard.until(lambda texts: "before" in texts)
            said = ran("peer", "remove", str(pair["north"].root), "south")
            assert "heat.to.south has left label heat: removed" in said
            until(lambda: line(pair["south"]) != "up", "the line's end")
            await publish(pair, ["after"])
            await asyncio.sleep(1)
            assert "after" not in heard.texts

    asyncio.run(scene())
    assert json.loads(ran("peer", "list", str(pair["north"].root), "--json"))["peers"] == []
