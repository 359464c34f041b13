"""Claim 8: no (key, nonce) twice, over a whole site: every process of the gateway and every device
writes down what it seals, as digests, through everything that could make a counter begin again.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sealmq_spec.const import OP_WELCOME
from sealmq_spec.errors import SealError

from attack_scene import TOPIC
from devices import Device, DeviceError, device
from evil_path import Between, EvilPath, Packets, is_down
from evil_scene import EvilScene, evil_scene
from running_site import sealmq
from test_attacks_time import keys_of

FLASH = ("sealmq.json", "sealmq.state", "sealmq.boot")


def twice(lines: Iterable[str]) -> list[str]:
    """(key, nonce) pairs under which different things were sealed."""
    under: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        which, what = line.split()
        under[which].add(what)
    return [which for which, sealed in under.items() if len(sealed) > 1]


def test_the_recorder_notices() -> None:
    assert twice(["a 1", "b 1", "a 1", "c 2"]) == []
    assert twice(["a 1", "b 1", "a 2"]) == ["a"]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EvilScene]:
    """A site of its own: its processes are killed, its clock jumps, its keys are restored."""
    with evil_scene(tmp_path_factory.mktemp("nonces")) as made:
        yield made


class Board:
    """A device that keeps a record of what it seals, behind a network that may lie."""

    def __init__(self, scene: EvilScene, folder: Path) -> None:
        self.path = EvilPath(scene.site.port)
        self.flash = folder / "board"
        self.file = self.path.enrolment(scene.enrolment("m1-device"), self.flash)
        self._records = scene.sealed
        self.stack = ExitStack()
        self.stack.callback(self.path.close)

    def on(self, name: str, flash: Path | None = None) -> Device:
        """Powered, in a boot of its own; the name is its record's."""
        file = (flash or self.flash) / "sealmq.json"
        made = device(file, connect=False, record=self._records / f"board-{name}")
        return self.stack.enter_context(made)

    def copy(self, to: Path) -> Path:
        """What an attacker reads from its flash."""
        to.mkdir(parents=True)
        for name in FLASH:
            shutil.copy(self.flash / name, to / name)
        return to


def _busy(board: Device, words: str) -> None:
    """Everything that a device seals, while nobody stops it; the words are its own."""
    for _ in range(3):
        try:
            board.connect()
            board.publish(TOPIC.decode(), words)
            board.subscribe("machine/1/#")
            board.do("send", topic=TOPIC.decode(), payload=words, qos=0)
            board.do("ask", ctr=1)
            # Refused where the clock went back; it was sealed all the same.
            board.publish("machine/1/kept", words, retain=True)
        except DeviceError:
            continue  # a clone threw it out, a liar confused it: it goes on as boards do


def _agrees(board: Board) -> None:
    """Whoever is behind is told that it is not, and goes on in the boot that it has."""

    def down(line: Between, first: int, body: bytes) -> Packets:
        if not is_down(first, body):
            return [(first, body)]
        ident = keys_of(board.file)
        try:
            order, inner = line.opened(ident, body)
        except SealError:
            return [(first, body)]  # of a generation that the other twin got
        if inner[0] == OP_WELCOME:
            inner = inner[:1] + b"\0" + inner[2:]
        return [line.sealed(ident, order, inner)]

    board.path.down = down


def _lies(board: Board, floors: list[int]) -> None:
    """Welcomes that call it behind, with floors of the mediator's choice, then one true one."""

    def down(line: Between, first: int, body: bytes) -> Packets:
        if not (is_down(first, body) and floors):
            return [(first, body)]
        ident = keys_of(board.file)  # of this connection: it provisions in between
        order, inner = line.opened(ident, body)
        if inner[0] != OP_WELCOME:
            return [(first, body)]
        floor = floors.pop().to_bytes(3, "big")
        return [line.sealed(ident, order, inner[:1] + b"\x01" + inner[2:8] + floor + inner[11:])]

    board.path.down = down


def test_no_nonce_twice_over_a_whole_site(scene: EvilScene, tmp_path: Path) -> None:
    board = Board(scene, tmp_path)
    with board.stack:
        _live(scene, board, tmp_path)
    _judge(scene)


def _live(scene: EvilScene, board: Board, tmp_path: Path) -> None:
    site = scene.site
    powered = [board.on("first")]
    _busy(powered[0], "first")
    early = board.copy(tmp_path / "early")

    def again(name: str, flash: Path | None = None) -> None:
        """The board starts anew, whatever its flash holds, and works."""
        powered.append(board.on(name, flash))
        _busy(powered[-1], name)

    # Power cuts; flash put back; clones that run side by side.
    powered[0].process.kill()
    again("cut")
    for name in FLASH:
        shutil.copy(early / name, board.flash / name)
    again("put-back")
    clones = [board.copy(tmp_path / f"clone{n}") for n in range(2)]
    twins = [board.on(f"twin{n}", flash) for n, flash in enumerate(clones)]
    for mediator_lies in (True, False):
        if mediator_lies:
            _agrees(board)
        else:
            board.path.honest()
        for n, twin in enumerate(twins):
            _busy(twin, f"twin {n}")
    powered += twins
    # A mediator that says what it likes.
    _lies(board, [0, 1, 3, 0xFFFF00])
    again("lied-to")
    board.path.honest()
    # Processes that die, a clock that jumps both ways.
    for role in ("mediator", "kg"):
        site.back(role, site.kill(role))
        again(f"behind-{role}")
    for seconds in (-7200, 3600, -40, 3600):
        scene.set_clock(seconds)
        again(f"clock{seconds}-{len(powered)}")
    # Keys that change, and a key generator that was put back.
    backup = tmp_path / "site.backup"
    _ordered("backup", site.path, backup)
    _ordered("rekey", site.path, "--label", "m1-temp")
    again("rekeyed")
    scene.stop()
    _ordered("restore", site.path, backup)
    scene.start()
    again("restored")


def _ordered(*arguments: object) -> None:
    done = sealmq(*arguments)
    assert done.returncode == 0, done.stderr


def _judge(scene: EvilScene) -> None:
    files = sorted(scene.sealed.iterdir())
    boards = [f for f in files if f.name.startswith("board-")]
    assert len(boards) >= 12
    assert all(f.stat().st_size for f in boards), "a board that sealed nothing"
    # Two mediators and key generators each before and behind the restart, and one more that died.
    assert len(files) - len(boards) >= 6
    lines = [line for f in files for line in f.read_text().splitlines()]
    assert len(lines) > 500
    assert twice(lines) == []
