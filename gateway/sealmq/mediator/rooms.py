"""Which open connections each client has (SPEC.md 4.1): one a session, and not too many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .limits import CONNECTIONS_A_CLIENT

if TYPE_CHECKING:
    from .connection import Connection


class Rooms:
    """The open connections of each client, oldest first."""

    def __init__(self) -> None:
        self._open: dict[int, list[Connection]] = {}

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

    def leave(self, connection: Connection) -> None:
        """An open connection has ended."""
        row = self._open.get(connection.client.number, [])
        if connection in row:
            row.remove(connection)
        if not row:
            self._open.pop(connection.client.number, None)
