"""`python -m sealmq.mediator.process SITE`:
one mediator, started by `sealmq up`. SIGTERM ends it, SIGHUP reloads.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from itertools import islice
from pathlib import Path
from typing import Any

from sealmq import __version__, garbage, logs, loops
from sealmq.audit import Audit, AuditError, chain
from sealmq.audit.events import of_families
from sealmq.audit.retention import Retention
from sealmq.families.api import FamilyError
from sealmq.run.errors import BadHandOver
from sealmq.run.ready import AGAIN_S
from sealmq.run.secrets import receive
from sealmq.site.errors import SiteError
from sealmq.site.layout import Layout, write_atomically
from sealmq.site.reach import written
from sealmq.store import Store, StoreError

from .acceptor import Acceptor
from .events import MissingExecutor
from .keysource import KeySource, NoKeys, in_force
from .owner import Owner
from .pool import Crew, Pool
from .shared import totals_of
from .single import Single

log = logging.getLogger("sealmq.mediator")

# How long to wait for the broker and the journal before this serves without a broker.
_BROKER_S = 10.0
# Labels in hand-over that are named; of a longer file nobody would believe that this serves.
_NAMED = 100


class Process:
    """The owner, its workers, the listening socket."""

    def __init__(self, layout: Layout, owner: Owner, crew: Crew, audit: Audit) -> None:
        self._layout, self._owner, self._crew, self._audit = layout, owner, crew, audit
        self._stop = asyncio.Event()
        self._told = asyncio.Event()
        self._serving: dict[str, object] = {}
        # It could not be written.
        self._unsaid = False
        # While that is written.
        self._telling = asyncio.Lock()
        owner.told = self._told.set

    async def run(self) -> None:
        """Serves until SIGTERM or SIGINT."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._owner.hang_up)
        crew = self._crew
        await self._owner.sources.take(self._owner.config.attributes)
        closed = bool(self._owner.keys.snapshot.get("closed"))
        await self._owner.counted.begin(self._owner.config.attributes.values(), closed)
        if closed:
            await self._owner.put_back()
        await crew.start()
        garbage.started()
        tasks = [
            asyncio.create_task(crew.run(), name="workers"),
            asyncio.create_task(self._owner.run(), name="owner"),
            asyncio.create_task(self._tell_all(), name="tell"),
        ]
        ended = asyncio.create_task(self._stop.wait(), name="stop")
        ready = asyncio.create_task(self._let_in(), name="broker")
        try:
            await asyncio.wait(
                [ready, ended, *tasks], timeout=_BROKER_S, return_when=asyncio.FIRST_COMPLETED
            )
            if not ready.done() and not ended.done():
                log.warning("nobody can connect yet: %s", _merged(crew.news())["away"])
            if not ended.done():
                await self._serve(tasks, ended)
        finally:
            await self._forget()
            await self._owner.sources.close()
            await crew.stop()
            await self._owner.counted.end(crew.whole)
            for task in [*tasks, ended, ready]:
                task.cancel()
            await asyncio.gather(*tasks, ended, ready, return_exceptions=True)
        for task in tasks:
            if task.done() and not task.cancelled() and (fault := task.exception()):
                raise fault

    async def _let_in(self) -> None:
        while _merged(self._crew.news())["away"] is not None:
            self._told.clear()
            await self._told.wait()

    async def _serve(self, tasks: list[asyncio.Task[None]], ended: asyncio.Task[bool]) -> None:
        config, crew = self._owner.config, self._crew
        listen = config.mediator
        acceptor = Acceptor(crew.strangers, crew.give)
        try:
            at = written(*await acceptor.listen(listen.host, listen.port))
        except OSError as error:
            raise SiteError(
                f"cannot listen on {written(listen.host, listen.port)}: {_reason(error)}",
                "is another broker there? change [mediator] listen in sealmq.toml",
            ) from None
        self._audit.write(
            "start",
            address=at,
            enforce=config.policy.enforce,
            name=self._layout.root.name,
            order=list(config.policy.order),
            pid=os.getpid(),
            version=__version__,
        )
        crew.begun()
        self._serving = {
            "role": "mediator",
            "pid": os.getpid(),
            "address": at,
            "ready": True,
            "order": list(config.policy.order),
        }
        self._told.set()
        await asyncio.wait([*tasks, ended], return_when=asyncio.FIRST_COMPLETED)
        acceptor.close()

    async def _tell_all(self) -> None:
        while True:
            await self._told.wait()
            self._told.clear()
            async with self._telling:
                await self._tell()

    # What `sealmq status` reads, once this serves. In a thread, as it is synced.
    async def _tell(self) -> None:
        news = self._news()
        while self._serving and (
            self._unsaid or any(self._serving.get(k, 0) != news[k] for k in news)
        ):
            self._serving.update(news)
            told = json.dumps(self._serving).encode()
            try:
                path = self._layout.ready("mediator")
                await asyncio.to_thread(write_atomically, path, told, 0o644)
                self._unsaid = False
            except OSError as error:
                # It serves all the same.
                if not self._unsaid:
                    log.error("run/mediator/ready.json cannot be written: %s", error.strerror)
                self._unsaid = True
                asyncio.get_running_loop().call_later(AGAIN_S, self._told.set)
                return
            # What was told meanwhile may have been for somebody else, too.
            news = self._news()

    def _news(self) -> dict[str, Any]:
        return {**_merged(self._crew.news()), "attributes": dict(self._owner.sources.failing)}

    async def _forget(self) -> None:
        self._serving = {}
        async with self._telling:
            self._layout.ready("mediator").unlink(missing_ok=True)


# One report for `sealmq status`, of those of all workers.
def _merged(news: list[dict[str, Any]]) -> dict[str, Any]:
    def of(name: str) -> list[Any]:
        return [found for one in news if (found := one.get(name)) is not None]

    journals, stuck, aside = of("journal"), of("stuck"), of("aside")
    handover = of("handover")
    labels = {name: ends for one in handover for name, ends in one["labels"].items()}
    starting = ["a worker of the mediator is starting"]
    away = (
        [one["lost"] for one in news if one.get("lost")]
        or [one["away"] for one in news if one.get("away")]
        or starting * any("away" not in one for one in news)
    )
    return {
        "journal": {
            "bytes": sum(one["bytes"] for one in journals),
            "segments": sum(one["segments"] for one in journals),
            "failing": next((one["failing"] for one in journals if one["failing"]), None),
        }
        if journals
        else None,
        "handover": {
            "labels": dict(islice(sorted(labels.items()), _NAMED)),
            "count": len(labels),
            "held": sum(one["held"] for one in handover),
        },
        "away": away[0] if away else None,
        # All workers share one folder.
        "aside": max(aside, key=lambda one: int(one["count"]), default=None),
        "stuck": {
            "count": sum(one["count"] for one in stuck),
            "some": [row for one in stuck for row in one["some"]][:3],
        }
        if stuck
        else None,
        "closed": next(iter(of("closed")), ""),
        "pids": of("pid"),
    }


async def serve(layout: Layout, secrets: dict[str, object]) -> None:
    """Builds the parts in their order and runs them. Raises errors meant for the operator."""
    config, there = await in_force(layout.kg_socket, layout.config)
    broker = secrets["broker"]
    if not isinstance(broker, dict):
        raise BadHandOver("the hand-over names no broker")
    store = Store.open(layout.mediator_db)
    try:
        cache_key = bytes.fromhex(str(secrets["cache_key"]))
        count = config.mediator.workers
        # One for each worker; with several, one more for the owner's audit log.
        keys = KeySource(
            layout.kg_socket, config.mediator.number, store, cache_key, count + (count > 1)
        )
        insts, kg = await keys.start(config, there)
        where, spare = layout.audit("mediator"), layout.state_of("mediator")
        chains = chain.chains(secrets)
        audit = Audit(
            where, "mediator", insts[0], keys.site.hex(), spare=spare,
            more=of_families(config.policy.order),
            chain=None if chains is None else chain.Chain(*chains.next()),
            retention=Retention(*config.audit),
            totals=totals_of(layout, config, "0" if count == 1 else "owner"),
        )  # fmt: skip
        try:
            owner = Owner(layout, config, store, keys, audit)
            owner.kg = kg
            crew: Crew
            if count == 1:
                crew = Single(owner, insts[0], broker, audit)
            else:
                crew = Pool(owner, count, insts[1:], broker, audit, chains=chains)
            try:
                await Process(layout, owner, crew, audit).run()
            finally:
                await crew.close()
        finally:
            audit.write("stop")
            audit.close()
    finally:
        store.close()


# The system's own text; asyncio adds text of its own to it.
def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 after a clean stop, 1 with one line on stderr otherwise."""
    arguments = sys.argv[1:] if arguments is None else arguments
    garbage.starting()
    logs.begin("mediator: ")
    os.umask(0o077)
    if len(arguments) != 1:
        print("usage: python -m sealmq.mediator.process SITE", file=sys.stderr)
        return 2
    try:
        loops.run(serve(Layout.open(Path(arguments[0])), receive()))
    except (
        SiteError,
        StoreError,
        NoKeys,
        BadHandOver,
        FamilyError,
        MissingExecutor,
        chain.NoChain,
        AuditError,
        KeyError,
        OSError,
    ) as error:
        print(f"mediator: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
