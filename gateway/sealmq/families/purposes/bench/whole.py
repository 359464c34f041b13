"""What purpose limitation costs, measured as in the HivePBAC paper (section VI): real processes,
250 clients, 64 B, the family's modes and stores beside the same site without it and beside a plain
Mosquitto. Everything in turns and in pairs; medians with their intervals.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from bench_command import Command, apart
from bench_print import Row
from load_rounds import Progress, load_now, running
from load_sites import Variant

from .. import MANIFEST
from .book import HELD_STAGE, VARIED
from .rounds import CommandRounds, CommandSizes
from .table import beside, shown, table
from .variants import VARIANTS

__all__ = ["beside", "main", "shown", "table"]

RESERVATIONS = 1000
HELD = (10, 1_000, 100_000, 1_000_000)
# Rounds of the stage that varies the reservations: its sites are many, and each costs memory.
HELD_PAIRS = 6
# Those that the bar is about, and what they are compared with.
SWEPT = ("fop-cache", "hybrid")
QUICK = CommandSizes(
    pairs=2, clients=20, span_s=0.1, calm=10, commands=2, few=4, most=16, minutes=2
)

_EXAMPLES = """\
examples:
  sealmq bench purposes                    everything, into build/bench/purposes.json
  sealmq bench purposes --quick            the same with tiny numbers: does it work here?
  sealmq bench purposes --variant labels --variant hybrid --reservations 100000 --json
"""
COMMAND = Command(
    MANIFEST.name,
    "sealmq bench purposes",
    __doc__ or "",
    _EXAMPLES,
    only={"variant": list(VARIANTS)},
    counts={
        "pairs": f"rounds that count (default: {CommandSizes.pairs})",
        "clients": f"how many clients (default: {CommandSizes.clients})",
        "reservations": f"how many are held (default: {RESERVATIONS})",
    },
)


class Plan:
    """What is to be done; `run` does it."""

    def __init__(self, given: argparse.Namespace) -> None:
        sizes = QUICK if given.quick else CommandSizes()
        self.sizes = replace(
            sizes,
            pairs=given.pairs or sizes.pairs,
            clients=given.clients or sizes.clients,
        )
        chosen = given.variant or list(VARIANTS)
        self.variants = [v for v in VARIANTS.values() if v.name in chosen]
        self.held = given.reservations or RESERVATIONS
        self.levels = HELD[:2] if given.quick else HELD
        # All of it, or what was asked for and nothing else.
        self.whole = not given.variant
        self.held_pairs = min(HELD_PAIRS, self.sizes.pairs)

    @property
    def sweep(self) -> list[tuple[Variant, int]]:
        """Sites that differ in how many reservations they hold."""
        if not self.whole:
            return []
        pairs = itertools.product(self.levels, SWEPT)
        return [(VARIANTS["labels"], 0), *((VARIANTS[name], held) for held, name in pairs)]

    @property
    def decisions(self) -> list[tuple[str, int]]:
        """Stores and numbers of reservations whose decisions are measured."""
        if not self.whole:
            return []
        stores = ("fop-cache", "fop", "fop-flat")
        modes = [(mode, RESERVATIONS) for mode in ("fos", "hybrid")]
        return [("labels", 0), *modes, *itertools.product(stores, self.levels)]

    def run(self) -> list[Row]:
        """The rows. LoadError, BrokerError: it cannot be measured."""
        made: list[Row] = []
        main = [(variant, self.held) for variant in self.variants]
        stages = [
            (VARIED, main, self.sizes.pairs, 0.6),
            (HELD_STAGE, self.sweep, self.held_pairs, 0.95),
        ]
        steps = sum(len(of) * (pairs + 2) for _, of, pairs, _ in stages) + len(self.decisions)
        progress = Progress(steps)
        began = time.monotonic()
        # Each stage ends before that share of the time is over, with fewer rounds if need be.
        for stage, of, pairs, share in stages:
            if not of:
                continue
            load, clients = load_now(), self.sizes.clients
            with running(of, clients, self.sizes.size, progress.done) as scenes:
                for scene in scenes:
                    scene.do("connect", clients=clients)
                taking = CommandRounds(scenes, self.sizes, progress.done)
                taking.run(pairs, began + share * self.sizes.minutes * 60)
                made += taking.rows(stage, load)
        for variant, held in self.decisions:
            made += apart(f"{__package__}.decide", variant, str(held))
            progress.done(f"decisions of {variant}, {held} reservations")
        return made


def main(
    argv: Sequence[str] | None = None, run: Callable[[Plan], list[Row]] = lambda plan: plan.run()
) -> int:
    """Command line entry."""
    given = COMMAND.read(argv)
    return COMMAND.end(given, lambda: run(Plan(given)), table)
