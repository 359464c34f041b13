"""What became worse is found, what is noise is not, and nothing is compared that is not alike."""

from __future__ import annotations

import random
import statistics
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sealmq_spark.measures.regressions import regressions
from sealmq_spark.measures.regressions_rig import LEAST, pairs
from spark_rows import COMMIT, EARLIER, RUN, RUN_BEFORE, Row, bench, figure, hil, line, plain

FAIL = {"outcome": "fail", "cause": "silent"}
SKIP = {"outcome": "skip", "cause": "no means", "ms": 0}
PLACE: dict[str, Any] = {"machine": "x86_64", "python": "3.11"}


def before(**more: Any) -> Row:
    """A line of the earlier run."""
    return line(**{"run": RUN_BEFORE, "commit": EARLIER, "at_ms": 1_000, **more})


def verdicts(names: str, make: Any, **more: Any) -> list[Row]:
    return [make(behaviour=name, **more) for name in names.split()]


def test_runs_are_compared_with_the_last_alike(spark: SparkSession) -> None:
    """Of each set of boards the newest; the same commit, few of the behaviours and other boards are
    not comparable."""
    many = "flash publish rotate disable"
    others = "0123456789abcdef"

    def run(n: int, names: str = many, commit: str = EARLIER, **more: Any) -> list[Row]:
        return verdicts(names, line, run=16 * others[n], at_ms=n, commit=commit, **more)

    rows = [
        *run(1), *run(2), *run(3, commit=COMMIT), *run(4, "flash"), *run(5, many, kind="serial"),
        *run(6, many, board="two"), *run(6, many, board="three"), *run(7, chip="esp32c3"),
        *run(8, commit=COMMIT),
        *run(9, kind="serial", commit=f"{COMMIT}-dirty"), *run(10, kind="serial",
                                                               commit=f"{COMMIT}-dirty"),
    ]  # fmt: skip
    assert plain(pairs(hil(spark, rows))) == [(16 * "8", 16 * "2"), (16 * "a", 16 * "9")]


def test_whole_frame(spark: SparkSession) -> None:
    lines = [
        # Passed, and now one of two boards fails; or all do, where one did.
        before(board="one"), before(board="two"), line(board="one"), line(board="two", **FAIL),
        *verdicts("rotate", before, board="one"), *verdicts("rotate", before, board="two", **FAIL),
        *verdicts("rotate", line, board="one", **FAIL),
        *verdicts("rotate", line, board="two", **FAIL),
        # A third, now a half: too few to say; as often as before; never passed; new; mended.
        *verdicts("nonces nonces", before), *verdicts("nonces", before, **FAIL),
        *verdicts("nonces", line), *verdicts("nonces", line, **FAIL),
        *verdicts("update disable flash", before, **FAIL), *verdicts("update", before, board="two"),
        *verdicts("update disable purposes", line, **FAIL), *verdicts("update", line, board="two"),
        *verdicts("flash", line),
        # Nobody tried; nobody said anything.
        *verdicts("wifi-loss", before), *verdicts("wifi-loss", line, **SKIP),
        *verdicts("power-loss", before),
        # Twice as long, enough of them; too few of them; what failed does not count.
        *(before(stage="recover", ms=100 + n) for n in range(LEAST)),
        *(line(stage="recover", ms=200 + n) for n in range(LEAST)),
        *(line(stage="recover", ms=90_000, **FAIL) for _ in range(LEAST)),
        *(before(stage="lose", ms=100 + n) for n in range(LEAST)),
        *(line(stage="lose", ms=200 + n) for n in range(LEAST - 1)),
    ]  # fmt: skip
    interval = {"n": 10, **PLACE}
    old = [
        figure("publish", "sealmq-ccm", 1000, "instructions", qos=0),
        figure("receive", "sealmq-ccm", 1000, "instructions", qos=0),
        figure("publish", "plain", 1000, "instructions", qos=0),
        figure("heap_per_message", "sealmq-ccm", 0, "bytes", bits=32),
        figure("throughput", "labels", 1000, "messages/s", low=980, high=1020, **interval),
        figure("cpu_message", "labels", 100, low=98, high=102, burst=16, **interval),
        figure("cpu_message", "labels", 100, low=98, high=102, burst=1, **interval),
        figure("publish_qos1", "mediator", 100, **PLACE),
        figure("deliver", "mediator", 100, **PLACE),
        figure("cpu_message", "mosquitto", 100, low=98, high=102, burst=1, **interval),
        figure("to_labels", "fop", 1, "times", **PLACE),
        figure("connect", "sealmq-ccm", 1000, "instructions", clients=4),
    ]
    new = [
        figure("publish", "sealmq-ccm", 1030, "instructions", qos=0),
        figure("receive", "sealmq-ccm", 1015, "instructions", qos=0),
        figure("publish", "plain", 2000, "instructions", qos=0),
        figure("heap_per_message", "sealmq-ccm", 8, "bytes", bits=32),
        figure("throughput", "labels", 700, "messages/s", low=690, high=710, **interval),
        figure("cpu_message", "labels", 150, low=147, high=153, burst=16, **interval),
        # Half as much again, but anything from 90 to 210.
        figure("cpu_message", "labels", 150, low=90, high=210, burst=1, **interval),
        figure("publish_qos1", "mediator", 140, **PLACE),
        figure("deliver", "mediator", 160, **PLACE),
        figure("cpu_message", "mosquitto", 100, low=98, high=102, burst=1, **interval),
        figure("to_labels", "fop", 3, "times", **PLACE),
        # Another number of clients: another thing.
        figure("connect", "sealmq-ccm", 9000, "instructions", clients=9),
    ]
    documents = {"old": (1_000, old), "new": (2_000, new)}
    found = plain(regressions(hil(spark, lines), bench(spark, documents)))
    rig, files = (RUN, RUN_BEFORE), ("new", "old")
    assert found == [
        ("bench", "cpu_message", "labels, 64 B, burst=16", "slower", 100.0, 150.0, 1.5, *files),
        ("bench", "deliver", "mediator, 64 B", "slower", 100.0, 160.0, 1.6, *files),
        ("bench", "heap_per_message", "sealmq-ccm, 64 B, bits=32", "dearer", 0.0, 8.0, None,
         *files),
        ("bench", "publish", "sealmq-ccm, 64 B", "dearer", 1000.0, 1030.0, 1.03, *files),
        ("bench", "throughput", "labels, 64 B", "slower", 1000.0, 700.0, 1.4286, *files),
        ("rig", "power-loss", "verdict", "gone", 0.0, 0.0, None, *rig),
        ("rig", "publish", "recover", "slower", 103.5, 203.5, 1.9662, *rig),
        ("rig", "publish", "verdict", "fails", 0.0, 0.5, None, *rig),
        ("rig", "rotate", "verdict", "fails", 0.5, 1.0, None, *rig),
        ("rig", "wifi-loss", "verdict", "skipped", 0.0, 0.0, None, *rig),
    ]  # fmt: skip


def test_a_copy_of_a_document_hides_nothing(spark: SparkSession) -> None:
    def row(value: float, at_ms: int) -> Row:
        return figure("publish", "sealmq-ccm", value, "instructions", at_ms=at_ms)

    documents = {
        "old": (1, [row(100, 1)]), "new": (2, [row(200, 2), row(200, 2)]),
        "copy": (3, [row(200, 2)]),
    }  # fmt: skip
    found = plain(regressions(hil(spark, []), bench(spark, documents)))
    assert [row[:2] + row[4:6] for row in found] == [("bench", "publish", 100.0, 200.0)]


def rounds(rng: random.Random, at: float, noise: float, n: int = 10) -> dict[str, Any]:
    """A median and the interval that the benches take of so many values."""
    drawn = sorted(at * rng.lognormvariate(0, noise) for _ in range(n))
    return {"value": statistics.median(drawn), "low": drawn[1], "high": drawn[-2], "n": n}


@pytest.mark.full
def test_noise_is_no_regression_and_a_third_more_is_one(spark: SparkSession) -> None:
    """200 pairs of nothing but noise, and ten that became slower, beside a machine that is twice as
    slow today: of benches and of the rig."""
    rng = random.Random("regressions")
    documents: dict[str, tuple[int, list[Row]]] = {}
    for file, made, pace in (("old", 1, 1.0), ("new", 2, 2.0)):
        rows = []
        for n in range(200):
            its = rounds(rng, pace * 100, (0.03, 0.1, 0.3)[n % 3])
            rows.append(figure("noise", "labels", unit="ms", reservations=n, **its, **PLACE))
        for n in range(10):
            its = rounds(rng, 100 * (2.6 if file == "new" else 1), 0.03)
            rows.append(figure("slow", "labels", unit="ms", reservations=n, **its, **PLACE))
            its = rounds(rng, pace * 100, 0.03)
            rows.append(figure("trip", "mosquitto", unit="ms", stage=str(n), **its, **PLACE))
        documents[file] = (made, rows)
    lines = []
    for make, pace, slow in ((before, 1, 1.0), (line, 2, 1.4)):
        for _ in range(10):
            lines += [
                make(stage=f"s{n}", ms=round(pace * 1000 * rng.lognormvariate(0, 0.05)))
                for n in range(60)
            ]
            took = round(pace * slow * 1000 * rng.lognormvariate(0, 0.03))
            lines.append(make(stage="slow", ms=took))
    found = regressions(hil(spark, lines), bench(spark, documents))
    told = [(row.source, row.subject, row.part, row.what) for row in found.collect()]
    expected = [("bench", "slow", f"labels, 64 B, reservations={n}", "slower") for n in range(10)]
    assert sorted(told) == [*expected, ("rig", "publish", "slow", "slower")]


def test_nothing_to_compare_is_no_regression(spark: SparkSession) -> None:
    frame = regressions(hil(spark, [line(**FAIL)]), bench(spark, {}))
    assert frame.collect() == []
    assert frame.columns == [
        "source", "subject", "part", "what", "before", "now", "ratio", "measured", "against",
    ]  # fmt: skip
