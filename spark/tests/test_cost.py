"""Costs of rows that benches really wrote: nothing is merged that differs, bases are found."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from pyspark.sql import SparkSession

from sealmq_spark.measures.cost import cost
from sealmq_spark.measures.figures import figures
from sealmq_spark.measures.identity import named
from sealmq_spark.measures.paper import paper
from spark_rows import ROOT, Row, bench, document, figure, plain

DEVICE = document("spark/tests/data/device.json")
PURPOSES = document("evidence/results/purposes.json")
PLACE: dict[str, Any] = {"machine": "x86_64", "python": "3.11"}


def of(rows: list[Row], measure: str, variant: str, **params: Any) -> Row:
    """The one row that is meant."""
    (one,) = (
        row
        for row in rows
        if (row["measure"], row["variant"]) == (measure, variant)
        and row["size"] in (params.get("size", 64), 0)
        and all(row["params"].get(k) == v for k, v in params.items() if k != "size")
    )
    return one


def test_whole_frame(spark: SparkSession) -> None:
    """The newest of each thing; ratios within what was asked alike, on one machine."""
    asked: dict[str, Any] = {"burst": 1, "process": "gateway", **PLACE}
    old = [figure("cpu_message", "labels", 400.0, n=10, reservations=0, **asked)]
    new = [
        figure("cpu_message", "mosquitto", 50.0, n=10, low=45.0, high=60.0, reservations=0,
               load=0.1, **asked),
        figure("cpu_message", "labels", 200.0, n=10, low=190.0, high=210.0, reservations=0,
               load=7.5, **asked),
        figure("cpu_message", "labels", 150.0, n=10, reservations=0, **{**asked, "burst": 16}),
        figure("cpu_message", "fop", 300.0, n=10, reservations=1000, **asked),
        figure("cpu_message", "fop", 300.0, n=10, reservations=9, **{**asked, "python": "3.12"}),
        figure("cpu_message_to_labels", "fop", 1.5, "times", **asked),
        figure("wire_publish", "plain", 88, "bytes", direction="sent"),
        figure("wire_publish", "sealmq-ccm", 132, "bytes", direction="sent"),
        figure("wire_publish", "plain", 4, "bytes", direction="received"),
        figure("wire_publish", "tls13-ecdsa", 110, "bytes", direction="sent", suite="x"),
        figure("round_trip", "labels", 3.5, "ms", **PLACE),
        figure("memory", "labels", 80.0, "MiB", process="mediator", **PLACE),
    ]  # fmt: skip
    frame = cost(bench(spark, {"new": (2_000, new), "old": (1_000, old)}))
    here, there = "machine=x86_64, python=3.11", "machine=x86_64, python=3.12"
    gateway, held = "burst=1, process=gateway, ", "reservations=0"
    us, times = "us of CPU", "cpu_message_to_labels"
    assert plain(frame, "what", "measure", "variant", "key") == [
        ("cpu", "message", "cpu_message", "fop", 64, us, here, gateway + "reservations=1000", 10,
         300.0, None, None, 6.0, None),
        ("cpu", "message", "cpu_message", "fop", 64, us, there, gateway + "reservations=9", 10,
         300.0, None, None, None, None),
        ("cpu", "message", "cpu_message", "labels", 64, us, here, gateway + held, 10,
         200.0, 190.0, 210.0, 4.0, None),
        ("cpu", "message", "cpu_message", "labels", 64, us, here,
         "burst=16, process=gateway, reservations=0", 10, 150.0, None, None, None, None),
        ("cpu", "message", "cpu_message", "mosquitto", 64, us, here, gateway + held, 10,
         50.0, 45.0, 60.0, 1.0, None),
        ("latency", "round_trip", "round_trip", "labels", 64, "ms", here, "", 1,
         3.5, None, None, None, None),
        ("memory", "memory", "memory", "labels", 64, "MiB", here, "process=mediator", 1,
         80.0, None, None, None, None),
        ("times", "message_to_labels", times, "fop", 64, "times", here, "burst=1, process=gateway",
         1, 1.5, None, None, None, None),
        ("wire", "publish", "wire_publish", "plain", 64, "bytes", "", "direction=received", 1,
         4.0, None, None, 1.0, None),
        ("wire", "publish", "wire_publish", "plain", 64, "bytes", "", "direction=sent", 1,
         88.0, None, None, 1.0, 0.8),
        ("wire", "publish", "wire_publish", "sealmq-ccm", 64, "bytes", "", "direction=sent", 1,
         132.0, None, None, 1.5, 1.2),
        ("wire", "publish", "wire_publish", "tls13-ecdsa", 64, "bytes", "", "direction=sent", 1,
         110.0, None, None, 1.25, 1.0),
    ]  # fmt: skip


def test_the_figures_of_pages(spark: SparkSession) -> None:
    """Of each thing the newest row, with all that its bench said."""
    frame = figures(
        bench(spark, {
            "/a/device.json": (1, [figure("connect", "plain", 3.0, bits=64)]),
            "/b/device.json": (2, [figure("connect", "plain", 4.0, bits=64, load=0.5, n=9),
                                   figure("connect", "plain", 5.0, bits=32)]),
        })
    )  # fmt: skip
    assert frame.columns == [
        "document", "measure", "variant", "size", "unit", "key", "n", "value", "params",
    ]  # fmt: skip
    same = ("device.json", "connect", "plain", 64, "us of CPU")
    assert sorted(map(tuple, frame.collect()), key=lambda row: row[5]) == [
        (*same, "bits=32", 1, 5.0, {"bits": "32"}),
        (*same, "bits=64", 9, 4.0, {"bits": "64", "load": "0.5"}),
    ]


def test_rows_of_the_real_benches(spark: SparkSession) -> None:
    """Each row is there once, and what was measured of plain and TLS is what ratios are to."""
    frame = cost(bench(spark, {"device": (1, DEVICE), "purposes": (2, PURPOSES)}))
    rows = [row.asDict() for row in frame.collect()]
    assert len(rows) == len(DEVICE) + len(PURPOSES)
    shown = ("measure", "variant", "size", "unit", "key")
    assert len({tuple(row[name] for name in shown) for row in rows}) == len(rows), "keys are alike"
    told = {tuple(row[name] for name in shown): row for row in rows}

    def ratio(measure: str, variant: str, base: str) -> float:
        mine, its = (of(DEVICE, measure, each)["value"] for each in (variant, base))
        return round(float(mine / its), 4)

    for measure, size in (("connect", 64), ("subscribe", 0), ("receive", 64), ("publish", 64)):
        for variant in ("sealmq-ccm", "sealmq-chacha", "tls13-ecdsa", "tls13-rsa"):
            row = told[measure, variant, size, "instructions", ""]
            assert row["to_plain"] == ratio(measure, variant, "plain")
            assert row["to_tls"] == ratio(measure, variant, "tls13-ecdsa")
            assert (row["what"], row["stage"]) == ("instructions", measure)
    for bits in (32, 64):
        row = told["heap_peak", "sealmq-ccm", 64, "bytes", f"bits={bits}, messages=100"]
        mine, base = (
            of(DEVICE, "heap_peak", each, bits=bits)["value"] for each in ("sealmq-ccm", "plain")
        )
        assert (row["what"], row["to_plain"]) == ("heap", round(mine / base, 4))
    key = "burst=1, clients=250, process=gateway, reservations=1000, stage=variants"
    row = told["cpu_message", "fop-cache", 64, "us of CPU", key]
    asked = {"burst": 1, "process": "gateway", "stage": "variants"}
    mine, base = (
        of(PURPOSES, "cpu_message", each, **asked)["value"] for each in ("fop-cache", "mosquitto")
    )
    assert row["to_plain"] == round(mine / base, 4)
    assert (row["low"], row["high"]) == tuple(
        of(PURPOSES, "cpu_message", "fop-cache", **asked)["params"][end] for end in ("low", "high")
    )


def test_every_param_that_benches_write_has_its_place() -> None:
    """A new one tells rows apart until the schema says otherwise; whoever adds it decides."""
    known = {name for which in ("asked", "how", "place", "found") for name in named(which)}
    # Of one variant alone: how many reservations are held, and how many the fewest are.
    known |= {"reservations", "fewest"}
    written = {name for row in (*DEVICE, *PURPOSES) for name in row["params"]}
    assert written <= known, "say in shared_spec/bench.schema.json what it is"
    schema = json.loads((ROOT / "shared_spec" / "bench.schema.json").read_text())
    jsonschema.validate({"rows": DEVICE}, schema)


def test_table_5(spark: SparkSession) -> None:
    """Of the four stages and all of them; where one was not measured, no whole."""
    rows = [
        figure(measure, variant, value, "instructions", size=size)
        for measure, size, values in (
            ("connect", 64, (100, 1000, 200)),
            ("subscribe", 0, (10, 20, 30)),
            ("receive", 64, (10, 15, 12)),
            ("publish", 64, (20, 30, 10)),
            ("receive", 256, (40, 60, 50)),
            ("publish_qos1", 256, (40, 60, 50)),
        )
        for variant, value in zip(("plain", "tls13-ecdsa", "sealmq-ccm"), values, strict=True)
    ]
    rows += [
        figure("heap_peak", variant, value, "bytes", bits=64, messages=100)
        for variant, value in (("plain", 100), ("sealmq-ccm", 150))
    ]
    found = plain(
        paper(cost(bench(spark, {"f": (1, rows)}))), "what", "comparison", "size", "stage"
    )
    assert [row[0] for row in found] == ["heap"] + 24 * ["instructions"]
    assert [row[1:] for row in found] == [
        ("ours > plain", 64, "overall", 50.0, None),
        ("TLS > ours", 64, "connect", 400.0, 38.0),
        ("TLS > ours", 64, "overall", 322.6, 20.0),
        ("TLS > ours", 64, "publish", 200.0, 10.0),
        ("TLS > ours", 64, "receive", 25.0, -11.0),
        ("TLS > ours", 64, "subscribe", -33.3, -4.0),
        ("TLS > ours", 256, "connect", 400.0, 38.0),
        ("TLS > ours", 256, "receive", 20.0, -11.0),
        ("TLS > ours", 256, "subscribe", -33.3, -4.0),
        ("TLS > plain", 64, "connect", 900.0, 68.0),
        ("TLS > plain", 64, "overall", 660.7, 54.0),
        ("TLS > plain", 64, "publish", 50.0, 41.0),
        ("TLS > plain", 64, "receive", 50.0, 66.0),
        ("TLS > plain", 64, "subscribe", 100.0, -6.0),
        ("TLS > plain", 256, "connect", 900.0, 68.0),
        ("TLS > plain", 256, "receive", 50.0, 66.0),
        ("TLS > plain", 256, "subscribe", 100.0, -6.0),
        ("ours > plain", 64, "connect", 100.0, 22.0),
        ("ours > plain", 64, "overall", 80.0, 29.0),
        ("ours > plain", 64, "publish", -50.0, 28.0),
        ("ours > plain", 64, "receive", 20.0, 86.0),
        ("ours > plain", 64, "subscribe", 200.0, -2.0),
        ("ours > plain", 256, "connect", 100.0, 22.0),
        ("ours > plain", 256, "receive", 25.0, 86.0),
        ("ours > plain", 256, "subscribe", 200.0, -2.0),
    ]


@pytest.mark.parametrize("which", ["asked", "how", "place", "found"])
def test_a_param_is_of_one_sort(which: str) -> None:
    others = {name for each in ("asked", "how", "place", "found") if each != which
              for name in named(each)}  # fmt: skip
    assert not others & set(named(which))
