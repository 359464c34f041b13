"""What the device client costs beside umqtt, plain and over TLS 1.3, in the same interpreter.

Instructions are counted by valgrind on 64-bit MicroPython: each figure is the difference between
two runs that differ in how often a thing is done. The device's code runs as .mpy, as it ships. Heap
is measured on 32-bit as well.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

from bench_measures import MEASURES, SIZES, Task, tasks
from bench_mpy import ROOT, MpyError
from bench_rows import Row, stamped, updated
from bench_runs import VARIANTS, BenchError, rig
from bench_table import table
from count import CountError

OUT = ROOT / "build" / "bench" / "device.json"

_EXAMPLES = """\
examples:
  bench_device.py                                   everything, into build/bench/device.json
  bench_device.py --measure publish --variant sealmq-ccm --size 64
  bench_device.py --measure connect --variant sealmq-ccm --variant tls13-ecdsa --json
"""


class Progress:
    """One line on a terminal that is written over; elsewhere a line for each tenth."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._lock = threading.Lock()
        self._start = time.monotonic()
        self._live = sys.stderr.isatty()

    def done(self, what: str) -> None:
        with self._lock:
            self._done += 1
            step = max(1, self._total // 10)
            seconds = time.monotonic() - self._start
            line = f"bench: {self._done} of {self._total}, {seconds:.0f} s: {what}"
            if self._live:
                end = "\n" if self._done == self._total else ""
                print(f"\r{line:<78}", end=end, file=sys.stderr, flush=True)
            elif self._done % step == 0 or self._done == self._total:
                print(line, file=sys.stderr, flush=True)


def measure(chosen: Sequence[Task], jobs: int, merged: bool = True) -> list[Row]:
    """The rows, in the tasks' order. Raises BenchError, CountError, MpyError."""
    progress = Progress(len(chosen))
    with rig() as made, ThreadPoolExecutor(jobs) as pool:
        made.compile(merged=merged)
        if any(task.heap for task in chosen):
            made.compile(32, merged=merged)
        for kind in ("ecdsa", "rsa"):
            if any(task.variant == f"tls13-{kind}" for task in chosen):
                made.use_tls(kind)

        def one(task: Task) -> list[Row]:
            rows = task.run(made)
            progress.done(f"{task.measure} {task.variant} {task.size}")
            return rows

        futures = [pool.submit(one, task) for task in chosen]
        wait(futures, return_when=FIRST_EXCEPTION)
        for future in futures:
            future.cancel()
        # The first that failed, if any did; none that was cancelled comes before it.
        for future in futures:
            if future.done() and not future.cancelled() and future.exception() is not None:
                future.result()
        return list(itertools.chain.from_iterable(future.result() for future in futures))


def main(
    argv: Sequence[str] | None = None,
    run: Callable[[Sequence[Task], int, bool], list[Row]] = measure,
) -> int:
    """Command line entry."""
    parser = argparse.ArgumentParser(
        prog="bench_device.py",
        description=(__doc__ or "").partition("\n")[0],
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, choices, kind in (
        ("measure", MEASURES, str),
        ("variant", VARIANTS, str),
        ("size", SIZES, int),
    ):
        parser.add_argument(
            f"--{name}",
            action="append",
            choices=choices,
            type=kind,
            metavar=name.upper(),
            help=f"only this one; again for another: {', '.join(map(str, choices))}",
        )
    parser.add_argument("--json", action="store_true", help="print the rows instead of a table")
    default = f"{OUT.relative_to(ROOT)} when nothing was chosen"
    parser.add_argument("--out", type=Path, help=f"write the rows there as well; {default}")
    parser.add_argument(
        "--update", action="store_true", help="keep the file's other rows: replace only these"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time")
    parser.add_argument(
        "--unmerged",
        action="store_true",
        help="each module a file, not what ships; while developing",
    )
    given = parser.parse_args(argv)
    chosen = tasks(given.measure, given.variant, given.size)
    out = given.out
    if out is None and not (given.measure or given.variant or given.size):
        out = OUT
    if not chosen:
        parser.error("none of these measures means anything for these variants and sizes")
    try:
        rows = stamped(run(chosen, max(1, given.jobs), not given.unmerged))
        if given.update:
            out = out or OUT
            rows = updated(json.loads(out.read_text(encoding="utf-8"))["rows"], rows)
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
    except (BenchError, CountError, MpyError, OSError, ValueError) as error:
        print(f"bench_device: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench_device: interrupted", file=sys.stderr)
        return 130
    print(json.dumps({"rows": rows}) if given.json else table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
