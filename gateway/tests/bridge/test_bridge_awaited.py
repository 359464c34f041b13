"""A message that is here before the keys of its site are: it waits for them, and is never taken for
one that is none of this site's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bridge.crossing_world import LABEL, Site, World, m1, site_of
from sealmq.bridge import awaited
from sealmq.bridge.crossing import DROPPED, OK, Crossing
from sealmq.bridge.traffic import Handed, Import

ROW = [("b1", "b2"), ("b2", "b3")]
BEHIND = [*ROW, ("b3", "b4")]
BEFORE, AFTER = (3, 4, 5), 6


@pytest.fixture(params=["an end", "one behind", "one behind that may have it"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """b3 imports b1's label, and has no keys of b1's."""
    links = ROW if request.param == "an end" else BEHIND
    give = {("b3", "b4"): ()} if request.param == "one behind" else {}
    made = World(tmp_path, links, "b3", give=give)
    made.publish(2)
    b3 = made["b3"]
    b3.delivered.clear()
    b3.traffic.imports.clear()
    b3.traffic.awaited.add("b1")
    yield made
    for site in made.sites.values():
        site.spool.close()


def keys(b3: Site) -> None:
    b3.traffic.imports[site_of("b1"), LABEL] = Import("b1", "heat")
    b3.traffic.awaited.came("b1")


def answers(
    world: World, then: Callable[[], None], handed: Handed | None = None
) -> list[tuple[int, str]]:
    """Of what b2 brings over one line; `then` comes before the last message."""
    b3, over = world["b3"], Handed() if handed is None else handed
    said: list[tuple[int, str]] = []

    def bring(ctr: int) -> None:
        one = Crossing(ctr, 2, 2, site_of("b1"), LABEL, world.token(), "boiler/1", m1(ctr))
        b3.traffic.take("b2", over, one, lambda code, why: said.append((code, why)))

    async def scene() -> None:
        for ctr in BEFORE:
            bring(ctr)
        await asyncio.sleep(0.01)
        then()
        bring(AFTER)
        await asyncio.sleep(0.01)

    asyncio.run(scene())
    return said


def test_it_waits_for_the_keys_and_comes_in_its_order(world: World) -> None:
    b3 = world["b3"]

    def then() -> None:
        assert b3.delivered == [], "nobody knows whose label it is"
        keys(b3)

    assert answers(world, then) == [(OK, "")] * 4
    assert [one for _, one, _ in b3.delivered] == [m1(ctr) for ctr in (*BEFORE, AFTER)]
    assert b3.named() == []


def test_what_has_waited_for_too_long_is_named_and_goes_on_where_it_may(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaited, "KEYS_S", 0.0)
    b3, before = world["b3"], world["b3"].spool.count("b4")
    said = answers(world, lambda: None)
    assert [why.startswith("keys: b1 ") for why in b3.named()] == [True] * 4
    assert b3.traffic.dropped["b2"]["keys"] == 4
    on = b3.spool.count("b4") - before
    assert [code for code, _ in said] == [OK if on else DROPPED] * 4
    keys(b3)
    answers(world, lambda: None)
    assert len(b3.delivered) == (0 if on else 4), "what was refused has used nothing up"


def test_nobody_waits_at_a_line_that_is_over(world: World) -> None:
    handed, b3 = Handed(), world["b3"]

    def then() -> None:
        handed.over = True
        b3.spool.close()  # the bridge has ended
        keys(b3)
        raise EOFError

    with pytest.raises(EOFError):
        answers(world, then, handed)
    assert b3.delivered == []
    assert b3.named() == []
