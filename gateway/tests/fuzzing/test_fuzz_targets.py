"""The fuzzing targets without a fuzzer: seeds, what was found once, and what hypothesis makes.

The coverage-guided search of the same targets is `python -m fuzz` (gateway/fuzz/README.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.target import NAMES, Draw, Target, load
from sealmq.families.owners.commands import COMMANDS

FOUND = Path(__file__).parent / "found"
KNOWN = sorted(path for path in FOUND.glob("*/*") if path.is_file())
QUICK = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
_MADE: dict[str, Target] = {}


@pytest.fixture(scope="module", autouse=True)
def _closed() -> Iterator[None]:
    yield
    for target in _MADE.values():
        target.close()
    _MADE.clear()


def made(name: str) -> Target:
    """One of each, since some take a while to set up; inputs stand for themselves."""
    if name not in _MADE:
        _MADE[name] = load(name)
    return _MADE[name]


@cache
def seeds(name: str) -> list[bytes]:
    """A target's own."""
    return list(made(name).seeds())


@pytest.mark.parametrize("name", NAMES)
def test_seeds_break_nothing(name: str) -> None:
    assert seeds(name)
    for seed in seeds(name):
        assert len(seed) <= made(name).longest
        made(name).one(seed)


@pytest.mark.parametrize("path", KNOWN, ids=lambda p: f"{p.parent.name}-{p.name}")
def test_what_was_found_once_is_mended(path: Path) -> None:
    made(path.parent.name).one(path.read_bytes())


@pytest.mark.parametrize("name", NAMES)
def test_any_bytes_break_nothing(name: str) -> None:
    @QUICK
    @given(st.binary(max_size=300))
    def bytes_(data: bytes) -> None:
        made(name).one(data)

    bytes_()


@pytest.mark.parametrize("name", NAMES)
def test_spoiled_seeds_break_nothing(name: str) -> None:
    """Seeds cut, joined, and with other bytes in them."""
    edits = st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=3)), max_size=4)
    seed = st.sampled_from(seeds(name))

    @QUICK
    @given(seed, seed, st.integers(0, 400), edits)
    def spoiled(one: bytes, other: bytes, cut: int, changes: list[tuple[int, bytes]]) -> None:
        data = bytearray(one[:cut] + other[max(0, cut - 200) :] if cut % 3 == 0 else one)
        for at, new in changes:
            at %= len(data) + 1
            data[at : at + len(new)] = new
        made(name).one(bytes(data[: made(name).longest]))

    spoiled()


@pytest.mark.parametrize(
    ("name", "what", "least"),
    [
        ("reader", "delivered", 6),
        ("mediator", "accepted", 6),
        ("device", "delivered", 3),
        ("owners", "taken", 21),
        ("blinded", "taken", 2),
    ],
)
def test_seeds_get_behind_the_first_check(name: str, what: str, least: int) -> None:
    total = 0
    for seed in seeds(name):
        made(name).one(seed)
        total += int(getattr(made(name), what))
    assert total >= least


def test_seeds_of_owners_have_every_command() -> None:
    said = {json.loads(seed[2:])["do"] for seed in seeds("owners") if seed[:1] == b"\x07"}
    assert said == set(COMMANDS)


def test_draws_never_run_out() -> None:
    draw = Draw(b"\x02ab\x01")
    assert draw.chunk() == b"ab"
    assert draw.more()
    assert draw.number() == 1
    assert not draw.more()
    assert (draw.number(3), draw.take(2), draw.pick("xyz")) == (0, b"", "x")
