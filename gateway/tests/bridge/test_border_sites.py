"""Two real sites whose readers share no label's keys, with a border on each side: what passes,
once, and what does not. The processes are those that `sealmq up` starts.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from bridge.joined import LIFE, Heard, client, standing
from bridge.pair import Pair, join, joined, ran, two_sites, up, written
from run.sites import sealmq
from sealmq.client import Client
from sealmq.client.errors import TimedOut
from sealmq.kglink import KgClient, KgDenied
from sealmq_spec.errors import Denied

OUTLET = """
[borders.outlet]
from = "machine"
to = "shared"
topics = ["mill/+"]
declassify = true
"""
BACK = """
[borders.back]
from = "reply@south"
to = "machine"
topics = ["@south/border/#", "@south/mill/#"]
declassify = true
"""
INLET = """
[borders.inlet]
from = "shared@north"
to = "office"
topics = ["@north/border/outlet/mill/#"]
declassify = true
"""

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with two_sites() as sites:
        written(sites["north"], "machine = []\nshared = []", 'mill = { label = "machine" }')
        join(sites, "shared")
        written(sites["north"], "", "", OUTLET)
        written(
            sites["south"],
            'watch = ["shared@north"]\noffice = []',
            'panel = { label = "watch", kind = "app" }\ndesk = { label = "office", kind = "app" }',
            INLET,
        )
        up(sites)
        joined(sites)
        yield sites


@asynccontextmanager
async def hearing(pair: Pair, name: str, filt: str) -> AsyncIterator[Heard]:
    async with client(pair["south"], name) as reader:
        await reader.subscribe(filt, qos=1)
        yield Heard(reader)


async def publish(pair: Pair, texts: list[str], topic: str = "mill/1") -> None:
    async with client(pair["north"], "mill") as mill:
        for text in texts:
            await mill.publish(topic, text, qos=1, life=LIFE)


def test_a_listed_topic_is_read_at_the_other_site_by_who_has_no_key_of_its_label(
    pair: Pair,
) -> None:
    async def scene() -> None:
        async with (
            hearing(pair, "panel", "@north/#") as panel,
            hearing(pair, "desk", "border/#") as desk,
        ):
            await publish(pair, ["not listed"], "mill/1/secret")
            await publish(pair, ["a"])
            await panel.until(lambda texts: texts == ["a"])
            await desk.until(lambda texts: texts == ["a"])
            assert panel.messages[0].topic == "@north/border/outlet/mill/1"
            assert panel.messages[0].label == "shared@north"
            assert desk.messages[0].topic == "border/inlet/border/outlet/mill/1"
            assert (desk.messages[0].label, desk.messages[0].sender) == ("office", "inlet.out")

    asyncio.run(scene())
    [out] = pair["north"].events("border-crossed", role="border-outlet")
    assert (out["topic"], out["label"], out["label_out"]) == ("mill/1", "machine", "shared")
    assert (out["border"], out["sender"], len(out["digest"])) == ("outlet", "mill", 32)
    [into] = pair["south"].events("border-crossed", role="border-inlet")
    assert into["topic"] == "@north/border/outlet/mill/1"
    assert into["sender"].startswith("#"), "no client of this site"


@pytest.mark.parametrize(("site", "role"), [("north", "outlet"), ("south", "inlet")])
def test_a_border_that_is_killed_loses_and_doubles_nothing(
    pair: Pair, site: str, role: str
) -> None:
    async def scene() -> None:
        async with (
            hearing(pair, "desk", "border/#") as desk,
            client(pair["north"], "mill") as mill,
        ):
            for number in range(60):
                if number == 20:
                    os.kill(pair[site].pid(f"border-{role}"), signal.SIGKILL)
                await mill.publish("mill/1", f"{role} {number}", qos=1, life=LIFE)
            want = [f"{role} {number}" for number in range(60)]
            await desk.until(lambda texts: set(want) <= set(texts))
            await asyncio.sleep(0.5)
            assert sorted(t for t in desk.texts if t.startswith(role)) == sorted(want)

    asyncio.run(scene())
    for one, name in (("north", "outlet"), ("south", "inlet")):
        assert pair[one].events("border-dropped", role=f"border-{name}") == []
        crossed = pair[one].events("border-crossed", role=f"border-{name}")
        assert {row["topic"].removeprefix("@north/border/outlet/") for row in crossed} == {"mill/1"}


def test_what_is_cleared_is_cleared_behind_both_borders_once_also_over_kills(pair: Pair) -> None:
    async def retained(marker: str) -> list[set[str]]:
        """Of the other site's border, and of the own one's."""
        readers = {"panel": "@north/#", "desk": "border/#"}
        return [
            await standing(
                partial(hearing, pair, name, filt),
                lambda text: publish(pair, [text], "mill/9"),
                f"{marker}-{name}",
            )
            for name, filt in readers.items()
        ]

    async def scene() -> None:
        async with client(pair["north"], "mill") as mill:
            await mill.publish("mill/state", "on", qos=1, life=255, retain=True)
            assert await retained("at first") == [{"on"}, {"on"}]
            async with client(pair["south"], "desk") as desk:
                for topic in ("border/inlet/border/outlet/mill/state", "mill/state"):
                    with pytest.raises(Denied):
                        await desk.clear(f"@north/{topic}", qos=1, life=LIFE)
                with pytest.raises(Denied, match="nobody else"):
                    await desk.clear("border/inlet/border/outlet/mill/state", qos=1, life=LIFE)
            assert await retained("after others") == [{"on"}, {"on"}]
            await mill.clear("mill/state", qos=1, life=LIFE)
            assert await retained("cleared") == [set(), set()]
            await mill.publish("mill/state", "off", qos=1, life=255, retain=True)
            assert await retained("anew") == [{"off"}, {"off"}]
            for site, role in (("north", "border-outlet"), ("south", "border-inlet")):
                os.kill(pair[site].pid(role), signal.SIGKILL)
            await mill.clear("mill/state", qos=1, life=LIFE)
            assert await retained("over kills") == [set(), set()]

    asyncio.run(scene())
    for site, name in (("north", "outlet"), ("south", "inlet")):
        crossed = pair[site].events("border-crossed", role=f"border-{name}")
        told = [row for row in crossed if row["topic"].endswith("mill/state")]
        assert len({row["digest"] for row in told if row.get("detail") == "clear"}) == 2
        assert len({row["digest"] for row in told if "detail" not in row}) == 2
        assert pair[site].events("border-dropped", role=f"border-{name}") == []


def test_nobody_else_publishes_in_a_borders_place(pair: Pair) -> None:
    async def scene() -> None:
        async with client(pair["south"], "desk") as desk:
            with pytest.raises(Denied, match="nobody else"):
                await desk.publish("border/inlet/x", "x", qos=1)
            await desk.publish("border/other/x", "x", qos=1)

    asyncio.run(scene())


def test_operators_see_borders_and_what_they_declassify(pair: Pair) -> None:
    north = str(pair["north"].root)
    assert "border-outlet" in ran("status", north)
    [row] = json.loads(ran("border", "list", north, "--json"))["borders"]
    assert (row["name"], row["line"], row["declassify"], row["dropped"]) == (
        "outlet",
        "up",
        True,
        {},
    )
    assert re.search(r"outlet +machine +shared +yes +up", ran("border", "list", north))
    assert "border-crossed" in ran("log", north, "-n", "all")
    done = sealmq("doctor", north, "--json")
    found = {row["name"]: row for row in json.loads(done.stdout)["tries"]}
    assert found["border outlet declassifies"]["reason"].startswith("who has shared reads")
    assert found["publish in a border's place"]["reason"] == "labels.publish.border"
    assert done.returncode == 0, done.stdout


def test_a_borders_clients_in_other_hands_reach_what_its_table_lists_and_nothing_else(
    pair: Pair,
) -> None:
    """Who has taken its process over has their secrets, and asks for what he likes."""

    async def scene() -> None:
        north = pair["north"]
        async with await KgClient.connect(north.root / "run" / "kg" / "kg.sock") as kg:
            stolen = await kg.border_enrol("outlet")
            for name in ("outlet.in", "outlet.out"):
                with pytest.raises(KgDenied, match="a border's"):
                    await kg.lend(name)
        heard: list[str] = []
        async with Client.from_enrolment(stolen.reads["enrolment"]) as thief:
            for filt in ("mill/#", "mill/1", "#", "border/#", "@south/#", "$share/x/mill/+"):
                with pytest.raises(Denied):
                    await thief.subscribe(filt, qos=1)
            with pytest.raises(Denied):
                await thief.publish("mill/1", "forged", qos=1)
            await thief.subscribe("mill/+", qos=1)
            await publish(pair, ["hidden"], "mill/1/secret")
            await publish(pair, ["listed"])
            heard.append((await thief.receive()).topic)
            with pytest.raises(TimedOut):
                await thief.receive(within=1)
        assert heard == ["mill/1"]
        async with Client.from_enrolment(stolen.publishes["enrolment"]) as thief:
            for topic in ("mill/1", "elsewhere", "border/inlet/x", "border/outlets/x"):
                with pytest.raises(Denied):
                    await thief.publish(topic, "forged", qos=1)
            with pytest.raises(Denied):
                await thief.subscribe("#", qos=1)
            await thief.publish("border/outlet/mill/2", "what it says there is its own", qos=1)

    asyncio.run(scene())


def test_what_was_made_by_a_border_circles_through_no_other(pair: Pair) -> None:
    """South sends back what it was let have; north has a border for what comes."""
    for name, site in pair.items():
        assert site.ups[-1].end() == 0, name
    written(pair["south"], "reply = []", 'parrot = { label = "reply", kind = "app" }')
    written(pair["north"], "", "", BACK)
    for words in (("south", "north", "--export", "reply"), ("north", "south", "--import", "reply")):
        ran("peer", "add", str(pair[words[0]].root), *words[1:])
    up(pair)
    joined(pair)

    async def scene() -> None:
        async with (
            hearing(pair, "panel", "@north/#") as panel,
            client(pair["north"], "mill") as mill,
            client(pair["south"], "parrot") as parrot,
        ):
            await mill.subscribe("border/#", qos=1)
            home = Heard(mill)
            await mill.publish("mill/1", "there", qos=1, life=LIFE)
            await panel.until(lambda texts: texts == ["there"])
            for topic in ("border/outlet/mill/1", "border/x/border/outlet/mill/1", "mill/1"):
                await parrot.publish(topic, topic, qos=1, life=LIFE)
            await home.until(lambda texts: len(texts) == 2)
            await asyncio.sleep(1)
            assert panel.texts == ["there"], "what came back goes out no more"
            assert {m.topic for m in home.messages} == {
                "border/back/border/outlet/mill/1",
                "border/back/mill/1",
            }

    asyncio.run(scene())
    assert pair["north"].events("border-dropped", role="border-back") == [], (
        "the mediator kept it back"
    )
