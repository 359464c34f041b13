"""Reads closed segments and checks each line against the schema with a validator not ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from contract import Contract

contract = Contract("audit")
schema = contract.schema


class Clock:
    """Unix ms that the test moves."""

    def __init__(self, now: int = 1_800_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def read(folder: Path) -> list[dict[str, Any]]:
    """All records, each valid and with an id of its own; nothing is left open. The first of each
    event is put to the whole schema.
    """
    assert not list(folder.glob("*.open"))
    lines = []
    for path in sorted(folder.glob("*.jsonl")):
        data = path.read_bytes()
        assert data.endswith(b"\n")
        lines += [json.loads(line) for line in data.decode("ascii").splitlines()]
    first = {line.get("event"): line for line in reversed(lines)}
    for line in first.values():
        contract.whole.validate(line)
    for line in lines:
        contract.validate(line)
    ids = [line["id"] for line in lines]
    assert len(set(ids)) == len(ids)
    return lines


def short(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What differs from record to record, without the frame."""
    frame = ("v", "id", "at_ms", "site", "role", "inst")
    return [{k: v for k, v in line.items() if k not in frame} for line in lines]
