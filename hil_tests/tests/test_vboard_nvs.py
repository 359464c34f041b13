"""The virtual board's NVS: Espressif's images read back, what it writes passes a reader that was
written from the documentation, and power may fail at any write."""

from __future__ import annotations

import csv
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import nvs_reader
from sealmq_vboard.flash import Flash, FlashFault, PowerLost
from sealmq_vboard.nvs import (
    INVALID_LENGTH,
    INVALID_NAME,
    KEY_TOO_LONG,
    NOT_ENOUGH_SPACE,
    NOT_FOUND,
    TYPE_MISMATCH,
    VALUE_TOO_LONG,
    Nvs,
    NvsError,
)
from sealmq_vboard.nvs_page import Page

SIZE = 0x6000
Values = dict[tuple[str, str], nvs_reader.Value]


class Chip:
    """A flash that is one NVS partition."""

    def __init__(self, path: Path, pages: int = 6) -> None:
        self.path = path
        self.size = pages * 4096
        path.unlink(missing_ok=True)
        Flash.create(path, self.size)
        self.flash = Flash(path, self.size)
        self.boot()

    def boot(self) -> None:
        self.flash.power_on()
        self.nvs = Nvs(self.flash, 0, self.size)
        self.nvs.start()

    def set_i32(self, key: str, value: int, space: str = "sealmq") -> None:
        self.nvs.ask(b"I", space.encode(), key.encode(), struct.pack("<i", value))

    def get_i32(self, key: str, space: str = "sealmq") -> int:
        answer = self.nvs.ask(b"i", space.encode(), key.encode(), b"")[1]
        return int(struct.unpack("<i", answer)[0])

    def set_blob(self, key: str, value: bytes, space: str = "sealmq") -> None:
        self.nvs.ask(b"B", space.encode(), key.encode(), value)

    def get_blob(self, key: str, space: str = "sealmq", room: int = 1 << 20) -> bytes:
        found = b""
        while True:
            ask = struct.pack("<II", room, len(found))
            length, piece = self.nvs.ask(b"b", space.encode(), key.encode(), ask)
            found += piece
            if len(found) >= length:
                return found

    def erase(self, key: str, space: str = "sealmq") -> None:
        self.nvs.ask(b"e", space.encode(), key.encode(), b"")

    def read(self, corrupted: int = 0) -> Values:
        return nvs_reader.read(self.path.read_bytes(), corrupted)


@pytest.fixture
def chip(tmp_path: Path) -> Chip:
    return Chip(tmp_path / "flash.bin")


def code(call: Callable[[], object]) -> int:
    with pytest.raises(NvsError) as caught:
        call()
    return caught.value.code


# --- the format


def test_an_image_of_espressifs_generator_reads_back(tmp_path: Path, chip: Chip) -> None:
    draw = random.Random(1)
    blobs = {f"blob{n}": draw.randbytes(n) for n in (1, 31, 32, 33, 64, 1984, 3999, 4000, 4001)}
    rows = [["key", "type", "encoding", "value"], ["sealmq", "namespace", "", ""]]
    for key, value in blobs.items():
        (tmp_path / key).write_bytes(value)
        rows.append([key, "file", "binary", str(tmp_path / key)])
    rows += [["boot", "data", "i32", "-77"], ["other", "namespace", "", ""]]
    rows += [["boot", "data", "i32", "16777215"]]
    with (tmp_path / "values.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    image = tmp_path / "nvs.bin"
    module = "esp_idf_nvs_partition_gen.nvs_partition_gen"
    words = ["generate", str(tmp_path / "values.csv"), str(image), hex(SIZE)]
    subprocess.run([sys.executable, "-m", module, *words], check=True, capture_output=True)

    chip.path.write_bytes(image.read_bytes())
    chip.boot()

    assert {key: chip.get_blob(key) for key in blobs} == blobs
    assert chip.get_i32("boot") == -77
    assert chip.get_i32("boot", "other") == 16777215
    assert chip.path.read_bytes() == image.read_bytes()  # reading writes nothing
    chip.set_blob("blob4001", b"new")
    chip.set_i32("boot", 5)
    expected: Values = {("sealmq", key): value for key, value in blobs.items()}
    expected |= {("sealmq", "blob4001"): b"new", ("sealmq", "boot"): 5}
    assert chip.read() == expected | {("other", "boot"): 16777215}


def some_write(chip: Chip, values: Values, draw: random.Random, longest: int) -> None:
    """One call, and what then should be there. NvsError: nothing is changed."""
    space, key = draw.choice(("sealmq", "b")), f"key{draw.randrange(4)}"
    what = draw.randrange(8)
    if what < 4:
        number = draw.randrange(-(1 << 31), 1 << 31)
        chip.set_i32(key, number, space)
        values[space, key] = number
    elif what < 7:
        blob = draw.randbytes(draw.choice((0, 5, 32, 142, 300, longest)))
        chip.set_blob(key, blob, space)
        values[space, key] = blob
    elif (space, key) in values:
        chip.erase(key, space)
        del values[space, key]


def value(chip: Chip, space: str, key: str) -> nvs_reader.Value | None:
    try:
        return chip.get_i32(key, space)
    except NvsError as error:
        if error.code == NOT_FOUND:
            return None
        return chip.get_blob(key, space)


@pytest.mark.parametrize("pages", [3, 6])
def test_many_writes_over_many_pages(tmp_path: Path, pages: int) -> None:
    chip = Chip(tmp_path / "flash.bin", pages)
    draw = random.Random(pages)
    values: Values = {}
    codes: set[int] = set()
    for turn in range(600):
        before = dict(values)
        try:
            some_write(chip, values, draw, 1200 if pages == 3 else 4300)
        except NvsError as error:
            codes.add(error.code)
            values = before
        if turn % 7 == 0:
            chip.boot()
        assert chip.read() == values
    assert all(value(chip, *name) == held for name, held in values.items())
    assert codes <= {NOT_ENOUGH_SPACE}
    # Pages take turns; what never changes may keep one for itself.
    assert sum(times > 3 for times in chip.flash.wear) >= pages - 1
    assert chip.flash.counts.set_bits_refused == 0


def test_a_value_that_is_there_is_not_written_again(chip: Chip) -> None:
    chip.set_i32("boot", 7)
    chip.set_blob("state", b"abc" * 50)
    before = chip.flash.counts.programs
    chip.set_i32("boot", 7)
    chip.set_blob("state", b"abc" * 50)
    assert chip.flash.counts.programs == before


# --- errors


def test_error_codes_are_esp_idfs(chip: Chip) -> None:
    chip.set_i32("boot", 1)
    chip.set_blob("state", b"12345")
    assert code(lambda: chip.get_i32("none")) == NOT_FOUND
    assert code(lambda: chip.get_blob("none")) == NOT_FOUND
    assert code(lambda: chip.erase("none")) == NOT_FOUND
    assert code(lambda: chip.get_i32("state")) == TYPE_MISMATCH
    assert code(lambda: chip.get_blob("boot")) == TYPE_MISMATCH
    assert code(lambda: chip.get_blob("state", room=4)) == INVALID_LENGTH
    assert chip.get_blob("state", room=5) == b"12345"
    assert code(lambda: chip.set_i32("a" * 16, 1)) == KEY_TOO_LONG
    assert code(lambda: chip.set_i32("a", 1, "s" * 16)) == INVALID_NAME
    assert code(lambda: chip.set_blob("big", bytes(20001))) == VALUE_TOO_LONG
    assert chip.read() == {("sealmq", "boot"): 1, ("sealmq", "state"): b"12345"}


def test_a_full_partition_keeps_what_it_has(chip: Chip) -> None:
    held: Values = {}
    for n in range(20):
        key = f"blob{n}"
        try:
            chip.set_blob(key, bytes([n]) * 2000)
        except NvsError:
            break
        held["sealmq", key] = bytes([n]) * 2000
    assert len(held) >= 8
    for _ in range(3):
        assert code(lambda: chip.set_blob("more", bytes(3000))) == NOT_ENOUGH_SPACE
        assert chip.read() == held
        chip.boot()
    chip.erase("blob0")
    chip.set_i32("boot", 1)
    del held["sealmq", "blob0"]
    assert chip.read() == held | {("sealmq", "boot"): 1}


def test_a_partition_of_rubbish_is_started_anew(chip: Chip) -> None:
    chip.path.write_bytes(random.Random(3).randbytes(SIZE))
    chip.boot()
    chip.set_i32("boot", 9)
    assert chip.get_i32("boot") == 9


def test_a_chip_that_fails_is_told(chip: Chip) -> None:
    chip.set_i32("boot", 1)
    chip.flash.fault(0, "fail")
    with pytest.raises(FlashFault):
        chip.set_i32("boot", 2)


# --- the power fails


def cut_run(path: Path, after: int, inside: bool, turns: int, again: int | None) -> bool:
    """Whether the cut came at all. At the next start there is the old content or the new one."""
    chip = Chip(path, 3)
    chip.flash.arm_cut(after, inside=inside, seed=after)
    draw = random.Random(5)
    values: Values = {}
    before: Values = {}
    try:
        for _ in range(turns):
            before = dict(values)
            # What the call would make, known before it is begun.
            plan = random.Random()
            plan.setstate(draw.getstate())
            values = planned(before, plan)
            try:
                some_write(chip, dict(before), draw, 900)
            except NvsError:
                values = before
    except PowerLost:
        pass
    else:
        chip.flash.close()
        return False
    if again is not None:
        # And once more, while that is being put right.
        chip.flash.power_on()
        chip.flash.arm_cut(again, inside=inside, seed=again)
        try:
            chip.boot()
        except PowerLost:
            pass
        chip.flash.disarm_cut()
    chip.boot()
    found = chip.read(corrupted=1)
    assert found in (before, values), f"cut {after} inside={inside} again={again}"
    assert {name: value(chip, *name) for name in found} == found
    chip.set_i32("key0", 123456)
    chip.set_blob("key1", b"x" * 700)
    found |= {("sealmq", "key0"): 123456, ("sealmq", "key1"): b"x" * 700}
    assert chip.read(corrupted=1) == found
    assert chip.flash.counts.set_bits_refused == 0
    chip.flash.close()
    return True


class Nowhere:
    """Stands for a chip, where only the plan is asked for."""

    def set_i32(self, key: str, value: int, space: str) -> None:
        pass

    def set_blob(self, key: str, value: bytes, space: str) -> None:
        pass

    def erase(self, key: str, space: str) -> None:
        pass


def planned(values: Values, draw: random.Random) -> Values:
    after = dict(values)
    some_write(Nowhere(), after, draw, 900)  # type: ignore[arg-type]
    return after


@pytest.mark.parametrize("inside", [False, True])
def test_power_fails_at_any_write(tmp_path: Path, inside: bool) -> None:
    cuts = 0
    while cut_run(tmp_path / "flash.bin", cuts * 9, inside, 60, None):
        cuts += 1
    assert cuts > 30


@pytest.mark.full
@pytest.mark.parametrize("inside", [False, True])
def test_power_fails_at_each_write(tmp_path: Path, inside: bool) -> None:
    cuts = 0
    while cut_run(tmp_path / "flash.bin", cuts, inside, 120, None):
        cuts += 1
    assert cuts > 300


@pytest.mark.parametrize("inside", [False, True])
def test_power_fails_again_while_it_is_put_right(tmp_path: Path, inside: bool) -> None:
    for after in range(3, 240, 13):
        for again in range(4):
            assert cut_run(tmp_path / "flash.bin", after, inside, 60, again)


@pytest.mark.parametrize("inside", [False, True])
def test_power_fails_while_a_page_is_moved(
    tmp_path: Path, inside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves: list[tuple[int, int]] = []
    move = Nvs._move_out

    def noted(nvs: Nvs, page: Page) -> None:
        counts = page._flash.counts
        begun = counts.programs + counts.erases
        lives = page.used
        move(nvs, page)
        if lives:  # there is something to copy
            moves.append((begun, counts.programs + counts.erases))

    with monkeypatch.context() as patch:
        patch.setattr(Nvs, "_move_out", noted)
        assert not cut_run(tmp_path / "flash.bin", 1 << 30, inside, 150, None)
    assert moves
    for after in range(moves[0][0] - 1, moves[0][1] + 1):
        assert cut_run(tmp_path / "flash.bin", after, inside, 150, None)
