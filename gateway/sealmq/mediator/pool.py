"""The workers of a mediator that has several: started, given connections, started again, ended."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sealmq.site.errors import SiteError
from sealmq.site.layout import Layout, sync_folder, write_atomically

from .acceptor import Caller
from .frames import Gone
from .journal_file import read
from .owner import Owner
from .shared import journal_of, worker_of
from .workers import MODULE, WorkerProcess

log = logging.getLogger("sealmq.mediator")

BACKOFF_S = 0.5, 30.0
# One that has lived so long is started again at once, as after the first end.
_WELL_S = 10.0


class Pool:
    """`count` workers. `changed`: called when one of them says something new, has ended or begun.
    `lost` hears of each that ended without being told to: its number, and how.
    """

    def __init__(
        self,
        owner: Owner,
        count: int,
        insts: Sequence[int],
        broker: Mapping[str, Any],
        changed: Callable[[], None],
        lost: Callable[[int, str], None],
        module: str = MODULE,
    ) -> None:
        self._owner, self._count, self._broker, self._module = owner, count, broker, module
        self._insts = list(insts)
        self._changed, self._lost = changed, lost
        self.workers: dict[int, WorkerProcess] = {}
        self._stopping = False

    async def start(self) -> None:
        """Returns when each has begun, though the broker may be away. SiteError: one cannot."""
        layout = self._owner.layout
        moved = await asyncio.to_thread(gather_journals, layout, self._count)
        await self._begin(0, self._insts.pop())
        if moved:
            # Clients belong to other workers than before: what of theirs is published again comes
            # before what is new of them.
            first = self.workers[0]
            await first.until(lambda: first.away is None)
        await asyncio.gather(*(self._begin(n, self._insts.pop()) for n in range(1, self._count)))
        write_atomically(_mark(layout), str(self._count).encode(), 0o600)

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

    async def stop(self) -> None:
        """Ends all of them."""
        self._stopping = True
        await asyncio.gather(*(worker.stop() for worker in self.workers.values()))

    async def _begin(self, index: int, inst: int) -> None:
        owner = self._owner
        worker = WorkerProcess(
            owner.layout, index, inst, self._broker, owner.handlers, self._changed, self._module
        )
        self.workers[index] = worker
        # From here on it is told of all that others commit, and does it once it has read the store.
        owner.workers.append(worker)
        keys = owner.keys
        try:
            await worker.begin(
                index, self._count, inst, keys.site, owner.config.text, keys.snapshot, owner.fresh,
                owner.kg is not None,
            )  # fmt: skip
        except Gone:
            how = await self._ended(worker)
            raise SiteError(f"worker {index} {how}") from None
        self._changed()

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
            if self._stopping:
                return
            self._lost(index, how)
            self._changed()
            if loop.time() - began > _WELL_S:
                wait = BACKOFF_S[0]
            while True:
                await asyncio.sleep(wait)
                wait = min(wait * 2, BACKOFF_S[1])
                inst = await self._owner.keys.draw()
                if inst is None:
                    log.error("worker %d is not started: no instance number is in reserve", index)
                    continue
                try:
                    await self._begin(index, inst)
                    break
                except SiteError as error:
                    log.error("%s; trying again in %g s", error, wait)


def _mark(layout: Layout) -> Path:
    return layout.state_of("mediator") / "workers"


def gather_journals(layout: Layout, count: int) -> bool:
    """Before a start with another number of workers: what any of them has in its journal goes to
    that of worker 0, in the order in which it was written. Whether there was any.
    """
    mark = _mark(layout)
    before = mark.read_text() if mark.exists() else "1"
    folders = sorted(layout.state_of("mediator").glob("journal-*"))
    if before == str(count) and all(_number(folder) < count for folder in folders):
        return False
    to = journal_of(layout, 0)
    segments = [path for folder in (to, *folders) for path in folder.glob("*.seg")]
    segments = [path for path in segments if path.stem.isdecimal()]
    last = max((int(path.stem) for path in segments), default=0)
    if segments:
        to.mkdir(mode=0o700, exist_ok=True)
    for path in sorted(segments, key=_first):
        last += 1
        os.rename(path, to / f"{last:08d}.seg")
    for folder in (to, *folders):
        if folder.exists():
            sync_folder(folder)
    return bool(segments)


def _number(folder: Path) -> int:
    text = folder.name.rpartition("-")[2]
    return int(text) if text.isdecimal() else 0


# A run of a mediator begins new segments: none has entries of before and after a change.
def _first(path: Path) -> tuple[int, str]:
    try:
        return next((entry.ms for entry in read(path)), 0), path.stem
    except OSError:
        return 0, path.stem
