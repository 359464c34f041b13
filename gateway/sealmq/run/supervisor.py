"""Starts the parts of a site in their order, keeps them serving, ends them in reverse order.

One thread, one event loop. SIGTERM and SIGINT stop, a second one does not wait; SIGHUP is passed
on to each part once that serves. The first start must succeed; after that a part that ends is
started again.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
from collections.abc import Callable, Sequence

from sealmq.site.layout import Layout, write_atomically

from . import proc
from .notify import notify, watchdog_s
from .ready import Persistent
from .roles import Part, Process, Say

_FDS = 65536


class Supervisor:
    """Runs the parts of one site.

    `shared_user` and `output` (where its lines go to) stand in run/up.json, for other commands.
    """

    def __init__(
        self, layout: Layout, parts: Sequence[Part], say: Say, *, shared_user: bool, output: str
    ) -> None:
        self._layout, self._parts, self._say = layout, parts, say
        self._shared_user, self._output = shared_user, output
        self._stop = asyncio.Event()
        self._signals = 0
        self._told = Persistent("run/up.json", say)
        for part in parts:
            if isinstance(part, Process):
                part.changed = self._tell

    async def run(self, on_ready: Callable[[], None]) -> int:
        """Run until a signal; 0 after a clean stop. Raises what kept a part from serving."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        tasks: list[asyncio.Task[None]] = []
        try:
            if await self._start():
                on_ready()
                notify("READY=1\nSTATUS=serving")
                tasks = [
                    asyncio.create_task(part.tend(), name=f"tend {part.name}")
                    for part in self._parts
                ]
                tasks.append(asyncio.create_task(self._watchdog(), name="watchdog"))
                await self._until_stop(tasks)
        finally:
            notify("STOPPING=1")
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            clean = await self._end()
        return 0 if clean else 1

    async def _start(self) -> bool:
        """Start the parts one after another; False when a signal came first."""
        for part in self._parts:
            starting = asyncio.create_task(part.start(), name=f"start {part.name}")
            await self._until_stop([starting])
            if self._stop.is_set():
                starting.cancel()
                await asyncio.gather(starting, return_exceptions=True)
                return False
        return True

    async def _until_stop(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Wait for a signal or the end of a task, whose error is raised."""
        stop = asyncio.create_task(self._stop.wait(), name="stop")
        try:
            done, _ = await asyncio.wait([stop, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if task is not stop:
                    task.result()
        finally:
            stop.cancel()

    async def _end(self) -> bool:
        clean = True
        for part in reversed(self._parts):
            clean = await part.stop() and clean
        self._told.drop()
        (self._layout.run / "up.json").unlink(missing_ok=True)
        return clean

    def _stopping(self) -> None:
        self._signals += 1
        self._stop.set()
        if self._signals > 1:
            for part in self._parts:
                if part.child is not None:
                    part.child.signal(signal.SIGKILL)

    def _reload(self) -> None:
        for part in self._parts:
            if isinstance(part, Process):
                part.hang_up()

    async def _watchdog(self) -> None:
        """Say that this loop runs, also while a part does not serve: to start that one again is our
        work, and systemd would end the others with it, for a broker on another machine as well.
        """
        period = watchdog_s()
        while period is not None:
            await asyncio.sleep(period)
            notify("WATCHDOG=1")
        await asyncio.Event().wait()

    def _tell(self) -> None:
        self._told.put(self._write)

    def _write(self) -> None:
        """run/up.json: which parts there are, also while one does not run, and which processes are
        ours. Start times tell them from later ones of a pid."""
        told = {
            "pid": os.getpid(),
            "start": proc.start_of(os.getpid()),
            "shared_user": self._shared_user,
            "output": self._output,
            "roles": [part.name for part in self._parts],
            "processes": {
                part.name: {"pid": part.child.pid, "start": part.child.started}
                for part in self._parts
                if part.child is not None and part.child.alive
            },
        }
        write_atomically(self._layout.run / "up.json", json.dumps(told).encode() + b"\n", 0o644)


def harden() -> None:
    """Limits that the children inherit: no core dumps, which would hold keys; many connections."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FDS if hard == resource.RLIM_INFINITY else min(_FDS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
