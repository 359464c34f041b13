"""Which sessions are open: one of each (client, client id), so many of each client."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from mediator_world import PANEL, World
from sealmq.mediator.core.effects import NoPlace
from sealmq.mediator.core.keyring import Client
from sealmq.mediator.core.limits import CONNECTIONS_A_CLIENT
from sealmq.mediator.registry import Registry


@dataclass(eq=False)
class Open:
    """An open session."""

    client: Client
    client_id: str
    registry: Registry
    ended: list[str] = field(default_factory=list)

    def close(self, reason: str, code: int = 0) -> None:
        self.ended.append(self.client_id)
        self.registry.leave(self)

    def news(self, family: str, said: bytes) -> None:
        """Nobody tells it anything."""


def test_the_same_session_ends_and_the_oldest_of_too_many() -> None:
    registry = Registry()
    client = World().ring.clients[PANEL]
    ended: list[str] = []

    def enter(client_id: str) -> None:
        registry.enter(Open(client, client_id, registry, ended))

    for n in range(CONNECTIONS_A_CLIENT):
        enter(f"{n}")
    assert not ended
    enter("7")
    assert ended == ["7"]
    enter("one more")
    assert ended == ["7", "0"]


def test_a_client_with_many_connections_makes_place_for_one_that_has_none() -> None:
    registry = Registry(places=5)
    known = World().ring.clients[PANEL]
    ended: list[str] = []

    def connection(number: int, client_id: str) -> Open:
        return Open(replace(known, number=number), client_id, registry, ended)

    for n in range(4):
        registry.enter(connection(1, f"many {n}"))
    registry.enter(connection(2, "single"))
    for n in range(3, 6):
        newer = connection(n, f"new {n}")
        registry.place(newer)
        registry.enter(newer)
    assert ended == ["many 0", "many 1", "many 2"]
    with pytest.raises(NoPlace, match="5 connections are open"):
        registry.place(connection(6, "one too many"))
    registry.place(connection(3, "new 3"))  # its own session goes on in the newer one
    assert ended[3:] == ["new 3"]
