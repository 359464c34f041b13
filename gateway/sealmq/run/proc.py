"""What /proc says about a process: whether it is still the one that we mean, and whose it is."""

from __future__ import annotations

import pwd
from pathlib import Path


def start_of(pid: int) -> int | None:
    """Start time in clock ticks since boot, which no later process of that pid shares.

    None when there is no such process, or only its remains (a zombie).
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The second field is the program's name in parentheses and may hold anything (proc(5)).
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])


def user_of(pid: int) -> str | None:
    """The name of the process's user, its number where it has no name, None without a process.

    Not the owner of /proc/<pid>: that is root for a process that keeps debuggers away.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    uid = next(int(line.split()[2]) for line in lines if line.startswith("Uid:"))
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
