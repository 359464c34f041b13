"""A small site's logs, the rig's and a bench's, as files: few enough to count by hand.

What a report has to say of them stands in test_job.py, worked out with a pencil.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

SITE = "5ea1ed00"
NOON = 1_736_942_400_000
"""2025-01-15 12:00 UTC, in ms."""
HOUR, MINUTE = 3_600_000, 60_000
OLD, NEW = "a" * 40, "b" * 40
RUN_OLD, RUN_NEW = "1" * 16, "2" * 16
TOPIC = "machine/1/temperature"


def audit() -> list[dict[str, Any]]:
    """Fourteen records, from noon to 13:01."""
    sensor, panel, eve = ({"client": name} for name in ("m1-sensor", "panel", "eve"))
    peer, why = {"peer": "192.0.2.7:50123"}, {"reason": "made up"}
    low = {"topic": TOPIC, "label": "low"}
    replay, forged = "mediator.publish.replay", "mediator.connect.unauthentic"
    lines: list[dict[str, Any]] = [
        {"event": "start"},
        {"event": "connect", **sensor, **peer},
        {"event": "connect", **panel, **peer},
        {"event": "connect-refused", **peer, **why, "rule": forged},
        {"event": "topic-labelled", **sensor, **low, "rule": "labels.first"},
        _counted("publish-accepted", 10, 0, **sensor, **low),
        _counted("publish-accepted", 5, HOUR, **sensor, **low),
        _counted("delivered", 8, 0, **panel, **low, purpose="service", under="machine/#"),
        _counted("delivered", 2, HOUR, **panel, **low),
        _counted("deliver-denied", 3, 0, **eve, topic=TOPIC, rule="labels.below"),
        {"event": "publish-refused", **eve, **why, "topic": TOPIC, "rule": "labels.reserved"},
        {"event": "packet-refused", **sensor, **why, **peer, "rule": replay},
        _counted("unenforced", 4, 0, **eve, topic="x", rule="labels.below", question="publish"),
        {"event": "topic-reset", "topic": TOPIC},
    ]
    return [{**_head(number), **line} for number, line in enumerate(lines, 1)]


def _head(number: int) -> dict[str, Any]:
    return {
        "v": 1,
        "id": f"{SITE}-mediator-1-1800000000000-{number}",
        "at_ms": NOON,
        "site": SITE,
        "role": "mediator",
        "inst": 1,
    }


def _counted(event: str, count: int, after_ms: int, **fields: Any) -> dict[str, Any]:
    begun = {"minute_ms": NOON + after_ms, "at_ms": NOON + after_ms + MINUTE}
    return {"event": event, "count": count, **begun, **fields}


def rig(worse: bool = False) -> list[dict[str, Any]]:
    """Two runs of two boards, on two commits; one power cut in each. worse: the newer fails."""
    found = []
    for run, commit, at in ((RUN_OLD, OLD, NOON), (RUN_NEW, NEW, NOON + HOUR)):
        number = 0
        for board in ("b1", "b2"):
            for stage, ms in (("connect", 100), ("verdict", 120)):
                number += 1
                line = _rig_line(run, commit, at + number, board, stage, ms, number)
                if worse and run == RUN_NEW and stage == "verdict":
                    line |= {"outcome": "fail", "cause": "no message came"}
                found.append(line)
        cut = _rig_line(run, commit, at + 9, "b1", "cut", 50, 9)
        place = {"cut_address": 4096, "cut_size": 256, "cut_done": 10, "cut_partition": "nvs"}
        cut |= {"cut_after": 3, "cut_op": "program", "cut_inside": True, **place}
        found.append({**cut, "behaviour": "cut-counter"})
    return found


def _rig_line(
    run: str, commit: str, at_ms: int, board: str, stage: str, ms: int, number: int
) -> dict[str, Any]:
    return {
        "v": 1,
        "id": f"{run}-{number}",
        "run": run,
        "at_ms": at_ms,
        "seed": 7,
        "board": board,
        "kind": "virtual",
        "chip": "esp32",
        "commit": commit,
        "behaviour": "publish",
        "stage": stage,
        "outcome": "pass",
        "ms": ms,
    }


def nonces(twice: bool = False) -> list[dict[str, Any]]:
    """Four packets: three nonces, one of them sent again. twice: one more, of another content."""
    sent = [
        ("0" * 23 + "1", "d1"),
        ("0" * 23 + "2", "d2"),
        ("0" * 23 + "2", "d2"),
        ("3" * 24, "d3"),
    ]
    if twice:
        sent.append(("3" * 24, "d4"))
    return [
        {
            "v": 1,
            "id": f"{RUN_NEW}-n{number}",
            "run": RUN_NEW,
            "at_ms": NOON + number,
            "board": "b1",
            "layer": "m2",
            "key": "l1 client=1 gen=1",
            "nonce": nonce,
            "digest": digest * 16,
        }
        for number, (nonce, digest) in enumerate(sent, 1)
    ]


def bench() -> list[dict[str, Any]]:
    """A publish of 64 bytes: 10,000 instructions plain, 20,000 over TLS, 12,000 with SealMQ."""
    costs = {"plain": 10_000, "tls13-ecdsa": 20_000, "sealmq-ccm": 12_000}
    return [
        {
            "measure": "publish",
            "variant": variant,
            "size": 64,
            "value": value,
            "unit": "instructions",
            "n": 10,
            "params": {},
        }
        for variant, value in costs.items()
    ]


def text(lines: Iterable[Mapping[str, Any]]) -> str:
    """As a segment has them."""
    return "".join(json.dumps(line) + "\n" for line in lines)


def write(folder: Path, worse: bool = False, twice: bool = False) -> Path:
    """The files of all that. Two audit records stand in two segments, the second of which is
    packed; three lines are none; the open segment holds what would be another record."""
    records = audit()
    site, results = folder / "audit", folder / "results"
    for each in (site, results):
        each.mkdir(parents=True, exist_ok=True)
    name = "mediator-1-1800000000000"
    (site / f"{name}-1.jsonl").write_text(text(records[:10]))
    (site / f"{name}-2.jsonl.gz").write_bytes(gzip.compress(text(records[8:]).encode()))
    more = {**records[5], "id": records[0]["id"] + "99"}
    (site / f"{name}-3.jsonl.open").write_text(text([more]))
    headless = {**more, "client": None}
    (site / f"{name}-0.jsonl").write_text("not json\n\nnor this\n" + text([headless]))
    (results / f"{RUN_NEW}-1.jsonl").write_text(text(rig(worse)))
    (results / f"{RUN_NEW}-nonces-1.jsonl").write_text(text(nonces(twice)))
    (results / "device.json").write_text(json.dumps({"rows": bench()}))
    return folder
