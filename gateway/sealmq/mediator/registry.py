"""Which sessions are open (SPEC.md 4.1): one of each (client, client id), so many of each client,
and so many in all.
"""

from __future__ import annotations

from typing import Protocol

from .core.effects import NoPlace
from .core.keyring import Client
from .core.limits import CONNECTIONS, CONNECTIONS_A_CLIENT
from .core.reasons import QUOTA, TAKEN_OVER


class Entrant(Protocol):
    """What the registry takes of a session."""

    client: Client
    client_id: str

    def close(self, reason: str, code: int = ...) -> None:
        """Ends it; it is told `leave` at once or later."""

    def news(self, family: str, said: bytes) -> None:
        """Tells its client what a family says."""


class Registry:
    """The open sessions of each client, oldest first; `places` of them in all."""

    def __init__(self, places: int = CONNECTIONS) -> None:
        self._places = places
        self._open: dict[int, dict[Entrant, None]] = {}
        self._count = 0

    def place(self, session: Entrant) -> None:
        """Makes room for one more session of its client. Where all places are taken, the client
        with the most sessions loses its oldest, if it has more than this client would have; else
        NoPlace is raised.
        """
        self._make(session)
        if self._count < self._places:
            return
        most = max(self._open.values(), key=len)
        if len(most) <= len(self._open.get(session.client.number, ())) + 1:
            raise NoPlace(f"{self._count} connections are open, and there is no place for more")
        self._end(
            next(iter(most)), "its place was needed: its client has more connections than any other"
        )

    def enter(self, session: Entrant) -> None:
        """It is open."""
        self._make(session)
        self._open.setdefault(session.client.number, {})[session] = None
        self._count += 1

    def of(self, client: int) -> list[Entrant]:
        """The open sessions of a client."""
        return list(self._open.get(client, ()))

    def leave(self, session: Entrant) -> None:
        """It has ended; nothing if it is not here."""
        row = self._open.get(session.client.number)
        if row is None or session not in row:
            return
        del row[session]
        self._count -= 1
        if not row:
            del self._open[session.client.number]

    # Ends the older connection of the same session, and its client's oldest where it has too many.
    def _make(self, session: Entrant) -> None:
        for other in list(self._open.get(session.client.number, ())):
            if other.client_id == session.client_id:
                self._end(other, "its session goes on in a newer connection", TAKEN_OVER)
        row = list(self._open.get(session.client.number, ()))
        for other in row[: max(len(row) + 1 - CONNECTIONS_A_CLIENT, 0)]:
            text = f"the oldest of more than {CONNECTIONS_A_CLIENT} connections of its client"
            self._end(other, text)

    def _end(self, session: Entrant, reason: str, code: int = QUOTA) -> None:
        self.leave(session)
        session.close(reason, code)
