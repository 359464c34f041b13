"""`python -m sealmq.kg.process SITE`: the key generator, started by `sealmq up`.

SIGTERM ends it, SIGHUP re-reads sealmq.toml. It says that it is ready once it really serves. One
that is started again, or was told to, goes by what was in force where the file is not taken over.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sealmq import logs, peerkeys
from sealmq.audit import Audit, AuditError
from sealmq.audit.chain import Chain, NoChain, first
from sealmq.audit.retention import Retention
from sealmq.audit.totals import Totals
from sealmq.run import proc, ready
from sealmq.run.errors import BadHandOver
from sealmq.run.ready import Persistent, Ready
from sealmq.run.secrets import receive
from sealmq.site.config import load
from sealmq.site.errors import SiteError
from sealmq.site.layout import Layout

from .core import Kg
from .errors import Bad, KgRefusal
from .last import good, last
from .ops import Ops
from .server import Server
from .store import KgStore

log = logging.getLogger("sealmq.kg")

_PR_SET_DUMPABLE = 4
# While a peer has to wait for keys that it has asked for, it is seen so often whether they are due.
_DUE_S = 1.0


# Everything secret of the site is in this memory: no core file, and no reading of it by other
# processes of the same user (prctl(2); root can always).
def _close_memory() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


class Process:
    """One run of the key generator."""

    def __init__(
        self, layout: Layout, key: bytes, chain: Chain | None = None, last_good: bool = False
    ) -> None:
        self._layout, self._chain = layout, chain
        self._config = good(layout) if last_good else load(layout.config)
        # What it begins with. Without one that was in force the file has to be right.
        before = last(layout, self._config) if last_good else None
        self._last_good = before is not None
        self._before = before or self._config
        self._store = KgStore.open(layout.kg_db, key, self._before.site.id)
        self._key = peerkeys.kg_key(key)
        self._stop = asyncio.Event()
        self._hangup = asyncio.Event()
        self._ready = Persistent("run/kg/ready.json", log.error)
        self._changed: Callable[[int, int | None], None] = lambda kseq, client: None

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._hangup.set)
        worker = ThreadPoolExecutor(1, "kg-store")
        try:
            await self._serve(loop, worker)
        finally:
            self._ready.drop()
            ready.forget(self._layout, "kg")
            worker.shutdown()
            self._store.close()

    async def _serve(self, loop: asyncio.AbstractEventLoop, worker: ThreadPoolExecutor) -> None:
        def on_change(kseq: int, client: int | None) -> None:
            loop.call_soon_threadsafe(self._changed, kseq, client)

        kg = Kg(self._store, self._before, on_change=on_change, key=self._key)
        folder, spare = self._layout.audit("kg"), self._layout.state_of("kg")
        site, chain = self._before.site.id.hex(), self._chain
        keep = Retention(*self._config.audit)
        audit = Audit(
            folder,
            "kg",
            kg.inst,
            site,
            spare=spare,
            chain=chain,
            retention=keep,
            totals=Totals(self._layout.totals("kg")) if self._config.metrics else None,
        )
        try:
            made_s = self._store.news()
            if made_s is not None:
                made = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(made_s))
                audit.write("keys-restored", notes=[f"from a backup of {made}"])
            ops = Ops(kg, self._layout.config, audit.write)
            try:
                await loop.run_in_executor(worker, self._reread, ops)
            except Bad as error:
                if not self._last_good:
                    raise
                _refused(error, audit)
            except KgRefusal:
                raise
            except Exception as error:
                if not self._last_good:
                    raise
                _refused(_defect(error), audit)
            server = Server(self._layout, ops, worker)
            self._changed = server.changed
            await server.start()
            try:
                self._announce()
                audit.write("start", address=str(self._layout.kg_socket))
                due = asyncio.create_task(self._due(loop, worker, kg, ops), name="due")
                try:
                    await self._wait(loop, worker, ops, audit)
                finally:
                    due.cancel()
            finally:
                await server.stop()
        finally:
            audit.write("stop")
            audit.close()

    async def _wait(
        self,
        loop: asyncio.AbstractEventLoop,
        worker: ThreadPoolExecutor,
        ops: Ops,
        audit: Audit,
    ) -> None:
        stop = asyncio.create_task(self._stop.wait(), name="stop")
        while not stop.done():
            hangup = asyncio.create_task(self._hangup.wait(), name="hangup")
            await asyncio.wait([stop, hangup], return_when=asyncio.FIRST_COMPLETED)
            hangup.cancel()
            if self._hangup.is_set():
                self._hangup.clear()
                try:
                    await loop.run_in_executor(worker, self._reread, ops)
                except KgRefusal as error:
                    _refused(error, audit)
                except Exception as error:
                    _refused(_defect(error), audit)

    async def _due(
        self, loop: asyncio.AbstractEventLoop, worker: ThreadPoolExecutor, kg: Kg, ops: Ops
    ) -> None:
        while True:
            await asyncio.sleep(_DUE_S)
            if kg.peers_wait:
                try:
                    await loop.run_in_executor(worker, ops.due)
                except Exception as error:
                    # Whatever it is, who waits is asked for again, and nobody else is touched.
                    log.error("keys that peers wait for: %s", type(error).__name__)

    def _reread(self, ops: Ops) -> None:
        for line in ops.reread().words():
            log.warning("%s", line)

    def _announce(self) -> None:
        user = proc.name_of(os.geteuid())
        told = Ready("kg", os.getpid(), str(self._layout.kg_socket), True)
        self._ready.put(lambda: ready.write(self._layout, told, user=user))


# Of ours; its text could quote what it worked on.
def _defect(error: Exception) -> KgRefusal:
    return KgRefusal(f"internal error ({type(error).__name__})")


def _refused(error: KgRefusal, audit: Audit) -> None:
    hint = f"; {error.hint}" if error.hint else ""
    log.error("sealmq.toml is not taken over: %s%s", error, hint)
    audit.write("config-refused", reason=str(error)[:500])


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 after a clean stop, 1 with one line on stderr otherwise."""
    arguments = sys.argv[1:] if arguments is None else arguments
    logs.begin("kg: ")
    os.umask(0o077)
    _close_memory()
    if len(arguments) != 1:
        print("usage: python -m sealmq.kg.process SITE", file=sys.stderr)
        return 2
    try:
        layout = Layout.open(Path(arguments[0]))
        secrets = receive()
        last_good = secrets.get("last_good") is True
        asyncio.run(_main(layout, _key(secrets), first(secrets), last_good))
    except (SiteError, KgRefusal, BadHandOver, AuditError, NoChain, OSError) as error:
        print(f"kg: {error}", file=sys.stderr)
        return 1
    return 0


async def _main(layout: Layout, key: bytes, chain: Chain | None, last_good: bool) -> None:
    await Process(layout, key, chain, last_good).run()


def _key(secrets: dict[str, object]) -> bytes:
    text = secrets.get("key")
    try:
        key = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        key = b""
    if len(key) != 32:
        raise BadHandOver("the hand-over holds no key of 32 bytes in hex")
    return key


if __name__ == "__main__":
    sys.exit(main())
