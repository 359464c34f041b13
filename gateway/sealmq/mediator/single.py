"""The one worker of a mediator that has one: in the owner's process, with nothing between."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from sealmq.audit import Audit
from sealmq.families.attributes import Attribute
from sealmq.site.config import Config
from sealmq.store import Held, Store, StoreRecord
from sealmq.strangers import Strangers

from .acceptor import Caller
from .core.keyring import Keyring
from .journal_file import gather, gathered
from .keysource import KeySource
from .owner import Owner
from .running import Running, build
from .shared import Begin, Fresh


class SingleStore:
    """SharedStore without anybody else."""

    def __init__(self, store: Store) -> None:
        self.records, self.sessions = store.records, store.sessions
        self.wills, self.kept = store.wills, store.kept
        self._store = store

    async def commit(
        self, records: Sequence[StoreRecord], urgent: bool = False, part: str = ""
    ) -> list[Held]:
        """As SharedStore.commit."""
        return await self._store.commit(records, urgent)


class Single:
    """Crew (pool.py) of one. It is the owner's Worker, and its mediator's Shared."""

    index = 0

    def __init__(self, owner: Owner, inst: int, broker: dict[str, Any], audit: Audit) -> None:
        self._owner, self._inst, self._broker, self._audit = owner, inst, broker, audit
        self._running: Running | None = None
        self._news: dict[str, Any] = {}
        self.whole = False
        self.strangers: Strangers
        self.store, self.kg, self.locks = SingleStore(owner.store), owner, owner.locks

    # --- Crew ---

    async def start(self) -> None:
        """Reads the store. Raises errors meant for the operator."""
        owner = self._owner
        state = owner.layout.state_of("mediator")
        await asyncio.to_thread(gather, state, 1)
        await asyncio.to_thread(gathered, state, 1)
        begin = Begin(
            owner.layout, owner.config, owner.keys.ring(self._inst), 0, 1, self._broker,
            owner.kg is not None, owner.counted.blind_ms,
        )  # fmt: skip
        self._running = await build(begin, self, self._audit)
        self.strangers = self._running.strangers
        owner.workers.append(self)
        await self.attributes(owner.sources.rows)

    async def run(self) -> None:
        """Until it is cancelled."""
        await self._it.run()

    def give(self, caller: Caller, data: bytes, client: int) -> None:
        """A connection goes on as a client's."""
        caller.become(self._it.connection(data))

    def news(self) -> list[dict[str, Any]]:
        """What it said last of itself."""
        return [self._news]

    async def stop(self) -> None:
        """Ends all sessions."""
        if self._running is not None:
            await self._running.stop()
            self.whole = await self._running.written()

    def begun(self) -> None:
        """Clients can connect."""
        self._it.mediator.policy.warn()

    async def close(self) -> None:
        """Writes what there is to its end."""
        if self._running is not None:
            await self._running.mediator.close()

    # --- Worker ---

    async def ring(self, keys: KeySource, fresh: Fresh) -> None:
        """As Worker.ring."""
        self._it.take_ring(_ring(keys, self._inst, fresh))

    async def ended(self) -> None:
        """As Worker.ended."""
        await self._it.ended()

    async def config(self, config: Config) -> None:
        """As Worker.config."""
        await self._it.reload(config)

    async def attributes(self, rows: list[Attribute]) -> None:
        """As Worker.attributes."""
        self._it.take_attributes(rows)

    async def links(self, client: int, links: list[dict[str, Any]]) -> None:
        """As Worker.links."""
        self._it.links_came(client, links)

    def set_kg(self, there: bool) -> None:
        """As Worker.set_kg."""
        self._it.set_kg(there)

    # --- Shared ---

    async def renew(self) -> Keyring | None:
        """As Shared.renew."""
        inst = await self._owner.keys.draw()
        if inst is None:
            return None
        self._inst = inst
        return _ring(self._owner.keys, inst, self._owner.fresh)

    async def reopened(self) -> None:
        """There is nobody else to wait for."""

    def passed(self, topic: str, ms: int, seq: int, origin: tuple[int, int] | None) -> None:
        """There is nobody else to tell."""

    def took(self, topic: str, client: int, size: int) -> None:
        """There is nobody else to tell."""

    def live(self, there: bool) -> None:
        """There is nobody else to tell."""

    def marked(self, worker: int, number: int) -> None:
        """There is nobody else to tell."""

    async def derived(self, rows: list[Attribute]) -> list[Attribute]:
        """There is nobody else to tell."""
        return []

    def inform(self, client: int, family: str, said: bytes) -> None:
        """There is nobody else to tell."""

    def tell(self, news: dict[str, Any]) -> None:
        """As Shared.tell."""
        self._news = news
        self._owner.told()

    @property
    def _it(self) -> Running:
        if self._running is None:
            raise RuntimeError("not started")
        return self._running


def _ring(keys: KeySource, inst: int, fresh: Fresh) -> Keyring:
    ring = keys.ring(inst)
    for client, links in fresh:
        ring.set_links(client, links)
    return ring
