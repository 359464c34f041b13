"""A board that lives, on a real site, over a network that cuts and stalls: what it publishes with
QoS 1 is delivered once within a boot session.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from devices import device
from evil_path import Between, EvilPath, Packets, is_down
from running_site import Site, micropython

SCRIPT = Path(__file__).with_name("unreliable_device.py")
TOPIC = "machine/1/temperature"
PINGREQ = 0xC0
# So many are bad in a run of the unreliable network.
CONNECTIONS = 8

every = pytest.mark.parametrize(
    "board",
    [
        pytest.param("living-64", marks=pytest.mark.full),
        "living-32",
        pytest.param("living_aio-64", marks=pytest.mark.full),
        "living_aio-32",
    ],
)


@pytest.fixture
def path(shared_site: Site) -> Iterator[EvilPath]:
    """The board's network."""
    made = EvilPath(shared_site.port)
    yield made
    made.close()


def published(
    site: Site, path: EvilPath, board: str, count: int, folder: Path, every: int = 1
) -> tuple[list[str], list[str]]:
    """What a board (`living-64`, say) tells, and the payloads that a reader of its label hears."""
    kind, bits = board.split("-")
    there = site.clients / board / "sealmq.json"
    if not there.exists():
        site.enrol(board, "m1-temp")
        site.enrol(f"{board}-reader", "m1-temp")
    enrolment = path.enrolment(there, folder / board)
    with device(site.clients / f"{board}-reader" / "sealmq.json") as reader:
        reader.subscribe(TOPIC)
        running = micropython(SCRIPT, enrolment, TOPIC, count, every, kind, bits=int(bits))
        try:
            told, _ = running.communicate(timeout=300)
        finally:
            running.kill()
            running.wait()
        # Its client keeps no more than 16 while it publishes: first what is there already.
        heard: list[str] = []
        while some := reader.receive(40, seconds=2):
            heard += [str(m["payload"]) for m in some]
        # This comes after all that the board published.
        reader.publish(TOPIC, "last")
        while "last" not in heard:
            more = [str(m["payload"]) for m in reader.receive(1)]
            assert more, (heard, told)
            heard += more
    return told.splitlines(), heard[:-1]


@every
def test_a_message_whose_proof_does_not_come_is_delivered_once(
    shared_site: Site, path: EvilPath, board: str, tmp_path: Path
) -> None:
    """The network falls silent when the board asks for proof for the first time."""
    silent: list[Between] = []

    def up(line: Between, first: int, body: bytes) -> Packets:
        if first == PINGREQ and not silent:
            silent.append(line)
        return [] if line in silent else [(first, body)]

    def down(line: Between, first: int, body: bytes) -> Packets:
        return [] if line in silent else [(first, body)]

    path.up, path.down = up, down
    told, heard = published(shared_site, path, board, 6, tmp_path)
    assert silent
    assert heard == [str(n) for n in range(6)], told
    assert [line for line in told if line.endswith(" accepted")] == [f"{w} accepted" for w in heard]


@every
def test_a_message_that_many_follow_before_its_proof_is_delivered_once(
    shared_site: Site, path: EvilPath, board: str, tmp_path: Path
) -> None:
    """No receipt gets through until the connection ends; a welcome's goes back 64 messages."""
    asked: list[Between] = []

    def up(line: Between, first: int, body: bytes) -> Packets:
        if first == PINGREQ:
            asked.append(line)
            if len(asked) == 1:
                line.close()
        return [(first, body)]

    def down(line: Between, first: int, body: bytes) -> Packets:
        return [] if not asked and is_receipt(line, first, body) else [(first, body)]

    path.up, path.down = up, down
    told, heard = published(shared_site, path, board, 150, tmp_path, every=150)
    assert heard[0] == "0"
    assert heard.count("0") == 1, told
    assert "0 accepted" in told


class Unreliable:
    """A network whose first connections end, or fall silent, each after some drawn packets, half
    of them when the board asks for proof.
    """

    def __init__(self, path: EvilPath, seed: int) -> None:
        self._dice = random.Random(seed)
        self._fates: dict[int, tuple[int, bool, str]] = {}
        self._lock = threading.Lock()
        self.faults = 0
        path.up, path.down = self._up, self._down

    def _fate(self, line: Between) -> str:
        with self._lock:
            if id(line) not in self._fates:
                ways = ("cut", "silent", "silent up", "silent down")
                way = self._dice.choice(ways) if len(self._fates) < CONNECTIONS else ""
                asked = self._dice.random() < 0.5
                self._fates[id(line)] = (1 if asked else self._dice.randrange(3, 40)), asked, way
            after, asked, way = self._fates[id(line)]
            packets = len(line.sent_up) + len(line.sent_down)
            if asked:
                packets = sum(first == PINGREQ for first, _ in line.sent_up)
            if not way or packets < after:
                return ""
            self.faults += 1
            return way

    def _up(self, line: Between, first: int, body: bytes) -> Packets:
        return self._pass(line, first, body, "silent up")

    def _down(self, line: Between, first: int, body: bytes) -> Packets:
        return self._pass(line, first, body, "silent down")

    def _pass(self, line: Between, first: int, body: bytes, silent: str) -> Packets:
        fate = self._fate(line)
        if fate == "cut":
            line.close()
        return [] if fate in ("cut", "silent", silent) else [(first, body)]


@pytest.mark.full
@every
@pytest.mark.parametrize("seed", range(16))
def test_nothing_is_delivered_twice_over_an_unreliable_network(
    shared_site: Site, path: EvilPath, board: str, seed: int, tmp_path: Path
) -> None:
    network = Unreliable(path, seed)
    told, heard = published(shared_site, path, board, 40, tmp_path)
    words = [str(n) for n in range(40)]
    assert network.faults
    assert sorted(heard, key=int) == words, told
    assert [line.split()[0] for line in told if line.endswith(" accepted")] == words, told


def is_receipt(line: Between, first: int, body: bytes) -> bool:
    """Of control packets down the first is the welcome."""
    if not is_down(first, body):
        return False
    return sum(is_down(*packet) for packet in line.sent_down) > 1
