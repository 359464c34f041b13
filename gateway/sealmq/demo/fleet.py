"""The clients: a MicroPython process for each, which takes orders and says what happens."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .cast import Part
from .children import Child, Children
from .errors import DemoError
from .places import Places, micropython, module_path

SCRIPTS = Path(__file__).with_name("on_device")
PATIENCE_S = 20.0
Told = Callable[[str, dict[str, Any]], None]


class Device:
    """One client. `told` hears (name, event) of everything that it says, as it comes."""

    def __init__(self, part: Part, child: Child, said: Path, told: Told) -> None:
        self.part, self.child = part, child
        self.events: list[dict[str, Any]] = []
        self._said, self._told = said, told
        self._news = asyncio.Event()
        self._reading = asyncio.create_task(self._read(), name=f"reads {part.name}")

    async def _read(self) -> None:
        output = self.child.process.stdout
        if output is None:
            raise RuntimeError("a device's output is a pipe")
        with self._said.open("a", encoding="utf-8", buffering=1) as file:
            while line := await output.readline():
                text = line.decode(errors="replace")
                file.write(text)
                try:
                    event = json.loads(text)
                except ValueError:
                    continue
                self.events.append(event)
                self._told(self.part.name, event)
                self._news.set()
        self._news.set()

    async def until(self, what: str, look: Callable[[dict[str, Any]], bool], start: int = 0) -> int:
        """Wait for an event from number `start` on; gives the number behind it."""
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE_S
        at = start
        while True:
            while at < len(self.events):
                at += 1
                if look(self.events[at - 1]):
                    return at
            self._news.clear()
            if self._reading.done() or loop.time() > end:
                raise DemoError(f"{self.part.name}: no {what}", self.child.last_words())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), 0.5)

    async def order(self, do: str, **more: Any) -> None:
        """Tell it what to do."""
        pipe = self.child.process.stdin
        if pipe is None:
            raise RuntimeError("a device's input is a pipe")
        with contextlib.suppress(ConnectionError):
            pipe.write(json.dumps({"do": do, **more}).encode() + b"\n")
            await pipe.drain()

    async def end(self) -> None:
        """The end of its input is the end of it."""
        pipe = self.child.process.stdin
        if pipe is not None:
            pipe.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._reading, PATIENCE_S)


class Fleet:
    """All devices, by name."""

    def __init__(
        self, places: Places, children: Children, told: Told, more: Sequence[Path] = ()
    ) -> None:
        """`more`: further folders of scripts."""
        self._places, self._children, self._told = places, children, told
        self._path = ":".join([*map(str, (SCRIPTS, *more)), module_path()])
        self.devices: dict[str, Device] = {}

    def __getitem__(self, name: str) -> Device:
        return self.devices[name]

    async def start(self, part: Part) -> Device:
        """Start one; it has connected and subscribed when it says so."""
        enrolment = self._places.clients / f"{part.name}.json"
        device = await self.script(part, [enrolment, *part.arguments])
        self.devices[part.name] = device
        return device

    async def script(self, part: Part, arguments: list[str | Path]) -> Device:
        """Start a script of on_device/ as `part`."""
        argv = [micropython(part.bits), SCRIPTS / part.script, *arguments]
        env = {"MICROPYPATH": self._path}
        child = await self._children.start(part.name, argv, env=env, talks=True)
        return Device(part, child, self._places.said / f"{part.name}.jsonl", self._told)

    async def ready(self) -> None:
        """Wait until every device is."""
        for device in self.devices.values():
            await device.until("session with the mediator", lambda event: event["ev"] == "ready")

    async def order(self, do: str) -> None:
        """Tell all of them."""
        for device in self.devices.values():
            await device.order(do)

    async def end(self) -> None:
        """All of them, at once."""
        await asyncio.gather(*(device.end() for device in self.devices.values()))
