"""The paper's six sites as real ones, in its graph; b1's messages are for b6. In their order: lines
are cut and mended, a site is killed, one turns bad and is routed around. What b1 has acknowledged
arrives once, or is named as dropped.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.graph import Graph, hearing, publish
from bridge.joined import Heard, client
from run.sites import until
from sealmq.families.trust.example import PAPER

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def six() -> Iterator[Graph]:
    with tempfile.TemporaryDirectory(prefix="sealmq-") as name:
        links = list(PAPER.edges)
        graph = Graph(Path(name), links, "b6", mosquitto=("b1", "b6")).make()
        graph.sites["b4"].bad = True
        try:
            yield graph.up()
        finally:
            graph.end()


async def all_there(graph: Graph, heard: Heard, texts: list[str], seconds: float = 90) -> None:
    """Each once, or named; and nothing twice."""
    want = {f"boiler/{text}" for text in texts}
    async with asyncio.timeout(seconds):
        while not want <= set(heard.topics) | graph.dropped():  # noqa: ASYNC110 - it is looked for
            await asyncio.sleep(0.2)
    await asyncio.sleep(0.5)
    assert {topic for topic, n in Counter(heard.topics).items() if n > 1} == set()


def arrived(heard: Heard, texts: list[str]) -> set[str]:
    return {f"boiler/{text}" for text in texts} & set(heard.topics)


def test_messages_travel_from_b1_to_b6(six: Graph) -> None:
    texts = [f"first-{n}" for n in range(20)]

    async def scene() -> None:
        async with hearing(six) as heard:
            await publish(six, texts)
            await all_there(six, heard, texts)
            assert len(arrived(heard, texts)) == len(texts)

    asyncio.run(scene())
    said = six.sites["b6"].asked("scene", token="@b1/boiler")
    assert "b1" in said["signers"]
    assert {tuple(sorted(edge[:2])) for edge in said["ratings"]} == set(PAPER.edges)


def test_lines_are_cut_and_mended(six: Graph) -> None:
    texts = [f"cut-{n}" for n in range(40)]

    async def scene() -> None:
        async with hearing(six) as heard:
            six.cables["b4", "b6"].cut()
            await publish(six, texts[:10])
            await all_there(six, heard, texts[:10])
            six.cables["b5", "b6"].cut()
            await publish(six, texts[10:])
            await asyncio.sleep(1)
            assert not arrived(heard, texts[10:])
            for cable in six.cables.values():
                cable.mend()
            await all_there(six, heard, texts)
            assert len(arrived(heard, texts)) == len(texts)

    asyncio.run(scene())
    six.joined()


def test_a_site_is_killed_and_comes_back(six: Graph) -> None:
    texts = [f"killed-{n}" for n in range(60)]

    async def scene() -> None:
        async with hearing(six) as heard, client(six.sites["b1"], "boiler") as boiler:
            for number, text in enumerate(texts):
                if number == 20:
                    six.sites["b3"].kill()
                if number == 40:
                    six.sites["b3"].up()
                await boiler.publish(f"boiler/{text}", text, qos=1, life=12)
            await all_there(six, heard, texts)
            assert len(arrived(heard, texts)) == len(texts)

    asyncio.run(scene())
    six.joined()


def test_a_site_that_turns_bad_is_blocked_and_routed_around(six: Graph) -> None:
    before, after = [f"bad-{n}" for n in range(30)], [f"around-{n}" for n in range(20)]

    async def scene() -> None:
        async with hearing(six) as heard:
            (six.sites["b4"].root / "bad").touch()
            await publish(six, before)
            await all_there(six, heard, before)
            until(lambda: six.sites["b6"].asked("show")["blocked"] == ["b4"], "b4 to be blocked")
            await publish(six, after)
            await all_there(six, heard, after)
            assert len(arrived(heard, after)) == len(after), "by b3 and b5"

    asyncio.run(scene())
    said = {name: site.events("peer-blocked") for name, site in six.sites.items()}
    assert "b4" in {row["peer"] for row in said["b6"]}
    assert {row["peer"] for rows in said.values() for row in rows} == {"b4"}, "no honest one"
    assert any("replay" in row["reason"] for row in six.sites["b6"].events("bridge-dropped"))
