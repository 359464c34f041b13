"""`python -m sealmq.mediator.process SITE`:
one mediator, started by `sealmq up`. SIGTERM ends it, SIGHUP reloads.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from pathlib import Path

from sealmq import __version__, logs
from sealmq.audit import Audit
from sealmq.families.api import FamilyError
from sealmq.families.engine import Engine
from sealmq.families.registry import load as load_families
from sealmq.kglink import KgClient, KgError
from sealmq.run.errors import BadHandOver
from sealmq.run.secrets import receive
from sealmq.site.config import Config, load
from sealmq.site.errors import SiteError
from sealmq.site.layout import Layout, write_atomically
from sealmq.store import Store, StoreError

from .core.keyring import Keyring
from .core.limits import BACKLOG
from .events import Unfit
from .keysource import KeySource, NoKeys
from .links import BrokerAddress
from .mediator import Mediator

log = logging.getLogger("sealmq.mediator")

_TELL_S = 3
# For the broker, and all that is published again, before this serves without it.
_BROKER_S = 10.0


class Process:
    """One worker, its listening socket, the tasks beside it."""

    def __init__(
        self,
        layout: Layout,
        config: Config,
        mediator: Mediator,
        keys: KeySource,
        audit: Audit,
    ) -> None:
        self._layout, self._config, self._mediator, self._keys = layout, config, mediator, keys
        self._audit = audit
        keys.before_fetch = mediator.asking.fetch_begins
        self._stop = asyncio.Event()
        self._reload = asyncio.Event()
        # What this goes by may be other than what the key generator was told last.
        self._news = asyncio.Event()
        self._news.set()
        self._serving: dict[str, object] = {}

    async def run(self) -> None:
        """Serves until SIGTERM or SIGINT."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)
        control = self._mediator.control
        tasks = [
            *(asyncio.create_task(work, name="mediator") for work in self._mediator.run()),
            asyncio.create_task(self._watch_keys(), name="keys"),
            asyncio.create_task(self._confirm(), name="confirm"),
            asyncio.create_task(self._watch_reload(), name="reload"),
            asyncio.create_task(self._tick(), name="tick"),
        ]
        ended = asyncio.create_task(self._stop.wait(), name="stop")
        ready = asyncio.create_task(control.ready.wait(), name="broker")
        try:
            await asyncio.wait(
                [ready, ended], timeout=_BROKER_S, return_when=asyncio.FIRST_COMPLETED
            )
            if not ready.done() and not ended.done():
                log.warning("nobody can connect yet: %s", self._mediator.away)
            await self._serve(tasks, ended)
        finally:
            self._layout.ready("mediator").unlink(missing_ok=True)
            for task in [*tasks, ended, ready]:
                task.cancel()
            await asyncio.gather(*tasks, ended, ready, return_exceptions=True)

    async def _serve(self, tasks: list[asyncio.Task[None]], ended: asyncio.Task[bool]) -> None:
        if self._stop.is_set():
            return
        mediator, listen = self._mediator, self._config.mediator
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(
                mediator.channel, listen.host, listen.port, backlog=BACKLOG
            )
        except OSError as error:
            raise SiteError(
                f"cannot listen on {listen.host}:{listen.port}: {_reason(error)}",
                "is another broker there? change [mediator] listen in sealmq.toml",
            ) from None
        host, port = server.sockets[0].getsockname()[:2]
        self._audit.write(
            "start",
            address=f"{host}:{port}",
            enforce=mediator.site.engine.enforce,
            name=self._layout.root.name,
            order=list(self._config.policy.order),
            pid=os.getpid(),
            version=__version__,
        )
        mediator.warn()
        self._serving = {
            "role": "mediator",
            "pid": os.getpid(),
            "address": f"{host}:{port}",
            "ready": True,
        }
        self._tell()
        await asyncio.wait([*tasks, ended], return_when=asyncio.FIRST_COMPLETED)
        server.close()
        mediator.stop("the mediator stops")
        await mediator.settle()
        for task in tasks:
            if task.done() and not task.cancelled() and (fault := task.exception()):
                raise fault

    # What `sealmq status` reads, once this serves.
    def _tell(self) -> None:
        mediator = self._mediator
        stuck = [[name, key[1][:100]] for key, name in mediator.sessions.stuck.items()]
        news: dict[str, object] = {
            "journal": mediator.journal.state(),
            "handover": mediator.handover(),
            "away": mediator.away,
            "aside": mediator.aside.state(),
            "stuck": {"count": len(stuck), "some": stuck[:3]} if stuck else None,
            "closed": mediator.site.engine.closed,
        }
        if self._serving and any(self._serving.get(k, 0) != news[k] for k in news):
            self._serving.update(news)
            told = json.dumps(self._serving).encode()
            try:
                write_atomically(self._layout.ready("mediator"), told, 0o644)
            except OSError as error:
                log.error("run/mediator/ready.json cannot be written: %s", error.strerror)

    async def _watch_keys(self) -> None:
        asking = self._mediator.asking
        async for ring in self._keys.watch(asking.kg, asking.take_kg):
            if ring is not None:
                self._mediator.take_ring(ring)
                self._news.set()
            self._reload.set()

    # The key generator is told what this goes by, for commands that must not end before it does.
    async def _confirm(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            site = self._mediator.site
            kseq, policy = site.ring.kseq, site.config.digest
            await self._mediator.ended()
            kg = self._mediator.asking.kg
            if kg is not None:
                try:
                    await kg.took(kseq, policy)
                except KgError as error:
                    log.warning("key generator: %s", error)

    async def _watch_reload(self) -> None:
        while True:
            await self._reload.wait()
            self._reload.clear()
            try:
                await self._mediator.reload(load(self._layout.config))
                self._news.set()
            except (SiteError, OSError) as error:
                self._refused(error)
            except StoreError as error:
                log.error("sealmq.toml is not taken over yet: %s", error)
                asyncio.get_running_loop().call_later(1.0, self._reload.set)

    # What was in force stays in force.
    def _refused(self, error: SiteError | OSError) -> None:
        hint = getattr(error, "hint", None)
        log.error("sealmq.toml is not taken over: %s%s", error, f"; {hint}" if hint else "")
        self._audit.write("config-refused", reason=str(error)[:500])

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(1.0)
            self._mediator.tick()
            if self._mediator.site.clock_fell():
                await self._follow_clock()
            away = self._mediator.away
            if round(loop.time()) % _TELL_S == 0 or away != self._serving.get("away"):
                self._tell()

    # The clock was set back: stamps of our own past would lead it for long (SPEC.md 5, point 4).
    async def _follow_clock(self) -> None:
        try:
            ring = await self._keys.renew()
        except StoreError as error:
            log.error("the clock was set back, and no new instance number can be stored: %s", error)
            return
        if ring is None:
            log.error("the clock was set back, and no instance number is in reserve")
            return
        log.warning("the clock was set back; going on as instance %d", ring.inst)
        self._mediator.take_ring(ring)


async def serve(layout: Layout, secrets: dict[str, object]) -> None:
    """Builds the parts in their order and runs them. Raises errors meant for the operator."""
    config = load(layout.config)
    store = Store.open(layout.mediator_db)
    try:
        cache_key = bytes.fromhex(str(secrets["cache_key"]))
        keys = KeySource(layout.kg_socket, config.mediator.number, store, cache_key)
        ring, kg = await keys.start(config)
        where, spare = layout.audit("mediator"), layout.state_of("mediator")
        audit = Audit(where, "mediator", ring.inst, ring.site.hex(), spare=spare)
        try:
            folder = layout.state_of("mediator") / "journal"
            mediator = await _mediator(config, ring, store, audit, secrets["broker"], folder, kg)
            try:
                await Process(layout, config, mediator, keys, audit).run()
            finally:
                await mediator.close()
        finally:
            audit.write("stop")
            audit.close()
    finally:
        store.close()


async def _mediator(
    config: Config,
    ring: Keyring,
    store: Store,
    audit: Audit,
    broker: object,
    journal: Path,
    kg: KgClient | None,
) -> Mediator:
    if not isinstance(broker, dict):
        raise BadHandOver("the hand-over names no broker")
    address = BrokerAddress.of(broker)
    mediator: Mediator | None = None

    def fault(family: str, question: str, error: Exception) -> None:
        if mediator is not None:
            mediator.family_fault(family, question, error)

    engine = Engine(
        load_families(config.policy.order),
        site=ring.site.hex(),
        enforce=config.policy.enforce,
        on_fault=fault,
    )
    engine.close_site(ring.closed)
    records = engine.load(config, store.records())
    if engine.noted(ring.bearers()):
        records += engine.bearers(ring.bearers(), store.records)
    mediator = Mediator(config, ring, engine, store, audit, address, journal, kg)
    await mediator.commit(list(records))
    return mediator


# The system's words: a loop puts its own around them.
def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 after a clean stop, 1 with one line on stderr otherwise."""
    arguments = sys.argv[1:] if arguments is None else arguments
    logs.begin("mediator: ")
    os.umask(0o077)
    if len(arguments) != 1:
        print("usage: python -m sealmq.mediator.process SITE", file=sys.stderr)
        return 2
    run = asyncio.run
    with contextlib.suppress(ImportError):
        import uvloop

        run = uvloop.run
    try:
        run(serve(Layout.open(Path(arguments[0])), receive()))
    except (SiteError, StoreError, NoKeys, BadHandOver, FamilyError, Unfit, KeyError) as error:
        print(f"mediator: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
