"""Sites joined to a graph, by the commands that operators type. b1's client `boiler` publishes, and
the last site's `panel` reads; who lies between has neither a client nor a key.
"""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import threading
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bridge.joined import LIFE, Heard, Joined, client
from free_ports import free_port
from run.sites import command, until

Link = tuple[str, str]


class Cable:
    """A port that leads to another one, until it is cut."""

    def __init__(self, to: int) -> None:
        self.port, self._to = free_port(), to
        self._listening = socket.create_server(("127.0.0.1", self.port))
        self._ends: set[socket.socket] = set()
        self.is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Whoever is connected is not any more, and nobody can be."""
        self.is_cut = True
        for end in list(self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self.is_cut = False

    def close(self) -> None:
        self.cut()
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                here, _ = self._listening.accept()
                if self.is_cut:
                    here.close()
                    continue
                with contextlib.suppress(OSError):
                    there = socket.create_connection(("127.0.0.1", self._to), 5)
                    there.settimeout(None)
                    for a, b in ((here, there), (there, here)):
                        self._ends.add(a)
                        threading.Thread(target=self._pump, args=(a, b), daemon=True).start()
                    continue
                here.close()

    def _pump(self, a: socket.socket, b: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := a.recv(1 << 16):
                b.sendall(data)
        for end in (a, b):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        a.close()
        self._ends.discard(a)


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
    cables: dict[Link, Cable] = field(default_factory=dict)

    def make(self) -> Graph:
        names = sorted({end for link in self.links for end in link})
        for name in names:
            self._init(name)
        for a, b in self.links:
            port = free_port()
            cable = self.cables[a, b] = Cable(port)
            self._peer(a, b, "--listen", f"127.0.0.1:{port}")
            self._peer(b, a, "--address", f"127.0.0.1:{cable.port}")
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
        """All lines are up, keys are where they belong, and the reader's site knows all ratings."""
        sites = {name: site for name, site in self.sites.items() if name not in but}
        good = ("up", "its keys are there")
        seen: dict[str, Any] = {}

        def lines() -> bool:
            seen.update({name: site.lines() for name, site in sites.items()})
            return all(line in good for found in seen.values() for line in found.values())

        def ratings() -> bool:
            seen[self.last] = self.sites[self.last].edges()
            return len(seen[self.last]) == 2 * len(self.links)

        try:
            until(lines, "the lines")
            if self.last in sites:
                until(ratings, "all sites' ratings")
        except AssertionError as error:
            errors = {name: site.ups[-1].err.read_text()[-800:] for name, site in sites.items()}
            pytest.fail(f"{error}: {seen}; {errors}")

    def end(self) -> None:
        for site in self.sites.values():
            for up in site.ups:
                if up.process.poll() is None:
                    up.process.send_signal(signal.SIGTERM)
        for site in self.sites.values():
            for up in site.ups:
                up.end()
        for cable in self.cables.values():
            cable.close()

    def dropped(self) -> set[str]:
        """Topics of messages that are named as given up somewhere."""
        return {topic for site in self.sites.values() for topic in site.dropped()}


@asynccontextmanager
async def hearing(graph: Graph) -> AsyncIterator[Heard]:
    async with client(graph.sites[graph.last], "panel") as reader:
        await reader.subscribe("@b1/#", qos=1)
        heard = Heard(reader)
        try:
            yield heard
        except (TimeoutError, AssertionError) as error:
            rows = [r for s in graph.sites.values() for r in s.events("bridge-dropped")]
            named = [(row["peer"], row["topic"], row["reason"]) for row in rows]
            lines = {name: site.lines() for name, site in graph.sites.items()}
            errors = {
                name: site.ups[-1].err.read_text()[-800:] for name, site in graph.sites.items()
            }
            blocked = {
                name: [row["peer"] for row in site.events("peer-blocked")]
                for name, site in graph.sites.items()
            }
            pytest.fail(
                f"{error}: heard {heard.texts}; {blocked}; named {named}; {lines}; {errors}"
            )


async def publish(graph: Graph, texts: Iterable[str], **more: Any) -> None:
    """Each text on a topic of its own: boiler/TEXT."""
    async with client(graph.sites["b1"], "boiler") as boiler:
        for text in texts:
            await boiler.publish(f"boiler/{text}", text, qos=1, life=LIFE, **more)
