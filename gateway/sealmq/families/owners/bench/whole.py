"""What owner policies cost, and how soon what somebody says counts: messages of real processes in
turns beside the same site without the family; decisions; what comes after a retraction.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from bench_command import Command, apart
from bench_print import Row
from load_rounds import UNITS, Progress, Rounds, Sizes, Taken, load_now, row_of, running
from load_sites import Variant
from load_stats import found, ratios

from .. import MANIFEST
from . import ends
from .site import KINDS
from .table import bars, beside, shown, table

__all__ = ["beside", "main", "shown", "table"]

HELD = 1000
LEVELS = (1_000, 10_000, 100_000, 1_000_000)
TIMES = 200
QUICK = Sizes(pairs=2, clients=20, span_s=0.1, most=16, minutes=2)
VARIANTS = {
    v.name: v
    for v in (
        Variant("labels"),
        *(
            Variant("owners" if kind == "plain" else f"owners-{kind}", MANIFEST.name,
                    {"kind": kind})
            for kind in KINDS
        ),
    )
}  # fmt: skip
_EXAMPLES = """\
examples:
  sealmq bench owners                    everything, into build/bench/owners.json
  sealmq bench owners --quick            the same with tiny numbers: does it work here?
  sealmq bench owners --variant labels --variant owners --pairs 40

Ends with 3 if a bar is missed.
"""
COMMAND = Command(
    MANIFEST.name,
    "sealmq bench owners",
    __doc__ or "",
    _EXAMPLES,
    only={"variant": list(VARIANTS)},
    counts={
        "pairs": f"rounds that count (default: {Sizes.pairs})",
        "clients": f"how many clients (default: {Sizes.clients})",
    },
    barred=True,
)


class Plan:
    """What is to be done; `run` does it."""

    def __init__(self, given: argparse.Namespace) -> None:
        sizes = QUICK if given.quick else Sizes()
        self.sizes = replace(
            sizes, pairs=given.pairs or sizes.pairs, clients=given.clients or sizes.clients
        )
        # All of it, or what was asked for and nothing else.
        self.whole = not given.variant
        chosen = given.variant or list(VARIANTS)
        self.variants = [v for v in VARIANTS.values() if v.name in chosen]
        self.levels = (LEVELS[:2] if given.quick else LEVELS) if self.whole else ()
        self.times = (5 if given.quick else TIMES) if self.whole else 0

    def run(self) -> list[Row]:
        """The rows. LoadError, BrokerError: it cannot be measured."""
        made: list[Row] = []
        steps = len(self.variants) * (self.sizes.pairs + 2) + len(self.levels) + self.times // 5 + 1
        progress, began = Progress(steps), time.monotonic()
        load, clients = load_now(), self.sizes.clients
        of = [(variant, HELD) for variant in self.variants]
        with running(of, clients, self.sizes.size, progress.done) as scenes:
            for scene in scenes:
                scene.do("connect", clients=clients)
            taking = Rounds(scenes, self.sizes, progress.done)
            taking.run(self.sizes.pairs, began + 0.8 * self.sizes.minutes * 60)
            made += _messages(taking.taken, load)
        if self.times:
            with running([(VARIANTS["owners"], HELD)], 8, self.sizes.size, progress.done) as [one]:
                made += ends.rows(one, one.site, self.times, progress.done)
        for level in self.levels:
            made += apart(f"{__package__}.decide", str(level))
            progress.done(f"decisions at {level} assertions")
        return made


def _messages(taken: Sequence[Taken], load: float) -> list[Row]:
    """One row a measure: medians, and what each variant is to labels in the same rounds."""
    made: list[Row] = []
    base = next((t for t in taken if t.variant == "labels"), None)
    for one in taken:
        for key, values in one.values.items():
            measure = key[0]
            if measure == "share":
                continue
            made.append(row_of(one, measure, UNITS[measure], found(values), key, "messages", load))
            to = base.values.get(key, []) if base is not None and base is not one else []
            if len(to) == len(values) and min(to) > 0:
                got = ratios(values, to)
                made.append(
                    row_of(one, f"{measure}_to_labels", "times", got, key, "messages", load)
                )
    return made


def _missed(rows: Sequence[Row]) -> list[str]:
    return [f"{bar.what}: {bar.told}" for bar in bars(rows) if not bar.holds]


def main(
    argv: Sequence[str] | None = None, run: Callable[[Plan], list[Row]] = lambda plan: plan.run()
) -> int:
    """Command line entry."""
    given = COMMAND.read(argv)
    # Tiny numbers tell nothing about a bar.
    missed = (lambda rows: []) if given.quick else _missed
    return COMMAND.end(given, lambda: run(Plan(given)), table, missed)
