"""A standalone Spark on this machine: a master and workers, all of it on loopback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

WORKERS = 2
MEMORY = "1g"
_HOST = "127.0.0.1"
_START_S = 120.0
_END_S = 20.0
_URL = re.compile(r"Starting Spark master at (spark://[\d.]+:\d+)")
_CLASS = "org.apache.spark.deploy."
_LISTENS = "0A"


class ClusterError(RuntimeError):
    """It does not start, or listens where it must not."""


def environment(scratch: Path) -> dict[str, str]:
    """For everything that runs Spark here: loopback, and nothing written elsewhere."""
    return {
        **os.environ,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": _HOST,
        "SPARK_LOCAL_DIRS": str(scratch / "local"),
        "SPARK_LOG_DIR": str(scratch / "logs"),
        "SPARK_WORKER_DIR": str(scratch / "work"),
        "SPARK_DAEMON_MEMORY": "256m",
        # Its port is a fixed one.
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
    }


@contextmanager
def cluster(scratch: Path, workers: int = WORKERS) -> Iterator[tuple[str, list[int]]]:
    """(the master's URL, the processes' ids) while it runs. Each worker has one core and MEMORY.

    ClusterError: it does not start.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    began: list[subprocess.Popen[bytes]] = []
    # Port 0: the system gives a free one. The pages for people are on loopback, too.
    where = ["--host", _HOST, "--port", "0", "--webui-port", "0"]
    try:
        log = scratch / "master.log"
        began.append(_java("master.Master", where, scratch, log))
        (url,) = _told(log, _URL, 1, began)
        for number in range(1, workers + 1):
            room = ["--cores", "1", "--memory", MEMORY, "--work-dir", str(scratch / f"w{number}")]
            own = scratch / f"worker-{number}.log"
            began.append(_java("worker.Worker", [*where, *room, url], scratch, own))
        _told(log, re.compile(r"(Registering worker) "), workers, began)
        yield url, [process.pid for process in began]
    finally:
        _end(reversed(began))


def _java(what: str, options: list[str], scratch: Path, log: Path) -> subprocess.Popen[bytes]:
    env = environment(scratch)
    spark_class = f"{env['SPARK_HOME']}/bin/spark-class"
    with log.open("wb") as file:
        return subprocess.Popen(  # noqa: S603 - Spark's own script, which becomes Java
            # Should we be killed, the kernel ends it: no signal for us or our group reaches it.
            ["/usr/bin/setpriv", "--pdeathsig", "TERM", spark_class, _CLASS + what, *options],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=env,
            cwd=scratch,
            start_new_session=True,
        )


def _told(
    log: Path, what: re.Pattern[str], times: int, began: Iterable[subprocess.Popen[bytes]]
) -> list[str]:
    """Waits until the log says so, so many times."""
    until = time.monotonic() + _START_S
    while True:
        text = log.read_text(errors="replace")
        found = what.findall(text)
        if len(found) >= times:
            return found[:times]
        if time.monotonic() > until or any(one.poll() is not None for one in began):
            raise ClusterError(f"no standalone Spark: {text.strip()[-500:]}")
        time.sleep(0.1)


def _end(began: Iterable[subprocess.Popen[bytes]]) -> None:
    """Workers first: they end their executors."""
    for process in began:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def family(pids: Iterable[int]) -> set[int]:
    """The processes and all that descend from them."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:
                continue
            parents.setdefault(int(text.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found: set[int] = set()
    waiting = list(pids)
    while waiting:
        now = waiting.pop()
        if now not in found:
            found.add(now)
            waiting += parents.get(now, [])
    return found


def outside(pids: Iterable[int]) -> list[str]:
    """Addresses (hex, as in /proc/net/tcp) other than loopback on which the processes listen."""
    inodes = {inode for pid in pids for inode in _sockets(pid)}
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENS and fields[9] in inodes and not _loopback(fields[1]):
                found.append(fields[1])
    return found


def _loopback(address: str) -> bool:
    host = address.partition(":")[0]
    # 127.0.0.0/8, the same within IPv6, and ::1; each word little-endian.
    mapped = host.startswith("0000000000000000FFFF0000") and host.endswith("7F")
    return (len(host) == 8 and host.endswith("7F")) or mapped or host == f"{'0' * 24}01000000"


def _sockets(pid: int) -> Iterator[str]:
    try:
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            target = os.readlink(fd)
            if target.startswith("socket:["):
                yield target[8:-1]
    except OSError:  # it has ended
        return
