"""What clients were told and got, as JSON lines on disk; `at` is CLOCK_MONOTONIC in seconds."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

Row = dict[str, Any]


class Ledger:
    """Append only. Each line goes to the file at once: the load itself may be killed."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, event: str, **fields: object) -> None:
        """One row."""
        row = {"e": event, "at": round(time.monotonic(), 4), **fields}
        os.write(self._fd, json.dumps(row, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        os.close(self._fd)


class Tail:
    """Reads a ledger while it grows."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0

    def fresh(self) -> list[Row]:
        """Whole rows since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        end = data.rfind(b"\n") + 1
        self._at += end
        return [json.loads(line) for line in data[:end].splitlines()]
