"""The board on a pseudo-terminal: fast, for any program that opens a serial device.

A pseudo-terminal has no DTR and RTS: nothing resets the board, esptool needs `--before no-reset
--after no-reset` and the download mode is entered by `sealmq vboard ctl`.
"""

from __future__ import annotations

import asyncio
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
        self._plugged = False
        self._timer: asyncio.TimerHandle | None = None
        self._look()

    @property
    def full(self) -> bool:
        return len(self._out) > HIGH_WATER

    def send(self, data: bytes) -> None:
        if not self._plugged:
            self._look()
        if not self._plugged:
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
        if any(event & select.POLLHUP for _, event in self._poll.poll(0)):
            self._timer = self._loop.call_later(_LOOK_S, self._look)
            return
        self._plugged = True
        self._loop.add_reader(self._master, self._read)

    def _unplug(self) -> None:
        if not self._plugged:
            return
        self._plugged = False
        self._loop.remove_reader(self._master)
        self._loop.remove_writer(self._master)
        self._writing = False
        self._out.clear()
        # What the host has left unread is not for the next one.
        termios.tcflush(self._master, termios.TCOFLUSH)
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
        except BlockingIOError:
            done = 0
        except OSError:
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
