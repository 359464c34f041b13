"""The board's connections, of which the host keeps copies.

A board that loses its power, is reset or gets out of Wi-Fi's reach says no good-bye: its peers hear
nothing more of it. So a connection's copy stays open here until the program has closed it while it
could, or `_KEEP_S` are over, by when a peer has given up. What still acknowledges bytes meanwhile
is this host's kernel; that much is not as on a board.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket

_KEEP_S = 600.0
_MOST = 256


class Connections:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._open: dict[int, socket.socket] = {}  # by the interpreter's number
        self._silent: list[socket.socket] = []

    @property
    def silent(self) -> int:
        """How many peers wait for a board that has gone."""
        return len(self._silent)

    def add(self, number: int, fd: int) -> None:
        self.closed(number)
        self._open[number] = socket.socket(fileno=fd)

    def closed(self, number: int) -> None:
        """By the program."""
        copy = self._open.pop(number, None)
        if copy is not None:
            copy.close()

    def out_of_reach(self) -> None:
        """Wi-Fi went away: whoever reads there wakes, and the peers are told nothing."""
        for copy in self._open.values():
            with contextlib.suppress(OSError):
                copy.shutdown(socket.SHUT_RD)
        self.vanish()

    def vanish(self) -> None:
        """The board is gone, or what it had of its connections."""
        for copy in self._open.values():
            self._silent.append(copy)
            self._loop.call_later(_KEEP_S, self._give_up, copy)
        self._open.clear()
        while len(self._silent) > _MOST:
            self._silent.pop(0).close()

    def say_good_bye(self) -> None:
        """A soft reset closes what the program left open."""
        for number in list(self._open):
            self.closed(number)

    def close(self) -> None:
        self.say_good_bye()
        for copy in self._silent:
            copy.close()
        self._silent.clear()

    def _give_up(self, copy: socket.socket) -> None:
        copy.close()
        if copy in self._silent:
            self._silent.remove(copy)
