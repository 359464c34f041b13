"""From the results of `sealmq hil run --behaviour flash`: hil_tests/figures.json, and its words.

    python -m sealmq_hil.figures RESULTS

README.md holds the words; a test compares them with the file.
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
        json.loads(line)
        for file in sorted(folder.glob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    verdicts = [r for r in rows if r["behaviour"] == "flash" and r["stage"] == "verdict"]
    wrong = [r for r in verdicts if r["outcome"] != "pass" or r["kind"] != "virtual"]
    if wrong or not verdicts or len({r["run"] for r in verdicts}) != 1:
        raise SystemExit(f"{folder} is not one run in which every virtual board was flashed")
    begin = min(r["at_ms"] for r in verdicts)
    seconds = (max(r["at_ms"] + r["ms"] for r in verdicts) - begin) / 1000
    return {
        "boards": len(verdicts),
        "seconds": round(seconds, 1),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "commit": verdicts[0]["commit"],
    }


def sentence(figures: dict[str, Any]) -> str:
    """As README.md has it."""
    return (
        f"{figures['boards']} virtual boards were flashed and publishing, each read by the label "
        f"above it, {figures['seconds']:.0f} s after the first\nbegan, on {figures['cores']} cores "
        f"with a load of {figures['load']:.0f} from other work: `sealmq hil run --boards "
        f"{figures['boards']} --behaviour flash --out DIR`."
    )


if __name__ == "__main__":
    made = measured(Path(sys.argv[1]))
    FILE.write_text(json.dumps(made, indent=1) + "\n")
    print(sentence(made))
