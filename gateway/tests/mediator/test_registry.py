"""Which sessions are open: one of each (client, client id), so many of each client."""

from __future__ import annotations

from dataclasses import dataclass, field

from mediator_world import PANEL, World
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

    def close(self, reason: str) -> None:
        self.ended.append(self.client_id)
        self.registry.leave(self)


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
