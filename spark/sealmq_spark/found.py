"""Which files there are in the logs: what Spark may read, and what it must not be given.

Plain Python over names and sizes. A file that nobody could read is told with the reason, so that
one of them ends nothing: a cut or damaged .gz, a pipe, a file without permission.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from .errors import ReportError

LINES = (".jsonl", ".jsonl.gz")
DOCUMENT = ".json"
OPEN = ".open"
MARK = ".sealmq-report"
"""Lies in a report's folder."""
DOCUMENT_BYTES = 8 << 20
"""A bench's document is read whole, and what it holds takes up to thirty times as much."""
_BLOCK = 1 << 20


class File(NamedTuple):
    """`name`: of this content at this path, unique. reason: why it cannot be read, or ""."""

    path: str
    name: str
    bytes: int
    made_ns: int
    reason: str


def files(logs: Sequence[str], without: Path) -> Iterator[File]:
    """Closed segments and documents in folders (and those below) and files. Sorted by folder.

    without: a folder that is left out, the report's own; those of other reports are as well.
    ReportError: a log is not there, or is a file of another kind.
    """
    if not logs:
        raise ReportError(
            "no logs were named", hint="name folders or files: sealmq report LOGS… --out DIR"
        )
    seen: set[tuple[int, int]] = set()
    for log in logs:
        yield from _of_log(log, without, seen)


def _of_log(log: str, without: Path, seen: set[tuple[int, int]]) -> Iterator[File]:
    try:
        held = os.stat(log)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ReportError(f"{log}: {why}", hint="a folder of logs, or a file of one") from None
    if stat.S_ISDIR(held.st_mode):
        yield from _below(os.path.abspath(log), without, seen)
        return
    if log.endswith(OPEN):
        raise ReportError(f"{log} is still being written", hint="its process closes and renames it")
    if not log.endswith((*LINES, DOCUMENT)):
        known = ", ".join((*LINES, DOCUMENT))
        raise ReportError(f"{log} is none of {known}", hint="name a folder, or a file that ends so")
    yield _file(os.path.abspath(log))


def _below(folder: str, without: Path, seen: set[tuple[int, int]]) -> Iterator[File]:
    """Links to folders are followed, each folder once."""
    waiting = [folder]
    own = _identity(str(without))
    while waiting:
        now = waiting.pop()
        which = _identity(now)
        if which is None or which in seen or which == own:
            continue
        seen.add(which)
        try:
            with os.scandir(now) as listed:
                entries = sorted(listed, key=lambda entry: entry.name)
        except OSError as error:
            yield File(now, "", 0, 0, f"cannot be listed: {error.strerror}")
            continue
        if any(entry.name == MARK for entry in entries):
            continue  # another report: what it read are links to logs, what it wrote are none
        for entry in entries:
            if _is_folder(entry):
                waiting.append(entry.path)
            elif entry.name.endswith((*LINES, DOCUMENT)):
                yield _file(entry.path)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, or to where nobody may look
        return False


def _identity(path: str) -> tuple[int, int] | None:
    try:
        held = os.stat(path)
    except OSError:
        return None
    return held.st_dev, held.st_ino


def _file(path: str) -> File:
    try:
        held = os.stat(path)
    except OSError as error:
        return File(path, "", 0, 0, f"cannot be read: {error.strerror}")
    reason = ""
    if not stat.S_ISREG(held.st_mode):
        reason = "no regular file"
    elif not os.access(path, os.R_OK):
        reason = "cannot be read: Permission denied"
    elif path.endswith(DOCUMENT) and held.st_size > DOCUMENT_BYTES:
        reason = f"a document of more than {DOCUMENT_BYTES >> 20} MiB"
    # A file that has changed is another one: its lines are read again, and each id counts once.
    what = f"{held.st_size} {held.st_mtime_ns} ".encode() + os.fsencode(path)
    ending = next(end for end in (*LINES, DOCUMENT) if path.endswith(end))
    name = hashlib.sha256(what).hexdigest()[:40] + ending
    return File(path, name, held.st_size, held.st_mtime_ns, reason)


def unpacked(path: str) -> int:
    """Bytes that a .gz holds. ValueError: it is cut, damaged or none."""
    found = 0
    try:
        with gzip.open(path) as file:
            while block := file.read(_BLOCK):
                found += len(block)
    except EOFError:
        raise ValueError("a compressed file that is cut") from None
    except (OSError, zlib.error):
        raise ValueError("a compressed file that is damaged") from None
    return found


def shown(path: str) -> str:
    """The path as text, whatever bytes it has."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
