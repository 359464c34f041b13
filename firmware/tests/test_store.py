"""What a board keeps in files: power cuts on littlefs and FAT, truncations, flipped bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_script import board
from real_micropython import BITS, micropython

both = pytest.mark.parametrize("bits", BITS)


@both
def test_a_power_cut_at_every_operation(bits: int) -> None:
    said = [line.split() for line in micropython(bits, "store_cuts.py", heap="24M").splitlines()]
    found = {(kind, how): list(map(int, counts)) for kind, how, *counts in said[:-1]}
    print(found)
    # At each cut the boot counter is the old one or the new one, the state too, nothing is lost.
    for how in ("whole", "eighth", "half", "unsynced"):
        cuts, *harm = found["lfs2", how]
        assert cuts > 25
        assert harm == [0, 0, 0]
    for how in ("whole", "eighth", "unsynced"):
        cuts, *harm = found["fat", how]
        assert cuts > 35
        assert harm == [0, 0, 0]
    # FAT writes a sector in place: one that is torn in its middle may be the state's, whose check
    # says so.
    _, torn_boots, torn_states, lost = found["fat", "half"]
    assert (torn_boots, lost) == (0, 0)
    assert torn_states <= 3
    # README.md counts on this: littlefs erases a block for sixty cold boots.
    assert said[-1][0] == "wear"
    writes, erases = map(int, said[-1][1:])
    assert writes < 1100
    assert erases <= 17


@both
def test_files_with_every_truncation_and_flipped_bit(bits: int, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        said = micropython(bits, "store_flips.py", b.enrolment, heap="4M").splitlines()
        print(said)
        # Anything else that it says is a file that was taken for what it is not.
        assert [line.split()[0] for line in said] == ["states", "boots", "enrolments"]
        states, boots = int(said[0].split()[1]), int(said[1].split()[1])
        assert (states, boots) == (2 + 9 * 142, 2 + 9 * 6)


@both
def test_a_boot_file_that_is_too_long_does_not_stay_torn(bits: int, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        b.boot.write_bytes(b.boot.read_bytes() + b"and more")
        script = "c.connect()\nsay(c.session.boot)"
        # The mediator knows boot 1.
        assert b.run(str(bits), script) == ["2"]
        assert b.run(str(bits), script) == ["3"]
        assert [event[0] for event in b.peer.events if event[0] == "behind"] == ["behind"]
