"""An audit log read back: closed segments, and the whole lines of the open one.

Streaming: one line at a time, whatever the log's size. A line that cannot be read is counted and
left out; whoever asks is told how many there were. Nothing here is written or locked.
"""

from __future__ import annotations

import json
import re
import stat
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

from sealmq.site.reading import open_plain

from .events import EVENTS, LISTS, NAMES, NUMBERS, TEXT, VERSION
from .segment import CLOSED, OPEN

# Longer than any record can be: every character of its longest texts escaped.
LONGEST = 256 * 1024
_BUFFER = 1 << 20
# How each line begins (log.py), so that what nobody asks for is not parsed.
_HEAD = re.compile(
    rb'\{"v":%d,"id":"[^"]*","at_ms":\d+,"site":"[0-9a-f]{8}","role":"[a-z]+","inst":\d+,'
    rb'"event":"([a-z-]+)"' % VERSION
)
_NAME = re.compile(r"(?P<role>[a-z]+)-(?P<inst>\d{1,18})-(?P<began>\d{1,18})-(?P<file>\d{1,18})")
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
            if path.name in (name + CLOSED, name + OPEN) and order(name)[0] == role:
                try:
                    seen = path.lstat()
                    if stat.S_ISREG(seen.st_mode):
                        found[name] = seen.st_size
                except FileNotFoundError:  # it is being renamed, and is found below
                    found.setdefault(name, 0)
        self._folder = folder
        self._names = sorted(found, key=order)
        self.begins_ms = min((order(name)[1] for name in found), default=None)
        """When the process of the oldest segment started, Unix ms."""
        self.told = Told(size=sum(found.values()))

    def records(
        self, events: frozenset[str], progress: Callable[[Told], None] | None = None
    ) -> Iterator[dict[str, Any]]:
        """The records of these events, in the order in which they were written. Processes that ran
        at the same time, the workers of a mediator, are told from one another by the clock.

        progress: called now and then. OSError when a segment cannot be read.
        """
        runs = [list(names) for _, names in groupby(self._names, lambda name: order(name)[:3])]
        # Of each run its next record. One that has not begun by then is not opened yet.
        heap: list[tuple[int, int, dict[str, Any], Iterator[dict[str, Any]]]] = []
        for n, names in enumerate(runs):
            began = order(names[0])[1]
            while heap and heap[0][0] < began:
                yield from _next(heap)
            rest = self._run(names, events, progress)
            for first in rest:
                heap.append((first["at_ms"], n, first, rest))
                heapify(heap)
                break
        while heap:
            yield from _next(heap)

    def _run(
        self, names: list[str], events: frozenset[str], progress: Callable[[Told], None] | None
    ) -> Iterator[dict[str, Any]]:
        wanted = frozenset(event.encode() for event in events)
        other = _KNOWN - wanted
        told = self.told
        for name in names:
            segment = _open(self._folder, name)
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
                    record = record_of(line)
                    if record is None:
                        told.unreadable += 1
                    elif record["event"] in events:
                        yield record

    @property
    def names(self) -> list[str]:
        """The segments' names without their endings, oldest first."""
        return self._names


# The oldest of the records that come next; its run's next one takes its place.
def _next(
    heap: list[tuple[int, int, dict[str, Any], Iterator[dict[str, Any]]]],
) -> Iterator[dict[str, Any]]:
    at_ms, n, record, rest = heap[0]
    following = next(rest, None)
    if following is None:
        heappop(heap)
    else:
        # A clock that was set back changes nothing about a run's own order.
        heapreplace(heap, (max(at_ms, following["at_ms"]), n, following, rest))
    yield record


# It is renamed once, from open to closed.
def _open(folder: Path, name: str) -> BinaryIO | None:
    for suffix in (OPEN, CLOSED):
        try:
            return open_plain(folder / f"{name}{suffix}", _BUFFER)
        except FileNotFoundError:
            continue
    return None


class Tail:
    """The newest records of a role, and then what comes: each call of `more` gives what is new."""

    def __init__(self, folder: Path, role: str, events: frozenset[str], most: int) -> None:
        """most: how many the first call gives at most; of each later one there is no limit."""
        self._folder, self._role, self._events, self._most = folder, role, events, most
        # How far each segment has been read; None: to its end, it grows no more.
        self._read: dict[str, int | None] | None = None

    def more(self) -> list[dict[str, Any]]:
        """Oldest first. OSError: the log cannot be read."""
        names = Log(self._folder, self._role).names
        if self._read is None:
            found = self._newest(names)
        else:
            # Those that are gone need no mark.
            self._read = {name: self._read.get(name, 0) for name in names}
            found = [row for name in names for row in self._rows(name, self._read, None)]
        found.sort(key=lambda row: int(row["at_ms"]))
        return found

    # Of those that still grow, and of closed ones until there are enough.
    def _newest(self, names: list[str]) -> list[dict[str, Any]]:
        read: dict[str, int | None] = dict.fromkeys(names)
        found: list[dict[str, Any]] = []
        for name in reversed(names):
            if len(found) < self._most or (self._folder / f"{name}{OPEN}").exists():
                read[name] = 0
                found[:0] = self._rows(name, read, self._most)
        self._read = read
        found.sort(key=lambda row: int(row["at_ms"]))
        return found[max(0, len(found) - self._most) :]

    def _rows(
        self, name: str, read: dict[str, int | None], most: int | None
    ) -> list[dict[str, Any]]:
        begin = read[name]
        segment = None if begin is None else _open(self._folder, name)
        if begin is None or segment is None:
            return []
        with segment:
            segment.seek(begin)
            rows: deque[dict[str, Any]] = deque(maxlen=most)
            at = segment.tell()
            while (line := segment.readline(LONGEST)).endswith(b"\n"):
                at += len(line)
                record = record_of(line)
                if record is not None and record["event"] in self._events:
                    rows.append(record)
            read[name] = at if segment.name.endswith(OPEN) else None
        return list(rows)


def newest_ms(folder: Path, role: str) -> int:
    """When the youngest process that has written here began, Unix ms; 0: none has."""
    return max((order(name)[1] for name in last_of_runs(folder, role)), default=0)


def last_of_runs(folder: Path, role: str) -> list[str]:
    """The last segment of each process that has written here, without its ending, oldest first."""
    names = Log(folder, role).names
    return [list(run)[-1] for _, run in groupby(names, lambda name: order(name)[:3])]


def order(name: str) -> tuple[str, int, int, int]:
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


def record_of(line: bytes) -> dict[str, Any] | None:
    """The record, or None: it is none, or one of its fields is not as the schema has it."""
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
    # What is none of the log's own is a family's, whichever judges now.
    if name in TEXT or name not in NAMES:
        return isinstance(value, str)
    if name in LISTS:
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    return name not in NUMBERS or (type(value) is int and value >= 0)
