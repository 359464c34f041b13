"""An audit log read back: closed segments, and the whole lines of the open one.

Streaming: one line at a time, whatever the log's size. A line that cannot be read is counted and
left out; whoever asks is told how many there were. Nothing here is written or locked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from .events import EVENTS, NUMBERS, TEXT, VERSION
from .segment import CLOSED, OPEN

# Longer than any record can be: every character of its longest texts escaped.
LONGEST = 256 * 1024
_BUFFER = 1 << 20
# How each line begins (log.py), so that what nobody asks for is not parsed.
_HEAD = re.compile(
    rb'\{"v":%d,"id":"[^"]*","at_ms":\d+,"site":"[0-9a-f]{8}","role":"[a-z]+","inst":\d+,'
    rb'"event":"([a-z-]+)"' % VERSION
)
_NAME = re.compile(r"(?P<role>[a-z]+)-(?P<inst>\d+)-(?P<began>\d+)-(?P<file>\d+)")
_KNOWN = frozenset(event.encode() for event in EVENTS)


@dataclass
class Told:
    """What there was besides the records. `done`, `size`: bytes read, and to read."""

    lines: int = 0
    unreadable: int = 0
    files: int = 0
    vanished: int = 0
    done: int = 0
    size: int = 0


class Log:
    """The segments of a role in `folder`, oldest first, as they are when this is made."""

    def __init__(self, folder: Path, role: str) -> None:
        """OSError: the folder cannot be read. There may be none yet."""
        found: dict[str, int] = {}
        for path in folder.iterdir() if folder.exists() else ():
            name = path.name.removesuffix(".open").removesuffix(CLOSED)
            if path.name in (name + CLOSED, name + OPEN) and _order(name)[0] == role:
                try:
                    found[name] = path.stat().st_size
                except FileNotFoundError:  # it is being renamed, and is found below
                    found.setdefault(name, 0)
        self._folder = folder
        self._names = sorted(found, key=_order)
        self.begins_ms = min((_order(name)[1] for name in found), default=None)
        """When the process of the oldest segment started, Unix ms."""
        self.told = Told(size=sum(found.values()))

    def records(
        self, events: frozenset[str], progress: Callable[[Told], None] | None = None
    ) -> Iterator[dict[str, Any]]:
        """The records of these events, in the order in which they were written.

        progress: called now and then. OSError when a segment cannot be read.
        """
        wanted = frozenset(event.encode() for event in events)
        other = _KNOWN - wanted
        told = self.told
        for name in self._names:
            segment = self._open(name)
            if segment is None:
                told.vanished += 1
                continue
            told.files += 1
            with segment:
                is_open = segment.name.endswith(OPEN)
                while line := segment.readline(LONGEST):
                    told.done += len(line)
                    if not line.endswith(b"\n"):
                        if len(line) < LONGEST and is_open:
                            break  # being written
                        told.done += _skip(segment) if len(line) == LONGEST else 0
                        told.lines += 1
                        told.unreadable += 1
                        continue
                    told.lines += 1
                    if progress is not None and not told.lines % 4096:
                        progress(told)
                    head = _HEAD.match(line)
                    if head is not None and head.group(1) in other:
                        continue
                    record = _record(line)
                    if record is None:
                        told.unreadable += 1
                    elif record["event"] in events:
                        yield record

    # It is renamed once, from open to closed.
    def _open(self, name: str) -> BinaryIO | None:
        for suffix in (OPEN, CLOSED):
            try:
                return (self._folder / f"{name}{suffix}").open("rb", _BUFFER)
            except FileNotFoundError:
                continue
        return None


def _order(name: str) -> tuple[str, int, int, int]:
    """Role, start of the process, its instance, number; ("", ...) of what is no segment."""
    found = _NAME.fullmatch(name)
    if found is None:
        return "", 0, 0, 0
    return found["role"], int(found["began"]), int(found["inst"]), int(found["file"])


def _skip(segment: BinaryIO) -> int:
    """To the end of a line that is none of ours; the bytes."""
    skipped = 0
    while line := segment.readline(LONGEST):
        skipped += len(line)
        if line.endswith(b"\n"):
            break
    return skipped


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or record.get("v") != VERSION:
        return None
    event = record.get("event")
    shape = EVENTS.get(event) if isinstance(event, str) else None
    if shape is None or type(record.get("at_ms")) is not int:
        return None
    if any(name not in record for name in shape.needs):
        return None
    return record if all(map(_fits, record.items())) else None


def _fits(field: tuple[str, object]) -> bool:
    name, value = field
    if name in TEXT:
        return isinstance(value, str)
    return name not in NUMBERS or (type(value) is int and value >= 0)
