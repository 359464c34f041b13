"""What blinded policies cost: matching, encoding, large sites, what filters give away; and the
paper's runs, in a site and beside it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench_command import Command, apart
from bench_print import Row
from load_rounds import Progress

from .. import MANIFEST
from . import matching, runs
from .table import bars, beside, shown, table

__all__ = ["beside", "main", "shown", "table"]

LARGE = ((10_000, 1), (10_000, 4))
_EXAMPLES = """\
examples:
  sealmq bench blinded                    everything, into build/bench/blinded.json
  sealmq bench blinded --quick            the same with tiny numbers: does it work here?
  sealmq bench blinded --part runs --runs 100

Ends with 3 if a bar is missed.
"""


@dataclass(frozen=True)
class Plan:
    """What is to be done; `run` does it."""

    quick: bool
    parts: Sequence[str]
    runs: int | None

    def run(self) -> list[Row]:
        """The rows. LoadError, BrokerError: it cannot be measured."""
        done = Progress(len(self.parts) + 3 * len(runs.CASES) * ("runs" in self.parts)).done
        made: list[Row] = []
        for name in self.parts:
            made += PARTS[name](self, done)
            done(name)
        return made


def _large(plan: Plan, done: Callable[[str], None]) -> list[Row]:
    made: list[Row] = []
    for customers, kinds in ((100, 2),) if plan.quick else LARGE:
        made += apart(f"{__package__}.large", str(customers), str(kinds))
    return made


PARTS: dict[str, Callable[[Plan, Callable[[str], None]], list[Row]]] = {
    "matching": lambda plan, done: matching.matching(plan.quick),
    "many": lambda plan, done: matching.many(plan.quick),
    "encoding": lambda plan, done: matching.encoding(plan.quick),
    "leakage": lambda plan, done: matching.leaks(plan.quick),
    "large": _large,
    "runs": lambda plan, done: runs.runs(plan.quick, plan.runs, done),
}
COMMAND = Command(
    MANIFEST.name,
    "sealmq bench blinded",
    __doc__ or "",
    _EXAMPLES,
    only={"part": list(PARTS)},
    counts={"runs": f"messages of each case of the paper's runs (default: {runs.RUNS})"},
    barred=True,
)


def _missed(rows: Sequence[Row]) -> list[str]:
    return [f"{bar.what}: {bar.told}" for bar in bars(rows) if not bar.holds]


def main(
    argv: Sequence[str] | None = None, run: Callable[[Plan], list[Row]] = lambda plan: plan.run()
) -> int:
    """Command line entry."""
    given: argparse.Namespace = COMMAND.read(argv)
    plan = Plan(given.quick, given.part or list(PARTS), given.runs)
    # Tiny numbers tell nothing about a bar.
    missed = (lambda rows: []) if given.quick else _missed
    return COMMAND.end(given, lambda: run(plan), table, missed)
