"""`sealmq bench device` starts the firmware's bench; the gateway's benches print the same rows."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import bench_print
import jsonschema
import pytest

from sealmq.cli import bench, main

ROOT = Path(__file__).parents[3]
SCHEMA = ROOT / "shared_spec" / "bench.schema.json"


def test_it_hands_on_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    def run(words: list[str], check: bool) -> subprocess.CompletedProcess[str]:
        started.append(words)
        return subprocess.CompletedProcess(words, 1)

    monkeypatch.setattr(subprocess, "run", run)
    words = ["--json", "--measure", "seal", "--size", "64", "--size", "256", "--out", "x.json"]
    assert main.main(["bench", "device", *words]) == 1
    [[_, script, *given]] = started
    assert Path(script) == ROOT / "firmware" / "host" / "bench_device.py"
    assert Path(script).is_file()
    assert given == words


def test_without_a_checkout_it_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "_ROOT", tmp_path)
    assert main.main(["bench", "device"]) == 1
    first, hint = capsys.readouterr().err.splitlines()
    assert "bench_device.py" in first
    assert "source tree" in first
    assert "checkout" in hint


def test_the_gateways_benches_print_rows_of_the_schema(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bench_print.show([bench_print.row("publish_hit", "labels", 120, "ns of CPU", 100_000, 0)])
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(json.loads(capsys.readouterr().out))
    for name in ("codec", "policy"):
        text = (ROOT / "gateway" / "bench" / f"{name}.py").read_text(encoding="utf-8")
        assert "from bench_print import row, show" in text
