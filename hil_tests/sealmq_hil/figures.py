"""From the results of `sealmq hil run --behaviour flash`: hil_tests/figures.json.

    python -m sealmq_hil.figures RESULTS

A document after shared_spec/bench.schema.json: `make evidence` reduces it, and README.md shows it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[1] / "figures.json"


def measured(folder: Path) -> dict[str, Any]:
    """What closed segments say of flashing: from the first stage's begin to the last one's end."""
    rows = [
        line
        for file in sorted(folder.glob("*.jsonl"))
        for line in map(json.loads, file.read_text().splitlines())
        if "behaviour" in line
    ]
    verdicts = [r for r in rows if r["behaviour"] == "flash" and r["stage"] == "verdict"]
    wrong = [r for r in verdicts if r["outcome"] != "pass" or r["kind"] != "virtual"]
    if wrong or not verdicts or len({r["run"] for r in verdicts}) != 1:
        raise SystemExit(f"{folder} is not one run in which every virtual board was flashed")
    begin = min(r["at_ms"] for r in verdicts)
    seconds = (max(r["at_ms"] + r["ms"] for r in verdicts) - begin) / 1000
    return {
        "measure": "flash_to_publishing",
        "variant": "virtual",
        "size": 0,
        "value": round(seconds, 1),
        "unit": "s",
        "n": len(verdicts),
        "params": {
            "cores": os.cpu_count() or 1,
            "load": round(os.getloadavg()[0], 1),
            "commit": verdicts[0]["commit"],
        },
    }


if __name__ == "__main__":
    made = measured(Path(sys.argv[1]))
    FILE.write_text(json.dumps({"rows": [made]}, indent=1) + "\n")
    print(json.dumps(made))
