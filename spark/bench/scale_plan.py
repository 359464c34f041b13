"""Which sizes the time and the disk carry."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

SMALLEST, LARGEST = 1_000_000, 16_000_000
SIZES = 5
LOG_BYTES, OUT_BYTES = 310, 200
"""Upper bounds of the bytes that a line takes: in the logs; in the report (at most 53 measured)
together with what Spark spills."""
START_S = 60.0
"""About what a report takes of which every line is free."""
_GENERATED_S = 8e-6


class BenchError(RuntimeError):
    """It cannot be measured here, or what came out is wrong."""


class TimeOver(BenchError):
    """What was under way has been ended."""


def planned(each: float, seconds: float, rounds: int) -> list[int]:
    """Five sizes for that time, where a line takes `each` seconds. BenchError: too little time."""
    for tenths in range(20, 11, -1):
        ratio = tenths / 10
        wanted = [round(SMALLEST * ratio**power / 1e5) * 100_000 for power in range(SIZES)]
        sizes = [min(size, LARGEST) for size in wanted]
        reports = rounds * sum(sizes) + 1.3 * sum(apart(sizes)) + 0.5 * sizes[SIZES // 2]
        runs = SIZES * rounds + 4
        if runs * START_S + reports * each + sum(sizes) * _GENERATED_S < seconds:
            return sizes
    needed = (SIZES * rounds + 4) * START_S + 12 * rounds * SMALLEST * each
    raise BenchError(
        f"--minutes {seconds / 60:.0f} is too little, about {needed / 60:.0f} would do"
    )


def apart(sizes: Sequence[int]) -> list[int]:
    """Which of them a standalone Spark reports as well: the smallest, the middle and the largest of
    those up to LARGEST. There a report takes half as long again."""
    carried = [size for size in sizes if size <= LARGEST] or list(sizes[:1])
    return sorted({carried[0], carried[len(carried) // 2], carried[-1]})


def room(folder: Path, sizes: Sequence[int]) -> None:
    """BenchError: the disk does not carry these sizes."""
    needed = int(1.2 * (LOG_BYTES * sum(sizes) + OUT_BYTES * max(sizes)))
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise BenchError(
            f"{folder}: {free >> 20} MiB are free, {needed >> 20} MiB needed; smaller --sizes"
        )
