"""Sites joined to a graph on loopback, each with a broker and processes of its own; made and
joined by the commands that operators type. b1's client `boiler` publishes, and the last site's
`panel` reads; who lies between has neither a client nor a key.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from run.sites import Site, Up, command, until
from sealmq.bridge import told
from sealmq.client import Client, Message
from sealmq.client.lent import lent_client
from sealmq.site.layout import Layout

Link = tuple[str, str]
LIFE = 12  # 2^12 s


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


class Joined(Site):
    """A site of the graph."""

    def up(self, *options: str, env: dict[str, str] | None = None) -> Up:
        made = Up.start(self, ["-m", "sealmq.cli", "up", str(self.root), *options], env or {})
        self.ups.append(made)
        return made

    def pid(self, role: str = "bridge") -> int:
        told_by = json.loads((self.root / "run" / "up.json").read_text())["processes"]
        return int(told_by[role]["pid"])

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

    def lines(self) -> dict[str, str]:
        """What is said of each peer's line."""
        layout = Layout.of(self.root)
        rows = json.loads(command("peer", "list", str(self.root), "--json"))["peers"]
        return {row["name"]: told.line(layout, row["name"])["line"] for row in rows}

    def asked(self, op: str, **fields: Any) -> dict[str, Any]:
        return told.ask(Layout.of(self.root), op, **fields)

    def events(self, *names: str) -> list[dict[str, Any]]:
        """Of the bridge's audit log."""
        rows = []
        for path in sorted((self.root / "audit" / "bridge").glob("*")):
            for line in path.read_text().splitlines():
                with contextlib.suppress(ValueError):
                    rows.append(json.loads(line))
        return [row for row in rows if row["event"] in names]

    def dropped(self) -> set[str]:
        """Topics of messages that are named as given up here."""
        return {row["topic"].removeprefix("@b1/") for row in self.events("bridge-dropped")}


@dataclass
class Graph:
    """Sites by name, and the links between them."""

    folder: Path
    links: Sequence[Link]
    last: str
    more: str = ""
    """Of [families.trust], of all sites."""
    mosquitto: Collection[str] = ()
    sites: dict[str, Joined] = field(default_factory=dict)

    def make(self) -> Graph:
        names = sorted({end for link in self.links for end in link})
        for name in names:
            self._init(name)
        for a, b in self.links:
            at = f"127.0.0.1:{free_port()}"
            self._peer(a, b, "--listen", at)
            self._peer(b, a, "--address", at)
        first, last = "b1", self.last
        label = ["--export", "heat"], ["--import", "heat"]
        near = any({a, b} == {first, last} for a, b in self.links)
        far = [] if near else ["--far"]
        self._peer(first, last, *far, *label[0])
        self._peer(last, first, *far, *label[1])
        self._write(last, "labels", 'control = ["heat@b1"]')
        self._write(last, "clients", 'panel = { label = "control", kind = "app" }')
        return self

    def _init(self, name: str) -> None:
        root, key = self.folder / name, self.folder / f"{name}.key"
        words = ("--key-file", str(key), "--listen", f"127.0.0.1:{free_port()}")
        command("init", str(root), "--policy", "trust", *words)
        self.sites[name] = Joined(root, key)
        path = root / "sealmq.toml"
        text = path.read_text()
        if name in self.mosquitto:
            text = text.replace('kind = "embedded"', 'kind = "mosquitto"')
        text += f"\n[families.trust]\n{self.more}\n"
        if name == "b1":
            text += '[families.trust.tokens.boiler]\npublish = ["boiler/#"]\n'
        if name == self.last:
            text += '[families.trust.tokens.panel]\nsubscribe = ["@b1/#"]\n'
        path.write_text(text)
        if name == "b1":
            self._write(name, "labels", "heat = []")
            self._write(name, "clients", 'boiler = { label = "heat" }')
        elif name == self.last:
            self._write(name, "clients", 'panel = { label = "bottom", kind = "app" }')

    def _write(self, name: str, table: str, line: str) -> None:
        path = self.sites[name].root / "sealmq.toml"
        word = line.partition(" ")[0]
        text = (
            re.sub(rf"(?m)^{word} = .*\n", "", path.read_text())
            if word == "panel"
            else (path.read_text())
        )
        path.write_text(re.sub(rf"(?m)^\[{table}\]$", lambda m: f"{m[0]}\n{line}", text, count=1))

    def _peer(self, at: str, other: str, *words: str) -> None:
        roots = [str(self.sites[name].root) for name in (at, other)]
        said = command("peer", "fingerprint", roots[1]).strip()
        give = () if "--far" in words else ("--give", "boiler/#", "--give", "@b1/#")
        give = give if "--listen" in words or "--address" in words else ()
        command("peer", "add", roots[0], other, "--fingerprint", said, *give, *words)

    def up(self) -> Graph:
        for site in self.sites.values():
            site.up()
        for site in self.sites.values():
            site.ups[-1].ready()
        self.joined()
        return self

    def joined(self, but: Iterable[str] = ()) -> None:
        """All lines are up, and keys are where they belong."""
        sites = {name: site for name, site in self.sites.items() if name not in but}
        good = ("up", "its keys are there", "not running")
        until(
            lambda: all(line in good for site in sites.values() for line in site.lines().values()),
            "the lines",
        )

    def end(self) -> None:
        for site in self.sites.values():
            for up in site.ups:
                if up.process.poll() is None:
                    up.process.send_signal(signal.SIGTERM)
        for site in self.sites.values():
            for up in site.ups:
                up.end()

    def dropped(self) -> set[str]:
        """Topics of messages that are named as given up somewhere."""
        return {topic for site in self.sites.values() for topic in site.dropped()}


@asynccontextmanager
async def client(site: Site, name: str) -> AsyncIterator[Client]:
    async with await lent_client(site.root, name) as made:
        yield made


class Heard:
    """What a reader got."""

    def __init__(self, of: Client) -> None:
        self.messages: list[Message] = []
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


@asynccontextmanager
async def hearing(graph: Graph) -> AsyncIterator[Heard]:
    async with client(graph.sites[graph.last], "panel") as reader:
        await reader.subscribe("@b1/#", qos=1)
        yield Heard(reader)


async def publish(graph: Graph, texts: Iterable[str], **more: Any) -> None:
    """Each text on a topic of its own: boiler/TEXT."""
    async with client(graph.sites["b1"], "boiler") as boiler:
        for text in texts:
            await boiler.publish(f"boiler/{text}", text, qos=1, life=LIFE, **more)
