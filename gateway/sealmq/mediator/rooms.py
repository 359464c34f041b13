"""Which open connections each client has (SPEC.md 4.1): one a session, and not too many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .core.effects import NoPlace as NoPlace
from .core.limits import CONNECTIONS, CONNECTIONS_A_CLIENT

if TYPE_CHECKING:
    from .connection import Connection


class Rooms:
    """The open connections of each client, oldest first; `places` of them in all."""

    def __init__(self, places: int = CONNECTIONS) -> None:
        self._places = places
        self._open: dict[int, list[Connection]] = {}
        self._count = 0

    def place(self, connection: Connection) -> None:
        """Sees to a place for one more of its client: where there is none, the oldest connection
        ends of the client that has most, if it has more than this one would have. NoPlace if not.
        """
        self.make(connection)
        if self._count < self._places:
            return
        most = max(self._open.values(), key=len)
        if len(most) <= len(self._open.get(connection.client.number, ())) + 1:
            raise NoPlace(f"{self._count} connections are open, and there is no place for more")
        most[0].close("its place was needed: its client has more connections than any other")

    def make(self, connection: Connection) -> None:
        """Ends older connections of its client: of the same session, and the oldest where there
        are too many.
        """
        for other in list(self._open.get(connection.client.number, ())):
            if other.client_id == connection.client_id:
                other.close("its session goes on in a newer connection")
        row = self._open.get(connection.client.number, [])
        for other in row[: max(len(row) + 1 - CONNECTIONS_A_CLIENT, 0)]:
            other.close(f"the oldest of more than {CONNECTIONS_A_CLIENT} connections of its client")

    def enter(self, connection: Connection) -> None:
        """A connection is open."""
        self.make(connection)
        self._open.setdefault(connection.client.number, []).append(connection)
        self._count += 1

    def leave(self, connection: Connection) -> None:
        """An open connection has ended."""
        row = self._open.get(connection.client.number, [])
        if connection in row:
            row.remove(connection)
            self._count -= 1
        if not row:
            self._open.pop(connection.client.number, None)
