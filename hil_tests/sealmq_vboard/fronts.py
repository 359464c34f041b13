"""What a front end (PTY, TCP, RFC 2217) and the board know of each other.

All of it runs on the board's loop; nothing blocks. What a board says while nobody is plugged in is
lost, as on a real serial line. A plugged-in host that does not read makes the board wait.
"""

from __future__ import annotations

from typing import Protocol

# A front holds back at most about this much for a host that does not read; then the board waits.
HIGH_WATER = 256 * 1024


class Line(Protocol):
    """The board, as a front sees it."""

    def received(self, data: bytes) -> None:
        """Bytes from the host."""

    def lines(self, dtr: bool, rts: bool) -> None:
        """The host has set its control lines."""

    def flow(self) -> None:
        """A front's `full` may have changed."""


class Front(Protocol):
    """A front, as the board sees it."""

    @property
    def full(self) -> bool:
        """The host does not read."""

    def send(self, data: bytes) -> None:
        """Bytes for the host; dropped if there is none."""

    def close(self) -> None: ...
