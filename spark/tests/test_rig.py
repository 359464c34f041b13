"""Tables of the rig's lines: whole frames, each row written out."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from sealmq_spark.measures.behaviours import behaviours
from sealmq_spark.measures.cuts import coverage, cuts
from sealmq_spark.measures.flaky import flaky
from sealmq_spark.measures.stages import stages
from spark_rows import COMMIT, EARLIER, RUN_BEFORE, Row, hil, line, plain

NOT_SURE = f"{COMMIT}-dirty"


def cut(number: int, inside: bool, address: int, **more: Any) -> Row:
    its: Row = {"cut_after": number, "cut_op": "program", "cut_inside": inside}
    its |= {"cut_address": address, "cut_size": 256, "cut_done": 7 * inside, "cut_partition": "vfs"}
    return line(**{"stage": "cut", "behaviour": "cut-counter", **its, **more})


def test_stages(spark: SparkSession) -> None:
    """Medians of what passed, by kind; what failed has no say; bytes and heap where there are."""
    rows = [
        *(line(stage="write", behaviour="flash", ms=ms, bytes=4 * ms) for ms in (30, 10, 20)),
        line(stage="write", behaviour="flash", ms=90_000, bytes=1, outcome="fail", cause="x"),
        line(stage="write", behaviour="flash", ms=7, kind="serial", heap=90_000),
        line(stage="verdict", behaviour="flash", ms=100),
        line(stage="verdict", behaviour="flash", ms=0, outcome="skip", cause="no means"),
    ]
    assert plain(stages(hil(spark, rows)), "kind", "stage") == [
        ("serial", "flash", "write", 1, 7.0, 7, 7, 7.0, 7, 7, 7.0, 7, 7, None, 90_000.0),
        ("virtual", "flash", "verdict", 1, 100.0, 100, 100, 100.0, 100, 100, 100.0, 100, 100, None,
         None),
        ("virtual", "flash", "write", 3, 20.0, 10, 30, 29.0, 10, 30, 29.8, 10, 30, 80.0, None),
    ]  # fmt: skip


def test_behaviours(spark: SparkSession) -> None:
    rows = [
        line(ms=10),
        line(ms=30),
        line(ms=90_000, outcome="fail", cause="silent"),
        line(ms=5, stage="recover"),
        line(board="two", outcome="skip", cause="no means", ms=0),
        line(commit=EARLIER, run=RUN_BEFORE, kind="serial", ms=8),
    ]
    assert plain(behaviours(hil(spark, rows)), "commit", "board") == [
        (EARLIER, "serial", "one", "publish", 1, 0, 0, 8.0),
        (COMMIT, "virtual", "one", "publish", 2, 1, 0, 20.0),
        (COMMIT, "virtual", "two", "publish", 0, 0, 1, None),
    ]


def test_flaky(spark: SparkSession) -> None:
    """Of one commit, over runs; of a changed tree, within a run. Failing always is not flaky."""
    failed = {"outcome": "fail", "cause": "silent"}
    rows = [
        line(), line(), line(run=RUN_BEFORE, **failed),
        line(behaviour="flash", **failed), line(behaviour="flash", **failed),
        line(behaviour="rotate"), line(behaviour="rotate", commit=EARLIER, **failed),
        line(behaviour="update"), line(behaviour="update", stage="keep", **failed),
        line(behaviour="disable", commit=NOT_SURE),
        line(behaviour="disable", commit=NOT_SURE, run=RUN_BEFORE, **failed),
        line(behaviour="nonces", commit=NOT_SURE),
        line(behaviour="nonces", commit=NOT_SURE, **failed),
    ]  # fmt: skip
    assert plain(flaky(hil(spark, rows)), "behaviour") == [
        (NOT_SURE, "nonces", 1, 1, 0.5),
        (COMMIT, "publish", 2, 1, 0.3333),
    ]


def test_cuts_and_their_coverage(spark: SparkSession) -> None:
    """Places count once, however often they were hit; silicon's cuts are times, and no places."""
    rows = [
        line(stage="measure", behaviour="cut-counter", count=4),
        line(stage="measure", behaviour="cut-counter", count=5, board="two"),
        line(stage="measure", behaviour="cut-counter", count=9, outcome="fail", cause="x"),
        cut(1, True, 4096), cut(1, True, 4100), cut(1, False, 4096), cut(5, False, 8192),
        # Beyond what was counted.
        cut(6, True, 8192, outcome="fail", cause="silent"),
        cut(2, True, 40_960, cut_op="erase", cut_partition="nvs"),
        line(stage="measure", behaviour="cut-counter", count=2_000, kind="serial"),
        line(stage="cut", behaviour="cut-counter", kind="serial", cut_after=1_500, cut_op="time",
             cut_inside=False),
        line(stage="measure-plain", behaviour="cut-provisioning", count=3),
        line(stage="measure", behaviour="cut-provisioning", count=13),
        cut(3, True, 4096, behaviour="cut-provisioning"),
        cut(4, True, 4096, behaviour="cut-provisioning"),
        cut(40, True, 4096, behaviour="provision"),
        line(stage="verdict", behaviour="cut-counter"),
    ]  # fmt: skip
    frame = hil(spark, rows)
    assert plain(cuts(frame), "behaviour", "cut_partition") == [
        ("cut-counter", "", "time", 1, 0, 1, 0, 1, 0),
        ("cut-counter", "nvs", "erase", 1, 1, 0, 1, 1, 0),
        ("cut-counter", "vfs", "program", 5, 3, 2, 2, 3, 1),
        ("cut-provisioning", "vfs", "program", 2, 2, 0, 1, 2, 0),
        ("provision", "vfs", "program", 1, 1, 0, 1, 1, 0),
    ]
    assert plain(coverage(frame), "behaviour") == [
        ("cut-counter", 1, 5, 5, 3, 2, 2, 0.6),
        ("cut-provisioning", 4, 13, 10, 1, 1, 0, 0.1),
    ]
