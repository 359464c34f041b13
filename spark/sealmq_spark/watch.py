"""`sealmq report --watch`: a report after the other in one Spark, for a screen on the wall.

A round is the report of every night (job.run): what is new in the logs is read, and the tables are
made as they always are. So there is one way to a table, and a folder that is watched, killed and
watched again holds what a single report would. A round in which no file is new makes the page anew
and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from signal import SIG_IGN, SIGINT, SIGTERM, getsignal, signal

from . import outputs
from .errors import ReportError
from .found import files
from .job import Outcome, now, publish
from .page import Live, render


def watch(
    report: Callable[[Live], Outcome],
    logs: Sequence[str],
    place: outputs.Place,
    every: int,
    *,
    wait: Callable[[float], None] = time.sleep,
    say: Callable[[str], None] = print,
) -> None:
    """Until KeyboardInterrupt; the page then says that nobody makes it any more. ReportError: the
    folder is not there any more, or is another one.

    report: makes one and writes it into `place`. every: seconds from one page to the next. say: is
    told a line for each report.
    """
    live, out = Live(every), place.out
    seen: frozenset[str] = frozenset()
    outcome: Outcome | None = None
    try:
        while True:
            began = time.monotonic()
            place.check()
            there = _there(logs, out)
            if outcome is None or there != seen:
                outcome, seen = report(live), there
                say(_line(outcome, time.monotonic() - began))
            else:
                outcome.summary["made"] = now()
                publish(outcome, out, live)
            wait(max(0.0, began + every - time.monotonic()))
    except KeyboardInterrupt:
        return
    finally:
        if outcome is not None:
            # The page alone: what stands beside it may be of a round that was begun.
            page = render(outcome.summary, outcome.lists, replace(live, ended=now()))
            with suppress(ReportError):
                place.check()
                outputs.replace(out / outputs.PAGE, page)


def _there(logs: Sequence[str], out: Path) -> frozenset[str]:
    """What there is to read. A file that was rotated or cut has another name (found.py)."""
    return frozenset(file.name or f"{file.path} {file.reason}" for file in files(logs, out))


def _line(outcome: Outcome, seconds: float) -> str:
    summary = outcome.summary
    found = f", {len(summary['why'])} found" if summary["why"] else ""
    return f"{summary['made']}  {summary['lines']:,} lines{found}, {seconds:.1f} s"


@contextmanager
def ended_by_signals() -> Iterator[Callable[[], None]]:
    """SIGINT and SIGTERM raise KeyboardInterrupt, once: what cleans up is not interrupted. What is
    given takes them back from whoever (Spark does) has put a handler of its own in this place."""

    def end(*_: object) -> None:
        for each in before:
            signal(each, SIG_IGN)
        raise KeyboardInterrupt

    def take() -> None:
        for each in before:
            signal(each, end)

    before = {each: getsignal(each) for each in (SIGINT, SIGTERM)}
    try:
        take()
        yield take
    finally:
        for each, handler in before.items():
            signal(each, handler)
