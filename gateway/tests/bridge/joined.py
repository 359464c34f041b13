"""A real site that is joined with others, on loopback, with a broker and processes of its own; and
what its clients hear.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from run.sites import Site, Up, command
from sealmq.bridge import told
from sealmq.client import Client, Message, Options
from sealmq.client.lent import lent_client
from sealmq.site.layout import Layout

LIFE = 12  # 2^12 s
_BAD_UP = Path(__file__).parent / "bad" / "bad_up.py"


class Joined(Site):
    """One of them. bad: its bridge is one that turns bad (bad/bad_bridge.py)."""

    bad = False

    def up(self, *options: str, env: dict[str, str] | None = None) -> Up:
        what = [str(_BAD_UP)] if self.bad else ["-m", "sealmq.cli", "up"]
        made = Up.start(self, [*what, str(self.root), *options], env or {})
        self.ups.append(made)
        return made

    def pid(self, role: str = "bridge") -> int:
        return int(self._processes()[role]["pid"])

    def kill(self) -> None:
        """kill -9 of all its processes, the supervisor first."""
        pids = [row["pid"] for row in self._processes().values()]
        for pid in (self.ups[-1].process.pid, *pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.ups[-1].process.wait(30)

    def _processes(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.root / "run" / "up.json").read_text())["processes"]
        return found

    def peers(self) -> dict[str, dict[str, Any]]:
        """What `sealmq peer list` says of each."""
        rows = json.loads(command("peer", "list", str(self.root), "--json"))["peers"]
        return {row["name"]: row for row in rows}

    def lines(self) -> dict[str, str]:
        """What is said of each peer's line."""
        return {name: row["line"] for name, row in self.peers().items()}

    def waiting(self, peer: str) -> int:
        """How many messages have not been acknowledged by that peer."""
        return int(self.peers()[peer]["waiting"])

    def asked(self, op: str, **fields: Any) -> dict[str, Any]:
        return told.ask(Layout.of(self.root), op, **fields)

    def edges(self) -> list[Any]:
        """The ratings that this site knows; none before its bridge runs."""
        try:
            return list(self.asked("show")["edges"])
        except told.NotRunning:
            return []

    def events(self, *names: str, role: str = "bridge") -> list[dict[str, Any]]:
        """Of that process's audit log."""
        rows = []
        for path in sorted((self.root / "audit" / role).glob("*")):
            for line in path.read_text().splitlines():
                with contextlib.suppress(ValueError):
                    rows.append(json.loads(line))
        return [row for row in rows if row["event"] in names]

    def dropped(self) -> set[str]:
        """Topics, as at b1, of messages that are named as given up here."""
        return {row["topic"].removeprefix("@b1/") for row in self.events("bridge-dropped")}


@asynccontextmanager
async def client(site: Site, name: str, options: Options | None = None) -> AsyncIterator[Client]:
    async with await lent_client(site.root, name, options=options) as made:
        yield made


class Heard:
    """What a reader got."""

    def __init__(self, of: Client) -> None:
        self.messages: list[Message] = []
        self.client = of
        self._task = asyncio.create_task(self._read(of))

    async def _read(self, of: Client) -> None:
        async for message in of.messages():
            self.messages.append(message)

    async def until(self, true: Callable[[list[str]], bool], seconds: float = 60) -> list[str]:
        async with asyncio.timeout(seconds):
            while not true(self.texts):  # noqa: ASYNC110 - a message has no event of its own
                await asyncio.sleep(0.02)
        return self.texts

    @property
    def texts(self) -> list[str]:
        return [message.payload.decode() for message in self.messages]

    @property
    def topics(self) -> list[str]:
        """As at their own site."""
        return [message.topic.removeprefix("@b1/") for message in self.messages]


async def standing(
    hearing: Callable[[], AbstractAsyncContextManager[Heard]],
    publish: Callable[[str], Awaitable[None]],
    marker: str,
) -> set[str]:
    """What is retained, as a new reader is given it. publish: a text, which the readers get by the
    way on which what is retained has come.
    """
    async with hearing() as heard:  # what was published before has come, too
        await publish(f"before-{marker}")
        await heard.until(lambda texts: f"before-{marker}" in texts)
    async with hearing() as heard:
        await publish(marker)
        return {*await heard.until(lambda texts: marker in texts)} - {marker}
