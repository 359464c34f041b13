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

from . import outputs
from .errors import FRESH, ReportError

FOLDER = "state"
FILES = f"{FOLDER}/files"
"""Text files that name the links that were read, one on each line."""
SIZES, BAD_LINES, LOST, AGAIN, NO_BENCH = (
    f"{FOLDER}/{name}" for name in ("sizes", "bad", "lost", "again", "documents")
)
TABLES = {
    SIZES: "file string, size bigint",
    BAD_LINES: "file string, digest bigint, n bigint, reason string, raw string",
    LOST: "kind string, id string, key bigint, digest bigint, file string, raw string",
    AGAIN: "key bigint, digest bigint, file string",
    NO_BENCH: "file string, reason string, raw string",
}
"""sizes: what was read of each file. bad: its bad lines. lost: contents that an id has besides the
one that counts. again: files with contents that were read before. documents: those of no bench."""
_RECORD = "settled.json"
_STAGED = ".staged-"

Days = dict[str, tuple[int, int]]
"""Day (2026-11-30) -> the numbers of the change that was its last, and of the last one that did not
only add lines (0: none)."""


@dataclass
class Record:
    """What settled.json says. number: of the last change.

    lines: with bad ones. good, contents: good lines, and how many different ones. days: of each
    log. documents: a mark of those that `rows` of the benches come of. replaced: folders that the
    last change brought whole, as paths in OUT.
    """

    number: int = 0
    lines: int = 0
    good: int = 0
    contents: int = 0
    days: dict[str, Days] = field(default_factory=dict)
    documents: str = ""
    rows: int = 0
    replaced: list[str] = field(default_factory=list)


class State:
    """OUT/state. `now`: the record; changed by `commit` alone."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self.folder = out / FOLDER
        self.folder.mkdir(parents=True, exist_ok=True)
        self.now = self._read()
        self._finish()
        self._intact()

    def files(self) -> set[str]:
        """The links that were read."""
        texts = (path.read_text() for path in (self._out / FILES).glob("*.txt"))
        return {name for text in texts for name in text.splitlines()}

    def begin(self) -> Path:
        """Make an empty folder for the files of the next change."""
        staged = self.folder / f"{_STAGED}{self.now.number + 1}"
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir()
        return staged

    def _read(self) -> Record:
        path = self.folder / _RECORD
        if not path.exists():
            return Record()
        try:
            return Record(**json.loads(path.read_bytes()))
        except (ValueError, TypeError):
            raise ReportError(
                f"the report in {self._out} is damaged: {path} cannot be read", hint=FRESH
            ) from None

    def commit(self, record: Record, replaced: Iterable[str] = ()) -> None:
        """Decide what is staged and put it in its place. It outlasts a power cut: what was read may
        be deleted where it came from."""
        staged = self.folder / f"{_STAGED}{record.number + 1}"
        for path in (*_files(staged), *_folders(staged)):
            outputs.sync(path)
        self.now = record
        record.number += 1
        record.replaced = sorted(replaced)
        outputs.replace(self.folder / _RECORD, json.dumps(vars(record)) + "\n")
        self._finish()

    def _intact(self) -> None:
        """What was read once is not read again, so where somebody has taken it away, all is."""
        folders = [
            self._out / name / f"day={day}" for name, days in self.now.days.items() for day in days
        ]
        files = [self._out / FILES] if folders else []
        if not all(folder.is_dir() for folder in (*folders, *files)):
            raise ReportError(f"parts of the report in {self._out} are missing", hint=FRESH)

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


def _folders(folder: Path) -> list[Path]:
    return [path for path in (*folder.rglob("*"), folder) if path.is_dir()]
