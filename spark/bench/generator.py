"""Logs of a site as large as one likes, and the truth about them, which a report has to find:
closed segments of the gateway's audit log, runs of the rig, documents of a bench.

The same seed, lines and lines a day give the same files byte for byte, however many workers write.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import spark_rig as rig
import spark_world as world
from spark_events import next_line
from spark_lines import Lines
from spark_tally import Tally

SEGMENT_LINES = 25_000
"""About 6 MB: a busy gateway closes a segment at 8 MiB, or after five minutes."""
PER_DAY = 500_000
RIG_EACH = 250_000
"""Lines for which there is a run of the rig; two at least."""
_RESTART = 40
"""Segments of a process until it starts anew."""
_AGAIN = 500
"""One of so many lines stands in another file as well: somebody put a backup back."""
_TOPICS_EACH = 40
"""A topic is new in fewer than one of so many lines."""


@dataclass(frozen=True)
class Job:
    """One segment: the so-manieth of all, with so many lines."""

    folder: Path
    seed: str
    number: int
    lines: int
    segment_lines: int
    per_day: int


def generate(
    folder: Path,
    lines: int,
    *,
    seed: str = "1",
    per_day: int = PER_DAY,
    segment_lines: int = SEGMENT_LINES,
    workers: int = 1,
) -> Tally:
    """Writes about so many lines below `folder` (audit/, rig/, bench/) and tells what they are.

    per_day: lines of the audit log a day. ValueError: fewer than 10,000 lines, or no empty folder.
    """
    if lines < 10_000 or per_day < 1 or not 100 <= segment_lines <= 1_000_000 or workers < 1:
        raise ValueError("10,000 lines at least, 100 to 1,000,000 of them a segment, one worker")
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty")
    total = _rig(folder, lines, seed, per_day)
    wanted = (lines - total.lines) * _AGAIN // (_AGAIN + 1)
    (folder / "audit" / "mediator").mkdir(parents=True)
    jobs = [
        Job(folder, seed, number, min(segment_lines, wanted - first), segment_lines, per_day)
        for number, first in enumerate(range(0, wanted, segment_lines))
    ]
    again: list[str] = []
    for tally, some in _written(jobs, workers):
        total.add(tally)
        again += some
    total.add(_restored(folder, again, segment_lines))
    return total


def _written(jobs: Sequence[Job], workers: int) -> Iterator[tuple[Tally, list[str]]]:
    if workers == 1:
        yield from map(segment, jobs)
        return
    # Spawned: whoever generates may have threads.
    with multiprocessing.get_context("spawn").Pool(min(workers, len(jobs))) as pool:
        yield from pool.imap(segment, jobs)


def segment(job: Job) -> tuple[Tally, list[str]]:
    """Writes one segment: what is in it, and the lines that come again in another file."""
    mediators = world.MEDIATORS
    turn, which = divmod(job.number, mediators)
    life, part = divmod(turn, _RESTART)
    inst = 152_100 + mediators * life + which
    each = mediators * job.segment_lines
    began = world.at_ms(life * _RESTART * each, job.per_day)
    of = Lines(
        random.Random(f"{job.seed} segment {job.number}"),  # noqa: S311 - repeatable
        f"{world.SITE}-mediator-{inst}-{began}-",
        f'"site":"{world.SITE}","role":"mediator","inst":{inst}',
        job.number * (job.segment_lines // _TOPICS_EACH),
    )
    of.number = part * job.segment_lines
    # Slices in which time runs evenly: the hours of a day differ.
    made: list[str] = []
    while len(made) < job.lines:
        low = turn * each + mediators * len(made)
        begins = world.at_ms(low, job.per_day)
        step = (world.at_ms(low + mediators * 50, job.per_day) - begins) / 50
        for at in range(min(50, job.lines - len(made))):
            made.append(next_line(of, begins + int(at * step)))
    name = f"mediator-{inst:08d}-{began:013d}-{part + 1:06d}.jsonl"
    _write(job.folder / "audit" / "mediator" / name, made, of.tally)
    some = of.remembered()
    copied = job.lines // _AGAIN if some else 0
    return of.tally, [some[int(of.rnd() * len(some))] for _ in range(copied)]


def _restored(folder: Path, again: Sequence[str], segment_lines: int) -> Tally:
    tally = Tally(lines=len(again), repeated=len(again))
    for first in range(0, len(again), segment_lines):
        part = again[first : first + segment_lines]
        _write(folder / "audit" / f"restored-{first:09d}.jsonl", part, tally)
    return tally


def _rig(folder: Path, lines: int, seed: str, per_day: int) -> Tally:
    total = Tally()
    (folder / "rig").mkdir(parents=True)
    runs = max(2, lines // RIG_EACH)
    for number in range(runs):
        at = world.at_ms(lines * number // runs, per_day)
        run = rig.Run(number, seed, at, few=lines < RIG_EACH)
        _write(folder / "rig" / f"{run.run}-1.jsonl", run.results(), run.tally)
        _write(folder / "rig" / f"{run.run}-nonces-1.jsonl", run.nonces(), run.tally)
        total.add(run.tally)
    documents, tally = rig.documents(seed)
    (folder / "bench").mkdir()
    for number, document in enumerate(documents, 1):
        _write(folder / "bench" / f"device-{number}.json", [json.dumps(document)], tally)
    total.add(tally)
    return total


def _write(path: Path, lines: Sequence[str], tally: Tally) -> None:
    data = "".join(f"{line}\n" for line in lines).encode("ascii")
    # As the writers do it: readers take what has its last name.
    open_ = path.with_name(f"{path.name}.open")
    open_.write_bytes(data)
    open_.rename(path)
    tally.files += 1
    tally.bytes += len(data)


def main(argv: Sequence[str] | None = None) -> int:
    """Command line entry."""
    parser = argparse.ArgumentParser(
        prog="generator.py", description="Logs of a made-up site, and the truth about them as JSON."
    )
    parser.add_argument("folder", type=Path, help="where to; must not be there yet, or be empty")
    parser.add_argument("--lines", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--per-day", type=int, default=PER_DAY, metavar="N", help="lines a day")
    parser.add_argument("--segment-lines", type=int, default=SEGMENT_LINES, metavar="N")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes")
    given = parser.parse_args(argv)
    try:
        truth = generate(
            given.folder,
            given.lines,
            seed=given.seed,
            per_day=given.per_day,
            segment_lines=given.segment_lines,
            workers=given.workers,
        )
    except (OSError, ValueError) as error:
        print(f"generator: {error}", file=sys.stderr)
        return 1
    print(json.dumps(truth.told(), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
