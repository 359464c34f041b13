"""The one worker of a mediator that has one: what it is given as keys."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from sealmq.mediator.single import Single


class Ring:
    def __init__(self, inst: int) -> None:
        self.inst = inst
        self.links: dict[int, list[Any]] = {}

    def set_links(self, client: int, links: list[Any]) -> None:
        self.links[client] = links


def test_under_a_new_instance_number_links_that_clients_got_since_the_snapshot_stay() -> None:
    """The clock was set back: a client that was provisioned just before can still connect."""

    async def draw() -> int:
        return 8

    keys = SimpleNamespace(draw=draw, ring=Ring)
    owner: Any = SimpleNamespace(keys=keys, fresh=[(5, ["new"])], store=SimpleNamespace(), locks=0)
    for name in ("records", "sessions", "wills", "kept"):
        setattr(owner.store, name, None)
    ring: Any = asyncio.run(Single(owner, 7, {}, None).renew())  # type: ignore[arg-type]
    assert ring.inst == 8
    assert ring.links == {5: ["new"]}
