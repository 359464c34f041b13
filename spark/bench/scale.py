"""How a report's time grows with its logs: five sizes, a process for each report, shuffled rounds.

Beside it: the report against the generator's own count, its CPU beside that of a plain Spark job
over the same lines (scale_plain.py), memory of the driver, JSON against Parquet, and the checksums
of local[2] against those of a standalone Spark with two workers on this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import scale_fit as fit
from scale_bench import Bench
from scale_cluster import ClusterError, cluster
from scale_plan import SMALLEST, START_S, BenchError, TimeOver, apart, planned, room
from scale_table import table

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "bench" / "spark"
LOCAL = "local[2]"
LOCAL_NAME, CLUSTER_NAME = "local-2", "standalone-2"
ROUNDS = 2
# Of lines: about 5 MB.
FEW = 17_000
_QUICK = [10_000, 20_000, 30_000, 45_000, 60_000]
_EXAMPLES = """\
examples:
  scale.py --minutes 90                    five sizes from 1e6 lines on, as large as fit in
  scale.py --sizes 1e6,2e6,4e6,8e6,16e6    these
  scale.py --quick                         tiny ones: does it work here?
"""


def measure(bench: Bench) -> list[fit.Row]:
    """All that the time carries. BenchError, ClusterError, OSError, ValueError."""
    load = round(os.getloadavg()[0], 2)
    rng = random.Random(bench.seed)  # noqa: S311 - only the order
    took: dict[int, float] = {}
    two: list[dict[str, Any]] = []
    try:
        for number in range(bench.rounds):
            order = list(bench.sizes)
            rng.shuffle(order)
            for lines in order:
                if number and time.monotonic() + 1.3 * took[lines] > bench.until:
                    bench.say(f"{lines:,} lines are left out of round {number + 1}: no time")
                    continue
                began = time.monotonic()
                _report(bench, lines, number)
                took[lines] = time.monotonic() - began
            if not number:
                _beside(bench, took)
                # Before the rounds that only make figures surer.
                _standalone(bench, took, two)
    except TimeOver as error:
        if len({sample["lines"] for sample in bench.samples}) < 2:
            raise
        bench.say(f"{error}: what was measured is written down")
    local = fit.rows(bench.samples, LOCAL_NAME, load)
    return [*local, *fit.lined(local), *fit.rows(two, CLUSTER_NAME, load), *bench.rows]


def _report(bench: Bench, lines: int, number: int) -> None:
    """One report of the so-manieth round."""
    asked = ["counts", "checksums"] if not number else []
    if not number and lines == bench.sizes[len(bench.sizes) // 2]:
        asked.append("formats")
    found = bench.run(lines, LOCAL, *asked)
    if not number:
        bench.checked(lines, found, LOCAL)
    if "formats" in found:
        bench.rows += _formats(bench, found)
    bench.samples.append(found)
    bench.say(
        f"{lines:,} lines: {found['seconds']:.1f} s, {found['cpu']:.1f} s of CPU, "
        f"Java {found['java'] >> 20} MiB"
    )


def _beside(bench: Bench, took: Mapping[int, float]) -> None:
    """What a report costs beside the plain job: FEW lines, the smallest size, ten times that."""
    asked = [(FEW, "read"), *((size, "report") for size in bench.sizes[:1])]
    asked += [(size, "report") for size in bench.sizes if size == 10 * bench.sizes[0]]
    for lines, of in asked:
        if time.monotonic() + 1.5 * took.get(lines, START_S) > bench.until:
            bench.say(f"{lines:,} lines are left out beside the plain job: no time")
            continue
        ours, plain = bench.beside(lines, LOCAL, *(["read"] if of == "read" else []))
        for variant, value, unit in (
            (LOCAL_NAME, ours, "s"),
            (f"plain-{of}", plain, "s"),
            ("ratio", ours / plain, "times"),
        ):
            bench.rows.append(fit.row("beside_cpu", variant, value, unit, 1, lines=lines, of=of))
        bench.say(f"{lines:,} lines: {ours:.1f} s of CPU, the plain job {plain:.1f} s")


def _formats(bench: Bench, found: Mapping[str, Any]) -> list[fit.Row]:
    told = found["formats"]
    for name in {each["measure"] for each in told}:
        if len({json.dumps(each["told"]) for each in told if each["measure"] == name}) != 1:
            raise BenchError(f"{name} differs between JSON and Parquet")
    return fit.formats(told, found["lines"])


def _standalone(bench: Bench, took: Mapping[int, float], found: list[dict[str, Any]]) -> None:
    """Three sizes on two workers (scale_plan.py): the same tables, and the driver alone."""
    for lines in apart(bench.sizes):
        if time.monotonic() + 1.5 * took[lines] > bench.until:
            bench.say(f"{lines:,} lines are left out of the standalone runs: no time")
            continue
        folder = bench.folder / "cluster"
        with cluster(folder) as (url, pids):
            run = bench.run(lines, url, "counts", "checksums", pids=pids)
        shutil.rmtree(folder, ignore_errors=True)
        bench.checked(lines, run, CLUSTER_NAME)
        found.append(run)
        same = len(run["checksums"])
        rows = sum(each["rows"] for each in run["checksums"].values())
        for name, value, unit in (("same", same, "tables"), ("rows", rows, "rows")):
            row = fit.row(f"checksums_{name}", CLUSTER_NAME, value, unit, 1, lines=run["lines"])
            bench.rows.append(row)
        bench.say(f"{lines:,} lines on two workers: {run['seconds']:.1f} s, {same} checksums alike")


def main(argv: Sequence[str] | None = None) -> int:
    """Command line entry."""
    given = _parser().parse_args(argv)
    # As Ctrl-C: what was started is ended.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    until = time.monotonic() + given.minutes * 60
    folder: Path = given.folder / str(os.getpid())
    try:
        folder.mkdir(parents=True)
        bench = Bench(folder, given.sizes, given.rounds, given.seed, until)
        if not bench.sizes:
            bench.sizes = _QUICK if given.quick else _sized(bench)
        room(folder, bench.sizes)
        bench.say("sizes: " + ", ".join(f"{size:,}" for size in bench.sizes))
        rows = measure(bench)
        if given.out is not None:
            given.out.parent.mkdir(parents=True, exist_ok=True)
            given.out.write_text(text_of(rows), encoding="utf-8")
    except (BenchError, ClusterError, OSError, ValueError) as error:
        print(f"scale: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("scale: interrupted; everything that was started has ended", file=sys.stderr)
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"rows": rows}) if given.json else table(rows))
    return 0


def _sized(bench: Bench) -> list[int]:
    """A first report, which counts for nothing else, tells what a line takes."""
    room(bench.folder, [SMALLEST])
    found = bench.run(SMALLEST, LOCAL)
    each = max(0.0, found["seconds"] - START_S) / found["lines"]
    bench.say(f"a first report of {SMALLEST:,} lines took {found['seconds']:.0f} s")
    return planned(each, bench.until - time.monotonic(), bench.rounds)


def text_of(rows: Sequence[fit.Row]) -> str:
    """The file: one row a line."""
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    return f'{{"rows": [\n{lines}\n]}}\n'


def _sizes(text: str) -> list[int]:
    sizes = sorted({int(float(part)) for part in text.split(",")})
    if len(sizes) < 2 or sizes[0] < 10_000:
        raise argparse.ArgumentTypeError("two sizes at least, of 10,000 lines at least")
    return sizes


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scale.py",
        description=(__doc__ or "").partition("\n\n")[0],
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sizes", type=_sizes, default=[], metavar="N,N,...", help="lines")
    parser.add_argument("--minutes", type=float, default=90.0, metavar="N", help="all may take")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help="(default: 2)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of logs and order")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for the logs; emptied again")
    parser.add_argument("--json", action="store_true", help="print the rows instead of tables")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the rows there as well")
    return parser


if __name__ == "__main__":
    sys.exit(main())
