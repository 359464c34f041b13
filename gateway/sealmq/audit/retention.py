"""Old segments are deleted where sealmq.toml says so ([audit]), and the log says which first.

Deny by default: where a report is to have read them, and whatever it has read cannot be found out,
none is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from sealmq.site.reading import read_small

from .reading import Log, order
from .segment import CLOSED

READ = "read-segments.txt"
"""In a report's folder: a line NAME BYTES for each closed segment that it has read whole."""
AT_ONCE = 100
_READ_BYTES, _DIGITS = 64 << 20, 18


class Retention(NamedTuple):
    """keep_ms: how old a segment has to be, by its last line; 0: none is deleted. report: the
    folder of one that has to have read it.
    """

    keep_ms: int = 0
    report: Path | None = None

    def due(self, folder: Path, role: str, now_ms: int) -> list[str]:
        """The names of segments to delete now, the oldest, at most AT_ONCE. OSError: they, or what
        the report has read, cannot be read.
        """
        if not self.keep_ms:
            return []
        read = None if self.report is None else _read(self.report / READ)
        found: list[str] = []
        for of, run in groupby(Log(folder, role).names, lambda name: order(name)[:3]):
            names = list(run)
            if of[1] + self.keep_ms > now_ms:
                continue  # it began under a clock that was ahead: `audit verify` would doubt it
            paths = [folder / f"{name}{CLOSED}" for name in names]
            for name, path, at in zip(names, paths, self._times(paths, now_ms), strict=True):
                if at + self.keep_ms > now_ms:
                    break  # in each run its beginning, so that nothing is missing in the middle
                if read is not None and (path.name, path.stat().st_size) not in read:
                    break
                found.append(name)
        return found[:AT_ONCE]

    def _times(self, paths: list[Path], now_ms: int) -> list[int]:
        """When each was written last. What a run has written before its clock went on by `keep` at
        once, as one does that a network sets, counts as written then."""
        times = [_written(path, now_ms) for path in paths]
        for at in range(len(times) - 1, 0, -1):
            if times[at] - times[at - 1] >= self.keep_ms:
                return [times[at]] * at + times[at:]
        return times


def _written(path: Path, now_ms: int) -> int:
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:  # it is open
        return now_ms


# One name may stand there with several sizes: a copy that was read before it was whole.
# Its maker is another user perhaps, who must not keep the log waiting, nor end it.
def _read(path: Path) -> set[tuple[str, int]]:
    return set(_rows(read_small(path, _READ_BYTES).decode(errors="replace")))


def _rows(text: str) -> Iterator[tuple[str, int]]:
    for line in text.splitlines():
        name, _, size = line.partition(" ")
        if size.isascii() and size.isdecimal() and len(size) <= _DIGITS:
            yield name, int(size)
