"""Is there what Spark needs: pyspark, a Java of the right version, a master that answers?"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import time
from typing import TYPE_CHECKING

from .errors import ReportError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LEAST = 17
_EXTRA_HINT = "in the checkout: make install EXTRAS=spark, or pip install '.[spark]'"
_JAVA_HINT = "install Java 17 or 21 (Debian: openjdk-17-jre-headless), or set JAVA_HOME to it"
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_MASTER = re.compile(r"local(\[(\*|[1-9]\d*)(,\s*[1-9]\d*)?\])?|yarn|(spark|k8s)://.+")
_ANSWER_S = 5.0
_WORKERS_S = 60.0


def check() -> None:
    """ReportError: no pyspark, no Java, or one that is too old."""
    if importlib.util.find_spec("pyspark") is None:
        raise ReportError("pyspark is not installed here", hint=_EXTRA_HINT)
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return  # spark-submit's Java runs already
    program = found()
    try:
        # Where Java's own start script looks for it, too; the words are ours.
        done = subprocess.run(  # noqa: S603
            [program, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        raise ReportError(f"{program} cannot be run", hint=_JAVA_HINT) from None
    said = _VERSION.search(done.stderr + done.stdout)
    if done.returncode or said is None:
        raise ReportError(f"{program} does not say its version", hint=_JAVA_HINT)
    # Java 8 calls itself 1.8.
    version = int(said[2] or 0) if said[1] == "1" else int(said[1])
    if version < _LEAST:
        raise ReportError(f"{program} is Java {version}", "17 or later", hint=_JAVA_HINT)


def found() -> str:
    """The path of the `java` that Spark will start. ReportError."""
    home = os.environ.get("JAVA_HOME")
    if home:
        program = os.path.join(home, "bin", "java")
        if not os.access(program, os.X_OK):
            raise ReportError(f"JAVA_HOME is {home}, where there is no bin/java", hint=_JAVA_HINT)
        return program
    named = shutil.which("java")
    if named is None:
        raise ReportError("there is no Java here", hint=_JAVA_HINT)
    return named


def check_master(master: str | None) -> None:
    """Does somebody listen where a standalone master should? ReportError within seconds."""
    if master is None:
        return
    if not _MASTER.fullmatch(master):
        raise ReportError(
            f"--master {master}", "local[N], local[*], spark://HOST:PORT, yarn or k8s://..."
        )
    if not master.startswith("spark://"):
        return
    places = [_place(each) for each in master.removeprefix("spark://").split(",")]
    for host, port in places:
        try:
            socket.create_connection((host, port), _ANSWER_S).close()
        except OSError:
            continue
        return
    raise ReportError(
        f"nobody answers at {master}", hint="start-master.sh says its URL; is it up, and reachable?"
    )


def _place(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ReportError(f"--master spark://{text}", "spark://HOST:PORT")
    return host.strip("[]"), int(port)


def wait_for_workers(spark: SparkSession, patience_s: float = _WORKERS_S) -> None:
    """A master without free workers would let a job wait for ever. ReportError."""
    context = spark.sparkContext
    if (context.master or "").startswith("local"):
        return
    until = time.monotonic() + patience_s
    # The driver is one of them.
    while context._jsc.sc().getExecutorMemoryStatus().size() < 2:
        if time.monotonic() > until:
            raise ReportError(
                f"{context.master} gave no worker within {patience_s:.0f} s",
                hint="are there workers, with free cores and memory (1 GB)? do they reach this "
                "machine?",
            )
        time.sleep(0.2)
