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
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from subprocess import SubprocessError

from bench_measures import MEASURES, SETS, SIZES, WHO, Task, tasks
from bench_rows import Row, stamped, updated
from bench_runs import IN_SOFTWARE, BenchError, rig
from bench_table import missed, table
from build_mpy import ROOT
from count import CountError
from mpy_file import MpyError

_WIDTH = 24
OUT = ROOT / "build" / "bench" / "device.json"

_EXAMPLES = """\
examples:
  bench_device.py                                   everything, into build/bench/device.json
  bench_device.py --quick                           few sizes, what the bars need
  bench_device.py --measure publish --variant sealmq-ccm --size 64
  bench_device.py --measure connect --variant sealmq-ccm --variant tls13-ecdsa --json
"""


# What of --quick is measured.
_QUICK = {
    "measure": (
        "connect", "wake_publish_sleep", "publish", "receive", "seal", "tls_record",
        "heap_per_message", "heap_per_received", "heap_purposes", "set_bytes",
    ),
    "variant": ("plain", "tls13-ecdsa", "sealmq-ccm", *IN_SOFTWARE, *SETS, "sealmq"),
    "size": (64, 1024),
}  # fmt: skip
MISSED = 3  # the exit status when a bar is missed


class Progress:
    """A bar on a terminal that is written over; elsewhere a line for each tenth."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._lock = threading.Lock()
        self._start = time.monotonic()
        self._live = sys.stderr.isatty()
        self._show("compiling")

    def done(self, what: str) -> None:
        with self._lock:
            self._done += 1
            self._show(what)

    def _show(self, what: str) -> None:
        seconds = time.monotonic() - self._start
        line = f"bench: {self._done} of {self._total}, {seconds:.0f} s: {what}"
        last = self._done == self._total
        if self._live:
            full = _WIDTH * self._done // self._total
            bar = f"[{'#' * full}{'.' * (_WIDTH - full)}] {line}"
            room = shutil.get_terminal_size().columns - 1
            print(f"\r{bar[:room]:<{room}}", end="\n" * last, file=sys.stderr, flush=True)
        elif last or self._done % max(1, self._total // 10) == 0:
            print(line, file=sys.stderr, flush=True)


def measure(
    chosen: Sequence[Task], jobs: int, merged: bool = True, programs: Sequence[Path] = ()
) -> list[Row]:
    """The rows, in the tasks' order. Raises BenchError, CountError, MpyError."""
    with rig() as made, ThreadPoolExecutor(jobs) as pool:
        progress = Progress(len(chosen))
        made.programs = tuple(programs)
        made.compile(merged=merged)
        if any(task.heap for task in chosen):
            made.compile(32, merged=merged)
        for kind in ("ecdsa", "rsa"):
            if any(task.variant.startswith(f"tls13-{kind}") for task in chosen):
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
    run: Callable[[Sequence[Task], int, bool, Sequence[Path]], list[Row]] = measure,
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
        ("variant", WHO, str),
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
    parser.add_argument(
        "--quick", action="store_true", help="what the bars need, at 64 and 1024 bytes only"
    )
    parser.add_argument(
        "--micropython32",
        action="append",
        type=Path,
        default=[],
        metavar="PROGRAM",
        help="take heap_purposes with this 32-bit interpreter as well; again for another",
    )
    parser.add_argument(
        "--allow-misses",
        action="store_true",
        help=f"end with 0, not {MISSED}, when a bar is missed",
    )
    given = parser.parse_args(argv)
    asked = [given.measure, given.variant, given.size]
    if given.quick:
        asked = [of or _QUICK[name] for name, of in zip(_QUICK, asked, strict=True)]
    chosen = tasks(*asked)
    out = given.out
    if out is None and not any(asked):
        out = OUT
    if not chosen:
        parser.error("none of these measures means anything for these variants and sizes")
    try:
        found = run(chosen, max(1, given.jobs), not given.unmerged, given.micropython32)
        rows = stamped(found)
        if given.update:
            out = out or OUT
            rows = updated(json.loads(out.read_text(encoding="utf-8"))["rows"], rows)
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
    except (BenchError, CountError, MpyError, OSError, SubprocessError, ValueError) as error:
        print(f"bench_device: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench_device: interrupted", file=sys.stderr)
        return 130
    print(json.dumps({"rows": rows}) if given.json else table(rows))
    misses = missed(rows)
    for line in misses:
        print(f"bench_device: missed: {line}", file=sys.stderr)
    return MISSED if misses and not given.allow_misses else 0


if __name__ == "__main__":
    sys.exit(main())
