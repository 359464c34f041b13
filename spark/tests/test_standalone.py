"""A report by a standalone Spark: the same tables as on one machine, nothing beyond loopback.

Minutes: six reports, each in a process with a Java of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest
import scale_table

SPEC = Path(__file__).resolve().parents[2] / "shared_spec"
SCALE = Path(__file__).resolve().parents[1] / "bench" / "scale.py"


@pytest.mark.full
def test_a_standalone_spark_makes_the_same_tables(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    command = [sys.executable, str(SCALE), "--sizes", "10000,20000,60000", "--rounds", "1"]
    command += ["--minutes", "40", "--folder", str(tmp_path / "made"), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # It ends with 1 when a count, a checksum or an address is not what it must be.
    assert done.returncode == 0, done.stderr
    document = json.loads(out.read_bytes())
    schema = json.loads((SPEC / "bench.schema.json").read_bytes())
    jsonschema.Draft202012Validator(schema).validate(document)
    book = scale_table.Book(document["rows"])
    assert book.sizes(scale_table.LOCAL) == book.sizes(scale_table.APART)
    for name, least in (("same", 15), ("rows", 10_000)):
        values = [row["value"] for row in book.all(f"checksums_{name}", scale_table.APART)]
        assert len(values) == 3
        assert min(values) >= least
    assert scale_table.table(document["rows"]) == done.stdout.rstrip("\n")
    assert not list((tmp_path / "made").iterdir())


@pytest.mark.full
def test_a_bench_that_is_killed_leaves_no_spark(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from scale_cluster import cluster\n"
        "with cluster(Path(sys.argv[1])) as (_, pids): print(*pids, flush=True); time.sleep(300)"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": str(SCALE.parent)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as bench:
        assert bench.stdout is not None
        pids = [int(pid) for pid in bench.stdout.readline().split()]
        bench.kill()
    assert len(pids) == 3
    until = time.monotonic() + 60
    while left := [pid for pid in pids if _runs(pid)]:
        assert time.monotonic() < until, left
        time.sleep(0.1)


def _runs(pid: int) -> bool:
    """Whether it does, and not whether somebody has still to ask how it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
