"""Many simulated runs, as lines of shared_spec/simulation.schema.json, for `sealmq report`.

A run is one draw under one rule with one kind of malice. Runs need nothing of each other, so each
process takes some; the lines come in the order of the runs, however many processes there are.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Generator, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from .. import simulate
from ..simulate import Counts, Plan

MIXED = "mixed"
KINDS = (*simulate.KINDS, MIXED)
_AHEAD = 4
"""Runs a process that are given out before they are asked for."""


@dataclass(frozen=True, slots=True)
class Series:
    """Which runs: every kind under every rule, again and again with the next seed."""

    runs: int
    plan: Plan = field(default_factory=Plan)
    share: float = 0.1
    """Of the sites, those that are of the kind; of `mixed`, the plan has the shares."""
    rules: tuple[str, ...] = tuple(simulate.RULES)
    kinds: tuple[str, ...] = KINDS
    seed: int = 1

    @property
    def name(self) -> str:
        """Of all numbers that the runs have in common."""
        rules = {name: asdict(simulate.RULES[name]) for name in simulate.RULES}
        said = json.dumps([asdict(self.plan), self.share, rules], sort_keys=True)
        return hashlib.sha256(said.encode()).hexdigest()[:16]

    def __iter__(self) -> Iterator[Run]:
        for number in range(self.runs):
            again, kind = divmod(number, len(self.kinds))
            turn, rule = divmod(again, len(self.rules))
            yield Run(self, self.rules[rule], self.kinds[kind], self.seed + turn)


class Run(NamedTuple):
    """One of a series."""

    series: Series
    rule: str
    kind: str
    seed: int

    def rounds(self) -> list[Counts]:
        """What came of it. The same kind and seed give the same sites and messages."""
        plan = self.series.plan
        if self.kind != MIXED:
            plan = simulate.of_kind(self.kind, self.series.share, plan)
        draw = random.Random(f"{self.kind} {self.seed}")  # noqa: S311 - no secret
        return simulate.World(plan, simulate.RULES[self.rule], draw).run()


def lines(series: Series, file: str, at_ms: int, jobs: int = 1) -> Generator[list[str], None, None]:
    """Of each run its lines. file: 16 hex digits, drawn for this file. jobs: processes."""
    number = 0
    for run, rounds in zip(series, _made(series, jobs), strict=True):
        said = []
        for turn, counts in enumerate(rounds, 1):
            number += 1
            said.append(json.dumps(_line(run, turn, counts, f"{file}-s{number}", at_ms)))
        yield said


def _made(series: Series, jobs: int) -> Iterator[list[Counts]]:
    if jobs == 1:
        yield from map(Run.rounds, series)
        return
    with ProcessPoolExecutor(jobs) as pool:
        waiting = iter(series)
        given = [pool.submit(run.rounds) for run in islice(waiting, _AHEAD * jobs)]
        while given:
            yield given.pop(0).result()
            given += [pool.submit(run.rounds) for run in islice(waiting, 1)]


def _line(run: Run, turn: int, counts: Counts, id: str, at_ms: int) -> dict[str, Any]:
    return {
        "v": 1, "id": id, "at_ms": at_ms, "simulated": run.series.name,
        "sites": run.series.plan.sites, "rule": run.rule, "kind": run.kind, "seed": run.seed,
        "round": turn, **counts._asdict(),
    }  # fmt: skip
