"""What the processes of a site use: CPU time by role, memory, as Linux counts it.

A site is its main process and all that descend from it, so that a process that is added later is
counted without being known here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

_MODULE = "sealmq."


class LoadError(Exception):
    """The measurement cannot be taken, or what was taken counts for nothing. hint: what to do."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.hint = hint


def cpu_ns(pid: int) -> int:
    """Nanoseconds of CPU that a process has used, all its threads. LoadError when it is gone."""
    try:
        # The clock of another process as Linux numbers it (man 3 clock_getcpuclockid).
        return time.clock_gettime_ns(~pid << 3 | 2)
    except OSError as error:
        raise LoadError(f"process {pid} has ended ({error.strerror})") from None


def processes(main: int, named: Mapping[str, int]) -> dict[int, str]:
    """The role of each process of the tree that begins with `main`.

    named: role -> pid, where it is known. Another one has the role of its parent or, right below
    main, that of the part of SealMQ that it runs.
    """
    children: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            # The name in brackets may hold anything.
            parent = int((place / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(place.name))
    known = {pid: role for role, pid in named.items()}
    roles: dict[int, str] = {}
    waiting = [(main, known.get(main, "supervisor"))]
    while waiting:
        pid, role = waiting.pop()
        roles[pid] = role
        for child in children.get(pid, []):
            below = _runs(child) if role == "supervisor" else role
            waiting.append((child, known.get(child, below)))
    return roles


def _runs(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return "other"
    parts = [word.removeprefix(_MODULE).split(".")[0] for word in words if word.startswith(_MODULE)]
    return parts[0] if parts else "other"


def memory_mib(pid: int) -> float:
    """What a process holds: its share of pages that several have (PSS). LoadError."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError as error:
        raise LoadError(f"process {pid}: {error.strerror}") from None
    return pages * os.sysconf("SC_PAGESIZE") / 2**20
