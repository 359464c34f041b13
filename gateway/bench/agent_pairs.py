"""A publisher and a subscriber in plain MQTT, and between them a site with an agent at each end, or
a Mosquitto with a bridge over TLS at each end: started, loaded, and what the two ends use."""

from __future__ import annotations

import os
import secrets
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from bench_beside import (
    START_S,
    Mosquittos,
    Processes,
    Way,
    factory,
    plain_client,
    ran,
    sealmq,
)
from load_brokers import HOST, answers, free_port
from load_cpu import LoadError, cpu_ns

TOPIC = "machine/1/temperature"
# Clients that are added as AGENT.md says, and their labels.
_USERS = {"out": ("feeder", "m1-temp"), "in": ("panel", "monitor")}


class Cost(NamedTuple):
    """CPU of the end that takes messages in, and of the end that gives them out, in ns."""

    out_ns: int
    in_ns: int


class Ends(Way, Protocol):
    """A way for messages from one plain client to another."""

    def cost(self, count: int, size: int) -> Cost:
        """Of so many messages of QoS 1, INFLIGHT of them at a time. LoadError."""


class Agents:
    """A site with a Mosquitto of its own; an agent for a client that publishes, and one for a
    client that reads.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._processes = folder, Processes(folder)
        self._ports: dict[str, int] = {}
        self._pids: dict[str, int] = {}
        self._passwords = {end: secrets.token_hex(16) for end in _USERS}

    def start(self) -> None:
        """LoadError."""
        site = str(self._folder / "site")
        factory(site)
        self._processes.begin(*sealmq("up", site))
        ready = self._folder / "site" / "run" / "up.json"
        self._processes.until(lambda: ready.exists() and _up(site), "the site does not start")
        for end, (client, label) in _USERS.items():
            path = self._folder / f"{end}.json"
            words = ("--label", label, "--kind", "app", "-o", str(path))
            ran("client", "add", site, client, *words)
            port = self._ports[end] = free_port()
            password = self._folder / f"{end}.password"
            password.touch(0o600)
            password.write_text(self._passwords[end])
            config = self._folder / f"{end}.toml"
            config.write_text(
                f'listen = ["{HOST}:{port}"]\n[users.bench]\nenrolment = "{path}"\n'
                f'password_file = "{password}"\n'
            )
            made = self._processes.begin(*sealmq("agent", "--config", str(config)))
            self._pids[end] = made.pid
            self._processes.until(lambda port=port: answers(port), "the agent")  # type: ignore[misc]

    def cost(self, count: int, size: int) -> Cost:
        """Of the two agents' processes. LoadError."""
        users = {end: ("bench", self._passwords[end]) for end in _USERS}
        return _through(self._ports, self._pids, users, count, size)

    def stop(self) -> None:
        """May be called at any time."""
        self._processes.stop()


class Bridges:
    """Three Mosquittos: the outer two have a bridge to the middle one, over TLS 1.3."""

    def __init__(self, folder: Path) -> None:
        """LoadError: there is no Mosquitto."""
        self._all = Mosquittos(folder)
        self._ports: dict[str, int] = {}
        self._pids: dict[str, int] = {}

    def start(self) -> None:
        """LoadError."""
        middle = self._all.start("tls")
        for end in _USERS:
            self._ports[end] = self._all.start(bridge=f"# {end} 1", to=middle)
            self._pids[end] = self._all.processes.all[-1].pid
        time.sleep(1)

    def cost(self, count: int, size: int) -> Cost:
        """Of the outer two. LoadError."""
        return _through(self._ports, self._pids, {}, count, size)

    def stop(self) -> None:
        """May be called at any time."""
        self._all.processes.stop()


def _up(site: str) -> bool:
    try:
        ran("status", site)
    except LoadError:
        return False
    return True


def _through(
    ports: dict[str, int],
    pids: dict[str, int],
    users: dict[str, tuple[str, str]],
    count: int,
    size: int,
) -> Cost:
    come, all_there = 0, threading.Event()

    def came(_client: Any, _data: Any, _message: Any) -> None:
        nonlocal come
        come += 1
        if come >= count:
            all_there.set()

    reader, listens = plain_client(users.get("in")), threading.Event()
    reader.on_message = came
    reader.on_subscribe = lambda *_: listens.set()
    sender = plain_client(users.get("out"))
    try:
        reader.connect(HOST, ports["in"])
        reader.loop_start()
        reader.subscribe(TOPIC, 1)
        sender.connect(HOST, ports["out"])
        sender.loop_start()
        if not listens.wait(START_S):
            raise LoadError("the reader's subscription is not answered")
        # The way is open once something has come by it.
        end = time.monotonic() + START_S
        while not come:
            if time.monotonic() > end:
                raise LoadError("nothing comes through")
            sender.publish(TOPIC, b"first", 1).wait_for_publish(START_S)
            time.sleep(0.5)
        time.sleep(0.5)
        come = 0
        all_there.clear()
        before = {name: cpu_ns(pid) for name, pid in pids.items()}
        sent = [sender.publish(TOPIC, os.urandom(size), 1) for _ in range(count)]
        for one in sent:
            one.wait_for_publish(START_S)
        if not all(one.is_published() for one in sent) or not all_there.wait(START_S):
            raise LoadError(f"{come} of {count} messages have come")
        time.sleep(0.5)
        return Cost(*(cpu_ns(pids[end]) - before[end] for end in _USERS))
    finally:
        for client in (sender, reader):
            client.disconnect()
            client.loop_stop()
