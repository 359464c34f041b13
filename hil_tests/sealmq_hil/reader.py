"""A reader: `sealmq sub --json` as a process, and what it has printed."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from .processes import sealmq, until


@dataclass(frozen=True, slots=True)
class Message:
    """One that was opened. at: monotonic seconds, as of its line."""

    at: float
    topic: str
    payload: str
    sender: int


class Reader:
    """One client that listens, over broken connections, until `close`. words: more for
    `sealmq sub`."""

    def __init__(self, enrolment: Path, filters: Sequence[str], words: Sequence[str] = ()) -> None:
        self.enrolment, self.state = enrolment, enrolment.with_suffix(".state")
        self._filters, self._words = filters, words
        self._lock = threading.Lock()
        self._messages: list[Message] = []
        self._said: list[str] = []
        self._process: subprocess.Popen[str] | None = None
        self._threads: list[threading.Thread] = []

    @property
    def name(self) -> str:
        """The client's."""
        return self.enrolment.parent.name

    def start(self) -> None:
        """Runs; waits until its subscriptions were granted."""
        words = ["sub", "--enrolment", str(self.enrolment), "--state", str(self.state)]
        for filt in self._filters:
            words += ["-t", filt]
        process = self._process = subprocess.Popen(  # noqa: S603 - our own words
            sealmq(*words, *self._words, "-q", "1", "--json", "-d"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        assert process.stdout is not None  # noqa: S101 - as asked for above
        assert process.stderr is not None  # noqa: S101
        for work, source in ((self._take, process.stdout), (self._hear, process.stderr)):
            thread = threading.Thread(target=work, args=(source,), daemon=True)
            thread.start()
            self._threads.append(thread)
        until(f"the subscriptions of {self.name}", self._granted)

    def _granted(self) -> bool:
        with self._lock:
            said = [line for line in self._said if "subscribed:" in line]
            refused = [line for line in self._said if "refused" in line]
        if self._process is not None and self._process.poll() is not None:
            raise RuntimeError(f"sealmq sub ended: {self.said()[-300:]}")
        return len(said) + len(refused) >= len(self._filters)

    def _take(self, source: IO[str]) -> None:
        for line in source:
            try:
                row = json.loads(line)
                message = Message(
                    time.monotonic(),
                    row["topic"],
                    row.get("payload", ""),
                    int(row["sender_number"]),
                )
            except (ValueError, KeyError, TypeError):
                continue
            with self._lock:
                self._messages.append(message)

    def _hear(self, source: IO[str]) -> None:
        for line in source:
            with self._lock:
                self._said.append(line.rstrip())

    def said(self) -> str:
        """Its stderr."""
        with self._lock:
            return "\n".join(self._said)

    def since(self, at: float, topic: str) -> list[Message]:
        """What came on a topic, from a moment on."""
        with self._lock:
            found = []
            for message in reversed(self._messages):
                if message.at < at:
                    break
                if message.topic == topic:
                    found.append(message)
        return found[::-1]

    def all(self) -> list[Message]:
        """Everything so far."""
        with self._lock:
            return list(self._messages)

    def close(self) -> None:
        """The end."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for thread in self._threads:
            thread.join(5)
