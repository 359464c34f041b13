"""run/<role>/ready.json: there once a process really serves, believed only while it lives."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sealmq.plain import plain
from sealmq.site.layout import Layout, write_atomically
from sealmq.site.reading import read_small

from . import proc

_MOST = 65536
# Until a file that could not be written is tried again.
AGAIN_S = 1.0
# Of an address, and of what else it says in words.
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class Ready:
    """What a role says of itself. pid is None for an external broker; a broker says its kind.

    tls: it takes TLS with a certificate only. queue: messages that an external broker was seen to
    keep for a connection that takes none; None: that was not tried.
    """

    role: str
    pid: int | None
    address: str
    ready: bool
    kind: str | None = None
    version: str | None = None
    tls: bool = False
    queue: int | None = None


def read(layout: Layout, role: str) -> Ready | None:
    """The role's own word; None when there is none, or it makes no sense."""
    told = read_json(layout.ready(role))
    if told is None:
        return None
    pid, address = told.get("pid"), told.get("address")
    if told.get("role") != role or not isinstance(address, str):
        return None
    if pid is not None and (type(pid) is not int or pid <= 0):
        return None
    kind, version = (
        plain(x, _LONGEST) if isinstance(x, str) else None
        for x in map(told.get, ("kind", "version"))
    )
    queue = told.get("queue")
    return Ready(
        role,
        pid,
        plain(address, _LONGEST),
        told.get("ready") is True,
        kind,
        version,
        told.get("tls") is True,
        queue if type(queue) is int else None,
    )


def other_order(layout: Layout, order: Sequence[str]) -> str:
    """What to say where a mediator that runs judges by another [policy] order than this; or ""."""
    told = read_json(layout.ready("mediator")) or {}
    pid, found = told.get("pid"), told.get("order")
    running = type(pid) is int and proc.start_of(pid) is not None
    if not running or not isinstance(found, list) or found == list(order):
        return ""
    names = ", ".join(plain(str(name), _LONGEST) for name in found)
    return f"until its next start the mediator judges by [policy] order {names}"


def write(layout: Layout, ready: Ready, **more: Any) -> None:
    """Write it (0644)."""
    told = {
        "role": ready.role,
        "pid": ready.pid,
        "address": ready.address,
        "ready": ready.ready,
        **({} if ready.kind is None else {"kind": ready.kind, "version": ready.version}),
        **({"tls": True} if ready.tls else {}),
        **({} if ready.queue is None else {"queue": ready.queue}),
        **more,
    }
    write_atomically(layout.ready(ready.role), json.dumps(told).encode() + b"\n", 0o644)


class Tried:
    """Writes a file that only tells others something, which a full disk may keep from it.

    Nobody ends for want of it: who serves and cannot say so still puts out whom the operator puts
    out. `say` hears of it once, until it has worked.
    """

    def __init__(self, name: str, say: Callable[[str], None]) -> None:
        self._name, self._say = name, say
        self._failing = False

    def put(self, write: Callable[[], None]) -> bool:
        """Write; whether that has worked, or has to be tried again."""
        try:
            write()
            self._failing = False
        except OSError as error:
            if not self._failing:
                self._say(f"{self._name} cannot be written: {error.strerror}; trying it again")
            self._failing = True
        return not self._failing


class Persistent:
    """The same in an event loop, where it is tried again until it works."""

    def __init__(self, name: str, say: Callable[[str], None]) -> None:
        self._file = Tried(name, say)
        self._next: asyncio.TimerHandle | None = None

    def put(self, write: Callable[[], None]) -> None:
        """Write, in place of what was still to be written."""
        self.drop()
        if not self._file.put(write):
            self._next = asyncio.get_running_loop().call_later(AGAIN_S, self.put, write)

    def drop(self) -> None:
        """Try no more."""
        if self._next is not None:
            self._next.cancel()
            self._next = None


def forget(layout: Layout, role: str) -> None:
    """The role has ended."""
    path = layout.ready(role)
    # Whatever stands there: the folder is the role's. One that was killed as it wrote left a draft.
    for left in (path, *path.parent.glob(f".{path.name}.*")):
        with contextlib.suppress(OSError):
            left.unlink()


def is_up(line: str) -> bool:
    """Whether a line's state is that it is up, whatever is said besides."""
    return line.partition(";")[0] == "up"


def since_s(row: Mapping[str, Any]) -> int | None:
    """Unix time of what a row says by the monotonic clock, which is one for all processes and which
    nobody sets; None: it says none.
    """
    ms = row.get("since_ms")
    now_ms = time.monotonic_ns() // 1_000_000
    if type(ms) is not int or not 0 <= ms <= now_ms:
        return None
    return int(time.time() - (now_ms - ms) / 1000)


def read_json(path: Path) -> dict[str, Any] | None:
    """A small JSON object; None when there is none. What it holds is another user's word."""
    try:
        told = json.loads(read_small(path, _MOST))
    except (OSError, ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None
