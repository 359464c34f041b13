"""Which client a board starts: cuts at each write of an update, places that are not whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from real_micropython import BITS, ROOT, micropython

BOARD = ROOT / "firmware" / "board"
HOWS = ("whole", "eighth", "half", "unsynced")
both = pytest.mark.parametrize("bits", BITS)


@pytest.mark.parametrize(
    ("bits", "hows"),
    [
        (64, ("half",)),
        (32, ("unsynced",)),
        *(pytest.param(bits, HOWS, marks=pytest.mark.full) for bits in BITS),
    ],
)
def test_a_power_cut_at_every_operation(bits: int, hows: tuple[str, ...]) -> None:
    """During an update, its trial, its confirmation or its end: each start has a whole client, no
    client is tried more often than it may be, and what was cut off can be done again."""
    said = micropython(bits, "slots_cuts.py", BOARD, *hows, heap="48M").splitlines()
    print(said)
    found = {tuple(line.split()[:2]): list(map(int, line.split()[2:])) for line in said}
    assert set(found) == {(life, how) for life in ("good", "bad") for how in hows}
    for cuts, old, new in found.values():
        assert cuts > 50
        assert old + new == cuts
        # Some fall before the offer, some behind it.
        assert old > 30
        assert new > 5


@both
def test_what_a_start_chooses(bits: int, tmp_path: Path) -> None:
    said = micropython(bits, "slots_device.py", BOARD, tmp_path).splitlines()
    over = "sealmq: rolled back b: "
    died = over + "ImportError " + "x" * 108
    told = "slot b is not what its MANIFEST says"
    assert said == [
        "trial b True 9 1 /b", "trial b True 9 1 /b",
        "sealmq: slot confirmed b", "True False False", "confirmed b False 0 1 /b",
        "trial b True 9 1 /b", "trial b True 9 1 /b",
        "0", died, "over a False 0 1 /a", died, "over a False 0 1 /a", died, "over a False 0 1 /a",
        "trial b True 9 1 /b", over + "no session", "never said why a False 0 1 /a",
        *(line for how in ("changed", "longer", "missing", "more", "cut", "none")
          for line in (over + "incomplete", f"{how} a False 0 1 /a", told)),
        "slot a is the active one", told, told, "went well",
        "trial b True 180 1 /b", "b False ", "withdrawn a False 0 1 /a",
        *(f"{text} a False 0 1 /a" for text in ("nothing", "{", "[1]", "7", "c")),
        over + "no session", "no active one a False 0 1 /a",
        "the active one a False 0 1 /a",
        over + "no session", "no tries a False 0 1 /a",
        "sealmq: rolled back a: no session",
        "no number b False 0 1 /b",
        "no file a False 0 1 /a", "only b b False 0 1 /b", "neither a False 0 1 /a",
        "the other b False 0 1 /b",
        "sealmq: no trial of b 28", "full a False 0 1 /a", "trial b True 9 1 /b",
        "no folder a False 0 1 /a",
    ]  # fmt: skip


@both
@pytest.mark.parametrize(
    "text", ["def begin(:", "begin = None", "raise MemoryError", "import nothing", ""]
)
def test_a_start_whose_choice_fails_uses_the_first_client(
    bits: int, text: str, tmp_path: Path
) -> None:
    said = micropython(bits, "slots_boot.py", BOARD, tmp_path, text)
    assert said.splitlines()[-1] == "/sealmq/a"
