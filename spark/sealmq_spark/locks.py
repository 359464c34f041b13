"""One report at a time works in a folder.

There are two locks, as neither of them can be had at all times:

Python's, on MARK, is there before Java is: nothing may be forgotten beside another report. A Java
that Python starts inherits it, and keeps it until it ends, also when Python is killed (session.py,
`held`).

Java's, on JAVA, is held while it reads and settles. Under spark-submit Java was there first, and
who calls ingest and settle may have started it for anything: it inherits nothing, and when its
Python is killed it lives on for a moment and may still write.

They are locks on two files: Java knows fcntl's alone, and where a folder is shared (NFS) flock is
one of these as well, so that on one file a report would wait for itself.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import ReportError
from .found import MARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA = ".sealmq-java"
# A Java whose Python has ended holds the lock that it inherited for a moment.
_REPORT_S = 10.0
# A Java whose Python was killed ends what it is at first.
_JAVA_S = 60.0


def of_python(out: Path) -> int:
    """Waits until no report works in `out`, nor a Java that one has left: the descriptor that holds
    the lock. ReportError."""
    lock = os.open(out / MARK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660)
    try:
        _waited(partial(_taken, fcntl.flock, lock), out, _REPORT_S)
        _no_java(out)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _no_java(out: Path) -> None:
    try:
        java = os.open(out / JAVA, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        _waited(partial(_taken, fcntl.lockf, java), out, _JAVA_S)
    finally:
        os.close(java)


def _taken(lock: Callable[[int, int], None], file: int) -> bool:
    try:
        lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def of_java(spark: SparkSession, out: Path) -> Iterator[None]:
    """Only one Java reads or settles in `out`. ReportError."""
    jvm: Any = spark._jvm
    file = jvm.java.io.RandomAccessFile(str(out / JAVA), "rw")
    try:
        lock = _waited(file.getChannel().tryLock, out, _JAVA_S)
        yield
        lock.release()
    finally:
        file.close()


def _waited(attempt: Callable[[], Any], out: Path, seconds: float) -> Any:
    """What `attempt` gives when it gives something."""
    until = time.monotonic() + seconds
    while not (found := attempt()):
        if time.monotonic() > until:
            raise ReportError(
                f"another report is being made in {out}", hint="wait for it, or take another DIR"
            )
        time.sleep(0.1)
    return found
