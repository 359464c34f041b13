"""What somebody at a terminal sees: a bar while it runs, a table at the end, and the counts."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from .results import FAIL, PASS, SKIP, VERDICT

_MARK = {PASS: "[green]pass[/]", FAIL: "[red]FAIL[/]", SKIP: "[yellow]skip[/]"}


class Display:
    """A bar for each board on a terminal; elsewhere a line for each verdict."""

    def __init__(self, console: Console, boards: Sequence[str], behaviours: int) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._progress: Progress | None = None
        if console.is_terminal:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[at]}"),
                TimeElapsedColumn(),
                console=console,
                transient=True,
            )
            self._bars = {
                name: self._progress.add_task(name, total=behaviours, at="") for name in boards
            }

    def __enter__(self) -> Display:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def told(self, board: str, behaviour: str, stage: str, outcome: str) -> None:
        """As runner.Told."""
        with self._lock:
            if self._progress is not None:
                at = f"{behaviour} {stage}".strip()
                done = 1 if stage == VERDICT else 0
                self._progress.update(self._bars[board], advance=done, at=at)
            if stage == VERDICT and (self._progress is None or outcome == FAIL):
                self._console.print(f"{board}: {behaviour}: {_MARK[outcome]}", highlight=False)


def table(rows: Iterable[Mapping[str, Any]], behaviours: Sequence[str]) -> Table:
    """A row a behaviour: how many boards passed, failed, skipped; how long the slowest took."""
    verdicts = [row for row in rows if row["stage"] == VERDICT]
    made = Table(title="boards")
    for name in ("behaviour", "pass", "fail", "skip", "median s", "max s"):
        made.add_column(name, justify="left" if name == "behaviour" else "right", no_wrap=True)
    for behaviour in behaviours:
        mine = [row for row in verdicts if row["behaviour"] == behaviour]
        outcomes = [row["outcome"] for row in mine]
        times = sorted(row["ms"] / 1000 for row in mine if row["outcome"] != SKIP)
        made.add_row(
            behaviour,
            *(str(outcomes.count(name) or "") for name in (PASS, FAIL, SKIP)),
            f"{times[len(times) // 2]:.1f}" if times else "",
            f"{times[-1]:.1f}" if times else "",
        )
    return made


def causes(rows: Iterable[Mapping[str, Any]], outcome: str) -> list[str]:
    """Why, each with the boards that it held for."""
    boards: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["stage"] == VERDICT and row["outcome"] == outcome:
            boards.setdefault((row["behaviour"], row["cause"]), []).append(row["board"])
    return [f"{what}: {why} ({', '.join(who)})" for (what, why), who in boards.items()]


def cuts(rows: Iterable[Mapping[str, Any]]) -> str:
    """How many power cuts, how many of them inside of a change, and where."""
    found = [row for row in rows if "cut_after" in row]
    inside = sum(bool(row["cut_inside"]) for row in found)
    places: dict[str, int] = {}
    for row in found:
        name = f"{row.get('cut_partition', 'unknown place')} {row['cut_op']}"
        places[name] = places.get(name, 0) + 1
    where = ", ".join(f"{count} in {name}" for name, count in sorted(places.items()))
    return f"{len(found)} power cuts, {inside} of them inside of a write" + (
        f" ({where})" if where else ""
    )
