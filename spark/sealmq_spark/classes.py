"""Java's classes as an archive that its next start maps into memory (class data sharing, JEP 350).

Spark loads and verifies some 15,000 classes from hundreds of files: a sixth of what a report over a
small log costs. A Java that finds no archive writes one as it ends, which takes seconds, once.
Java itself leaves an archive alone that is of other classes or of another Java.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

_FOLDER = "sealmq"
_NAME = "java-{}.jsa"
_KEPT = 2
"""Archives that stay, of 200 MB each: two installations take turns."""


class Archive:
    """The one for this Java and this Spark, in the cache folder of this user."""

    def __init__(self, java: str) -> None:
        """java: the program."""
        self._folder = _cache() / _FOLDER
        self._path = self._folder / _NAME.format(_mark(java))
        self._new = self._path.with_name(f".{self._path.name}.{os.getpid()}")

    def option(self) -> str:
        """Java's option to use the archive, or to write one if there is none. Empty: there is no
        place for it, or others could have written it."""
        text = str(self._path)
        if any(mark in text for mark in "\"'\\$`%"):  # which somebody on the way would read
            return ""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _mine(self._folder):
                return ""
            if self._path.exists():
                return f'"-XX:SharedArchiveFile={text}"' if _mine(self._path) else ""
        except (OSError, RuntimeError):
            return ""
        return f'"-XX:ArchiveClassesAtExit={self._new}"'

    def keep(self, code: int | None) -> None:
        """What Java has written, once it has ended with this exit code. OSError."""
        if not self._new.exists():
            return
        if code == 0:
            self._new.replace(self._path)
        else:
            self._new.unlink()
        for name in (_NAME.format("*"), f".{_NAME.format('*')}.*"):
            others = sorted(self._folder.glob(name), key=lambda path: -path.stat().st_mtime)
            for old in others[_KEPT:]:
                old.unlink(missing_ok=True)


def _cache() -> Path:
    named = os.environ.get("XDG_CACHE_HOME", "")
    return Path(named) if os.path.isabs(named) else Path(os.path.expanduser("~/.cache"))


def _mine(path: Path) -> bool:
    """Whether nobody else can have changed it: Java runs what it holds."""
    found = path.stat()
    others = stat.S_IWGRP | stat.S_IWOTH
    return found.st_uid == os.geteuid() and not found.st_mode & others


def _mark(java: str) -> str:
    """Another one after each change of Java or of Spark."""
    program = Path(os.path.realpath(java))
    jars = Path(_find_spark_home(), "jars")
    found = hashlib.sha256()
    for path in (program, program.parents[1] / "lib" / "modules", jars):
        there = path.stat() if path.exists() else None
        found.update(f"{path} {there and (there.st_size, there.st_mtime_ns)}\n".encode())
    return found.hexdigest()[:16]
