"""Many simulated runs, as lines of shared_spec/simulation.schema.json, for `sealmq report`.

A run is one draw under one rule with one kind of malice. Runs need nothing of each other, so each
process takes some; the lines come in the order of the runs, however many processes there are. So a
file that somebody interrupted says by itself how far it is, and the same series goes on with it.
"""

from __future__ import annotations

import fcntl
import gc
import hashlib
import json
import os
import random
import secrets
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import islice
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from sealmq.cli.errors import OperatorError

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

    name: str = field(init=False)
    """Of all numbers that the runs have in common."""

    def __post_init__(self) -> None:
        rules = {name: asdict(simulate.RULES[name]) for name in simulate.RULES}
        said = json.dumps([asdict(self.plan), self.share, rules], sort_keys=True)
        object.__setattr__(self, "name", hashlib.sha256(said.encode()).hexdigest()[:16])

    def __iter__(self) -> Iterator[Run]:
        return self.after(0)

    def after(self, runs: int) -> Iterator[Run]:
        """Without so many at its beginning."""
        for number in range(runs, self.runs):
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


class Begun(NamedTuple):
    """What there is of a file: its number (16 hex digits, drawn when it was begun), when that was,
    and its whole runs, in runs, lines and bytes."""

    file: str
    at_ms: int
    runs: int = 0
    lines: int = 0
    size: int = 0


def lines(series: Series, begun: Begun, jobs: int = 1) -> Generator[list[str], None, None]:
    """Of each run that is still missing its lines. jobs: processes."""
    number = begun.lines
    made = _made(series.after(begun.runs), jobs)
    for run, rounds in zip(series.after(begun.runs), made, strict=True):
        said = []
        for turn, counts in enumerate(rounds, 1):
            number += 1
            said.append(json.dumps(_line(run, turn, counts, begun, number)))
        yield said


def _made(runs: Iterator[Run], jobs: int) -> Iterator[list[Counts]]:
    if jobs == 1:
        yield from map(Run.rounds, runs)
        return
    # Forked: what other ways need beside the workers outlives one that is killed, and says so.
    pool = ProcessPoolExecutor(jobs, get_context("fork"), _begin_worker)
    try:
        given = [pool.submit(run.rounds) for run in islice(runs, _AHEAD * jobs)]
        while given:
            yield given.pop(0).result()
            given += [pool.submit(run.rounds) for run in islice(runs, 1)]
    finally:
        pool.shutdown(cancel_futures=True)


def _begin_worker() -> None:
    # A run has many small objects and leaves no circles: looking for those costs a tenth of it.
    gc.disable()
    # Ctrl-C is for who gives the work; who was given it ends with him, also if he is killed.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)


def _line(run: Run, turn: int, counts: Counts, begun: Begun, number: int) -> dict[str, Any]:
    return {
        "v": 1, "id": f"{begun.file}-s{number}", "at_ms": begun.at_ms,
        "simulated": run.series.name, "sites": run.series.plan.sites, "rule": run.rule,
        "kind": run.kind, "seed": run.seed, "round": turn, **counts._asdict(),
    }  # fmt: skip


def kept(series: Series, lines: Iterable[bytes]) -> Begun | None:
    """What a file that was interrupted has of the series; None: no whole run. Its last line may be
    torn, and its last run lack some. OperatorError: it has others, or more."""
    waiting, number, size = iter(lines), 0, 0
    begun: Begun | None = None
    whole: Begun | None = None
    for done, run in enumerate(series, 1):
        for turn in range(1, series.plan.rounds + 1):
            line = next(waiting, b"")
            if not line.endswith(b"\n"):
                return whole
            number, size = number + 1, size + len(line)
            row = _row(line)
            begun = begun or Begun(str(row.get("id")).partition("-")[0], row.get("at_ms", 0))
            counts: dict[str, Any] = {name: row.get(name) for name in Counts._fields}
            right = all(isinstance(count, int) and count >= 0 for count in counts.values())
            if not right or row != _line(run, turn, Counts(**counts), begun, number):
                raise OperatorError(
                    f"line {number} is no round {turn} of {run.rule}, {run.kind}, seed {run.seed}",
                    hint="the words with which it was begun, or another --out",
                )
        if begun:
            whole = begun._replace(runs=done, lines=number, size=size)
    if next(waiting, b""):
        raise OperatorError(f"there are more than {series.runs} runs", hint="more --runs")
    return whole


def _row(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    return row if isinstance(row, dict) else {}


def write(series: Series, wanted: Path, jobs: int, step: Callable[[int], None]) -> Begun:
    """Under its name once it is whole; till then NAME.open, with which the same series goes on.
    Returns what there was of it. step: is told how many runs there are more. OperatorError,
    OSError."""
    place = wanted.with_name(wanted.name + ".open")
    with place.open("a+b") as out:
        _lock(out, place)
        out.seek(0)
        try:
            begun = kept(series, out)
        except OperatorError as error:
            raise OperatorError(f"{place}: {error}", hint=error.hint) from None
        begun = begun or Begun(secrets.token_hex(8), time.time_ns() // 1_000_000)
        out.truncate(begun.size)
        step(begun.runs)
        with closing(lines(series, begun, jobs)) as made:
            for some in made:
                out.write("".join(f"{line}\n" for line in some).encode())
                step(1)
        out.flush()
        os.fsync(out.fileno())
        place.rename(wanted)
    return begun


def _lock(out: BinaryIO, place: Path) -> None:
    # lockf, not flock: workers do not inherit it.
    try:
        fcntl.lockf(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mine = place.exists() and os.path.samestat(os.fstat(out.fileno()), place.stat())
    except BlockingIOError:
        mine = False
    if not mine:
        raise OperatorError(f"{place} is written by another process", hint="another --out")
