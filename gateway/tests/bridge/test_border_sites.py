"""Two real sites whose readers share no label's keys, with a border on each side: what passes,
once, and what does not. The processes are those that `sealmq up` starts.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bridge.graph import Heard, client
from bridge.pair import Pair, join, joined, made, ran, written
from run.sites import until
from sealmq_spec.errors import Denied

LIFE = 12  # 2^12 s
OUTLET = """
[borders.outlet]
from = "machine"
to = "shared"
topics = ["mill/+"]
declassify = true
"""
INLET = """
[borders.inlet]
from = "shared@north"
to = "office"
topics = ["@north/border/outlet/mill/#"]
declassify = true
"""


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with tempfile.TemporaryDirectory(prefix="sealmq-") as name:
        sites = {one: made(Path(name), one) for one in ("north", "south")}
        written(sites["north"], "machine = []\nshared = []", 'mill = { label = "machine" }')
        join(sites, "shared")
        written(sites["north"], "", "", OUTLET)
        written(
            sites["south"],
            'watch = ["shared@north"]\noffice = []',
            'panel = { label = "watch", kind = "app" }\ndesk = { label = "office", kind = "app" }',
            INLET,
        )
        try:
            for site in sites.values():
                site.up()
            joined(sites)
            yield sites
        finally:
            for site in sites.values():
                for up in site.ups:
                    up.end()


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
    [out] = pair["north"].events("border-outlet", "border-crossed")
    assert (out["topic"], out["label"], out["label_out"]) == ("mill/1", "machine", "shared")
    assert (out["border"], out["sender"], len(out["digest"])) == ("outlet", "mill", 32)
    [into] = pair["south"].events("border-inlet", "border-crossed")
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
        assert pair[one].events(f"border-{name}", "border-dropped") == []
        crossed = pair[one].events(f"border-{name}", "border-crossed")
        assert {row["topic"].removeprefix("@north/border/outlet/") for row in crossed} == {"mill/1"}


def test_nobody_publishes_in_a_borders_place_and_no_border_is_lent(pair: Pair) -> None:
    async def scene() -> None:
        async with client(pair["south"], "desk") as desk:
            with pytest.raises(Denied, match="nobody else"):
                await desk.publish("border/inlet/x", "x", qos=1)
            await desk.publish("border/other/x", "x", qos=1)

    asyncio.run(scene())
    until(lambda: "border-outlet" in ran("status", str(pair["north"].root)), "the border's row")
