"""summary.json's contract, what makes the exit code 1, and what the command says in the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import jsonschema
import pytest
from pyspark.sql import SparkSession

from sealmq_spark import job, told
from sealmq_spark.headline import KEYS_REPEATED, OF_LOG
from sealmq_spark.job import _why

HERE = Path(__file__).resolve().parent
SCHEMA: dict[str, Any] = json.loads(
    (HERE.parents[1] / "shared_spec" / "report.schema.json").read_bytes()
)
CLEAN = {"regressions": 0, KEYS_REPEATED: 0}


@pytest.fixture
def example() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HERE / "data" / "summary.json").read_bytes())
    return found


def regression(**changed: Any) -> dict[str, Any]:
    row = {"source": "bench", "subject": "publish", "part": "sealmq-ccm, 64 B", "what": "dearer"}
    return {**row, "before": 25600.0, "now": 33123.4, "ratio": 1.29, **changed}


def nonces(repeated: int) -> dict[str, Any]:
    return {"key": "l1 client=1 gen=1", "repeated": repeated}


def test_the_example_fulfils_the_schema_and_counts_what_a_report_counts(
    example: dict[str, Any],
) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    validator = jsonschema.Draft202012Validator(SCHEMA)
    validator.validate(example)
    assert set(example["headline"]) == set(OF_LOG)
    wrong: list[dict[str, Any]] = [{"exit": 2}, {"lines": -1}, {"made": "now"}, {"more": 1}]
    for broken in wrong:
        assert not validator.is_valid({**example, **broken})


def test_tables_are_not_new_before_the_page_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever ends it while the page is made leaves the last report, not half of this one."""

    def nothing(*_: object) -> Any:
        return {}

    def ended(*_: object) -> Any:
        raise KeyboardInterrupt

    for name in ("ingest", "settle", "_shown"):
        monkeypatch.setattr(job, name, nothing)
    monkeypatch.setattr(job, "_measured", lambda *_: ({}, {}))
    monkeypatch.setattr(job, "_summary", lambda *_: {"headline": CLEAN, "sites": {}})
    monkeypatch.setattr(job, "_why", lambda *_: [])
    monkeypatch.setattr(job, "render", ended)
    with pytest.raises(KeyboardInterrupt):
        job.run(cast(SparkSession, None), [], tmp_path)
    assert not (tmp_path / "tables").exists()
    monkeypatch.setattr(job, "render", lambda *_: "page")
    job.run(cast(SparkSession, None), [], tmp_path)
    assert (tmp_path / "tables").is_symlink()
    assert (tmp_path / "report.html").read_text() == "page"


def test_nothing_bad_is_no_reason() -> None:
    assert _why({"regressions": [], "nonces": [nonces(0)]}, CLEAN) == []
    assert _why({"regressions": [], "nonces": []}, CLEAN) == []


def test_a_regression_and_a_nonce_used_twice_are_named() -> None:
    gone = regression(source="rig", subject="update", part="verdict", what="fails")
    lists = {"regressions": [regression(), {**gone, "before": None}], "nonces": [nonces(2)]}
    assert _why(lists, {"regressions": 2, KEYS_REPEATED: 1}) == [
        "nonces: 2 used twice under the key l1 client=1 gen=1",
        "a bench: publish, sealmq-ccm, 64 B: dearer (25600 before, 33123 now)",
        "the rig: update, verdict: fails (nothing before, 33123 now)",
    ]
    # What is worst is not among those that are only counted.
    many = {"regressions": [regression()] * 200, "nonces": [nonces(2)]}
    assert _why(many, {"regressions": 200, KEYS_REPEATED: 1})[0].startswith("nonces: 2 used twice")


def test_of_many_the_first_are_named_and_all_counted() -> None:
    """The lists are bounded, also that of the keys."""
    lists = {"regressions": [regression()] * 200, "nonces": [nonces(1)] * 100}
    why = _why(lists, {"regressions": 1000, KEYS_REPEATED: 500})
    assert len(why) == 21
    assert why[-1] == "and 1480 more"
    only = {"regressions": [], "nonces": [nonces(1)] * 100}
    assert _why(only, {"regressions": 0, KEYS_REPEATED: 101})[-1] == "and 81 more"


def test_what_the_command_says(example: dict[str, Any]) -> None:
    lines = list(told.lines(example, Path("out"), "6 files, 0.1 MB"))
    assert "repeated     112" in lines
    assert "kept         214,802 audit, 2,913 rig, 36,451 nonces, 52 bench rows" in lines
    assert "FOUND        the rig: update, verdict: fails (0 before, 0.3333 now)" in lines
    assert lines[-1] == "page         out/report.html"


def test_of_logs_that_were_not_there_it_says_nothing(example: dict[str, Any]) -> None:
    headline = dict.fromkeys(example["headline"])
    text = "\n".join(told.lines({**example, "headline": headline}, Path("out"), "1 file"))
    for word in ("decisions", "rig ", "nonces ", "regressions", "None"):
        assert f"\n{word}" not in text


def test_what_a_log_says_is_harmless_on_a_terminal(example: dict[str, Any]) -> None:
    example["reasons"] = {"unknown field \x1b[2J\u202e": 4}
    text = "\n".join(told.lines(example, Path("out"), "1 file"))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "unknown field \\x1b[2J" in text
