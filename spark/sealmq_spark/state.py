"""How far a report's lines are settled, and the files that this stands in: changed together.

A change is staged as a tree of the report's folder: OUT/state/.staged-N. Recorded in settled.json,
by one rename, it is decided; then its files go to their places. Killed before that it never was;
killed after that, whoever comes next puts there what is left of it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import outputs
from .errors import ReportError

FOLDER = "state"
_RECORD = "settled.json"
_STAGED = ".staged-"

Days = dict[str, tuple[int, int]]
"""Day (2026-11-30) -> the numbers of the change that was its last, and of the last one that did not
only add lines (0: none)."""


@dataclass
class Record:
    """What settled.json says. number: of the last change.

    parts, last: how many of the stream's files are settled, and the newest of these. good,
    contents: good lines, and how many different ones. lines: with bad ones. days: of each log.
    documents: a mark of those that `rows` of the benches come of. replaced: folders that the last
    change brought whole, as paths in OUT.
    """

    number: int = 0
    parts: int = 0
    last: str = ""
    lines: int = 0
    good: int = 0
    contents: int = 0
    days: dict[str, Days] = field(default_factory=dict)
    documents: str = ""
    rows: int = 0
    replaced: list[str] = field(default_factory=list)


class State:
    """OUT/state. `now`: the record; changed by `commit` alone. `staged`: where a change is made."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self.folder = out / FOLDER
        self.folder.mkdir(parents=True, exist_ok=True)
        self.now = self._read()
        self._finish()
        self.staged = self.folder / f"{_STAGED}{self.now.number + 1}"
        self.staged.mkdir()

    def _read(self) -> Record:
        path = self.folder / _RECORD
        if not path.exists():
            return Record()
        try:
            return Record(**json.loads(path.read_bytes()))
        except (ValueError, TypeError):
            raise ReportError(
                f"{path} cannot be read", hint="--fresh reads all logs again"
            ) from None

    def commit(self, record: Record, replaced: Iterable[str] = ()) -> None:
        """Decide what is staged and put it in its place."""
        self.now = record
        record.number += 1
        record.replaced = sorted(replaced)
        outputs.replace(self.folder / _RECORD, json.dumps(vars(record)) + "\n")
        self._finish()

    def _finish(self) -> None:
        for staged in self.folder.glob(f"{_STAGED}*"):
            if staged.name == f"{_STAGED}{self.now.number}":
                self._put(staged)
            shutil.rmtree(staged)

    def _put(self, staged: Path) -> None:
        """Each rename happens once: what is no longer staged is there."""
        for name in self.now.replaced:
            source, target = staged / name, self._out / name
            if source.is_dir():
                shutil.rmtree(target, ignore_errors=True)
                if any(_files(source)):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    source.rename(target)
        for file in _files(staged):
            target = self._out / file.relative_to(staged)
            target.parent.mkdir(parents=True, exist_ok=True)
            file.rename(target.with_name(f"{self.now.number}-{target.name}"))


def added(file: Path) -> int:
    """The number of the change that has added this file; 0: its folder came whole."""
    number = file.name.partition("-")[0]
    return int(number) if number.isdecimal() else 0


def _files(folder: Path) -> list[Path]:
    """Of tables: Spark's own notes are hidden."""
    return [path for path in folder.rglob("*") if path.is_file() and path.name[0] not in "._"]


def parts(lines: Path) -> list[str]:
    """The files of OUT/lines that the stream has finished, oldest first: kind=NAME/part-..."""
    log = lines / "_spark_metadata"
    names = [path.name for path in log.iterdir()] if log.is_dir() else []
    compact = max((int(name[:-8]) for name in names if name.endswith(".compact")), default=-1)
    later = sorted(int(name) for name in names if name.isdecimal() and int(name) > compact)
    steps = [f"{compact}.compact"] if compact >= 0 else []
    found = []
    for step in (*steps, *map(str, later)):
        for line in (log / step).read_text().splitlines()[1:]:
            entry: Any = json.loads(line)
            found.append("/".join(entry["path"].split("/")[-2:]))
    return found
