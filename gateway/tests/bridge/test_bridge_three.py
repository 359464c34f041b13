"""Three real sites in a row, b1 and b3 no neighbours: what b2 hands on and cannot read."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.graph import Graph, hearing, publish


@pytest.fixture(scope="module")
def row() -> Iterator[Graph]:
    with tempfile.TemporaryDirectory(prefix="sealmq-") as name:
        graph = Graph(Path(name), [("b1", "b2"), ("b2", "b3")], "b3").make()
        try:
            yield graph.up()
        finally:
            graph.end()


def test_a_message_travels_over_a_site_that_has_no_key(row: Graph) -> None:
    async def scene() -> None:
        async with hearing(row) as heard:
            await publish(row, ["a", "b", "c"])
            assert await heard.until(lambda texts: len(texts) >= 3) == ["a", "b", "c"]
            assert [m.topic for m in heard.messages] == [f"@b1/boiler/{x}" for x in "abc"]
            assert {m.label for m in heard.messages} == {"heat@b1"}

    asyncio.run(scene())
    assert row.dropped() == set()
