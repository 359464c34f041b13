"""`[mediator] workers = 2` with the real key generator, mediator, Mosquitto and clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from free_ports import free_port
from run.sites import Site, command, gone, sealmq, until
from run.test_run_real import RealSite
from sealmq.client import Client, Options, Will
from sealmq.client.errors import TimedOut
from sealmq_spec.errors import Unavailable

WRITER, READER = "m1-temp-sensor", "monitor"
TOPIC = "machine/1/temperature"
WITHIN_S = 30.0


@dataclass
class Workers(RealSite):
    """A site with two workers, and clients of both."""

    numbers: dict[str, int] = field(default_factory=dict)
    """Of clients, as far as they were asked for."""

    def workers(self) -> dict[int, int]:
        """Each worker's process, by its number, as the mediator's children in their order."""
        mediator = self.row("mediator")["pid"]
        found = {}
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # any of them may end meanwhile
                words = path.read_bytes().split(b"\0")
                if b"sealmq.mediator.worker" in words and str(self.root).encode() in words:
                    pid = int(path.parent.name)
                    if _parent(pid) == mediator:
                        found[pid] = path
        return dict(enumerate(sorted(found)))

    def client(self, name: str, options: Options | None = None) -> Client:
        """A client, enrolled once."""
        file = self.root.parent / f"{name}.json"
        if not file.exists():
            label = name_label(self, name)
            # Another thread: not all stories begin with their clients, and commands run a loop.
            words = ("client", "add", str(self.root), name, "--label", label, "-o", str(file))
            _apart(*words)
        state = self.root.parent / f"{name}.state"
        return Client.from_enrolment(file, state=state, options=options)

    def number(self, name: str) -> int:
        """The client's number at the key generator, which says whose worker's it is."""
        if name not in self.numbers:
            told = json.loads(_apart("client", "list", str(self.root), "--json"))
            self.numbers |= {row["name"]: int(row["number"]) for row in told["clients"]}
        return self.numbers[name]

    def pids(self) -> list[int]:
        """The workers' processes in their order, once each has one that lives."""
        path = self.root / "run" / "mediator" / "ready.json"

        def told() -> list[int]:
            found: list[int] = json.loads(path.read_text())["pids"]
            return found

        until(lambda: not any(map(gone, told())), "a process for each worker")
        return told()

    def pid_of(self, name: str) -> int:
        """The process whose client it is."""
        return self.pids()[self.number(name) % 2]


def _apart(*words: str) -> str:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(command, *words).result()


def name_label(site: Site, name: str) -> str:
    return {WRITER: "m1-temp", READER: "monitor"}.get(name, "m2-temp")


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@contextlib.contextmanager
def two_workers(folder: Path) -> Iterator[Workers]:
    port = free_port()
    root, key = folder / "factory", folder / "factory.key"
    words = ("--example", "factory", "--key-file", str(key), "--listen", f"127.0.0.1:{port}")
    command("init", str(root), "--policy", "labels", "--broker", "mosquitto", *words)
    config = root / "sealmq.toml"
    config.write_text(config.read_text().replace("# workers = 1", "workers = 2"))
    site = Workers(root, key)
    site.up().ready()
    yield site
    for up in site.ups:
        assert up.end() in (0, 1)
    assert site.left() == []


@pytest.fixture
def two(folder: Path) -> Iterator[Workers]:
    with two_workers(folder) as site:
        yield site


@pytest.fixture(scope="module")
def shared() -> Iterator[Workers]:
    """For tests after which the site is as it was."""
    with tempfile.TemporaryDirectory(prefix="sealmq-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        with two_workers(folder) as site:
            yield site


def run(story: Any) -> None:
    asyncio.run(asyncio.wait_for(story, 100))


async def hears(reader: Client, payload: bytes) -> None:
    """Reads until this comes."""
    while (await reader.receive(within=WITHIN_S)).payload != payload:
        pass


def of_two_workers(site: Workers) -> tuple[str, str]:
    """Names of a writer and of a reader that belong to different workers."""
    for name in (WRITER, READER):
        site.client(name)
    if site.number(WRITER) % 2 == site.number(READER) % 2:
        return "m2-temp-sensor", READER
    return WRITER, READER


def topic_of(writer: str) -> str:
    return f"machine/{writer[1]}/temperature"


def test_a_reader_of_one_worker_gets_what_a_client_of_the_other_publishes(shared: Workers) -> None:
    writer, reader = of_two_workers(shared)

    async def story() -> None:
        async with shared.client(writer) as writes, shared.client(reader) as reads:
            assert shared.number(writer) % 2 != shared.number(reader) % 2
            await reads.subscribe("machine/#", qos=1)
            for qos in (0, 1, 2):
                await writes.publish(topic_of(writer), b"%d" % qos, qos=qos)
                await hears(reads, b"%d" % qos)
            # A new topic is labelled by one worker, and known to the other at once.
            await writes.publish(topic_of(writer) + "/new", b"new", qos=1)
            await hears(reads, b"new")

    run(story())


def test_a_killed_workers_client_comes_back_and_a_reader_of_the_other_notices_nothing(
    shared: Workers,
) -> None:
    writer, reader = of_two_workers(shared)

    async def story() -> None:
        async with shared.client(writer) as writes, shared.client(reader) as reads:
            await reads.subscribe("machine/#", qos=1)
            await writes.publish(topic_of(writer), b"before", qos=1)
            await hears(reads, b"before")
            killed = shared.pid_of(writer)
            os.kill(killed, signal.SIGKILL)
            for n in range(20):
                await writes.publish(topic_of(writer), b"after %d" % n, qos=1)
            for n in range(20):
                await hears(reads, b"after %d" % n)
            assert reads.connected
            assert shared.pid_of(writer) != killed

    run(story())


def test_a_kept_session_outlives_its_killed_worker(shared: Workers) -> None:
    writer, reader = of_two_workers(shared)
    kept = Options(client_id="kept", clean=False)

    async def story() -> None:
        async with shared.client(reader, kept) as reads:
            await reads.subscribe("machine/#", qos=1)
        killed = shared.pid_of(reader)
        os.kill(killed, signal.SIGKILL)
        async with shared.client(writer) as writes:
            await writes.publish(topic_of(writer), b"while it is away", qos=1)
        async with shared.client(reader, kept) as reads:
            await hears(reads, b"while it is away")
        assert shared.pid_of(reader) != killed

    run(story())


def test_a_will_left_by_a_killed_worker_fires_once_it_is_back(shared: Workers) -> None:
    writer, reader = of_two_workers(shared)
    will = Options(will=Will(topic_of(writer), b"gone", qos=1), reconnect=False)

    async def story() -> None:
        async with shared.client(reader) as reads:
            await reads.subscribe("machine/#", qos=1)
            writes = shared.client(writer, will)
            await writes.connect()
            os.kill(shared.pid_of(writer), signal.SIGKILL)
            await hears(reads, b"gone")
            await writes.disconnect()

    run(story())


def test_no_descriptor_stays_of_many_connections(shared: Workers) -> None:
    writer, reader = of_two_workers(shared)

    def descriptors() -> int:
        workers = shared.pids()
        pids = {_parent(pid) for pid in workers}.union(workers)
        return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids)

    async def story() -> None:
        async with shared.client(reader):
            before = descriptors()
            for _ in range(20):
                async with shared.client(writer) as writes:
                    await writes.publish(topic_of(writer), b"x", qos=1)
            # Journal and audit log may have begun a file each.
            for _ in range(300):
                if descriptors() < before + 10:
                    break
                await asyncio.sleep(0.05)
            assert descriptors() < before + 10

    run(story())


def test_disable_is_answered_when_a_worker_that_hangs_has_been_ended(two: Workers) -> None:
    writer, reader = of_two_workers(two)

    async def story() -> None:
        async with two.client(reader) as reads:
            await reads.subscribe("machine/#", qos=1)
            async with two.client(writer) as writes:
                await writes.publish(topic_of(writer), b"before", qos=1)
                await hears(reads, b"before")
                pid = two.pid_of(writer)
                os.kill(pid, signal.SIGSTOP)
                # A worker that hangs is ended after 5 s; busy machines need more than 10.
                words = ("client", "disable", str(two.root), writer, "--json", "-W", "60")
                done = await asyncio.to_thread(sealmq, *words)
                assert done.returncode == 0, done.stderr + done.stdout
                assert gone(pid)

    run(story())


def test_the_workers_go_with_the_mediator_that_is_killed(two: Workers) -> None:
    [up] = two.ups
    workers = list(two.workers().values())
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGSTOP)
    os.kill(two.row("mediator")["pid"], signal.SIGKILL)
    until(lambda: all(gone(pid) for pid in workers), "the workers to end with their owner")
    until(lambda: "mediator is ready again" in up.err.read_text(), "the mediator's restart")
    assert two.status()["code"] == 0


def test_fewer_workers_publish_again_what_others_had_in_their_journals(two: Workers) -> None:
    writer, reader = of_two_workers(two)
    config = two.root / "sealmq.toml"

    async def write() -> None:
        async with two.client(writer) as writes:
            for n in range(5):
                await writes.publish(topic_of(writer), b"kept %d" % n, qos=1)

    run(write())
    assert two.ups[0].end() == 0
    config.write_text(config.read_text().replace("workers = 2", "workers = 1"))
    two.up().ready()
    state = two.root / "state" / "mediator"
    assert not list(state.glob("journal-1/*.seg"))

    async def again() -> None:
        async with two.client(writer) as writes, two.client(reader) as reads:
            await reads.subscribe("machine/#", qos=1)
            await writes.publish(topic_of(writer), b"one worker", qos=1)
            await hears(reads, b"one worker")

    run(again())


async def accepted(client: Client, topic: str, payload: bytes) -> None:
    """At QoS 1. A worker whose mediator was killed lives a moment longer: it can store nothing, so
    it refuses the first message on a topic for now.
    """
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                return await client.publish(topic, payload, qos=1)
            except Unavailable:
                await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    ("killed", "second"),
    [
        pytest.param("its worker", b"new", id="its worker-newer"),
        pytest.param("the mediator", b"", id="the mediator-cleared"),
        pytest.param("its worker", b"", id="its worker-cleared", marks=pytest.mark.full),
        pytest.param("the mediator", b"new", id="the mediator-newer", marks=pytest.mark.full),
    ],
)
def test_what_a_worker_publishes_again_sets_no_retained_message_back(
    two: Workers, second: bytes, killed: str
) -> None:
    """The newer one is in another worker's journal, and the broker was not lost."""
    names = [f"sibling{n}" for n in range(4)]
    for name in names:
        two.client(name)
    older = names[0]
    newer = next(n for n in names if two.number(n) % 2 != two.number(older) % 2)
    topic = "machine/2/temperature"

    async def story() -> None:
        async with two.client(older) as first, two.client(newer) as then:
            await first.publish(topic, b"old", qos=1, retain=True)
            await first.publish(topic + "/kept", b"kept", qos=1, retain=True)
            await asyncio.sleep(2.5)
            await then.publish(topic, second, qos=1, retain=True)
            if killed == "its worker":
                os.kill(two.pid_of(older), signal.SIGKILL)
            else:
                os.kill(_parent(two.pid_of(older)), signal.SIGKILL)
            # Their sessions are back: so what was in the journals has been published again.
            for client in (first, then):
                await accepted(client, topic + "/done", b"done")
            async with two.client(READER) as reads:
                await reads.subscribe("machine/2/#", qos=1)
                found: dict[str, bytes] = {}
                while topic + "/kept" not in found:
                    message = await reads.receive(within=WITHIN_S)
                    found[message.topic] = message.payload
                with contextlib.suppress(TimedOut):
                    while True:
                        message = await reads.receive(within=1.0)
                        found[message.topic] = message.payload
        assert found.get(topic, b"") == second

    run(story())


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "kept"])
def test_what_a_killed_worker_publishes_again_readers_have_once(two: Workers, clean: bool) -> None:
    """The broker was not lost and hands it out a second time, with another number of m3; readers
    drop it by its sender's counter. In order, at each QoS.
    """
    writer, reader = of_two_workers(two)
    options = Options(client_id="reads", clean=clean)

    async def story() -> None:
        async with two.client(writer) as writes, two.client(reader, options) as reads:
            await reads.subscribe("machine/#", qos=2)
            for n in range(20):
                await writes.publish(topic_of(writer), b"%d" % n, qos=1 + n % 2)
            for n in range(20):
                assert (await reads.receive(within=WITHIN_S)).payload == b"%d" % n
            os.kill(two.pid_of(writer), signal.SIGKILL)
            await writes.publish(topic_of(writer), b"after", qos=1)
            assert (await reads.receive(within=WITHIN_S)).payload == b"after"
            assert "20 messages published again" in two.ups[0].err.read_text()

    run(story())
