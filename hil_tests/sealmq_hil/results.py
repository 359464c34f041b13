"""Result lines: shared_spec/hil.schema.json, written as segments that readers find closed.

A segment is `RUN-NUMBER.jsonl.open` while it is written; it is synced and renamed once, to a name
that is never given again. A run that dies leaves its last segment open: nobody reads that.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VERSION = 1
PASS, FAIL, SKIP = "pass", "fail", "skip"
VERDICT = "verdict"
OPEN, CLOSED = ".jsonl.open", ".jsonl"
_TEXT = 500
_ROOT = Path(__file__).resolve().parents[2]

Value = str | int | bool


@dataclass(frozen=True, slots=True)
class Row:
    """One stage of one behaviour. `more`: fields of the schema that only some stages have."""

    board: str
    kind: str
    chip: str
    behaviour: str
    stage: str
    outcome: str
    at_ms: int
    ms: int
    cause: str = ""
    more: dict[str, Value] = field(default_factory=dict)


class Results:
    """The lines of one run. Thread-safe; lines also stay here, for tables and tests."""

    def __init__(
        self, folder: Path | None, seed: int, *, run: str = "", lines_each: int = 1000
    ) -> None:
        """folder: where segments go; None: nowhere."""
        self.run = run or secrets.token_hex(8)
        self.seed = seed
        self.commit = commit()
        self.rows: list[dict[str, Any]] = []
        # Told of each line behind its writing.
        self.on_row: Callable[[dict[str, Any]], None] = lambda row: None
        self._folder, self._each = folder, lines_each
        self._lock = threading.Lock()
        self._number = self._segments = self._held = 0
        self._file: Segment | None = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def add(self, line: Row) -> dict[str, Any]:
        """Writes it down, synced, and gives it back as it stands there."""
        with self._lock:
            self._number += 1
            row: dict[str, Any] = {
                "v": VERSION,
                "id": f"{self.run}-{self._number}",
                "run": self.run,
                "at_ms": line.at_ms,
                "seed": self.seed,
                "board": line.board,
                "kind": line.kind,
                "chip": line.chip,
                "commit": self.commit,
                "behaviour": line.behaviour,
                "stage": line.stage,
                "outcome": line.outcome,
                "ms": max(0, line.ms),
            }
            if line.outcome != PASS:
                row["cause"] = _text(line.cause) or "no cause was given"
            row.update(line.more)
            self.rows.append(row)
            self._write(row)
            self.on_row(row)
            return row

    def _write(self, row: dict[str, Any]) -> None:
        if self._folder is None:
            return
        if self._file is None:
            self._segments += 1
            self._file = Segment(self._folder, f"{self.run}-{self._segments}")
            self._held = 0
        self._file.append(json.dumps(row).encode() + b"\n")
        self._held += 1
        if self._held >= self._each:
            self._file.close()
            self._file = None

    def close(self) -> None:
        """Gives the last segment its name."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def verdicts(self) -> list[dict[str, Any]]:
        """The lines that count."""
        return [row for row in self.rows if row["stage"] == VERDICT]

    def counts(self) -> dict[str, int]:
        """pass, fail, skip."""
        outcomes = [row["outcome"] for row in self.verdicts()]
        return {name: outcomes.count(name) for name in (PASS, FAIL, SKIP)}

    def first_failure(self) -> dict[str, Any] | None:
        """What went wrong first; the rest may follow from it."""
        return next((row for row in self.rows if row["outcome"] == FAIL), None)


class Segment:
    """An open segment. FileExistsError for a name that was used before."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._open, self._closed = folder / f"{name}{OPEN}", folder / f"{name}{CLOSED}"
        if self._closed.exists():
            raise FileExistsError(self._closed)
        self._fd = os.open(self._open, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o640)

    def append(self, data: bytes, *, sync: bool = True) -> None:
        """Whole lines, synced now or with the segment's end."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]
        if sync:
            os.fsync(self._fd)

    def close(self) -> None:
        """Its final name, durably."""
        os.fsync(self._fd)
        os.close(self._fd)
        if self._closed.exists():
            raise FileExistsError(self._closed)
        self._open.rename(self._closed)
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def now_ms() -> int:
    """Unix ms."""
    return time.time_ns() // 1_000_000


def commit() -> str:
    """Of the tree that this file lies in, with -dirty; "unknown" outside of one."""

    def git(*words: str) -> str:
        done = subprocess.run(  # noqa: S603
            ["git", *words],  # noqa: S607 - found on PATH
            cwd=_ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout.strip()

    try:
        head = git("rev-parse", "HEAD")
        return head + ("-dirty" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _text(text: str) -> str:
    one = " ".join(text.split())
    return one[:_TEXT].encode("ascii", "backslashreplace").decode()[:_TEXT]
