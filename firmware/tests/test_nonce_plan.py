"""Claim 8 on real MicroPython: what a board seals, collected over lost messages, restored flash,
clones, clocks that stand or go back, counters at their end, and a mediator that says what it likes.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from mediator_that_lies import Liar
from nonce_plan import BUSY, Boards, boards, twice
from peer_connection import Connection
from real_micropython import BITS, VIPER

both = pytest.mark.parametrize("bits", BITS)
CHIPS = ("240ac4000001", "240ac4000002")


def test_the_recorder_notices() -> None:
    assert twice(["a 1", "b 1", "a 1", "c 2"]) == []
    assert twice(["a 1", "b 1", "a 2"]) == ["a"]


# --- flash that is put back, boards that are copied ---


def put_back_and_cloned(b: Boards, **hardware: Any) -> None:
    """Each state that the flash ever had comes again, and two boards share one at a time."""
    early = b.copy("blank")
    b.live(**hardware)
    first = b.copy("first")
    b.live(**hardware)
    later = b.copy("later")
    for copy in (first, early, later, first):
        b.put_back(copy)
        b.live(**hardware)
    for name, chips in (("same", (CHIPS[0], CHIPS[0])), ("other", CHIPS)):
        twins = [
            b.start(files=b.copy(f"{name}{n}"), **{**hardware, "chip": chip})
            for n, chip in enumerate(chips)
        ]
        for twin in twins:
            twin.end()


@both
def test_restored_flash_and_clones(bits: int, tmp_path: Path) -> None:
    """With the random source alone: the same ticks at each start."""
    with boards(tmp_path, bits) as b:
        put_back_and_cloned(b, still=7, chip=CHIPS[0])
        b.judge("restored flash, clones", 150)


# Each is a defence that is missing; with it, the record of `put_back_and_cloned` is clean.
@pytest.mark.parametrize("broken", ["constant salt", "no salt", "restored session"])
def test_a_board_without_its_salts_is_noticed(broken: str, tmp_path: Path) -> None:
    with boards(tmp_path, 64) as b:
        put_back_and_cloned(b, still=7, chip=CHIPS[0], broken=broken)
        assert twice(b.sealed())


def lose_messages(b: Boards, **hardware: Any) -> None:
    """Every third message ends its connection behind the seal, and the next is another one."""
    came: list[int] = []

    def on_publish(c: object, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
        came.append(ctr)
        if len(came) % 3 == 0:
            raise OSError("lost")
        return False

    b.peer.on_publish = on_publish
    b.live(*("connect", "publish", "retain") * 4, **hardware)
    b.peer.on_publish = None


@both
def test_messages_that_are_lost_on_their_way(bits: int, tmp_path: Path) -> None:
    with boards(tmp_path, bits) as b:
        lose_messages(b)
        b.judge("lost messages", 20)


@both
def test_the_fast_path_of_publish(
    bits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ciphers under a recorder do not show is listened to where it comes in."""
    with boards(tmp_path, bits) as b:
        b.listen(monkeypatch)
        first = b.live("connect", "publish")
        own = set(b.record.read_text().splitlines())
        # One and the same record, from both sides.
        assert len(b.heard) == 4
        assert set(b.heard) <= own
        assert not first["fast"]
        came: list[int] = []

        def on_publish(c: object, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            came.append(ctr)
            if len(came) % 17 == 0:
                raise OSError("lost")
            return False

        acts = ("connect", "burst", "publish", "connect", "burst", "last ctr", "burst", "retain")
        assert b.live(*acts, unseen=True)["fast"] == (bits in VIPER)
        early = b.copy("early")
        b.peer.on_publish = on_publish
        for _ in range(2):
            b.live(*acts, "connect", "burst", "resend", unseen=True)
            b.put_back(early)
        b.peer.on_publish = None
        twins = [b.start(*acts, files=b.copy(f"twin{n}"), unseen=True) for n in range(2)]
        for twin in twins:
            twin.end()
        b.peer.settle()
        b.judge("fast path", 400)


def test_a_counter_that_rises_too_late_is_noticed(tmp_path: Path) -> None:
    with boards(tmp_path, 64) as b:
        lose_messages(b, broken="counter behind")
        assert twice(b.sealed())


@both
def test_tasks_that_publish_side_by_side(bits: int, tmp_path: Path) -> None:
    """The asyncio client: connections break, a task is cancelled, a counter ends."""
    with boards(tmp_path, bits) as b:
        b.live("connect")
        came: list[int] = []

        def on_publish(c: object, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            came.append(ctr)
            if len(came) % 9 == 0:
                raise OSError("lost")
            return False

        b.peer.on_publish = on_publish
        for _ in range(3):
            life = b.start(script="nonce_aio.py")
            out, err = life.process.communicate(timeout=60)
            assert life.process.returncode == 0, err
            count = json.loads(out)
            assert count["published"] > 10
            assert count["connects"] > 2
        b.peer.settle()
        assert any(ctr > 0xFFFFF0 for ctr in came)
        b.judge("asyncio", 200)


# --- clocks ---


@both
def test_clocks_that_stand_go_back_and_wrap(bits: int, tmp_path: Path) -> None:
    with boards(tmp_path, bits) as b:
        for ticks in (7, 7, 1 << 29, 3, (1 << 30) - 20, 0):
            b.live(ticks=ticks)
        for hours in (0, 2, -30, -30, 4000):
            b.peer.site.clock_error_ms = hours * 3600000
            b.live(still=7)
        b.judge("clocks", 150)


# --- counters at their end ---


@both
def test_counters_at_their_end(bits: int, tmp_path: Path) -> None:
    with boards(tmp_path, bits) as b:
        more = ("publish",) * 3
        said = b.live("connect", "last ctr", *more, "subscribe", "retain", "last ctr", *more)
        assert said["failed"] == []
        assert said["boot"] == 3
        # Control packets and tokens use the same counter, and nothing looks after them before.
        said = b.live("connect", "last ctr", *("command",) * 6, "publish")
        assert said["failed"] == ["command: Misuse no counter is left in this boot session"] * 2
        assert said["boot"] == 5
        said = b.live(
            "connect", "last conn", "disconnect", "connect", *("disconnect", "connect") * 3
        )
        assert said["failed"] == []
        assert said["boot"] == 7
        gen = said["gen"]
        said = b.live("connect", "last boot", *("last ctr", *more) * 3)
        assert said["failed"] == []
        assert said["gen"] == gen + 1
        assert said["boot"] == 2
        assert b.live()["boot"] == 3
        b.judge("counters at their end", 60)


# --- a mediator that lies ---


def lied_to(b: Boards, seed: int, lives: int) -> None:
    """Lives with such a mediator, flash put back in between; then an honest one finds all well."""
    chance = random.Random(seed)
    liar = Liar(b.peer, chance)
    copies = [b.copy("blank")]
    for n in range(lives):
        acts = [act for _ in range(3) for act in ("connect", *chance.sample(BUSY, 8))]
        b.live(*acts)
        if chance.random() < 0.4:
            copies.append(b.copy(f"copy{n}"))
        if chance.random() < 0.3:
            b.put_back(chance.choice(copies))
    liar.honest()
    assert b.live("connect", "publish")["failed"] == []
    print(f"seed {seed}: {liar.told}")


@both
def test_a_mediator_that_lies(bits: int, tmp_path: Path) -> None:
    with boards(tmp_path, bits) as b:
        lied_to(b, bits, 8)
        b.judge("a mediator that lies", 100)


@both
def test_a_mediator_that_lies_to_a_board_without_randomness(bits: int, tmp_path: Path) -> None:
    """From start to start the boot counter suffices, within one the counter and the KG's nonces."""
    with boards(tmp_path, bits) as b:
        liar = Liar(b.peer, random.Random(bits + 1))
        for _ in range(4):
            acts = [act for _ in range(3) for act in ("connect", *BUSY)]
            b.live(*acts, random=0, still=7)
        liar.honest()
        b.judge("a mediator that lies, no randomness", 100)


# --- a random source that is none ---


def agree(c: Connection) -> bool:
    """No boot session is behind."""
    c.peer.highest = (0, 0, 0)
    return False


SAME: dict[str, Any] = {"random": 0, "still": 7, "chip": CHIPS[0]}
OTHER: dict[str, dict[str, Any]] = {
    "other ticks": {"still": 8},
    "other chip": {"chip": CHIPS[1]},
}


@both
@pytest.mark.parametrize(
    ("what", "repeats"),
    [
        ("starts", False),  # the boot counter differs
        ("blank again, same ticks", False),  # the key generator's nonce differs
        ("put back, other ticks", False),
        ("put back, same ticks", True),
        ("clones, other chip", False),
        ("clones, other ticks", False),
        ("clones, same ticks", True),
        ("boot counter lost, same ticks", True),
    ],
)
def test_what_stays_unique_without_randomness(
    bits: int, what: str, repeats: bool, tmp_path: Path
) -> None:
    """A random source that always gives the same, and a mediator that calls nobody behind."""
    with boards(tmp_path, bits) as b:
        b.peer.on_connect = agree
        blank = b.copy("blank")
        b.live(**SAME)
        b.live(**SAME)
        kind, _, how = what.partition(", ")
        other = OTHER.get(how, {})
        if kind == "clones":
            b.start(files=b.copy("clone"), **SAME).end()
            b.live(**{**SAME, **other})
        elif kind == "put back":
            early = b.copy("early")
            b.live(**SAME)
            b.put_back(early)
            b.live(**{**SAME, **other})
        elif kind == "boot counter lost":
            for _ in range(2):
                (b.flash / "board.boot").unlink()
                b.live(**SAME)
        else:
            if kind == "blank again":
                b.put_back(blank)
            b.live(**SAME)
        assert bool(twice(b.sealed())) == repeats


@pytest.mark.full
@both
@pytest.mark.parametrize("seed", range(12))
def test_long_histories(bits: int, seed: int, tmp_path: Path) -> None:
    with boards(tmp_path, bits) as b:
        lied_to(b, 1000 + seed, 60)
        b.judge(f"seed {seed}", 1000)
