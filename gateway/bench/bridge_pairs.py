"""Two sites that are joined, and two Mosquittos that are: started, loaded, and what they use."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any, Protocol

from bench_beside import (
    INFLIGHT,
    START_S,
    Mosquittos,
    Processes,
    Way,
    factory,
    plain_client,
    ran,
    sealmq,
)
from load_brokers import HOST, free_port
from load_cpu import LoadError, cpu_ns

from sealmq.bridge import told
from sealmq.client import Client
from sealmq.client.lent import lent_client
from sealmq.site.layout import Layout, border_role

LIFE = 12  # 2^12 s
TOPIC = "machine/1/temperature"
_OUTLET = """
[borders.outlet]
from = "m2-temp"
to = "for-south"
topics = ["machine/2/temperature"]
declassify = true
"""


class Pair(Way, Protocol):
    """Messages go from one to the other."""

    def cost_ns(self, count: int, size: int) -> int:
        """CPU of both sides for so many messages of QoS 1, one after the other's acknowledgement
        in INFLIGHT ways. LoadError."""


class Sites:
    """Two sites on loopback, each with a private Mosquitto: north exports what its sensor has."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._processes = folder, Processes(folder)
        self._pids: list[int] = []

    def start(self) -> None:
        """LoadError."""
        north, south = (str(self._folder / name) for name in ("north", "south"))
        for site in (north, south):
            factory(site)
        at = f"{HOST}:{free_port()}"
        said = {site: ran("peer", "fingerprint", site).strip() for site in (north, south)}
        ran("peer", "add", north, "south", "--fingerprint", said[south], "--listen", at,
                  "--export", "m1-temp")  # fmt: skip
        ran("peer", "add", south, "north", "--fingerprint", said[north], "--address", at,
                  "--import", "m1-temp")  # fmt: skip
        for site in (north, south):
            self._processes.begin(*sealmq("up", site))
        self._processes.until(lambda: self._joined(north, south), "the sites are not joined")
        for site in (north, south):
            up = json.loads((Layout.open(site).run / "up.json").read_text())["processes"]
            self._pids.append(int(up["bridge"]["pid"]))

    def _joined(self, *sites: str) -> bool:
        if not all(Path(site, "run", "bridge", "lines.json").exists() for site in sites):
            return False
        rows = [json.loads(ran("peer", "list", site, "--json"))["peers"] for site in sites]
        return all(row["line"] == "up" for some in rows for row in some)

    def cost_ns(self, count: int, size: int) -> int:
        """Of the bridges' processes. LoadError."""
        return asyncio.run(self._cost(count, size))

    async def _cost(self, count: int, size: int) -> int:
        async with await lent_client(self._folder / "north", "m1-temp-sensor") as sensor:
            before = sum(map(cpu_ns, self._pids))
            async with asyncio.TaskGroup() as group:
                for part in range(INFLIGHT):
                    group.create_task(_publish(sensor, count, part, bytes(size)))
            await self._crossed()
            return sum(map(cpu_ns, self._pids)) - before

    # All has crossed when nothing waits any more: north is answered once south's journal has it.
    async def _crossed(self) -> None:
        path = Layout.open(self._folder / "north").run_of("bridge") / "lines.json"
        end = time.monotonic() + START_S
        await asyncio.sleep(2)  # what the bridge tells is a second old
        while json.loads(path.read_text())["lines"]["south"]["waiting"]:
            if time.monotonic() > end:
                raise LoadError("messages have not crossed")
            await asyncio.sleep(0.2)
        if json.loads(path.read_text())["lines"]["south"]["dropped"]:
            raise LoadError("messages were dropped on the way")

    def stop(self) -> None:
        """May be called at any time."""
        self._processes.stop()


class Outlet:
    """A site with a border, which publishes one topic again for a peer that is away."""

    def __init__(self, folder: Path) -> None:
        self._site, self._processes = folder / "north", Processes(folder)
        self._pid = 0

    def start(self) -> None:
        """LoadError."""
        site = str(self._site)
        factory(site)
        policy = self._site / "sealmq.toml"
        policy.write_text(policy.read_text().replace("[labels]\n", "[labels]\nfor-south = []\n", 1))
        nobody, at = f"SHA256:{'ab' * 32}", f"{HOST}:{free_port()}"
        ran("peer", "add", site, "south", "--fingerprint", nobody, "--listen", at,
                  "--export", "for-south")  # fmt: skip
        policy.write_text(policy.read_text() + _OUTLET)
        self._processes.begin(*sealmq("up", site))
        self._processes.until(lambda: self._said()["line"] == "up", "the border is not up")
        up = json.loads((self._site / "run" / "up.json").read_text())["processes"]
        self._pid = int(up["border-outlet"]["pid"])

    def _said(self) -> dict[str, Any]:
        return told.line(Layout.of(self._site), "outlet", border_role("outlet"))

    def cost_ns(self, count: int, size: int) -> int:
        """CPU of the border's process for so many messages, as `Pair.cost_ns`. LoadError."""
        return asyncio.run(self._cost(count, size))

    async def _cost(self, count: int, size: int) -> int:
        async with await lent_client(self._site, "m2-temp-sensor") as sensor:
            before = cpu_ns(self._pid)
            async with asyncio.TaskGroup() as group:
                for part in range(INFLIGHT):
                    work = _publish(sensor, count, part, bytes(size), "machine/2/temperature")
                    group.create_task(work)
            end = time.monotonic() + START_S
            await asyncio.sleep(2)  # what the border tells is a second old
            while self._said()["waiting"]:
                if time.monotonic() > end:
                    raise LoadError("messages have not crossed the border")
                await asyncio.sleep(0.2)
            if self._said()["dropped"]:
                raise LoadError("messages were dropped at the border")
            return cpu_ns(self._pid) - before

    def stop(self) -> None:
        """May be called at any time."""
        self._processes.stop()


async def _publish(
    client: Client, count: int, part: int, payload: bytes, topic: str = TOPIC
) -> None:
    for _ in range(part, count, INFLIGHT):
        await client.publish(topic, payload, qos=1, life=LIFE)


class Brokers:
    """Two Mosquittos: the first one's bridge takes all to the second, over TLS 1.3."""

    def __init__(self, folder: Path) -> None:
        """LoadError: there is no Mosquitto."""
        self._both = Mosquittos(folder)
        self._port = 0

    def start(self) -> None:
        """LoadError."""
        there = self._both.start("tls")
        self._port = self._both.start(bridge="# out 1", to=there)
        time.sleep(1)

    def cost_ns(self, count: int, size: int) -> int:
        """Of both brokers. LoadError."""
        pids = [one.pid for one in self._both.processes.all]
        client = plain_client()
        client.connect(HOST, self._port)
        client.loop_start()
        try:
            before = sum(map(cpu_ns, pids))
            sent = [client.publish("machine/1/temperature", bytes(size), 1) for _ in range(count)]
            for one in sent:
                one.wait_for_publish(START_S)
            if not all(one.is_published() for one in sent):
                raise LoadError("Mosquitto has not taken all messages")
            time.sleep(1)
            return sum(map(cpu_ns, pids)) - before
        finally:
            client.disconnect()
            client.loop_stop()

    def stop(self) -> None:
        """May be called at any time."""
        self._both.processes.stop()
