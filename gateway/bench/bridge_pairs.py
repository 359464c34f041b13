"""Two sites that are joined, and two Mosquittos that are: started, loaded, and what they use."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from load_brokers import HOST, answers, free_port
from load_cpu import LoadError, cpu_ns

from sealmq.broker import issuing, mosquitto
from sealmq.broker.errors import BrokerError
from sealmq.client import Client
from sealmq.client.lent import lent_client
from sealmq.site.layout import Layout

START_S = 120.0
INFLIGHT = 16
LIFE = 12  # 2^12 s
_LOGS = "log"


class Pair(Protocol):
    """Messages go from one to the other."""

    def __init__(self, folder: Path) -> None: ...
    def start(self) -> None:
        """LoadError."""

    def cost_ns(self, count: int, size: int) -> int:
        """CPU of both sides for so many messages of QoS 1, one after the other's acknowledgement
        in INFLIGHT ways. LoadError."""

    def stop(self) -> None:
        """May be called at any time."""


class Processes:
    """What was started in a folder; its output is there, too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.all: list[subprocess.Popen[bytes]] = []

    def begin(self, *words: str) -> subprocess.Popen[bytes]:
        """It ends with `stop`."""
        with (self.folder / _LOGS).open("ab") as log:
            made = subprocess.Popen(  # noqa: S603 - our own command line
                words, stdout=log, stderr=log, start_new_session=True
            )
        self.all.append(made)
        return made

    def until(self, look: Callable[[], bool], what: str) -> None:
        """LoadError: one has ended, or it takes too long."""
        end = time.monotonic() + START_S
        while not look():
            if any(one.poll() is not None for one in self.all) or time.monotonic() > end:
                last = (self.folder / _LOGS).read_text(errors="replace").strip()[-500:]
                raise LoadError(f"{what}: {last}")
            time.sleep(0.1)

    def stop(self) -> None:
        """May be called at any time."""
        for one in self.all:
            if one.poll() is None:
                one.send_signal(signal.SIGTERM)
        for one in self.all:
            try:
                one.wait(30)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()
        self.all.clear()


def ran(*words: str) -> str:
    """What a command of ours prints. LoadError: it fails."""
    done = subprocess.run(  # noqa: S603 - our own command line
        [sys.executable, "-m", "sealmq.cli", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise LoadError(f"sealmq {words[0]}: {done.stderr.strip()[-500:]}")
    return done.stdout


def with_mosquitto(site: str) -> None:
    """Has a new site run a Mosquitto of its own."""
    path = Path(site, "sealmq.toml")
    text = path.read_text()
    path.write_text(re.sub(r'(?m)^kind = "embedded"', 'kind = "mosquitto"', text))


class Sites:
    """Two sites on loopback, each with a private Mosquitto: north exports what its sensor has."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._processes = folder, Processes(folder)
        self._pids: list[int] = []

    def start(self) -> None:
        """LoadError."""
        north, south = (str(self._folder / name) for name in ("north", "south"))
        for site in (north, south):
            words = ("--policy", "labels", "--example", "factory", "--key-file", f"{site}.key")
            ran("init", site, *words, "--listen", f"{HOST}:{free_port()}")
            with_mosquitto(site)
        at = f"{HOST}:{free_port()}"
        said = {site: ran("peer", "fingerprint", site).strip() for site in (north, south)}
        ran("peer", "add", north, "south", "--fingerprint", said[south], "--listen", at,
                  "--export", "m1-temp")  # fmt: skip
        ran("peer", "add", south, "north", "--fingerprint", said[north], "--address", at,
                  "--import", "m1-temp")  # fmt: skip
        for site in (north, south):
            self._processes.begin(sys.executable, "-m", "sealmq.cli", "up", site)
        self._processes.until(lambda: self._joined(north, south), "the sites are not joined")
        for site in (north, south):
            told = json.loads((Layout.open(site).run / "up.json").read_text())["processes"]
            self._pids.append(int(told["bridge"]["pid"]))

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


async def _publish(client: Client, count: int, part: int, payload: bytes) -> None:
    for _ in range(part, count, INFLIGHT):
        await client.publish("machine/1/temperature", payload, qos=1, life=LIFE)


class Mosquittos:
    """Several, bridged over TLS 1.3: what one listens on, and a bridge to another one."""

    def __init__(self, folder: Path) -> None:
        """LoadError: there is no Mosquitto."""
        try:
            self._program = mosquitto.find().path
        except BrokerError as error:
            raise LoadError(str(error), error.hint or "") from None
        self._folder, self.processes = folder, Processes(folder)
        ca = issuing.new_ca("bench")
        pair = issuing.server(ca, ["localhost", HOST])
        files = {"ca.pem": ca.cert_pem, "server.pem": pair.cert_pem, "server.key": pair.key_pem}
        for name, content in files.items():
            (folder / name).write_text(content.decode())
            (folder / name).chmod(0o600)

    def start(self, listens: str = "", bridge: str = "", to: int = 0) -> int:
        """Its port. `listens`: "tls" or "". `bridge`: Mosquitto's words for what crosses to the
        one at port `to`. LoadError.
        """
        port = free_port()
        user = "user root\n" if os.geteuid() == 0 else ""
        conf = f"{user}allow_anonymous true\nset_tcp_nodelay true\nmax_queued_messages 0\n"
        conf += f"listener {port} {HOST}\n"
        if listens == "tls":
            conf += f"certfile {self._folder / 'server.pem'}\n"
            conf += f"keyfile {self._folder / 'server.key'}\ntls_version tlsv1.3\n"
        if bridge:
            conf += f"connection bridge{port}\naddress {HOST}:{to}\ntopic {bridge}\n"
            conf += f"bridge_cafile {self._folder / 'ca.pem'}\nbridge_tls_version tlsv1.3\n"
            conf += "bridge_protocol_version mqttv311\ntry_private false\nnotifications false\n"
        path = self._folder / f"{port}.conf"
        path.write_text(conf)
        self.processes.begin(self._program, "-c", str(path))
        self.processes.until(lambda: answers(port), "mosquitto")
        return port


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
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion

        pids = [one.pid for one in self._both.processes.all]
        client: Any = Client(CallbackAPIVersion.VERSION2, client_id="bench")
        client.max_inflight_messages_set(INFLIGHT)
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
