"""The bench of the reports: its line, its plan, its tables, and what it would not let pass."""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path
from typing import Any

import jsonschema
import night
import pytest
import scale
import scale_cluster
import scale_fit
import scale_plan
import scale_table
import scale_truth
from spark_tally import Tally

from sealmq_spark import tables

SPEC = Path(__file__).resolve().parents[2] / "shared_spec"
SIZES = (1_000_000, 2_000_000, 4_000_000)


def sample(lines: int, seconds: float) -> dict[str, Any]:
    return {
        "lines": lines,
        "start": 5.0,
        "seconds": seconds,
        "cpu": 2 * seconds,
        "java": 900 << 20,
        "python": 50 << 20,
        "read": 300 * lines,
        "written": 100 * lines,
        "steps": {"ingest": seconds / 2, "settle": seconds / 4},
        "bytes": {"logs": 294 * lines, "report": 90 * lines},
    }


def rows() -> list[scale_fit.Row]:
    took = {1_000_000: (30.0, 32.0, 40.0), 2_000_000: (50.0, 52.0), 4_000_000: (120.0,)}
    samples = [sample(lines, each) for lines, every in took.items() for each in every]
    local = scale_fit.rows(samples, scale.LOCAL_NAME, 0.1)
    apart = scale_fit.rows([sample(SIZES[0], 60.0), sample(SIZES[2], 200.0)], "standalone-2", 0.1)
    same = [
        scale_fit.row(f"checksums_{name}", "standalone-2", value, "any", 1, lines=lines)
        for lines in (SIZES[0], SIZES[2])
        for name, value in (("same", 20), ("rows", 7000))
    ]
    beside = [
        scale_fit.row("beside_cpu", variant, value, unit, 1, lines=lines, of=of)
        for lines, of in ((scale.FEW, "read"), (SIZES[0], "report"))
        for variant, value, unit in (
            ("local-2", 30.0, "s"), (f"plain-{of}", 20.0, "s"), ("ratio", 1.4567, "times"),
        )
    ]  # fmt: skip
    told = [
        {"measure": "decisions", "format": format_, "bytes": size, "told": {}}
        | {"seconds": 1.5, "cpu": 2.5, "read": size}
        for format_, size in (("json", 3_000_000), ("parquet", 300_000))
    ]
    return [
        *local,
        *scale_fit.lined(local),
        *beside,
        *apart,
        *same,
        *scale_fit.formats(told, SIZES[1]),
    ]


def test_a_line_is_found_again_and_what_is_off_it_is_told() -> None:
    straight = scale_fit.line({x: 20 + 3e-5 * x for x in SIZES})
    assert straight.start == pytest.approx(20)
    assert straight.each == pytest.approx(3e-5)
    assert straight.worst == pytest.approx(0, abs=1e-9)
    bent = scale_fit.line({x: 1e-11 * x * x for x in SIZES})
    assert bent.worst > scale_fit.MAY_MISS
    # No other line has smaller relative misses, in squares.
    points = {1_000_000: 30.0, 2_000_000: 62.0, 8_000_000: 200.0}
    best = scale_fit.line(points)
    least = sum(miss**2 for miss in best.misses.values())
    for start, each in ((1.01, 1.0), (0.99, 1.0), (1.0, 1.01), (1.0, 0.99)):
        other = [(y - start * best.start - each * best.each * x) / y for x, y in points.items()]
        assert sum((100 * miss) ** 2 for miss in other) > least
    with pytest.raises(ValueError, match="two points"):
        scale_fit.line({1: 1.0})


def test_rows_are_those_of_the_contract_and_none_stands_twice() -> None:
    schema = json.loads((SPEC / "bench.schema.json").read_bytes())
    made = rows()
    jsonschema.Draft202012Validator(schema).validate({"rows": made})
    found = set(schema["$defs"]["found"]["enum"])
    named = {
        (
            *(row[name] for name in ("measure", "variant", "unit")),
            *sorted(f"{k}={v}" for k, v in row["params"].items() if k not in found),
        )
        for row in made
    }
    assert len(named) == len(made)


def test_the_tables_say_what_was_measured() -> None:
    made = scale_table.table(rows())
    # The median of three; the largest one is off; Java's memory is flat.
    for part in (
        "| 1,000,000 |",
        " 32.0 |",
        "beyond 10 %: ",
        " 900 |",
        "1.00 |",
        "200.0 |",
        " 1.46 |",
    ):
        assert part in made, made
    assert scale_table.table(list(reversed(rows()))) == made


def test_sizes_grow_with_the_time_and_stop_at_the_disk(tmp_path: Path) -> None:
    hour, day = (scale_plan.planned(4e-5, seconds, 2) for seconds in (2400, 86_400))
    assert len(set(hour)) == len(set(day)) == 5
    assert hour[0] == day[0] == scale_plan.SMALLEST
    assert hour[-1] < day[-1] == scale_plan.LARGEST
    assert scale_plan.apart([1, 2, 3, 4, 5]) == [1, 3, 5]
    assert scale_plan.apart([10**6, 3 * 10**6, 10**7, 10**8]) == [10**6, 3 * 10**6, 10**7]
    assert scale_plan.apart([10**8, 10**9]) == [10**8]
    with pytest.raises(scale_plan.BenchError, match="too little"):
        scale_plan.planned(4e-5, 60, 2)
    scale_plan.room(tmp_path, [10_000])
    with pytest.raises(scale_plan.BenchError, match="needed"):
        scale_plan.room(tmp_path, [10**12])


def test_a_count_that_is_one_off_is_found() -> None:
    truth = Tally(lines=10, repeated=1)
    truth.kept.update({"audit": 7, "bench": 3})
    truth.bad["torn"] = 2
    truth.events["connect"] = 7
    truth.decided["connect", ""] = 7
    truth.decided["unenforced", "r"] = 4
    truth.topics.add(1)
    run: dict[str, Any] = {
        "summary": {
            "lines": 13,
            "kept": {"audit": 7, "hil": 0, "nonce": 0, "bench": 3},
            "repeated": 1,
            "quarantined": 2,
        },
        "counted": {
            "events": {"connect": 7},
            "topics": 1,
            "decisions": [["connect", True, "", 7]],
            "unenforced": 4,
        },
    }
    assert scale_truth.differences(truth, run) == []
    for part, name in (
        ("summary", "lines"),
        ("summary", "repeated"),
        ("summary", "quarantined"),
        ("counted", "topics"),
        ("counted", "unenforced"),
    ):
        other = {**run, part: {**run[part], name: run[part][name] + 1}}
        (told,) = scale_truth.differences(truth, other)
        assert f"{run[part][name] + 1} instead of {run[part][name]}" in told
    other = {**run, "counted": {**run["counted"], "decisions": [["connect", False, "", 7]]}}
    assert len(scale_truth.differences(truth, other)) == 1


def test_a_night_has_the_newest_segments_and_run(tmp_path: Path) -> None:
    logs, new = tmp_path / "logs", tmp_path / "new"
    for folder in ("audit/mediator", "rig"):
        (logs / folder).mkdir(parents=True)
    for part in (1, 2, 3):
        for inst in (152100, 152101):
            (
                logs / "audit/mediator" / f"mediator-{inst:08d}-1767225600000-{part:06d}.jsonl"
            ).touch()
    for run, at in (("b", 1), ("a", 2)):
        for name in ("1", "nonces-1"):
            (logs / "rig" / f"{run}-{name}.jsonl").write_text(json.dumps({"at_ms": at}) + "\n")
    night.split(logs, new)
    segments = [f"mediator-{n:08d}-1767225600000-{p:06d}" for n in (152100, 152101) for p in (2, 3)]
    assert {path.stem for path in new.iterdir()} == {*segments, "a-1", "a-nonces-1"}


@pytest.mark.parametrize(
    ("family", "address", "reached"),
    [
        (socket.AF_INET, "127.0.0.1", False),
        (socket.AF_INET, "127.3.2.1", False),
        (socket.AF_INET, "0.0.0.0", True),  # noqa: S104 - that is what must be found
        (socket.AF_INET6, "::1", False),
        (socket.AF_INET6, "::ffff:127.0.0.1", False),
        (socket.AF_INET6, "::", True),
    ],
)
def test_what_other_machines_could_reach_is_found(
    family: socket.AddressFamily, address: str, reached: bool
) -> None:
    with socket.socket(family) as listening:
        listening.bind((address, 0))
        listening.listen()
        port = f":{listening.getsockname()[1]:04X}"
        # A descendant of its parent, as Java is one of the bench's child.
        found = scale_cluster.outside(scale_cluster.family([os.getppid()]))
    assert any(each.endswith(port) for each in found) is reached


def test_every_table_is_in_the_readme() -> None:
    text = (Path(scale.ROOT) / "spark/README.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`[a-z`, ]+`) \|.*\| [a-z, ]+ \|$", text, re.MULTILINE)
    assert {name for cell in cells for name in re.findall("[a-z]+", cell)} == set(tables.TABLES)


def test_what_does_not_belong_to_it_is_not_deleted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").touch()
    sizes = ["--sizes", "1e12,2e12", "--folder", str(tmp_path)]
    assert scale.main(sizes) == 1
    assert "are free" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
