"""What a seal costs a line of the audit log, and `verify` a line: CPU time, in turns.

build/venv/bin/python gateway/bench/audit_cost.py          one JSON object
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sealmq.audit import Audit, chain
from sealmq.audit.log import _text
from sealmq.audit.verify import verify

TURNS, LINES = 41, 2000
LINE: dict[str, Any] = {
    "v": 1,
    "id": "00c0ffee-mediator-7-1800000000000-123456",
    "at_ms": 1_800_000_000_000,
    "site": "00c0ffee",
    "role": "mediator",
    "inst": 7,
    "event": "publish-refused",
    "client": "m1-temp-sensor",
    "topic": "machine/1/setpoint",
    "rule": "labels.publish.label",
    "reason": "the topic has label m1-ctrl, the client m1-temp",
}


def cpu(work: Callable[[], object]) -> float:
    """Seconds of this thread."""
    began = time.thread_time()
    work()
    return time.thread_time() - began


def main() -> None:
    """Measure and print."""
    key = bytes(32)
    seal = chain.SegmentSeal(bytes(32))
    plain, sealed = [], []
    for _ in range(TURNS):
        plain.append(cpu(lambda: [_text(LINE, None) for _ in range(LINES)]))
        sealed.append(cpu(lambda: [_text(LINE, seal) for _ in range(LINES)]))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        given = chain.first({"audit": chain.draw(key, "mediator")})
        audit = Audit(folder, "mediator", 7, "00c0ffee", chain=given)
        for number in range(50_000):
            audit.write("config-refused", reason=f"line {number}")
        audit.close()
        reports: list[Any] = []
        verified = cpu(lambda: reports.append(verify(folder, "mediator", key)))
        lines, faults = reports[0].lines, reports[0].faults
    without, with_seal = (statistics.median(one) / LINES * 1e6 for one in (plain, sealed))
    told = {
        "line_us": round(without, 2),
        "sealed_line_us": round(with_seal, 2),
        "ratio": round(with_seal / without, 2),
        "verify_us": round(verified / lines * 1e6, 2),
        "verified_lines": lines,
        "faults": len(faults),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
