"""The virtual board's NOR flash: what bits do, where the power goes, what a worn sector does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealmq_vboard.flash import PAGE, SECTOR, Flash, FlashFault, Misuse, PowerLost

_SIZE = 16 * SECTOR


@pytest.fixture
def flash(tmp_path: Path) -> Iterator[Flash]:
    Flash.create(tmp_path / "flash.bin", _SIZE)
    with Flash(tmp_path / "flash.bin", _SIZE) as made:
        yield made


def test_programming_clears_bits_and_only_an_erase_sets_them(flash: Flash) -> None:
    flash.program(10, b"\xf0\x0f")
    flash.program(10, b"\x3c\xff")
    assert flash.read(10, 2) == b"\x30\x0f"
    assert flash.counts.set_bits_refused == 1
    flash.program(10, b"\x30\x0f")  # the same again is nothing wrong
    assert flash.counts.set_bits_refused == 1
    flash.erase(0)
    assert flash.read(0, SECTOR) == b"\xff" * SECTOR


_writes = st.lists(
    st.tuples(st.integers(0, _SIZE - 1), st.binary(min_size=1, max_size=700)), max_size=12
)


@settings(max_examples=60, deadline=None)
@given(writes=_writes, armed=st.booleans(), erased=st.integers(0, 15))
def test_it_is_a_plain_and_of_bytes(
    tmp_path_factory: pytest.TempPathFactory,
    writes: list[tuple[int, bytes]],
    armed: bool,
    erased: int,
) -> None:
    """Against a loop over bytes; with a cut armed that is never reached, page by page."""
    path = tmp_path_factory.mktemp("nor") / "flash.bin"
    Flash.create(path, _SIZE)
    model = bytearray(b"\xff" * _SIZE)
    with Flash(path, _SIZE) as made:
        if armed:
            made.arm_cut(10_000)
        for number, (at, data) in enumerate(writes):
            data = data[: _SIZE - at]
            made.program(at, data)
            for offset, byte in enumerate(data):
                model[at + offset] &= byte
            if number == 5:
                made.erase(erased * SECTOR)
                model[erased * SECTOR : (erased + 1) * SECTOR] = b"\xff" * SECTOR
        assert made.read(0, _SIZE) == model
        pages = sum(
            len({(at + i) // PAGE for i in range(len(d[: _SIZE - at]))}) for at, d in writes
        )
        assert made.counts.programs == pages
    assert path.read_bytes() == model


def test_wear_is_counted_by_sector(flash: Flash) -> None:
    flash.erase(SECTOR, 2 * SECTOR)
    flash.erase(2 * SECTOR)
    assert flash.wear[:4] == [0, 1, 2, 0]
    assert flash.counts.erases == 3


@pytest.mark.parametrize(
    ("at", "length"), [(-1, 1), (_SIZE, 1), (_SIZE - 1, 2), (0, -1), (0, _SIZE + 1)]
)
def test_outside_of_the_chip(flash: Flash, at: int, length: int) -> None:
    with pytest.raises(Misuse):
        flash.read(at, length)
    with pytest.raises(Misuse):
        flash.erase(at, length)


def test_an_erase_falls_on_sectors(flash: Flash) -> None:
    with pytest.raises(Misuse):
        flash.erase(100, SECTOR)
    with pytest.raises(Misuse):
        flash.erase(0, 100)


def test_an_image_of_another_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "short.bin").write_bytes(b"\xff" * SECTOR)
    with pytest.raises(Misuse):
        Flash(tmp_path / "short.bin", _SIZE)


@pytest.mark.parametrize("after", [0, 1, 2, 3, 4, 5])
def test_power_goes_before_the_nth_operation(flash: Flash, after: int) -> None:
    told = []
    flash.on_cut = lambda: told.append(flash.powered)
    flash.program(0, bytes(SECTOR))
    flash.arm_cut(after)

    def work() -> None:
        flash.erase(0)  # 1
        flash.program(100, bytes(300))  # 2, 3: pages 0 and 1
        flash.program(SECTOR - 1, bytes(2))  # 4, 5
        flash.program(0, b"\0")  # 6

    with pytest.raises(PowerLost):
        work()
    assert told == [False]
    with pytest.raises(PowerLost):
        flash.read(0, 1)
    with pytest.raises(PowerLost):
        flash.program(0, b"")
    flash.power_on()
    expected = bytearray(SECTOR) if after == 0 else bytearray(b"\xff" * SECTOR)
    if after >= 2:
        expected[100:256] = bytes(156)
    if after >= 3:
        expected[256:400] = bytes(144)
    if after >= 4:
        expected[SECTOR - 1] = 0
    assert flash.read(0, SECTOR) == expected
    assert flash.read(SECTOR, 1) == (b"\0" if after >= 5 else b"\xff")
    assert flash.armed is None  # once


@pytest.mark.parametrize("seed", range(8))
def test_power_goes_inside_a_program(flash: Flash, seed: int) -> None:
    data = bytes(range(128, 256)) * 2
    flash.arm_cut(0, inside=True, seed=seed)
    with pytest.raises(PowerLost):
        flash.program(0, data)
    flash.power_on()
    assert flash.last_cut is not None
    done = flash.last_cut["done"]
    assert isinstance(done, int)
    found = flash.read(0, PAGE)
    assert found[:done] == data[:done]
    assert found[done] & data[done] == data[done]  # no bit lost that was to stay
    assert found[done + 1 :] == b"\xff" * (PAGE - done - 1)


@pytest.mark.parametrize("seed", range(8))
def test_power_goes_inside_an_erase(flash: Flash, seed: int) -> None:
    old = bytes(range(256)) * 16
    flash.program(0, old)
    flash.arm_cut(0, inside=True, seed=seed)
    with pytest.raises(PowerLost):
        flash.erase(0)
    flash.power_on()
    assert flash.last_cut is not None
    done = flash.last_cut["done"]
    assert isinstance(done, int)
    found = flash.read(0, SECTOR)
    assert found[:done] == b"\xff" * done
    assert found[done + 16 :] == old[done + 16 :]
    assert all(new & was == was for new, was in zip(found, old, strict=True))


def test_the_same_seed_tears_the_same_way(tmp_path: Path) -> None:
    found: list[bytes] = []
    for seed in (1, 1, 2):
        path = tmp_path / f"{len(found)}.bin"
        Flash.create(path, _SIZE)
        with Flash(path, _SIZE) as made:
            made.arm_cut(3, inside=True, seed=seed)
            with pytest.raises(PowerLost):
                made.program(0, bytes(SECTOR))
        found.append(path.read_bytes())
    assert found[0] == found[1] != found[2]


def test_a_worn_sector(flash: Flash) -> None:
    flash.program(SECTOR, b"\x55")
    flash.fault(1, "stuck")
    flash.program(SECTOR, b"\0")
    flash.erase(SECTOR)
    assert flash.read(SECTOR, 1) == b"\x55"
    flash.fault(1, "fail")
    with pytest.raises(FlashFault):
        flash.erase(SECTOR)
    with pytest.raises(FlashFault):
        flash.program(SECTOR - 1, bytes(2))
    assert flash.read(SECTOR - 1, 2) == b"\0\x55"  # the good sector's part was done
    flash.fault(1, None)
    flash.erase(SECTOR)
    assert flash.read(SECTOR, 1) == b"\xff"
    with pytest.raises(Misuse):
        flash.fault(16, "fail")
    with pytest.raises(Misuse):
        flash.fault(0, "burns")
