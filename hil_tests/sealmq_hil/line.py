"""A board's serial line: what it prints, kept line by line, while no other program has the port."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import Failed
from .processes import until

_KEPT = 2000
_BAUD = 115_200
_PULSE_S = 0.1

Opener = Callable[[str], Any]


def opened(port: str) -> Any:
    """The port, without moving its control lines: they reset the board."""
    import serial

    made = serial.serial_for_url(port, _BAUD, timeout=0.2, do_not_open=True)
    made.dtr = made.rts = False
    if not port.startswith(("rfc2217://", "socket://")):
        made.exclusive = True
    made.open()
    return made


class Line:
    """Reads in a thread between `open` and `close`; a port that goes away is opened again."""

    def __init__(
        self, port: Callable[[], str], log: Path | None = None, opener: Opener = opened
    ) -> None:
        """log: a file that all of it goes to."""
        self._port, self._log, self._opener = port, log, opener
        self._lines: deque[tuple[float, str]] = deque(maxlen=_KEPT)
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._there = threading.Event()
        self._why = ""
        self._open_port: Any = None

    def open(self) -> None:
        """Failed: the port cannot be opened."""
        if self._thread is not None:
            return
        self._ended.clear()
        self._there.clear()
        self._thread = threading.Thread(target=self._run, name="line", daemon=True)
        self._thread.start()
        if not self._there.wait(20):
            self.close()
            raise Failed(f"{self._port()}: {self._why or 'cannot be opened'}")

    def close(self) -> None:
        """Others may have the port."""
        if self._thread is not None:
            self._ended.set()
            self._thread.join(10)
            self._thread = None

    def pulse(self) -> None:
        """EN low for a moment, by RTS, as esptool does it; what the board says then is heard."""
        self.open()
        port = self._open_port
        if port is None:
            raise Failed(f"{self._port()}: {self._why or 'is not open'}")
        try:
            port.rts = True
            time.sleep(_PULSE_S)
            port.rts = False
        except (OSError, ValueError) as error:
            raise Failed(f"{self._port()}: {error}") from None

    @contextmanager
    def away(self) -> Iterator[None]:
        """Another program has the port meanwhile."""
        self.close()
        try:
            yield
        finally:
            self.open()

    def since(self, at: float, pattern: str) -> list[re.Match[str]]:
        """Lines of a moment and later that match, as matches."""
        with self._lock:
            lines = [text for when, text in self._lines if when >= at]
        return [found for text in lines if (found := re.search(pattern, text))]

    def wait(self, pattern: str, since: float, patience_s: float = 60.0) -> re.Match[str]:
        """The first line that matches. Failed, with what there was instead."""
        try:
            return until(
                f"{pattern!r} on the serial line",
                lambda: next(iter(self.since(since, pattern)), None),
                patience_s,
            )
        except Failed as error:
            raise Failed(f"{error}; the last: {' / '.join(self.tail(3)) or 'nothing'}") from None

    def tail(self, count: int = 20) -> list[str]:
        """The last lines."""
        with self._lock:
            return [text for _, text in self._lines][-count:]

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                with self._opener(self._port()) as port:
                    self._open_port = port
                    self._there.set()
                    self._read(port)
            except Exception as error:  # pyserial has its own, the system others
                self._why = str(error)
                self._ended.wait(0.1)
            finally:
                self._open_port = None

    def _read(self, port: Any) -> None:
        held = b""
        while not self._ended.is_set():
            data = port.read(max(1, min(4096, port.in_waiting)))
            if data and self._log is not None:
                with self._log.open("ab") as file:
                    file.write(data)
            held += data
            *lines, held = held.split(b"\n")
            if lines:
                now = time.monotonic()
                with self._lock:
                    for line in lines:
                        self._lines.append((now, line.decode(errors="replace").strip("\r\0 ")))
