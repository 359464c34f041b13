"""What a process has counted since it began, in a file: for metrics, and for when a client was last
seen.

Beside its audit log, and of the same events, so that nothing is counted in a second place. No topic
and no client's name is in the totals. The file is written anew every few seconds, and not synced:
what it says after a power cut nobody needs.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sealmq.run import proc
from sealmq.site.reading import read_small

EACH_S = 2.0
SEEN_EACH_S = 20.0
# A hundred bytes for each of half a million clients.
_MOST_SEEN = 50 << 20
# Counts of deliveries (counts.FIELDS) with a rule, and where it stands in the key.
_RULE_AT = {"deliver-denied": 3, "unenforced": 3}


class Totals:
    """file: of the totals, or None. seen: when each client came or went last, or None; it is the
    process's alone. The caller holds a lock for `one` and `many`, not for `write`.
    """

    def __init__(self, file: Path | None = None, seen: Path | None = None) -> None:
        self._file, self._seen_file = file, seen
        self.counts: Counter[tuple[str, str]] = Counter()
        self.gauges: dict[str, float] = {}
        """What its process measures besides; anybody may set one, at any time."""
        self.newest_ms = 0
        """When the newest record of earlier runs was written, Unix ms."""
        self._seen: dict[str, int] = {} if seen is None else read_seen([seen])
        self._here: Counter[str] = Counter()
        self._changed = False
        # With the pid it says which process this is: after a reboot another one soon has the pid.
        self._start = proc.start_of(os.getpid())
        self._due = self._seen_due = 0.0

    def one(self, event: str, fields: dict[str, Any], now_ms: int) -> None:
        """An event that was written, or only counted."""
        self.counts[event, str(fields.get("rule", ""))] += 1
        if event == "connect" or (event == "disconnect" and fields.get("client")):
            client = str(fields["client"])
            self._here[client] += 1 if event == "connect" else -1
            if self._here[client] <= 0:
                del self._here[client]
            self._seen[client] = now_ms
            self._changed = True

    def many(self, keys: Iterable[tuple[Any, ...]]) -> None:
        """What is counted by the minute."""
        self.counts.update(
            (key[0], key[_RULE_AT[key[0]]] if key[0] in _RULE_AT else "") for key in keys
        )

    def write(self, error: str | None, *, last: bool = False) -> None:
        """If it is time. error: what is wrong with the audit log's disk."""
        now = time.monotonic()
        if last and self._file is not None:
            self._file.unlink(missing_ok=True)  # nobody would believe it
        elif self._file is not None and now >= self._due:
            self._due = now + EACH_S
            # A board without a clock begins in the past, and is set once it has a network.
            self.gauges["log_ahead_seconds"] = max(0.0, self.newest_ms / 1000 - time.time())
            told = {
                "pid": os.getpid(),
                "start": self._start,
                # Which the clock does not move when it is set; one for all processes.
                "alive_ms": time.monotonic_ns() // 1_000_000,
                "events": [[*key, count] for key, count in list(self.counts.items())],
                "clients": len(self._here),
                "connections": sum(list(self._here.values())),
                "gauges": dict(self.gauges),
                "error": error,
            }
            _put(self._file, told, 0o644)
        if self._seen_file is not None and self._changed and (last or now >= self._seen_due):
            self._seen_due, self._changed = now + SEEN_EACH_S, False
            _put(self._seen_file, self._seen.copy(), 0o600)


def _put(path: Path, told: Any, mode: int) -> None:
    draft = path.with_name(f".{path.name}")
    with contextlib.suppress(OSError):  # a full disk; the next one may do
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with open(fd, "w") as file:
            os.fchmod(fd, mode)
            json.dump(told, file)
        draft.replace(path)


def read_seen(files: Iterable[Path]) -> dict[str, int]:
    """When each client came or went last, Unix ms, by what the workers have written."""
    found: dict[str, int] = {}
    for path in files:
        # Whose it is writes there what it likes, and root may read it.
        with contextlib.suppress(OSError, ValueError, RecursionError):
            told = json.loads(read_small(path, _MOST_SEEN))
            for client, at_ms in told.items() if isinstance(told, dict) else ():
                if type(at_ms) is int:
                    found[client] = max(at_ms, found.get(client, 0))
    return found
