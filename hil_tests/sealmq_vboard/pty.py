"""The board on a pseudo-terminal: fast, for any program that opens a serial device.

A pseudo-terminal has no DTR and RTS: nothing resets the board, esptool needs `--before no-reset
--after no-reset` and the download mode is entered by `sealmq vboard ctl`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import termios
import tty

from .fronts import HIGH_WATER, Line

# How often to look whether somebody has opened it: the kernel tells when it is closed, not this.
_LOOK_S = 0.03
_MOST_READ = 65536


class Pty:
    def __init__(self, line: Line, loop: asyncio.AbstractEventLoop) -> None:
        self._line = line
        self._loop = loop
        self._master, slave = os.openpty()
        self.path = os.ttyname(slave)
        tty.setraw(slave)  # stays until the host sets it otherwise
        os.close(slave)
        os.set_blocking(self._master, False)
        self._poll = select.poll()
        self._poll.register(self._master, 0)
        self._out = bytearray()
        self._writing = False
        self.plugged = False  # somebody has it open
        self._timer: asyncio.TimerHandle | None = None
        self._look()

    @property
    def full(self) -> bool:
        return len(self._out) > HIGH_WATER

    def send(self, data: bytes) -> None:
        if not self.plugged:
            self._look()
        if not self.plugged:
            return
        self._out += data
        if not self._writing:
            self._write()

    def close(self) -> None:
        self._unplug()
        if self._timer is not None:
            self._timer.cancel()
        os.close(self._master)

    def _look(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._hung_up():
            self._timer = self._loop.call_later(_LOOK_S, self._look)
            return
        self.plugged = True
        self._loop.add_reader(self._master, self._read)

    def _hung_up(self) -> bool:
        return any(event & select.POLLHUP for _, event in self._poll.poll(0))

    def _unplug(self) -> None:
        if not self.plugged:
            return
        self.plugged = False
        self._loop.remove_reader(self._master)
        self._loop.remove_writer(self._master)
        self._writing = False
        self._out.clear()
        # What the host said last and was not listened to, and what it has left unread, is not for
        # the next one. The latter can be thrown away from its side alone.
        with contextlib.suppress(OSError):
            while os.read(self._master, _MOST_READ):
                pass
        with contextlib.suppress(OSError):
            slave = os.open(self.path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
            termios.tcflush(slave, termios.TCIFLUSH)
            os.close(slave)
        self._line.flow()

    def _read(self) -> None:
        if self.full:
            # Who does not read is not listened to, or its questions' answers would pile up.
            self._loop.remove_reader(self._master)
            return
        try:
            data = os.read(self._master, _MOST_READ)
        except BlockingIOError:
            return
        except OSError:  # EIO: the last one has closed it
            data = b""
        if data:
            self._line.received(data)
        else:
            self._unplug()
            self._look()

    def _write(self) -> None:
        try:
            done = os.write(self._master, self._out)
        except OSError:
            done = 0
        if not done and self._hung_up():  # with what it has not read; no error says so
            self._unplug()
            self._look()
            return
        was_full = self.full
        del self._out[:done]
        if bool(self._out) != self._writing:
            self._writing = bool(self._out)
            if self._writing:
                self._loop.add_writer(self._master, self._write)
            else:
                self._loop.remove_writer(self._master)
        if was_full and not self.full:
            self._loop.add_reader(self._master, self._read)
            self._line.flow()
