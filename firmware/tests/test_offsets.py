"""Offsets and constants that viper code of the device writes out, as it can take none from another
file: each has to be the same everywhere.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable

import pytest

from real_micropython import ROOT
from sealmq_spec import const

# What a file's names are in another one: the same, but those of BYTES are words in the first and
# bytes in the second, and those of APART mean two things.
PAIRS = [
    ("publish_fast", "link"),
    ("publish_fast", "client"),
    ("publish_fast", "incoming"),
]
BYTES = {("publish_fast", "link"): ("ROOM",)}
APART = {("publish_fast", "incoming"): ("SUITE",)}

Consts = dict[str, dict[str, int]]
# What follows from other constants.
DERIVED: list[tuple[str, str, Callable[[Consts], int]]] = [
    ("open_fast", "FRONTS", lambda c: 4 * (c["open_fast"]["TOPIC_END"] + 1)),
    ("receive_fast", "CHECKED", lambda c: c["open_fast"]["TWO"] + 3),
    ("receive_fast", "AREA", lambda c: c["open_fast"]["TWO"] + 4),
    ("open_fast", "LEAST_M3", lambda c: const.M3_HEAD + 1 + const.M1_HEAD + 2 * const.TAG),
    ("open_fast", "WORK", lambda c: c["open_fast"]["BUFFER"] + 2),
    ("open_fast", "TWO", lambda c: 4 * (c["open_fast"]["WORK"] + 2)),
    ("publish_fast", "M1_HEAD", lambda c: const.M1_HEAD),
    ("publish_fast", "HEADS", lambda c: 1 + const.M1_HEAD),
    ("publish_fast", "PLAIN", lambda c: const.M2_HEAD + 1 + const.M1_HEAD),
    ("publish_fast", "TAG", lambda c: const.TAG),
    ("publish_fast", "FRONTS", lambda c: 4 * (c["publish_fast"]["HERE"] + 1)),
]


@functools.cache
def parsed() -> Consts:
    """By file and name without its underscore: what `NAME = const(NUMBER)` at its top says."""
    found: Consts = {}
    for path in sorted((ROOT / "firmware" / "sealmq_device").glob("*.py")):
        named = found[path.stem] = {}
        for line in ast.parse(path.read_text(encoding="utf-8")).body:
            if (
                isinstance(line, ast.Assign)
                and isinstance(line.targets[0], ast.Name)
                and isinstance(line.value, ast.Call)
                and ast.unparse(line.value.func) == "const"
            ):
                name = line.targets[0].id.lstrip("_")
                named[name] = ast.literal_eval(line.value.args[0])
    return found


def consts() -> Consts:
    """The same, to be changed."""
    return {file: dict(named) for file, named in parsed().items()}


def shared(found: Consts, pair: tuple[str, str]) -> list[str]:
    """The names of both files that are to mean one thing."""
    one, other = pair
    names = found[one].keys() & found[other].keys()
    return sorted(names - {"TYPING", *APART.get(pair, ())})


def wrong(found: Consts) -> list[str]:
    """What differs."""
    differ = []
    for pair in PAIRS:
        one, other = pair
        for name in shared(found, pair):
            times = 4 if name in BYTES.get(pair, ()) else 1
            right = times * found[one][name]
            if found[other][name] != right:
                differ.append(f"{other}.{name}: {found[other][name]}, by {one} {right}")
    for file, name, of in DERIVED:
        if found[file][name] != of(found):
            differ.append(f"{file}.{name}: {found[file][name]}, not {of(found)}")
    return differ


def test_what_several_files_write_out_is_the_same_in_all() -> None:
    assert wrong(consts()) == []


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_a_wrong_offset_is_noticed(pair: tuple[str, str]) -> None:
    names = shared(consts(), pair)
    assert names
    for name in names:
        for file in pair:
            found = consts()
            found[file][name] += 1
            assert wrong(found), (file, name)
    for file, name, _ in DERIVED:
        found = consts()
        found[file][name] += 1
        assert wrong(found), (file, name)
