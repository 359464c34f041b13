"""The report's folder: one report at a time, nothing half written, as private as the logs are.

.sealmq-report          says that the folder is a report's; locked while one is made (locks.py)
.sealmq-java            the lock of a Java that reads or settles
audit hil nonce simulation bench quarantine            what was read, each line once
state                   how far it was read (state.py)
days                    what tables are made of, by day (tables.py)
tables -> .tables-N     Parquet; all tables of a report change at once
summary.json report.html  replaced by a rename, summary.json last
read-segments.txt       what of a gateway's log was read whole, and may be deleted (settle.py)
spark.log               what Java and Spark printed
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import locks
from .errors import FRESH, ReportError
from .found import MARK, OPEN, files

TABLES = "tables"
SUMMARY = "summary.json"
PAGE = "report.html"
LOG = "spark.log"
SEGMENTS = "read-segments.txt"
READ = (
    "ingest",
    "audit",
    "hil",
    "nonce",
    "simulation",
    "bench",
    "quarantine",
    "state",
    "days",
)
_SCRATCH = ".scratch"
_FORMAT = b"1\n"
_FORGETTING = b"forgetting\n"


@dataclass(frozen=True)
class Found:
    """What there is to read: how many files, and their bytes."""

    files: int
    size: int


@dataclass(frozen=True)
class Place:
    """A report's folder, locked; `lock` is the descriptor that holds it."""

    out: Path
    lock: int

    def check(self) -> None:
        """ReportError: it is not there any more, or is another one."""
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(self.out / MARK), os.fstat(self.lock)):
                return
        raise ReportError(f"somebody has taken {self.out} away", hint="begin again")

    @property
    def log(self) -> Path:
        """Where Java's output goes."""
        return self.out / LOG

    @property
    def scratch(self) -> Path:
        """What Spark spills, gone at the end."""
        return self.out / _SCRATCH


def look(logs: Sequence[str], out: Path) -> Found:
    """What there is to read in these files and folders. ReportError: nothing, or no way to it."""
    for text in logs:
        if "://" in text:
            raise ReportError(f"{text} is no path", hint="mount it: logs are files and folders")
    there = [file for file in files(logs, out) if not file.reason]
    if not there and not (out / MARK).exists():
        if _still_open(logs):
            raise ReportError(
                "there are only segments that are still being written (.open)",
                "reports read closed ones",
                hint="the gateway closes a segment five minutes after it began, and when it ends: "
                "again in five minutes",
            )
        raise ReportError(
            f"nothing to read in {', '.join(logs)}",
            "logs end in .jsonl or .jsonl.gz, what benches wrote in .json",
            hint="the gateway's logs lie in SITE/audit; `sealmq hil run --out DIR` keeps the rig's",
        )
    return Found(len(there), sum(file.bytes for file in there))


def size_of(folder: Path) -> int:
    """Bytes of the files in a folder and below."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _still_open(logs: Sequence[str]) -> bool:
    return any(
        name.endswith(OPEN) for text in logs for _, _, names in os.walk(text) for name in names
    )


@contextlib.contextmanager
def opened(out: Path, fresh: bool = False) -> Iterator[Place]:
    """The folder, made if need be, for one report alone. fresh: all that was read is forgotten.

    What is written in it is the owner's alone; the group's as well where the folder is open to
    the group (a cluster's workers may be other users). ReportError, OSError.
    """
    if out.exists() and not out.is_dir():
        raise ReportError(f"{out} is no folder", hint="--out DIR: a new or an empty folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        out.mkdir(mode=0o700)
    if not (out / MARK).exists() and any(out.iterdir()):
        raise ReportError(
            f"{out} holds other files and no report",
            "a new or an empty folder, or an earlier report's",
        )
    shared = stat.S_IMODE(out.stat().st_mode) & stat.S_IWGRP
    before = os.umask(0o007 if shared else 0o077)
    try:
        lock = locks.of_python(out)
        place = Place(out, lock)
        try:
            _prepare(out, lock, fresh)
            yield place
        finally:
            with contextlib.suppress(ReportError):
                place.check()
                shutil.rmtree(place.scratch, ignore_errors=True)
            os.close(lock)
    finally:
        os.umask(before)


def _prepare(out: Path, lock: int, fresh: bool) -> None:
    mark = os.pread(lock, 64, 0)
    if fresh or mark == _FORGETTING:
        # Half forgotten it would be wrong, not only old: whoever comes next goes on with it.
        _stamp(lock, _FORGETTING)
        _forget(out)
    elif mark not in (b"", _FORMAT):
        raise ReportError(f"the report in {out} was made by another version of SealMQ", hint=FRESH)
    _stamp(lock, _FORMAT)
    # Left by one that was killed.
    _remove(out / _SCRATCH)
    (out / _SCRATCH).mkdir()
    (out / LOG).write_bytes(b"")


def _stamp(lock: int, mark: bytes) -> None:
    os.pwrite(lock, mark, 0)
    os.ftruncate(lock, len(mark))
    os.fsync(lock)


def _forget(out: Path) -> None:
    # First of all: what is forgotten is to be read again, and nobody may delete it.
    for name in (SEGMENTS, *READ, SUMMARY, PAGE, TABLES):
        _remove(out / name)
    for old in out.glob(".tables-*"):
        _remove(old)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def tables(out: Path) -> Iterator[Path]:
    """A folder for the tables, which takes the place of the last ones when all are written."""
    now = (out / TABLES).resolve().name if (out / TABLES).is_symlink() else ""
    for left in out.glob(".tables-*"):
        if left.name != now:
            _remove(left)
    number = int(now.rpartition("-")[2]) + 1 if now else 1
    made = out / f".tables-{number}"
    made.mkdir()
    yield made
    link = out / ".tables-link"
    _remove(link)
    link.symlink_to(made.name)
    if (out / TABLES).is_dir() and not (out / TABLES).is_symlink():
        shutil.rmtree(out / TABLES)  # a copy of a report, in which links became folders
    link.replace(out / TABLES)
    _remove(out / now) if now else None


def as_json(summary: Mapping[str, Any]) -> str:
    """summary.json."""
    return json.dumps(summary, indent=2, ensure_ascii=False) + "\n"


def replace(path: Path, text: str, *, group: bool = False) -> None:
    """Write a file so that a reader, or a power cut, meets the old one or the new one. group: a
    group that may enter its folder may read it."""
    new = path.with_name(f".{path.name}.new")
    with new.open("w", encoding="utf-8", newline="\n") as file:
        if group:
            _for_group(file.fileno(), path.parent.stat())
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync(path.parent)


def _for_group(file: int, folder: os.stat_result) -> None:
    if not folder.st_mode & stat.S_IXGRP:
        return
    with contextlib.suppress(PermissionError):  # not a group of ours: it is the owner's alone
        os.fchown(file, -1, folder.st_gid)
    if os.fstat(file).st_gid == folder.st_gid:
        os.fchmod(file, 0o640)


def sync(path: Path) -> None:
    """A file's content, or a folder's names, onto the disk."""
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
