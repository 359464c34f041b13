"""The rig's result lines: each is one of the schema, segments are closed once and never reused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from hil_bench import benches
from sealmq_hil.behaviour import Behaviour
from sealmq_hil.bench import Bench
from sealmq_hil.board import Place
from sealmq_hil.errors import Skipped
from sealmq_hil.figures import FILE, measured
from sealmq_hil.results import FAIL, PASS, SKIP, VERDICT, Results, Row, Segment, commit
from sealmq_hil.runner import go

SCHEMA = Path(__file__).parents[2] / "shared_spec" / "hil.schema.json"
validator = Draft202012Validator(json.loads(SCHEMA.read_text()))


def row(**fields: Any) -> Row:
    """A line of a board that passed."""
    told: dict[str, Any] = {
        "board": "b1", "kind": "virtual", "chip": "esp32", "behaviour": "flash", "stage": "write",
        "outcome": PASS, "at_ms": 1, "ms": 2, **fields,
    }  # fmt: skip
    return Row(**told)


def closed(folder: Path) -> Iterator[dict[str, Any]]:
    """Every line of the closed segments, each valid."""
    for file in sorted(folder.glob("*.jsonl")):
        data = file.read_bytes()
        assert data.endswith(b"\n")
        for line in data.decode("ascii").splitlines():
            made = json.loads(line)
            validator.validate(made)
            yield made


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(json.loads(SCHEMA.read_text()))


def test_what_a_run_writes_is_of_the_schema(tmp_path: Path) -> None:
    def cut(bench: Bench) -> None:
        with bench.stage("cut") as stage:
            stage.cut(Place(3, "program", 0x9020, 32, 7, inside=True), "nvs")
            stage.bytes(5)
            stage.heap(100_000)
            stage.count(1)
        with bench.stage("timed") as stage:
            stage.cut(Place(700, "time"), "")

    def fails(bench: Bench) -> None:
        with bench.stage("open"):
            raise OSError("ünlesbar \udc80 " + "x" * 600)

    def skips(bench: Bench) -> None:
        raise Skipped("nothing to do it with")

    plan = [Behaviour("cut", "", cut), Behaviour("fails", "", fails), Behaviour("s", "", skips)]
    results = Results(tmp_path, 4711)
    (bench,) = benches(results, tmp_path)
    bench.image = "ab" * 32
    go(plan, [bench], results, lambda *_: None)
    assert not list(closed(tmp_path)), "readers find nothing before the segment is closed"
    results.close()
    rows = list(closed(tmp_path))
    assert rows == results.rows
    assert len({r["id"] for r in rows}) == len(rows)
    assert {r["outcome"] for r in rows} == {PASS, FAIL, SKIP}
    assert [r["cut_inside"] for r in rows if "cut_after" in r] == [True, False]
    assert all(r["seed"] == 4711 and r["commit"] == results.commit for r in rows)


@pytest.mark.parametrize(
    "wrong",
    [
        {"outcome": FAIL},  # without a cause
        {"cause": "of a pass"},
        {"ms": -1},
        {"payload": "21.5"},
        {"cut_inside": True},
        {"image": "abc"},
        {"stage": "two words"},
        {"heap": None},
        {"id": "1"},
    ],
)
def test_the_schema_refuses(tmp_path: Path, wrong: dict[str, Any]) -> None:
    good = Results(None, 1).add(row())
    validator.validate(good)
    with pytest.raises(ValidationError):
        validator.validate({**good, **wrong})


def test_a_segment_is_closed_once_and_its_name_never_given_again(tmp_path: Path) -> None:
    results = Results(tmp_path, 1, run="0" * 16, lines_each=2)
    for _ in range(3):
        results.add(row())
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == ["0000000000000000-1.jsonl", "0000000000000000-2.jsonl.open"]
    results.close()
    results.close()
    assert not list(tmp_path.glob("*.open"))
    again = Results(tmp_path, 1, run="0" * 16)
    with pytest.raises(FileExistsError):
        again.add(row())
    late = Segment(tmp_path, "late")
    (tmp_path / "late.jsonl").write_text("somebody else's\n")
    with pytest.raises(FileExistsError):
        late.close()


def test_counts_and_the_first_failure_are_of_verdicts_and_stages() -> None:
    results = Results(None, 1)
    results.add(row())
    results.add(row(stage="open", outcome=FAIL, cause="first"))
    results.add(row(stage=VERDICT, outcome=FAIL, cause="first"))
    results.add(row(stage=VERDICT))
    results.add(row(stage=VERDICT, outcome=SKIP, cause="no switch"))
    assert results.counts() == {PASS: 1, FAIL: 1, SKIP: 1}
    first = results.first_failure()
    assert first is not None
    assert (first["stage"], first["cause"]) == ("open", "first")


def test_the_commit_is_that_of_the_tree() -> None:
    assert len(commit().removesuffix("-dirty")) == 40 or commit() == "unknown"


def test_what_a_run_of_flashing_sums_up_to(tmp_path: Path) -> None:
    results = Results(tmp_path, 7)
    for board, at in (("virtual-1", 1_000), ("virtual-2", 3_500)):
        said = row(board=board, behaviour="flash", stage=VERDICT, at_ms=at, ms=10_000)
        results.add(said)
    results.close()
    made = measured(tmp_path)
    assert (made["value"], made["unit"], made["n"]) == (12.5, "s", 2)
    schema = json.loads((SCHEMA.parent / "bench.schema.json").read_text())
    for rows in ([made], json.loads(FILE.read_text())["rows"]):
        Draft202012Validator(schema).validate({"rows": rows})
    results = Results(tmp_path, 7)
    results.add(row(behaviour="flash", stage=VERDICT, outcome=FAIL, cause="none"))
    results.close()
    with pytest.raises(SystemExit, match="not one run"):
        measured(tmp_path)
