"""A whole run: site, boards, plan, results, and what is told at the end."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from . import display
from .behaviour import Behaviour, plan
from .bench import Bench, Options
from .board import Board
from .cuts import shares
from .display import Display
from .errors import FAILED, OK, RigError, words
from .pairs import Pairs
from .real import RealBoard
from .results import FAIL, SKIP, Results
from .rig import VIRTUAL, BoardEntry, Rig
from .runner import go
from .site import MOSQUITTO, Site
from .tools import BUILT, Tools
from .virtual import VirtualBoard


@dataclass(frozen=True, slots=True)
class Settings:
    """Of a run. cuts: in all. jobs: how many boards compute at once."""

    behaviours: Sequence[str] = ()
    cuts: int = 4
    seed: int = 0
    broker: str = MOSQUITTO
    jobs: int = 2
    out: Path | None = None
    as_json: bool = False
    keep: bool = False
    files: Path = BUILT


def whole(entries: Sequence[BoardEntry], rig: Rig, settings: Settings) -> int:
    """The exit code. RigError where it cannot begin."""
    # With --json stdout is the lines' alone.
    console = Console(
        stderr=settings.as_json,
        soft_wrap=True,
        width=None if (sys.stderr if settings.as_json else sys.stdout).isatty() else 120,
    )
    folder = Path(tempfile.mkdtemp(prefix="sealmq-hil-"))
    results = Results(settings.out, settings.seed)
    behaviours = plan(settings.behaviours)
    console.print(f"seed {settings.seed}, run {results.run}", highlight=False)
    failed = True
    try:
        with ExitStack() as stack:
            stack.callback(results.close)
            benches = _benches(stack, folder, entries, rig, settings, results)
            _go(console, behaviours, benches, results, settings)
        failed = results.counts()[FAIL] > 0
        _tell(console, behaviours, benches, results)
    finally:
        if failed or settings.keep:
            console.print(f"kept: {folder}", highlight=False)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return FAILED if failed else OK


def _benches(
    stack: ExitStack,
    folder: Path,
    entries: Sequence[BoardEntry],
    rig: Rig,
    settings: Settings,
    results: Results,
) -> list[Bench]:
    """Site and boards, running; the stack ends them."""
    tools = Tools(folder, dict(rig.firmware), rig.wifi, settings.files)
    boards = [_board(entry, rig, tools) for entry in entries]
    for board in boards:
        tools.client_files(board)  # told once, before anything starts, and not by each behaviour
    site = Site(folder, [entry.name for entry in entries], settings.broker, rig.gateway)
    pairs = Pairs(settings.out, results.run, site.numbers)
    site.book.on_pair = pairs.add
    stack.callback(pairs.close)
    stack.callback(site.stop)
    starting = _Aside(site.start)
    heavy = threading.Semaphore(settings.jobs)
    benches = []
    parts = shares(settings.cuts, len(entries))
    for board, cuts in zip(boards, parts, strict=True):
        options = Options(cuts=cuts, seed=settings.seed)
        bench = Bench(board, site, results, tools, heavy, options)
        stack.callback(bench.close)
        benches.append(bench)
    for aside in [_Aside(board.start) for board in boards]:
        aside.join()
    starting.join()
    return benches


def _board(entry: BoardEntry, rig: Rig, tools: Tools) -> Board:
    if entry.port == VIRTUAL:
        folder = tools.folder / f"{entry.name}.vboard"
        return VirtualBoard(entry.name, folder, tools.wifi(VIRTUAL), entry.chip, entry.bits)
    return RealBoard(entry, rig)


class _Aside:
    """Work in a thread, whose error is raised by `join`."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:
            self._error = error

    def join(self) -> None:
        while self._thread.is_alive():
            self._thread.join(0.5)
        if self._error is not None:
            raise RigError(words(self._error), getattr(self._error, "hint", "")) from self._error


def _go(
    console: Console,
    behaviours: Sequence[Behaviour],
    benches: Sequence[Bench],
    results: Results,
    settings: Settings,
) -> None:
    if settings.as_json:
        results.on_row = lambda row: print(json.dumps(row), flush=True)
    with Display(console, [bench.name for bench in benches], len(behaviours)) as shown:
        go(behaviours, benches, results, shown.told)


def _tell(
    console: Console, behaviours: Sequence[Behaviour], benches: Sequence[Bench], results: Results
) -> None:
    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False)

    console.print(display.table(results.rows, [behaviour.name for behaviour in behaviours]))
    for name, outcome in (("failed", FAIL), ("skipped", SKIP)):
        for text in display.causes(results.rows, outcome):
            say(f"{name}: {text}")
    first = results.first_failure()
    if first is not None:
        when = time.strftime("%H:%M:%S", time.localtime(first["at_ms"] / 1000))
        say(
            f"first failure: {first['board']}, {first['behaviour']}, stage {first['stage']}, "
            f"at {when}: {first['cause']}"
        )
    if any("cut_after" in row for row in results.rows):
        say(display.cuts(results.rows))
    site = benches[0].site
    nonces = ", ".join(f"{count} {use}" for use, count in sorted(site.book.counts().items()))
    say(f"nonces: {nonces or 'none'}; {len(site.book.twice)} twice with other content")
    say(_kinds(benches))
    limits = dict.fromkeys(line for bench in benches for line in bench.board.not_modelled())
    if limits:
        say("virtual boards say nothing about:")
        for line in limits:
            say(f"  {line}")
    counts = results.counts()
    say(f"{counts['pass']} pass, {counts['fail']} fail, {counts['skip']} skip")


def _kinds(benches: Sequence[Bench]) -> str:
    # With a host's .mpy files it is a virtual one, wherever its port is.
    virtual = sum(bool(bench.board.arch()) for bench in benches)
    return f"boards: {virtual} virtual, {len(benches) - virtual} real"
