"""What a message costs a bridge, in calls of Python functions: it is not to grow again."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from bridge.crossing_world import LABEL, Site, m1
from calls import counted
from sealmq.bridge.crossing import OK, Crossing
from sealmq.bridge.judging import Plain
from sealmq.bridge.spool import Waiting
from sealmq.bridge.traffic import Import

MANY = 50
AWAY = b"\0\0\0\2"


def site(folder: Path) -> Site:
    made = Site("b1", folder, Plain())
    made.traffic.imports[AWAY, 40] = Import("north", "heat")
    made.traffic.sites["north"] = AWAY
    return made


def test_a_message_of_a_neighbour_costs_few_calls(tmp_path: Path) -> None:
    south = site(tmp_path)
    come = [Crossing(n, 2, 1, AWAY, 40, bytes(8), "a/b", m1(ctr=n + 1)) for n in range(MANY)]
    with counted("bridge") as calls:
        assert south.take("north", *come) == [(OK, "")] * MANY
    assert len(south.delivered) == MANY
    assert calls.total() < 14 * MANY, calls.most_common(25)
    south.spool.close()


def test_a_message_for_a_neighbour_costs_few_calls(tmp_path: Path) -> None:
    north = site(tmp_path)
    north.traffic.neighbours = frozenset(("south",))
    north.judge._to = {"heat": ("south",)}  # type: ignore[attr-defined]
    safe: list[int] = []
    with counted("bridge") as calls:
        for n in range(MANY):
            told = partial(safe.append, n)
            north.traffic.own("heat", LABEL, "a/b", 1, m1(ctr=n + 1), "south", told)
        for one in north.spool.after("south", 0, MANY):
            north.spool.done("south", Waiting(one.seq, one.message))
    assert safe == list(range(MANY))
    assert calls.total() < 10.5 * MANY, calls.most_common(25)
    north.spool.close()
