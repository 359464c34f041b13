"""The audit log as anybody reads it: JSON lines, closed segments (.jsonl) and open ones (.open).

A segment is renamed once when it is closed; its name without .open is what it is known by.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def read(folder: Path) -> list[Record]:
    """All records, in the order in which they were made. ValueError: a line is none."""
    records = []
    for path in sorted(folder.rglob("*.jsonl*")):
        for line in path.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            if not isinstance(record, dict) or "event" not in record or "id" not in record:
                raise ValueError(f"{path.name}: a line that is no audit record")
            records.append(record)
    return sorted(records, key=lambda record: int(record["at_ms"]))


class Tail:
    """Follows the log while it grows. `told` hears each record; `records` keeps them."""

    def __init__(self, folder: Path, told: Callable[[Record], None]) -> None:
        self.records: list[Record] = []
        self._folder, self._told = folder, told
        self._at: dict[str, int] = {}

    async def follow(self) -> None:
        """For ever."""
        while True:
            self.look()
            await asyncio.sleep(0.2)

    def look(self) -> None:
        """Take what is new."""
        for path in sorted(self._folder.rglob("*.jsonl*")):
            with contextlib.suppress(FileNotFoundError):
                self._take(path)

    def _take(self, path: Path) -> None:
        name = str(path).removesuffix(".open")
        with path.open("rb") as file:
            file.seek(self._at.get(name, 0))
            data = file.read()
        whole, newline, _ = data.rpartition(b"\n")
        self._at[name] = self._at.get(name, 0) + len(whole) + len(newline)
        for line in whole.splitlines():
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                self.records.append(record)
                self._told(record)

    async def until(self, seconds: float, **fields: object) -> Record | None:
        """The first record with these fields, or None when none comes."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while True:
            for record in self.records:
                if all(record.get(name) == value for name, value in fields.items()):
                    return record
            if loop.time() > end:
                return None
            await asyncio.sleep(0.1)
