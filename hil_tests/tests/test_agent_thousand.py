"""1,000 messages from one ordinary client through an agent, a site and an agent to another one of
the same make, while each process is killed: what was acknowledged arrives."""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from running_site import ROOT, until
from test_agent import PASSWORD, Agent, Paho, in_front

pytestmark = pytest.mark.full

COUNT = 1000
# Messages seen -> who is killed then.
KILLS = {150: "agent", 350: "mediator", 550: "kg", 750: "broker"}
_ENDED = "the reader has ended"
# Without anything new. However slow the machine is, what goes on is waited for.
_STILL_S = 90


class Ends(Protocol):
    """A publisher and a reader with a session that is kept, of one make."""

    def __init__(self, agent: Agent, topic: str, version: int, qos: int) -> None: ...

    def publish(self, numbers: range) -> None: ...

    def acked(self) -> set[int]:
        """Those of QoS 1 and 2 that were."""

    def came(self) -> Counter[int]: ...

    def failed(self) -> list[str]:
        """What its library called a failure."""

    def forgot(self) -> int:
        """How many messages its reader has acknowledged and forgotten."""

    def end(self) -> None: ...


class ByPaho:
    def __init__(self, agent: Agent, topic: str, version: int, qos: int) -> None:
        self._topic, self._qos = topic, qos
        self._reader = Paho(agent, "ha", version, f"r-{topic}", kept=True)
        try:
            self._reader.subscribe(topic, qos)
            self._writer = Paho(agent, "plc", version, f"w-{topic}", kept=True)
        except BaseException:
            self._reader.end()
            raise
        self._infos: dict[int, Any] = {}
        self._seen: Counter[int] = Counter()

    def publish(self, numbers: range) -> None:
        for n in numbers:
            self._infos[n] = self._writer.client.publish(self._topic, f"{n}", self._qos)

    def acked(self) -> set[int]:
        # is_published raises for what was published while there was no connection.
        return {n for n, info in self._infos.items() if info._published}

    def came(self) -> Counter[int]:
        while True:
            try:
                self._seen[int(self._reader.came.get_nowait().payload)] += 1
            except queue.Empty:
                return self._seen

    def failed(self) -> list[str]:
        return []

    def forgot(self) -> int:
        return 0

    def end(self) -> None:
        self._reader.end()
        self._writer.end()


class _Lines:
    """Programs that print a line for what happens."""

    def __init__(self) -> None:
        self._programs: list[subprocess.Popen[str]] = []
        self.lines: list[str] = []
        self.over = threading.Event()

    def start(self, words: list[str], env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        made = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, bufsize=1
        )
        self._programs.append(made)
        threading.Thread(target=self._read, args=(made,), daemon=True).start()
        return made

    def _read(self, program: subprocess.Popen[str]) -> None:
        assert program.stdout is not None
        for line in program.stdout:
            self.lines.append(line.strip())

    def wait(self, what: str, look: Callable[[], bool]) -> None:
        """As `until`; leaves no program behind if it comes in vain."""
        try:
            until(what, look)
        except AssertionError:
            self.end()
            raise

    def numbers(self, word: str) -> list[int]:
        return [int(line.split()[1]) for line in list(self.lines) if line.startswith(word + " ")]

    def end(self) -> None:
        self.over.set()
        for one in self._programs:
            one.terminate()
            one.wait(30)


class ByMosquitto:
    """mosquitto_pub reads lines and connects again by itself; mosquitto_sub ends where it is
    refused, and is started again, as a service would be. It keeps nothing on disk: a message of
    QoS 2 that it has acknowledged (PUBREC) and not printed yet (PUBREL) is lost with it.
    """

    def __init__(self, agent: Agent, topic: str, version: int, qos: int) -> None:
        self._all = _Lines()
        name = "5" if version == 5 else "311"
        common = ["-t", topic, "-q", str(qos), "-V", name]
        sub = ["mosquitto_sub", *agent.words("ha"), *common, "-i", f"r-{topic}", "-c", "-d"]
        self._sub = ["stdbuf", "-oL", *sub, "-F", "came %p"]
        threading.Thread(target=self._reads, daemon=True).start()
        self._all.wait("SUBACK", lambda: any("SUBACK" in line for line in self._all.lines))
        pub = ["mosquitto_pub", *agent.words("plc"), *common, "-i", f"w-{topic}", "-l", "-d"]
        self._pub = self._all.start(["stdbuf", "-oL", *pub])
        self._all.wait(
            "CONNACK", lambda: f"Client w-{topic} received CONNACK (0)" in self._all.lines
        )

    def _reads(self) -> None:
        while not self._all.over.is_set():
            self._all.start(self._sub).wait()
            self._all.over.wait(0.5)
            self._all.lines.append(_ENDED)

    def publish(self, numbers: range) -> None:
        assert self._pub.stdin is not None
        for n in numbers:
            self._pub.stdin.write(f"{n}\n")
        self._pub.stdin.flush()

    def acked(self) -> set[int]:
        # mosquitto_pub numbers its messages from 1.
        found = (
            re.match(r"Client w-\S+ received PUB(ACK|COMP) \(Mid: (\d+)", x)
            for x in self._all.lines
        )
        return {int(match[2]) - 1 for match in found if match}

    def came(self) -> Counter[int]:
        return Counter(self._all.numbers("came"))

    def failed(self) -> list[str]:
        return [line for line in list(self._all.lines) if line.startswith(("failed", "error"))]

    def forgot(self) -> int:
        held: set[str] = set()
        before: set[str] = set()
        count = 0
        for line in list(self._all.lines):
            if line == _ENDED:
                before, held = before | held, set()
            elif match := re.match(r"Client r-\S+ sending PUBREC \(m(\d+)", line):
                held.add(match[1])
                before.discard(match[1])
            elif match := re.match(r"Client r-\S+ received PUBREL \(Mid: (\d+)", line):
                count += match[1] in before
                held.discard(match[1])
                before.discard(match[1])
        return count

    def end(self) -> None:
        self._all.end()


class ByMqttJs:
    def __init__(self, agent: Agent, topic: str, version: int, qos: int) -> None:
        folder = ROOT / "build" / "mqttjs"
        source = Path(__file__).parent / "mqttjs"
        if not (folder / "node_modules" / "mqtt").exists():
            shutil.copytree(source, folder, dirs_exist_ok=True)
            npm = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            done = subprocess.run(npm, cwd=folder, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, done.stderr
        shutil.copy(source / "client.js", folder)
        self._all = _Lines()
        common = {"port": agent.port, "topic": topic, "version": version, "qos": qos}
        env = {**os.environ, "PASSWORD": PASSWORD}
        for read, user in ((True, "ha"), (False, "plc")):
            who = f"{'r' if read else 'w'}-{topic}"
            said = {**common, "read": read, "user": user, "id": who}
            words = ["node", str(folder / "client.js"), json.dumps(said)]
            self._pub = self._all.start(words, env)
            self._all.wait("it to connect", lambda read=read: self._ready(read))  # type: ignore[misc]

    def _ready(self, read: bool) -> bool:
        return "subscribed" in self._all.lines and (read or self._all.lines.count("connected") > 1)

    def publish(self, numbers: range) -> None:
        assert self._pub.stdin is not None
        for n in numbers:
            self._pub.stdin.write(f"{n}\n")
        self._pub.stdin.flush()

    def acked(self) -> set[int]:
        return set(self._all.numbers("acked"))

    def came(self) -> Counter[int]:
        return Counter(self._all.numbers("came"))

    def failed(self) -> list[str]:
        return [line for line in list(self._all.lines) if line.startswith(("failed", "error"))]

    def forgot(self) -> int:
        return 0

    def end(self) -> None:
        self._all.end()


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with in_front(tmp_path_factory.mktemp("agent")) as made:
        yield made


def connected(agent: Agent) -> None:
    """The site decides about messages of both users, so sessions that are kept are let in: whom the
    test before has killed is back, but they may not have come back to it yet."""
    for user, topic in (("ha", "ha/ready"), ("plc", "machine/1/ready")):
        until(user, lambda: agent.pub(user, topic, "x", "-q", "1").returncode == 0, 60)  # noqa: B023


def forgotten(agent: Agent, topic: str) -> None:
    """Ends the sessions of a test: the site keeps eight of a client ([limits] sessions)."""
    for user, who in (("ha", "r"), ("plc", "w")):
        words = ["-i", f"{who}-{topic}", "-t", "machine/1/none", "-E"]
        ended = ["mosquitto_sub", *agent.words(user), *words]
        until(
            "a clean session",
            lambda: subprocess.run(ended, timeout=60, check=False).returncode == 0,  # noqa: B023
        )


@contextmanager
def made(agent: Agent, make: type[Ends], version: int, qos: int) -> Iterator[Ends]:
    """A publisher and a reader; nothing is left of them afterwards, even if they never connect."""
    topic = f"machine/1/{make.__name__}{version}{qos}"
    connected(agent)
    try:
        ends = make(agent, topic, version, qos)
        try:
            yield ends
        finally:
            ends.end()
    finally:
        forgotten(agent, topic)


def goes_on(what: str, ends: Ends, look: Callable[[], bool]) -> None:
    """Waits for `look` as long as messages or acknowledgements come."""
    seen, since = (-1, -1), time.monotonic()
    while not look():
        now = len(ends.came()), len(ends.acked())
        said = f"{now[0]} came, {now[1]} acknowledged, failed: {ends.failed()[:9]}"
        said += f", forgotten by the reader: {ends.forgot()}"
        assert not ends.failed(), f"waits for {what}: {said}"
        if now != seen:
            seen, since = now, time.monotonic()
        assert time.monotonic() - since < _STILL_S, f"nothing more; waits for {what}: {said}"
        time.sleep(0.05)


def killed(agent: Agent, who: str) -> None:
    """kill -9, and wait until it is back."""
    if who == "agent":
        agent.kill()
        agent.up()
    else:
        agent.site.back(who, agent.site.kill(who), 60)


MAKES = [(ByPaho, 4), (ByPaho, 5), (ByMosquitto, 4), (ByMosquitto, 5), (ByMqttJs, 4), (ByMqttJs, 5)]


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize(("make", "version"), MAKES)
def test_none_of_a_thousand_that_were_acknowledged_is_lost_whoever_is_killed(
    agent: Agent, make: type[Ends], version: int, qos: int
) -> None:
    every = set(range(COUNT))
    with made(agent, make, version, qos) as ends:
        ends.publish(range(COUNT))
        for step, who in KILLS.items():
            goes_on(f"{step} messages", ends, lambda step=step: len(ends.came()) >= step)  # type: ignore[misc]
            killed(agent, who)
        goes_on("all acknowledgements", ends, lambda: ends.acked() == every)
        goes_on("all messages", ends, lambda: len(every - ends.came().keys()) <= ends.forgot())


@pytest.mark.parametrize(("make", "version"), MAKES)
def test_a_message_of_qos_0_comes_at_most_once_and_no_kill_blocks_those_after_it(
    agent: Agent, make: type[Ends], version: int
) -> None:
    with made(agent, make, version, 0) as ends:
        at = 0
        for who in (*KILLS.values(), ""):
            ends.publish(range(at, at + COUNT // 5))
            at += COUNT // 5
            if who:
                killed(agent, who)
        numbers = iter(range(at, 10**6))

        def through() -> bool:
            n = next(numbers)
            ends.publish(range(n, n + 1))
            return any(seen >= at for seen in ends.came())

        until("one more to come through", through, 2 * _STILL_S)
        twice = {n: times for n, times in ends.came().items() if times > 1}
    assert not twice


def test_a_subscription_outlives_a_mediator_and_a_broker_that_are_killed_one_after_the_other(
    agent: Agent,
) -> None:
    # Quicker than the broker saves (5 s), where the machine is quick.
    with made(agent, ByPaho, 4, 1) as ends:
        for who in ("mediator", "broker"):
            killed(agent, who)
        ends.publish(range(1))
        goes_on("the message", ends, lambda: ends.came().keys() == {0})
