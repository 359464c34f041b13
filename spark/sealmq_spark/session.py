"""The SparkSession that the programs and the tests use: quiet, UTC, without a web server."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayClient, JavaClass, JavaGateway
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

LOCAL = "local[2]"
_JAVA = "spark.driver.extraJavaOptions"
SMALL = 64 << 20
"""Bytes of lines to look at below which a report's session is `small`: of two hundred thousand."""
SCANS = "spark.sql.files.minPartitionNum"
"""How many tasks read a table at least."""
WHOLE = "spark.sql.codegen.wholeStage"
"""Whether Spark makes one Java method of all that it does with a row. The method that judges a line
would be too large for Java to compile."""
# A report makes thirty queries, each of which Spark would turn into Java and plan again on its way,
# and Java into machine code twice: half of the CPU of a report over 100,000 lines.
_SMALL = {
    _JAVA: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    WHOLE: "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
# Much of what a report runs, it runs for a moment: a third of its CPU over 300,000 lines was that
# of Java's second compiler. It waits longer, and leaves what plans queries and makes Java of them
# to the first (compiler.json: the classes).
_DIRECTIVES = Path(__file__).resolve().with_name("compiler.json")
_LARGE = {
    _JAVA: "-XX:+UseParallelGC -XX:Tier4InvocationThreshold=80000 "
    "-XX:Tier4MinInvocationThreshold=9600 -XX:Tier4CompileThreshold=240000 "
    "-XX:Tier4BackEdgeThreshold=640000 -XX:+UnlockDiagnosticVMOptions "
    f'"-XX:CompilerDirectivesFile={_DIRECTIVES}"',
}
_ASKED = (
    "org.apache.spark.sql.functions",
    "org.apache.spark.api.python.PythonUtils",
    "org.apache.spark.sql.api.python.PythonSQLUtils",
)
# Java's List.of takes up to ten elements without an array.
_AT_ONCE = 10
WRITERS = 8
"""Files that a task has open at once: each holds a part of what it has to write in memory."""
_ENDS_S = 60.0
"""Longer than Java writes down its classes for."""
# Set by spark-submit, which has started Java, with its own options, before it started us.
_SUBMITTED = "PYSPARK_GATEWAY_PORT"


def session(
    master: str | None = LOCAL,
    name: str = "sealmq",
    scratch: Path | None = None,
    *,
    memory: str | None = None,
    small: bool = False,
    log: Path | None = None,
    held: Sequence[int] = (),
    classes: str = "",
) -> SparkSession:
    """A new session, or the one of this process. scratch: where Spark writes what it spills.

    Java 17 or 21 has to be there; workers of another `master` need nothing of ours, and None is
    the one that spark-submit was given. memory: of the driver ("2g"). small: for few lines, with
    the same results: a third of the processor time, as nothing is compiled for them. log: gets
    what Java prints, which is stderr's otherwise. held: file descriptors that Java keeps open as
    well, so that a lock lasts as long as Java does, even when this process is killed. classes: an
    option of Java's (classes.py).
    """
    conf = SparkConf()
    for key, value in _settings(master, name, scratch, memory):
        conf.set(key, value)
    for key, value in (_SMALL if small else _LARGE).items():
        conf.set(key, f"{value} {classes}".strip() if key == _JAVA else value)
    if SparkContext._gateway is None and _SUBMITTED not in os.environ:
        _start_java(conf, log, held)
    made = SparkSession.builder.config(conf=conf).getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


@contextmanager
def settings(spark: SparkSession, others: Mapping[str, str]) -> Iterator[None]:
    """Put these settings in force, and afterwards those that were there before."""
    before = {name: spark.conf.get(name) for name in others}
    for name, value in others.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, was in before.items():
            spark.conf.set(name, was or "")


def end(spark: SparkSession) -> int | None:
    """Stop it, and wait until the Java that `session` has started is gone: its exit code, or None
    where there was one before."""
    with suppress(Exception):
        spark.stop()
    gateway = SparkContext._gateway
    if gateway is None or gateway.proc is None:
        return None
    gateway.shutdown()
    gateway.proc.stdin.close()
    return int(gateway.proc.wait(_ENDS_S))


def _settings(
    master: str | None, name: str, scratch: Path | None, memory: str | None
) -> Iterator[tuple[str, str]]:
    yield "spark.app.name", name
    yield "spark.ui.enabled", "false"
    yield "spark.ui.showConsoleProgress", "false"
    yield "spark.sql.session.timeZone", "UTC"
    yield "spark.sql.sources.partitionOverwriteMode", "dynamic"
    # Small sites: hundreds of near-empty tasks would cost more than the work.
    yield "spark.sql.shuffle.partitions", "4"
    # A table of a few rows is one task, and one file; batches.py divides what it reads.
    yield SCANS, "1"
    # The files of a batch are looked up here: a task for each would cost more.
    yield "spark.sql.sources.parallelPartitionDiscovery.threshold", "1000000"
    # For messages of errors each call on a column would ask Java ten times who has called it, and
    # Java would walk its stack: a fifth of a small report.
    yield "spark.python.sql.dataFrameDebugging.enabled", "false"
    yield "spark.sql.dataFrameQueryContext.enabled", "false"
    yield "spark.sql.ui.explainMode", "simple"
    # Kinds of lines and days are few: rows go to their files as they come, and are not put in
    # order before. Of more days than that the rest is.
    yield "spark.sql.maxConcurrentOutputFileWriters", str(WRITERS)
    # A window keeps so many rows of a client in memory of its own. For more it asks Spark, and a
    # sort that reads from it may have taken all there is, and gives none back: the job would end.
    # 65,536 hours are seven years.
    yield "spark.sql.windowExec.buffer.in.memory.threshold", "65536"
    # Hadoop has a mask of its own (022) for what it makes; the process's shall hold.
    mask = os.umask(0o077)
    os.umask(mask)
    yield "spark.hadoop.fs.permissions.umask-mode", f"{mask:03o}"
    if master is not None:
        yield "spark.master", master
        if master.startswith("local"):
            yield "spark.driver.bindAddress", "127.0.0.1"
            yield "spark.driver.host", "127.0.0.1"
    if memory is not None:
        yield "spark.driver.memory", memory
    if scratch is not None:
        yield "spark.local.dir", str(scratch)
        yield "spark.sql.warehouse.dir", str(scratch / "warehouse")


def _start_java(conf: SparkConf, log: Path | None, held: Sequence[int]) -> None:
    """Java first, its output perhaps in a file; the session takes the Spark that runs."""
    with nullcontext() if log is None else log.open("ab") as file:
        pipes = {"stdout": file, "stderr": file, "pass_fds": tuple(held)}
        gateway = launch_gateway(conf, pipes)  # type: ignore[no-untyped-call]
    _quick(gateway)
    SparkContext(conf=conf, gateway=gateway)


class _Asked(JavaClass):  # type: ignore[misc]
    """A class of Java's, of which each member is looked up there once, and not for each call."""

    def __getattr__(self, name: str) -> Any:
        member = super().__getattr__(name)
        self.__dict__[name] = member
        return member


class _Lists:
    """Makes Java's list of ours with one call for ten elements. py4j makes a call for each."""

    def __init__(self, client: GatewayClient) -> None:
        self._of = _Asked("java.util.List", client).of
        self._made = JavaClass("java.util.ArrayList", client)

    def can_convert(self, given: object) -> bool:
        """As py4j's converters have it. Java's short lists hold no null."""
        return type(given) in (list, tuple) and not any(one is None for one in given)  # type: ignore[attr-defined]

    def convert(self, given: Sequence[object], _: GatewayClient) -> object:
        """The same."""
        if len(given) <= _AT_ONCE:
            return self._of(*given)
        made = self._made()
        for at in range(0, len(given), _AT_ONCE):
            made.addAll(self._of(*given[at : at + _AT_ONCE]))
        return made


def _quick(gateway: JavaGateway) -> None:
    """A report makes thousands of calls for its columns: a tenth of what one over a small log
    costs. Each of them asks Java what these names are, and Java would look for the short ones in
    hundreds of archives."""
    client = gateway._gateway_client
    client.converters.insert(0, _Lists(client))
    for name in _ASKED:
        found = _Asked(name, client)
        for said in (name, name.rpartition(".")[2]):
            gateway.jvm.__dict__[said] = found
