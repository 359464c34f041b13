"""The workers of a mediator that has several: started, given connections, started again, ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sealmq.audit import Audit
from sealmq.audit.chain import Chains, handed
from sealmq.site.errors import SiteError
from sealmq.store import StoreError
from sealmq.strangers import Strangers

from .acceptor import Caller
from .capacity import Capacity
from .frames import Gone
from .journal_file import gather, gathered
from .owner import Owner
from .shared import worker_of
from .workers import MODULE, WorkerProcess

log = logging.getLogger("sealmq.mediator")


class Crew(Protocol):
    """The workers of a mediator, one or several."""

    strangers: Strangers
    """Connections whose CONNECT is not whole yet; of a single worker, its own as well."""

    async def start(self) -> None:
        """Returns when each has begun, though the broker may be away. SiteError: one cannot."""

    async def run(self) -> None:
        """Keeps them running; for ever."""

    def give(self, caller: Caller, data: bytes, client: int) -> None:
        """A connection goes to its client's worker."""

    def begun(self) -> None:
        """Clients can connect."""

    def news(self) -> list[dict[str, Any]]:
        """The last report of each."""

    async def stop(self) -> None:
        """Ends all sessions, and workers that are processes."""

    @property
    def whole(self) -> bool:
        """After `stop`: whether the store has all that was counted."""

    async def close(self) -> None:
        """Writes what there is to its end."""


BACKOFF_S = 0.5, 30.0
# A worker that has run for so long is started again as quickly as after its first end.
_WELL_S = 10.0


class Pool:
    """Crew of `count` processes; each begins with one of `insts`."""

    def __init__(
        self,
        owner: Owner,
        count: int,
        insts: Sequence[int],
        broker: Mapping[str, Any],
        audit: Audit,
        module: str = MODULE,
        chains: Chains | None = None,
    ) -> None:
        self._owner, self._count, self._broker, self._module = owner, count, broker, module
        self._insts = list(insts)
        self._audit, self._chains = audit, chains
        self.strangers = Strangers(Capacity.of_this_process().strangers)
        self.workers: dict[int, WorkerProcess] = {}
        self._stopping = asyncio.Event()

    async def start(self) -> None:
        """Returns when each has begun, though the broker may be away. SiteError: one cannot."""
        state = self._owner.layout.state_of("mediator")
        moved = await asyncio.to_thread(gather, state, self._count)
        await self._begin(0, self._insts.pop())
        if moved:
            # Clients belong to other workers than before: worker 0 publishes again what the
            # journals have of them before they can publish anything new.
            first = self.workers[0]
            self._owner.begun.set()
            await first.until(lambda: first.away is None)
        await asyncio.gather(*(self._begin(n, self._insts.pop()) for n in range(1, self._count)))
        self._owner.begun.set()
        await asyncio.to_thread(gathered, state, self._count)

    async def run(self) -> None:
        """Starts again what ends; for ever."""
        async with asyncio.TaskGroup() as group:
            for index in range(self._count):
                group.create_task(self._tend(index), name=f"tend worker {index}")

    def give(self, caller: Caller, data: bytes, client: int) -> None:
        """A connection goes to its client's worker."""
        worker = self.workers.get(worker_of(client, self._count))
        if worker is None:
            caller.close("its worker is not there")
        else:
            worker.give(caller, data)

    @property
    def whole(self) -> bool:
        """As Crew.whole."""
        there = [worker.whole for worker in self.workers.values()]
        return len(there) == self._count and all(there)

    async def stop(self) -> None:
        """Ends all of them."""
        self._stopping.set()
        await asyncio.gather(*(worker.stop() for worker in self.workers.values()))

    def begun(self) -> None:
        """Nothing: the workers have said so themselves."""

    def news(self) -> list[dict[str, Any]]:
        """The last report of each; of a worker that is not there, that it is starting."""
        return [
            {**worker.news, "away": worker.away, "pid": worker.pid}
            for _, worker in sorted(self.workers.items())
        ]

    async def close(self) -> None:
        """Nothing: the workers have closed their files themselves."""

    def _lost(self, index: int, how: str) -> None:
        log.error("worker %d %s; starting it again", index, how)
        self._audit.write("worker-ended", number=index, reason=how[:500])
        self._owner.told()

    # One that ended took with it what it had counted last.
    async def _begin(self, index: int, inst: int, first: bool = True) -> None:
        owner = self._owner
        secrets: dict[str, Any] = {"broker": dict(self._broker)}
        if self._chains is not None:
            secrets["audit"] = handed(*self._chains.next())
        worker = WorkerProcess(
            owner.layout, index, inst, secrets, owner.handlers, owner.told, self._module
        )
        self.workers[index] = worker
        await worker.open()
        # From here on it is told all changes, and applies them once it has read the store.
        owner.workers.append(worker)
        worker.tell("attributes", owner.sources.rows)
        for other in self.workers.values():
            if other is not worker and other.live:
                worker.tell("live", other.index, True)
        keys, counted = owner.keys, owner.counted
        blind = counted.blind_ms if first else counted.worker_ended()
        try:
            await worker.begin(
                index, self._count, inst, keys.site, owner.newest.text, owner.order, keys.snapshot,
                owner.fresh, owner.kg is not None, blind,
            )  # fmt: skip
        except Gone:
            how = await self._ended(worker)
            raise SiteError(f"worker {index} {how}") from None
        self._owner.told()

    async def _ended(self, worker: WorkerProcess) -> str:
        how = await worker.exited()
        if worker in self._owner.workers:
            self._owner.workers.remove(worker)
        return how

    async def _tend(self, index: int) -> None:
        loop = asyncio.get_running_loop()
        wait = BACKOFF_S[0]
        while True:
            began = loop.time()
            worker = self.workers[index]
            how = await self._ended(worker)
            if self._stopping.is_set():
                return
            self._lost(index, how)
            if loop.time() - began > _WELL_S:
                wait = BACKOFF_S[0]
            while True:
                await asyncio.sleep(wait)
                if self._stopping.is_set():
                    return
                wait = min(wait * 2, BACKOFF_S[1])
                try:
                    inst = await self._owner.keys.draw()
                    if inst is None:
                        raise SiteError(f"worker {index}: no instance number is in reserve")
                    await self._begin(index, inst, first=False)
                    break
                except (SiteError, StoreError, OSError) as error:
                    log.error("%s; trying again in %g s", error, wait)
