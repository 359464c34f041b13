"""The terminal between the board's UART and its interpreter.

Ctrl-C is what the firmware's UART driver makes of it: while a program runs, an interrupt, whatever
waits in front of it; else a byte like any other. The interpreter says which by ISIG.
"""

from __future__ import annotations

import asyncio
import os
import termios
import time
from collections.abc import Callable

# More than a person or mpremote ever has under way; a real UART's driver loses bytes far earlier.
_MOST = 1 << 20
# Who presses it twice means it once; and an interpreter with its own handler ends at a second one.
_APART_S = 0.3
_LFLAG = 3
_CTRL_C = b"\x03"


class Console:
    def __init__(self, output: Callable[[bytes], None], interrupt: Callable[[], None]) -> None:
        """`output` takes what the board says, `interrupt` sends SIGINT."""
        self._output = output
        self._interrupt = interrupt
        self._loop = asyncio.get_running_loop()
        self._master, self.slave = os.openpty()
        os.set_blocking(self._master, False)
        self._waiting = bytearray()
        self._interrupted = 0.0
        self._reading = False
        self._paused = False
        self.lost = 0  # bytes that found no room
        self.early = False  # a Ctrl-C that came before any program could take it

    def fresh(self) -> None:
        """Another boot: nothing typed before counts, and nothing is interrupted yet."""
        attributes = termios.tcgetattr(self.slave)
        attributes[:4] = [0, termios.OPOST | termios.ONLCR, attributes[2], 0]
        termios.tcsetattr(self.slave, termios.TCSANOW, attributes)
        termios.tcflush(self.slave, termios.TCIFLUSH)
        self._waiting.clear()
        self._interrupted = 0.0
        self.early = False
        self._watch()

    @property
    def interrupting(self) -> bool:
        """A program was interrupted, and has not come to its end since."""
        return self._interrupted > 0

    def calm(self) -> None:
        """No program runs: an interrupt was taken, or is forgotten."""
        self._interrupted = 0.0

    def close(self) -> None:
        self._loop.remove_reader(self._master)
        self._loop.remove_writer(self._master)
        os.close(self._master)
        os.close(self.slave)

    # -- towards the board

    def write(self, data: bytes, starting: bool) -> None:
        """Bytes from the line; `starting`: the interpreter has not come to a program yet."""
        if _CTRL_C in data:
            if termios.tcgetattr(self._master)[_LFLAG] & termios.ISIG:
                data = data.replace(_CTRL_C, b"")
                now = time.monotonic()
                if now - self._interrupted > _APART_S:
                    self._interrupted = now
                    self._interrupt()
            elif starting:
                self.early = True
                data = data.replace(_CTRL_C, b"")
        room = _MOST - len(self._waiting)
        self.lost += max(0, len(data) - room)
        self._waiting += data[:room]
        self._feed()

    def _feed(self) -> None:
        while self._waiting:
            try:
                done = os.write(self._master, self._waiting[:4096])
            except BlockingIOError:
                self._loop.add_writer(self._master, self._feed)
                return
            del self._waiting[:done]
        self._loop.remove_writer(self._master)

    # -- from the board

    def pause(self, paused: bool) -> None:
        self._paused = paused
        self._watch()

    def _watch(self) -> None:
        if self._reading == (not self._paused):
            return
        self._reading = not self._paused
        if self._reading:
            self._loop.add_reader(self._master, self._read)
        else:
            self._loop.remove_reader(self._master)

    def _read(self) -> None:
        try:
            data = os.read(self._master, 65536)
        except BlockingIOError:
            return
        if data:
            self._output(data)

    def rest(self) -> None:
        """What the interpreter said before it ended."""
        while True:
            try:
                data = os.read(self._master, 65536)
            except BlockingIOError:
                return
            self._output(data)
