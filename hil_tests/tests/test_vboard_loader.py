"""The serial loader without a serial line: SLIP, packets by hand, garbage."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealmq_vboard.chips import CHIPS
from sealmq_vboard.flash import SECTOR, Flash, PowerLost
from sealmq_vboard.image import checksum
from sealmq_vboard.loader import Loader
from sealmq_vboard.reset import Act, ResetCircuit
from sealmq_vboard.slip import Reader, frame

_SYNC = b"\x07\x07\x12\x20" + b"\x55" * 32


@pytest.fixture
def flash(tmp_path: Path) -> Iterator[Flash]:
    Flash.create(tmp_path / "flash.bin")
    with Flash(tmp_path / "flash.bin") as made:
        yield made


@pytest.fixture
def loader(flash: Flash) -> Loader:
    return Loader(CHIPS["esp32"], flash, bytes.fromhex("0200000000aa"))


def _packet(command: int, data: bytes = b"", check: int = 0) -> bytes:
    return frame(struct.pack("<BBHI", 0, command, len(data), check) + data)


def _block(command: int, data: bytes) -> bytes:
    return _packet(command, struct.pack("<IIII", len(data), 0, 0, 0) + data, checksum(data))


def _frames(data: bytes) -> list[bytes]:
    return Reader(1 << 20).feed(data)


def _ask(loader: Loader, packet: bytes) -> tuple[int, bytes, bytes]:
    """Value, data, the two bytes that tell."""
    (answer,) = _frames(loader.feed(packet))
    _, _, length, value = struct.unpack_from("<BBHI", answer)
    assert len(answer) == 8 + length
    status = 2 if loader.stub else 4
    return value, answer[8:-status], answer[-status:][:2]


def _upload(loader: Loader) -> bytes:
    """What esptool does to get its stub running; the last thing said."""
    loader.feed(_packet(5, struct.pack("<IIII", 4, 1, 4, 0x40080000)))
    loader.feed(_block(7, b"code"))
    return _frames(loader.feed(_packet(6, struct.pack("<II", 0, 0x40080000))))[-1]


# -- SLIP


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=6), st.data())
@settings(max_examples=80, deadline=None)
def test_frames_come_through_in_any_pieces(packets: list[bytes], data: st.DataObject) -> None:
    wire = b"".join(frame(packet) for packet in packets)
    reader = Reader(1000)
    found: list[bytes] = []
    while wire:
        cut = data.draw(st.integers(1, len(wire)))
        found += reader.feed(wire[:cut])
        wire = wire[cut:]
    assert found == packets


def test_broken_and_endless_frames_are_dropped() -> None:
    reader = Reader(10)
    assert reader.feed(b"noise" + frame(b"one")) == [b"one"]
    assert reader.feed(b"\xc0a\xdbb\xc0" + frame(b"two")) == [b"two"]
    assert reader.feed(b"\xc0" + b"x" * 11 + b"\xc0" + frame(b"three")) == [b"three"]
    assert reader.dropped == 2


@given(st.binary(max_size=300))
@settings(max_examples=50, deadline=None)
def test_the_checksum_is_a_plain_xor(data: bytes) -> None:
    assert checksum(data) == reduce(lambda a, b: a ^ b, data, 0xEF)


# -- commands


def test_the_rom_and_the_stub_answer_sync_differently(loader: Loader) -> None:
    answers = _frames(loader.feed(_packet(8, _SYNC)))
    assert len(answers) == 8
    assert all(answer[4:8] != bytes(4) and len(answer) == 12 for answer in answers)
    assert _upload(loader) == b"OHAI"
    answers = _frames(loader.feed(_packet(8, _SYNC)))
    assert len(answers) == 8
    assert all(answer[4:8] == bytes(4) and len(answer) == 10 for answer in answers)


def test_code_that_was_not_uploaded_is_not_started(loader: Loader) -> None:
    _, _, status = _ask(loader, _packet(6, struct.pack("<II", 0, 0x40080000)))
    assert status[0] == 1
    assert not loader.stub
    assert "code at 0x40080000, which was not uploaded" in loader.refused


@pytest.mark.parametrize("command", [0x15, 0x19, 0xD4, 0xD5, 0xD8, 0xDE, 0xFF])
def test_what_is_not_implemented_is_refused_and_listed(loader: Loader, command: int) -> None:
    assert _ask(loader, _packet(command, bytes(16)))[2] == b"\x01\x05"
    _upload(loader)
    assert _ask(loader, _packet(command, bytes(16)))[2] == b"\xff\x00"
    assert loader.refused == {f"ROM command {command:#04x}": 1, f"stub command {command:#04x}": 1}


@pytest.mark.parametrize("command", [0xD0, 0xD1, 0xD2, 0xD3])
def test_the_rom_does_not_know_the_stubs_commands(loader: Loader, command: int) -> None:
    assert _ask(loader, _packet(command, bytes(16)))[2] == b"\x01\x05"


def test_no_register_is_made_up(loader: Loader) -> None:
    assert _ask(loader, _packet(10, struct.pack("<I", 0x40001000)))[0] == 0x00F01D83
    for address in (0, 0x40001004, 0x3FF00044, 0x3FF5A001, 0xFFFFFFFF):
        assert _ask(loader, _packet(10, struct.pack("<I", address)))[2][0] == 1
        write = _packet(9, struct.pack("<IIII", address, 1, 0xFFFFFFFF, 0))
        assert _ask(loader, write)[2][0] == 1
        assert loader.refused[f"register {address:#010x}"] == 2
    # An eFuse is read, never written.
    write = _packet(9, struct.pack("<IIII", 0x3FF5A004, 1, 0xFFFFFFFF, 0))
    assert _ask(loader, write)[2][0] == 1


@pytest.mark.parametrize("stub", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_a_write(loader: Loader, flash: Flash, stub: bool, packed: bool) -> None:
    if stub:
        _upload(loader)
    flash.program(0x5000, bytes(3 * SECTOR))
    data = bytes(range(1, 200)) * 30
    begin, put, end = (0x10, 0x11, 0x12) if packed else (2, 3, 4)
    sent = zlib.compress(data) if packed else data + b"\xff" * 100
    good = (0, b"", bytes(2))
    head = struct.pack("<IIII", len(data), 1, 0x4000, 0x5000)
    assert _ask(loader, _packet(begin, head)) == good
    # The ROM erases at once, the stub when the data come.
    assert flash.counts.erases == (0 if stub else 2)
    assert _ask(loader, _packet(put, b"\x01\0\0\0" + bytes(12) + b"x", 0))[2] != bytes(2)
    assert _ask(loader, _block(put, sent)) == good
    assert flash.read(0x5000, len(data)) == data
    assert flash.read(0x5000 + len(data), 2 * SECTOR - len(data)).strip(b"\xff") == b""
    assert flash.read(0x7000, SECTOR) == bytes(SECTOR)  # only what was asked for
    digest = hashlib.md5(data, usedforsecurity=False)
    md5 = _ask(loader, _packet(0x13, struct.pack("<IIII", 0x5000, len(data), 0, 0)))[1]
    assert md5 == (digest.digest() if stub else digest.hexdigest().encode())
    # Leaving: the stub goes back to the ROM if told to, the ROM goes in either case.
    if stub:
        assert _ask(loader, _packet(end, b"\x01\0\0\0")) == good
        loader.feed(_packet(begin, bytes(16)))
        assert loader.stub
    loader.feed(_packet(end, bytes(4)))
    assert not loader.stub
    assert loader.leaving == (None if stub else "reset")


def test_the_rom_runs_the_program(loader: Loader) -> None:
    loader.feed(_packet(2, bytes(16)))
    loader.feed(_packet(4, b"\x01\0\0\0"))
    assert loader.leaving == "run"
    assert loader.feed(_packet(8, _SYNC)) == b""


def test_writes_that_go_wrong(loader: Loader, flash: Flash) -> None:
    _upload(loader)
    size = flash.size
    for at, length in ((size, 1), (0, size + 1), (size - 1, 2), (0xFFFFF000, 0x1000)):
        assert _ask(loader, _packet(2, struct.pack("<IIII", length, 1, 0x4000, at)))[2][0]
        assert _ask(loader, _packet(0x10, struct.pack("<IIII", length, 1, 0x4000, at)))[2][0]
    assert _ask(loader, _block(3, b"data"))[2] == b"\xc6\0"  # nothing begun
    loader.feed(_packet(0x10, struct.pack("<IIII", 100, 1, 0x4000, 0)))
    assert _ask(loader, _block(3, b"data"))[2] == b"\xc6\0"  # the other kind was begun
    assert _ask(loader, _packet(0x12, struct.pack("<I", 1)))[2] == b"\xc8\0"  # nothing came
    assert _ask(loader, _block(0x11, b"no deflate"))[2] == b"\xc7\0"
    loader.feed(_packet(0x10, struct.pack("<IIII", 100, 1, 0x4000, 0)))
    assert _ask(loader, _block(0x11, zlib.compress(bytes(1 << 20))))[2] == b"\xc9\0"
    loader.feed(_packet(0x10, struct.pack("<IIIII", 100, 1, 0x4000, 0, 0)))
    assert _ask(loader, _packet(2, struct.pack("<IIIII", 100, 1, 0x4000, 0, 1)))[2] == b"\xff\0"
    assert flash.counts.programs == 0


def test_reading_waits_for_the_host(loader: Loader, flash: Flash) -> None:
    _upload(loader)
    flash.program(0, bytes(range(256)) * 40)
    first = _frames(loader.feed(_packet(0xD2, struct.pack("<IIII", 10, 10_000, 0x1000, 2))))
    assert [len(part) for part in first[1:]] == [0x1000, 0x1000]
    last = _frames(loader.feed(frame(struct.pack("<I", 0x1000))))
    assert [len(part) for part in last] == [10_000 - 0x2000]
    assert loader.feed(frame(struct.pack("<I", 0x2000))) == b""
    (digest,) = _frames(loader.feed(frame(struct.pack("<I", 10_000))))
    data = b"".join(first[1:] + last)
    assert data == flash.read(10, 10_000)
    assert digest == hashlib.md5(data, usedforsecurity=False).digest()
    # A host that gives up in the middle and begins anew is heard.
    loader.feed(_packet(0xD2, struct.pack("<IIII", 0, 0x4000, 0x1000, 1)))
    assert len(_frames(loader.feed(_packet(8, _SYNC)))) == 8
    assert loader.feed(frame(struct.pack("<I", 0x1000))) == b""


def test_power_lost_in_a_write_is_no_answer(loader: Loader, flash: Flash) -> None:
    loader.feed(_packet(2, struct.pack("<IIII", 0x400, 1, 0x400, 0)))
    flash.arm_cut(2)
    with pytest.raises(PowerLost):
        loader.feed(_block(3, bytes(0x400)))
    flash.power_on()
    assert flash.read(0, 0x400) == bytes(512) + b"\xff" * 512
    loader.reset()
    assert len(_frames(loader.feed(_packet(8, _SYNC)))) == 8


_garbage = st.lists(
    st.one_of(
        st.binary(max_size=60),
        st.builds(_packet, st.integers(0, 255), st.binary(max_size=40), st.integers(0, 1 << 31)),
        st.builds(_block, st.sampled_from([3, 7, 0x11]), st.binary(max_size=40)),
        st.builds(
            _packet,
            st.sampled_from([2, 5, 6, 0x0E, 0x10, 0x13, 0xD1, 0xD2]),
            st.builds(
                lambda *words: struct.pack("<IIII", *words),
                *[st.sampled_from([0, 1, 4, 64, 0x1000, 0x400000, 0x3FFFFF, 0xFFFFFFFF])] * 4,
            ),
        ),
    ),
    max_size=25,
)


@given(_garbage, st.booleans())
@settings(max_examples=120, deadline=None)
def test_garbage_neither_breaks_nor_blocks_it(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], stub: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.bin"
    if not path.exists():
        Flash.create(path)
    with Flash(path) as chip:
        loader = Loader(CHIPS["esp32s3"], chip, bytes(6))
        if stub:
            _upload(loader)
        for piece in pieces:
            assert len(loader.feed(piece)) < 8 << 20
        if not loader.leaving:
            # Two: the first may end what the garbage has begun.
            said = loader.feed(_packet(8, _SYNC)) + loader.feed(_packet(8, _SYNC))
            assert sum(part[:2] == b"\x01\x08" for part in _frames(said)) >= 8


# -- the reset circuit


def _acts(*lines: tuple[int, int]) -> list[Act]:
    circuit = ResetCircuit()
    return [circuit.lines(bool(dtr), bool(rts)) for dtr, rts in lines]


def test_the_usual_reset_into_the_loader() -> None:
    """As esptool does it: RTS alone, both (on the way), DTR alone."""
    acts = _acts((0, 1), (0, 1), (1, 1), (1, 0), (1, 0), (0, 0))
    hold, still = Act.HOLD, Act.NOTHING
    assert acts == [hold, still, Act.WAIT, Act.DOWNLOAD, still, still]


def test_the_reset_that_boots() -> None:
    assert _acts((0, 1), (0, 0)) == [Act.HOLD, Act.BOOT]


def test_opening_and_closing_a_port_resets_nothing() -> None:
    assert _acts((1, 0), (1, 1), (0, 0), (1, 1)) == [Act.NOTHING] * 4


def test_both_lines_left_on_boots_when_the_capacitor_is_full() -> None:
    circuit = ResetCircuit()
    assert circuit.lines(False, True) is Act.HOLD
    assert circuit.lines(True, True) is Act.WAIT
    assert circuit.risen() is Act.BOOT
    assert circuit.risen() is Act.NOTHING
    assert circuit.lines(True, False) is Act.NOTHING
