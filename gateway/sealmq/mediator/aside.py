"""Messages that the broker does not take: each in a file of its own, for an operator to look at.

They had been acknowledged, or were a will, so they are not thrown away; nor are they tried again
while their file is there.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
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


class Aside:
    """The files in `folder`, which is made when there is one to write. `name` gives a client's
    name; `came` hears of each message: the broker may not be what it was when it was tried.
    """

    def __init__(
        self,
        folder: Path | None,
        audit: Audit,
        name: Callable[[int], str],
        came: Callable[[], None] = lambda: None,
    ) -> None:
        self._folder, self._audit, self._name, self._came = folder, audit, name, came
        # name -> size, oldest first.
        self._files: dict[str, int] = {}
        self._newest: dict[str, Any] | None = None
        if folder is not None and folder.is_dir():
            found = [(path.stat(), path) for path in folder.glob("*.json")]
            for stat, path in sorted(found, key=lambda row: row[0].st_mtime_ns):
                self._files[path.name] = stat.st_size
            self._newest = _summary(folder / list(self._files)[-1]) if self._files else None

    def state(self) -> dict[str, Any] | None:
        """For `sealmq status`: how many, where, and whose the newest is."""
        if not self._files:
            return None
        return {"count": len(self._files), "folder": str(self._folder), "newest": self._newest}

    def holds(self, topic: bytes, payload: bytes) -> bool:
        """Whether this very message was set aside, and its file is still there."""
        name = _name(topic, payload)
        if name not in self._files or self._folder is None:
            return False
        if not (self._folder / name).exists():
            del self._files[name]
            return False
        return True

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

        `client`: the number of the one that made it. A disk that takes nothing is said in the log;
        the message is then lost.
        """
        name = None if client is None else self._name(client)
        text = topic.decode()
        whose = name or "a client"
        log.error("set aside: a message of %s on %s: %s", whose, plain(text, 200), reason)
        self._audit.write("message-set-aside", client=name, topic=text, reason=reason[:500])
        self._came()
        folder = self._folder
        self._newest = {"client": name, "topic": text}
        if folder is None:
            return
        told = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            **self._newest,
            "qos": qos,
            "retain": retain,
            "reason": reason,
            "sealed": base64.b64encode(payload).decode(),
        }
        data = json.dumps(told, indent=1).encode() + b"\n"
        file = _name(topic, payload)
        self._files[file] = len(data)
        gone = []
        while len(self._files) > MOST or sum(self._files.values()) > MOST_BYTES:
            gone.append(next(iter(self._files)))
            del self._files[gone[-1]]
        try:
            await asyncio.to_thread(_write, folder, file, data, gone)
        except OSError as error:
            log.error("a message that was set aside cannot be kept: %s", error.strerror)


def _name(topic: bytes, payload: bytes) -> str:
    return (
        hashlib.sha256(len(topic).to_bytes(2, "big") + topic + payload).hexdigest()[:32] + ".json"
    )


def _write(folder: Path, name: str, data: bytes, gone: list[str]) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    write_atomically(folder / name, data, 0o600)
    for old in gone:
        (folder / old).unlink(missing_ok=True)


def _summary(path: Path) -> dict[str, Any] | None:
    try:
        told = json.loads(path.read_bytes())
        return {"client": told["client"], "topic": told["topic"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None
