"""What /proc says about a process: whether it is still the one that we mean, and whose it is."""

from __future__ import annotations

import contextlib
import os
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


def uid_of(pid: int) -> int | None:
    """The process's effective user; None without a process.

    Not the owner of /proc/<pid>: that is root for a process that keeps debuggers away.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next(int(line.split()[2]) for line in lines if line.startswith("Uid:"))


def user_of(pid: int) -> str | None:
    """The name of the process's user, its number where it has no name, None without a process."""
    uid = uid_of(pid)
    return None if uid is None else name_of(uid)


def name_of(uid: int) -> str:
    """The user's name, its number where it has none, as in a container it may."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def has_open(pid: int, file: os.stat_result) -> bool:
    """Whether the process has this file open, as far as we may look."""
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    for number in numbers:
        with contextlib.suppress(OSError):
            found = os.stat(f"/proc/{pid}/fd/{number}")
            if (found.st_dev, found.st_ino) == (file.st_dev, file.st_ino):
                return True
    return False


def listener(port: int) -> str | None:
    """Who listens on the TCP port, as "NAME (process PID)"; None: nobody whom we may see."""
    wanted = {f"socket:[{inode}]" for inode in _listening(port)}
    for pid in filter(str.isdecimal, os.listdir("/proc")) if wanted else ():
        with contextlib.suppress(OSError):
            for number in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{pid}/fd/{number}") in wanted:
                        return f"{_name(Path('/proc') / pid)} (process {pid})"
    return None


# Of ours the role and its site; of others no more than the program, whose arguments may be secret.
def _name(process: Path) -> str:
    words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    ours = next((word for word in words if word.startswith("sealmq.")), None)
    if ours is not None and len(words) > 1:
        return f"the {ours.split('.')[1]} of {words[-2]}"
    return (process / "comm").read_text(errors="replace").strip()


def _listening(port: int) -> set[str]:
    """Inodes of sockets that listen there (proc(5): sl, local, remote, state, ... inode)."""
    found = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    found.add(fields[9])
    return found
