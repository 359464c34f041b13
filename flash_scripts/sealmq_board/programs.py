"""Programs of others that run for several boards, from several threads, and end together."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence


class Programs:
    """Those that run now; behind stop() none is started any more."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self.stopped = False

    def start(
        self, command: Sequence[str], env: Mapping[str, str], *, alone: bool = False
    ) -> subprocess.Popen[bytes] | None:
        """What it prints comes by its stdout, unbuffered; None behind stop(). `env`: besides ours.

        alone: Ctrl-C comes to us and not to it.
        """
        with self._lock:
            if self.stopped:
                return None
            # The arguments are ours; no shell reads them.
            process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **env},
                start_new_session=alone,
            )
            self._running.add(process)
        return process

    def ended(self, process: subprocess.Popen[bytes]) -> None:
        """It is no longer stop()'s affair."""
        with self._lock:
            self._running.discard(process)

    def stop(self, how: signal.Signals) -> None:
        """From any thread: end what runs, and start nothing more."""
        with self._lock:
            self.stopped = True
            for process in self._running:
                process.send_signal(how)
