"""Connecting is cheap: at most 0.36 M instructions to the first accepted publish, proof, time and
boot counter included, and less than a 120th of TLS 1.3 with ECDSA in the same interpreter.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from real_micropython import ROOT

MOST = 360_000
LEAST_RATIO = 120


def test_connect_within_its_budget_and_beside_tls(tmp_path: Path) -> None:
    out = tmp_path / "connect.json"
    script = ROOT / "firmware" / "host" / "measure_connect.py"
    done = subprocess.run(
        [sys.executable, str(script), "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(out.read_text())["rows"]
    connect = {row["variant"]: row["value"] for row in rows if row["measure"] == "connect"}
    assert connect["sealmq-ccm"] <= MOST
    assert connect["tls13-ecdsa"] / connect["sealmq-ccm"] >= LEAST_RATIO
