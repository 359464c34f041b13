"""Messages that the broker does not take: each in a file of its own, for an operator to look at.

They had been acknowledged, or were a will, so they are not thrown away; nor are they tried again
while their file is there. All workers share the folder, which alone says what is in it.
"""

from __future__ import annotations

import asyncio
import base64
import fcntl
import hashlib
import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sealmq.audit import Audit
from sealmq.plain import plain
from sealmq.site.layout import write_atomically

log = logging.getLogger("sealmq.mediator")

# The oldest go: one client must not fill the disk.
MOST = 1000
MOST_BYTES = 64 * 1024 * 1024
_APART_NS = 1_000_000_000


class SetAside:
    """The files in `folder`, which is made when there is one to write. `name` gives a client's
    name; `came` is called for each message: the broker's limits may have changed since its trial.
    """

    def __init__(
        self,
        folder: Path | None,
        audit: Audit,
        name: Callable[[int], str],
        came: Callable[[], None] = lambda: None,
    ) -> None:
        self._folder, self._audit, self._name, self._came = folder, audit, name, came
        # The last answer of `state`, and the time of the folder's last change by then.
        self._state: dict[str, Any] | None = None
        self._changed_ns = 0

    def state(self) -> dict[str, Any] | None:
        """For `sealmq status`: how many, where, and whose the newest is."""
        folder = self._folder
        if folder is None:
            return None
        try:
            changed_ns = folder.stat().st_mtime_ns
        except OSError:
            return None
        if changed_ns != self._changed_ns:
            self._state = _state(folder)
            # A clock may not tell two changes apart that lie so close together.
            self._changed_ns = changed_ns if time.time_ns() - changed_ns > _APART_NS else 0
        return self._state

    def holds(self, topic: bytes, payload: bytes) -> bool:
        """Whether this very message was set aside, and its file is still there."""
        return self._folder is not None and (self._folder / _name(topic, payload)).exists()

    async def put(
        self,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        client: int | None,
        reason: str,
    ) -> None:
        """Keeps a message that the broker does not take: it is not published, now nor later.

        `client`: the number of the one that made it. If it cannot be written, the log says so and
        the message is lost.
        """
        name = None if client is None else self._name(client)
        text = topic.decode()
        whose = name or "a client"
        # Said first: whatever ends this process, nothing lies there that the audit does not name.
        log.error("set aside: a message of %s on %s: %s", whose, plain(text, 200), reason)
        self._audit.write("message-set-aside", client=name, topic=text, reason=reason[:500])
        self._came()
        folder = self._folder
        if folder is None:
            return
        told = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "client": name,
            "topic": text,
            "qos": qos,
            "retain": retain,
            "reason": reason,
            "sealed": base64.b64encode(payload).decode(),
        }
        data = json.dumps(told, indent=1).encode() + b"\n"
        try:
            await asyncio.to_thread(_write, folder, _name(topic, payload), data)
        except OSError as error:
            log.error("a message that was set aside cannot be kept: %s", error.strerror)


def _name(topic: bytes, payload: bytes) -> str:
    return (
        hashlib.sha256(len(topic).to_bytes(2, "big") + topic + payload).hexdigest()[:32] + ".json"
    )


# Workers write one after the other, so that the folder never exceeds its bound.
def _write(folder: Path, name: str, data: bytes) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        files = [row for row in _files(folder) if row[0].name != name]
        size = len(data) + sum(size for _, size in files)
        count = 1 + len(files)
        for old, its_size in files:
            if count <= MOST and size <= MOST_BYTES:
                break
            old.unlink(missing_ok=True)
            count, size = count - 1, size - its_size
        write_atomically(folder / name, data, 0o600)
    finally:
        os.close(lock)


def _files(folder: Path) -> list[tuple[Path, int]]:
    """Files and their sizes, the oldest first."""
    found = []
    for path in folder.glob("*.json"):
        try:
            stat = path.stat()
        except FileNotFoundError:
            continue  # an operator has just removed it
        found.append((stat.st_mtime_ns, path, stat.st_size))
    return [(path, size) for _, path, size in sorted(found)]


def _state(folder: Path) -> dict[str, Any] | None:
    files = _files(folder)
    if not files:
        return None
    return {"count": len(files), "folder": str(folder), "newest": _summary(files[-1][0])}


def _summary(path: Path) -> dict[str, Any] | None:
    try:
        told = json.loads(path.read_bytes())
        return {"client": told["client"], "topic": told["topic"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None
