"""Reads closed segments and checks each line against the schema with a validator not ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

SCHEMA = Path(__file__).parents[3] / "shared_spec" / "audit.schema.json"
schema: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
validator = Draft202012Validator(schema)


class Clock:
    """Unix ms that the test moves."""

    def __init__(self, now: int = 1_800_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def read(folder: Path) -> list[dict[str, Any]]:
    """All records, each valid and with an id of its own; nothing is left open."""
    assert not list(folder.glob("*.open"))
    lines = []
    for path in sorted(folder.glob("*.jsonl")):
        data = path.read_bytes()
        assert data.endswith(b"\n")
        lines += [json.loads(line) for line in data.decode("ascii").splitlines()]
    for line in lines:
        validator.validate(line)
    ids = [line["id"] for line in lines]
    assert len(set(ids)) == len(ids)
    return lines


def short(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What differs from record to record, without the frame."""
    frame = ("v", "id", "at_ms", "site", "role", "inst")
    return [{k: v for k, v in line.items() if k not in frame} for line in lines]
