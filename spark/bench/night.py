"""What a night costs: a report over new lines beside many old ones, against a first report over the
new ones alone. CPU seconds of Java and Python, without Java's start; each in a process of its own.

The night's report has to say what the generator has counted of old and new lines together.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import generator
import scale_fit as fit
from scale import FOLDER, LOCAL, LOCAL_NAME, text_of
from scale_bench import Bench
from scale_plan import BenchError, room

NEW = 100_000
"""About so many lines are new."""
MOST = 1.5
"""Times the CPU of the new lines alone."""


def split(logs: Path, new: Path) -> None:
    """The last segments of the log, and the last run of the rig, become files of `new`."""
    segments = sorted(
        (logs / "audit" / "mediator").iterdir(),
        key=lambda path: (*path.stem.split("-")[2:], path.name),
    )
    runs = sorted((logs / "rig").iterdir(), key=_began)
    new.mkdir(parents=True)
    for path in (*segments[-(NEW // generator.SEGMENT_LINES) :], *runs[-2:]):
        path.rename(new / path.name)


def _began(path: Path) -> int:
    with path.open() as file:
        return int(json.loads(file.readline())["at_ms"])


def measure(bench: Bench, old_lines: int) -> list[fit.Row]:
    """BenchError, OSError, ValueError."""
    load = round(os.getloadavg()[0], 2)
    lines = old_lines + NEW
    logs, new, out = bench.logs(lines), bench.folder / "new", bench.folder / "nights"
    split(logs, new)
    first = bench.run(lines, LOCAL, logs=[logs], out=out)
    bench.say(f"the old lines: {first['cpu']:.1f} s of CPU")
    alone = bench.run(lines, LOCAL, logs=[new])
    bench.say(f"the new lines alone: {alone['cpu']:.1f} s of CPU")
    night = bench.run(lines, LOCAL, "counts", "checksums", logs=[logs, new], out=out)
    bench.checked(lines, night, LOCAL)
    bench.say(f"the night: {night['cpu']:.1f} s of CPU")
    found = []
    for name, run in (("old", first), ("alone", alone), ("night", night)):
        of = {"lines": run["summary"]["lines"], "load": load}
        found.append(fit.row("night_cpu", name, run["cpu"], "s", 1, **of))
    times = night["cpu"] / alone["cpu"]
    found.append(fit.row("night_times", LOCAL_NAME, times, "times", 1, lines=old_lines, load=load))
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Command line entry. 1: a night costs more than MOST times, or nothing could be measured."""
    parser = argparse.ArgumentParser(
        prog="night.py", description=(__doc__ or "").partition("\n\n")[0]
    )
    parser.add_argument("--lines", type=float, default=10e6, metavar="N", help="old ones (10e6)")
    parser.add_argument("--minutes", type=float, default=60.0, metavar="N", help="all may take")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for the logs; emptied again")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the rows there as well")
    given = parser.parse_args(argv)
    folder: Path = given.folder / str(os.getpid())
    lines = int(given.lines)
    try:
        folder.mkdir(parents=True)
        room(folder, [lines, lines])
        bench = Bench(folder, [lines], 1, 1, time.monotonic() + given.minutes * 60)
        rows = measure(bench, lines)
        if given.out is not None:
            given.out.parent.mkdir(parents=True, exist_ok=True)
            given.out.write_text(text_of(rows), encoding="utf-8")
    except (BenchError, OSError, ValueError) as error:
        print(f"night: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    times = rows[-1]["value"]
    cpu = ", ".join(f"{row['variant']} {row['value']:.0f} s" for row in rows[:-1])
    print(f"{lines:,} old lines: {times:.2f} times the new ones alone (at most {MOST}); CPU: {cpu}")
    return int(times > MOST)


if __name__ == "__main__":
    sys.exit(main())
