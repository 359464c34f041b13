"""Good lines of each contract, and lines that are mostly good."""

from __future__ import annotations

import json
import random
from typing import Any

AUDIT: dict[str, Any] = {
    "v": 1,
    "id": "00000001-mediator-1-1800000000000-1",
    "at_ms": 1_800_000_000_000,
    "site": "00000001",
    "role": "mediator",
    "inst": 1,
    "event": "delivered",
    "client": "panel",
    "topic": "machine/1/température",
    "label": "low",
    "count": 3,
    "minute_ms": 1_800_000_000_000,
}
HIL: dict[str, Any] = {
    "v": 1,
    "id": "0123456789abcdef-1",
    "run": "0123456789abcdef",
    "at_ms": 5,
    "seed": 1,
    "board": "b1",
    "kind": "virtual",
    "chip": "esp32",
    "commit": "unknown",
    "behaviour": "connect",
    "stage": "verdict",
    "outcome": "pass",
    "ms": 12,
}
NONCE: dict[str, Any] = {
    "v": 1,
    "id": "0123456789abcdef-n1",
    "run": "0123456789abcdef",
    "at_ms": 1_795_365_977_273,
    "layer": "record",
    "key": "r1 site=1ea15af5 suite=1 label=2 epoch=1",
    "nonce": "02526401a20426a4be000000",
    "digest": "611434e63042c00245d16de3f162941d",
}
SIMULATION: dict[str, Any] = {
    "v": 1,
    "id": "0123456789abcdef-s1",
    "at_ms": 1_795_909_765_398,
    "simulated": "08f3cce6ae0e325b",
    "sites": 64,
    "rule": "average",
    "kind": "malicious",
    "seed": 1,
    "round": 1,
    "bad_withheld": 0,
    "bad_delivered": 10,
    "good_withheld": 3,
    "good_delivered": 90,
}
BASES = {"audit": AUDIT, "hil": HIL, "nonce": NONCE, "simulation": SIMULATION}
VALUES: list[Any] = [
    None, "", "x", "y" * 2000, "é" * 64, "é" * 65, 'a"b\\c', "\x01", "a\u2028b",
    "\U0001f600" * 64, -1, 0, 1, 7, 1.5, 1e30, 2**53 - 1, 2**53, 2**63, 253_402_300_799_999,
    253_402_300_800_000, True, [], ["a"], ["a"] * 101, ["z" * 201], [1], [None], ["a", None],
    [["a"]], {}, {"a": 1}, {"v": 1}, "pass", "fail", "start", "delivered", "connect", "virtual",
    "0123456789abcdef", 60_000, 1 << 24, "m1",
]  # fmt: skip
_MORE = (
    "rule", "reason", "cause", "cut_op", "cut_after", "cut_inside", "extra", "enforce", "notes",
    "order", "clean", "board", "purpose", "event", "behaviour", "nonce",
)  # fmt: skip


def numbered(base: dict[str, Any], number: int) -> dict[str, Any]:
    """With an id of its own."""
    return {**base, "id": base["id"][:-1] + str(number)}


def changed(base: dict[str, Any], rng: random.Random, number: int) -> str:
    """A line that is mostly good, with up to three changes, in any order, dense or not."""
    line = numbered(base, number)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        name = rng.choice([*base, *_MORE])
        if rng.random() < 0.35:
            line.pop(name, None)
        else:
            line[name] = rng.choice(VALUES)
    names = list(line)
    rng.shuffle(names)
    dense = (",", ":") if rng.random() < 0.5 else None
    return json.dumps(
        {name: line[name] for name in names}, ensure_ascii=rng.random() < 0.5, separators=dense
    )
