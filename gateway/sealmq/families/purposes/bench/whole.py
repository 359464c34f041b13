"""What purpose limitation costs, measured as in the HivePBAC paper (section VI): real processes,
250 clients, 64 B, the family's modes and stores beside the same site without it and beside a plain
Mosquitto. Everything in turns and in pairs; medians with their intervals.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bench_print import Row, count, text_of
from load_cpu import LoadError
from load_rounds import Progress, load_now, running
from load_sites import FOLDER, ROOT, START_S, Variant

from .book import HELD_STAGE, VARIED
from .rounds import CommandRounds, CommandSizes
from .table import beside, shown, table
from .variants import VARIANTS

__all__ = ["beside", "main", "shown", "table"]

OUT = ROOT / "build" / "bench" / "purposes.json"
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
            made += _decided(variant, held)
            progress.done(f"decisions of {variant}, {held} reservations")
        return made


# A process of its own: a million reservations are gone with it.
def _decided(variant: str, held: int) -> list[Row]:
    found = os.pathsep.join((str(FOLDER), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(  # noqa: S603 - our own module
        [sys.executable, "-m", f"{__package__}.decide", variant, str(held)],
        env={**os.environ, "PYTHONPATH": found.strip(os.pathsep)},
        capture_output=True,
        text=True,
        check=False,
        timeout=START_S,
    )
    if done.returncode:
        raise LoadError(f"decisions of {variant}: {done.stderr.strip()[-500:]}")
    rows: list[Row] = json.loads(done.stdout)["rows"]
    return rows


def main(
    argv: Sequence[str] | None = None, run: Callable[[Plan], list[Row]] = lambda plan: plan.run()
) -> int:
    """Command line entry."""
    given = _parser().parse_args(argv)
    # As Ctrl-C: what was started is ended.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    out = given.out
    if out is None and not (given.variant or given.quick):
        out = OUT
    try:
        rows = run(Plan(given))
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(text_of(rows), encoding="utf-8")
    except (LoadError, OSError, ValueError, subprocess.SubprocessError) as error:
        print(f"bench_purposes: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench_purposes: interrupted; everything that was started has ended", file=sys.stderr)
        return 130
    print(json.dumps({"rows": rows}) if given.json else table(rows))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sealmq bench purposes",
        description=(__doc__ or "").partition("\n\n")[0],
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--variant",
        action="append",
        choices=list(VARIANTS),
        metavar="VARIANT",
        help=f"only this one; again for another: {', '.join(VARIANTS)}",
    )
    for name, words in (
        ("pairs", f"rounds that count (default: {CommandSizes.pairs})"),
        ("clients", f"how many clients (default: {CommandSizes.clients})"),
        ("reservations", f"how many are held (default: {RESERVATIONS})"),
    ):
        parser.add_argument(f"--{name}", type=count, metavar="N", help=words)
    parser.add_argument("--quick", action="store_true", help="tiny numbers, to see that it works")
    parser.add_argument("--json", action="store_true", help="print the rows instead of tables")
    default = f"{OUT.relative_to(ROOT)} when all is measured"
    parser.add_argument("--out", type=Path, help=f"write the rows there as well; {default}")
    return parser
