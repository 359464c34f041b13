"""The unmodified esptool on virtual boards: what it says, and what the flash holds afterwards."""

from __future__ import annotations

import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sealmq_vboard.board import VirtualBoard
from sealmq_vboard.chips import CHIPS
from sealmq_vboard.firmware_image import firmware
from vboard_tools import MAC, board, cells, command, esptool, until

_NAMES = {
    "esp32": "ESP32-D0WD-V3 (revision v3.1)",
    "esp32s2": "ESP32-S2 (revision v0.0)",
    "esp32s3": "ESP32-S3 (QFN56) (revision v0.2)",
    "esp32c3": "ESP32-C3 (QFN32) (revision v0.4)",
    "esp32c6": "ESP32-C6 (QFN40) (revision v0.1)",
}


@pytest.fixture(scope="module")
def esp32(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualBoard]:
    """One board for the tests that only write; in download mode, on a pseudo-terminal."""
    with board(tmp_path_factory.mktemp("esp32") / "b", download=True, tcp=0) as made:
        yield made


def _noise(length: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(length)


# One that is an Xtensa and one that is a RISC-V; esptool's own way with each is much the same.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ("esp32", "esp32c3") else pytest.mark.full)
        for name in CHIPS
    ],
)
def test_each_chip_is_recognised_written_and_verified(name: str, tmp_path: Path) -> None:
    chip = CHIPS[name]
    image = tmp_path / "stand-in.bin"
    image.write_bytes(firmware(chip))
    with board(tmp_path / "b", chip=name, download=True) as made:
        said = esptool(made.pty, "flash-id")
        assert _NAMES[name] in said
        assert MAC in said
        assert "Manufacturer: ef" in said
        assert "Detected flash size: 4MB" in said
        at = f"{chip.bootloader:#x}"
        said = esptool(made.pty, "--chip", name, "write-flash", at, str(image))
        assert "Hash of data verified." in said
        assert "WARNING" not in said
        said = esptool(made.pty, "verify-flash", at, str(image))
        assert "digest matched" in said
        assert cells(made, chip.bootloader, image.stat().st_size) == image.read_bytes()
        # All that it asked for is modelled.
        assert made.ctl({"do": "status"})["refused"] == {}
        # And that image boots: into whatever there is to run.
        made.ctl({"do": "download", "on": False})
        until(lambda: made.ctl({"do": "status"})["mode"] in ("run", "over"))


def test_the_wrong_chip_is_noticed(esp32: VirtualBoard) -> None:
    assert "This chip is ESP32, not ESP32-S3" in esptool(
        esp32.pty, "--chip", "esp32s3", "flash-id", fails=True
    )


@pytest.mark.parametrize(
    "how",
    [
        (),
        pytest.param(("--no-compress",), marks=pytest.mark.full),
        pytest.param(("--no-stub",), marks=pytest.mark.full),
        ("--no-stub", "--no-compress"),
    ],
)
def test_writing_verifying_and_reading(
    esp32: VirtualBoard, tmp_path: Path, how: tuple[str, ...]
) -> None:
    data = _noise(70_001, len(" ".join(how)))
    file, back = tmp_path / "data.bin", tmp_path / "back.bin"
    file.write_bytes(data)
    stub = [word for word in how if word == "--no-stub"]
    rest = [word for word in how if word != "--no-stub"]
    esptool(esp32.pty, *stub, "write-flash", *rest, "0x123000", str(file))
    assert cells(esp32, 0x123000, len(data)) == data
    assert cells(esp32, 0x123000 + len(data), 100) == b"\xff" * 100
    esptool(esp32.pty, *stub, "verify-flash", "0x123000", str(file))
    # The ROM sends 64 bytes at a time.
    length = 0x2003 if stub else len(data)
    esptool(esp32.pty, *stub, "read-flash", "0x123000", f"{length}", str(back))
    assert back.read_bytes() == data[:length]


def test_a_difference_is_found(esp32: VirtualBoard, tmp_path: Path) -> None:
    file = tmp_path / "data.bin"
    file.write_bytes(b"one" * 5000)
    esptool(esp32.pty, "write-flash", "0x40000", str(file))
    file.write_bytes(b"one" * 4999 + b"two")
    said = esptool(esp32.pty, "verify-flash", "0x40000", str(file), fails=True)
    assert "digest mismatch" in said


def test_erasing_a_region_and_all(esp32: VirtualBoard, tmp_path: Path) -> None:
    file = tmp_path / "data.bin"
    file.write_bytes(bytes(0x3000))
    esptool(esp32.pty, "write-flash", "0x50000", str(file))
    esptool(esp32.pty, "erase-region", "0x51000", "0x1000")
    found = cells(esp32, 0x50000, 0x3000)
    assert found == bytes(0x1000) + b"\xff" * 0x1000 + bytes(0x1000)
    esptool(esp32.pty, "erase-flash")
    size = 4 << 20
    assert cells(esp32, 0, size) == b"\xff" * size


def test_mac_over_tcp(esp32: VirtualBoard) -> None:
    assert f"MAC:                {MAC}" in esptool(esp32.url_tcp, "--no-stub", "read-mac")


def test_faster_line(esp32: VirtualBoard) -> None:
    said = esptool(esp32.pty, "--baud", "921600", "flash-id")
    assert "Changing baud rate to 921600" in said
    assert "WARNING" not in esptool(esp32.pty, "flash-id")  # the crystal is 40 MHz still


def test_the_stub_stays_and_the_program_is_started(tmp_path: Path) -> None:
    image = tmp_path / "stand-in.bin"
    image.write_bytes(firmware(CHIPS["esp32c3"]))
    with board(tmp_path / "b", chip="esp32c3", download=True) as made:
        assert made.pty is not None
        # The last option given counts.
        stays = ("--after", "no-reset-stub")
        esptool(made.pty, *stays, "write-flash", "0x0", str(image))
        # The stub goes at its end, and with the ROM one can start the program.
        assert "Stub flasher is already running" in esptool(made.pty, "chip-id")
        esptool(made.pty, "--no-stub", "run")
        until(lambda: made.ctl({"do": "status"})["mode"] in ("run", "over"))


def test_what_is_not_modelled_fails_and_is_listed(esp32: VirtualBoard) -> None:
    said = esptool(esp32.pty, "--no-stub", "read-mem", "0x3ff00044", fails=True)
    assert "Failed to read target memory" in said
    assert "register 0x3ff00044" in esp32.ctl({"do": "status"})["refused"]


def test_a_worn_sector_is_told(tmp_path: Path) -> None:
    file = tmp_path / "data.bin"
    file.write_bytes(_noise(0x3000, 1))
    with board(tmp_path / "b", download=True) as made:
        made.ctl({"do": "fault", "sector": 0x101, "how": "fail"})
        said = esptool(made.pty, "write-flash", "0x100000", str(file), fails=True)
        assert "C400: Failed SPI operation" in said
        # One that takes the command and does nothing is found by the digest.
        made.ctl({"do": "fault", "sector": 0x101, "how": "stuck"})
        said = esptool(made.pty, "write-flash", "0x100000", str(file), fails=True)
        assert "MD5 of file does not match data in flash" in said


def _begun(made: VirtualBoard, file: Path) -> subprocess.Popen[bytes]:
    assert made.pty is not None
    words = command(made.pty, "write-flash", "--no-compress", "0x10000", str(file))
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_a_run_that_is_killed_is_run_again(tmp_path: Path) -> None:
    file = tmp_path / "data.bin"
    file.write_bytes(_noise(400_000, 2))
    with board(tmp_path / "b", download=True) as made:
        for pages in (100, 700):
            before = made.ctl({"do": "status"})["flash"]["programs"]
            run = _begun(made, file)
            until(lambda: made.ctl({"do": "status"})["flash"]["programs"] > before + pages)  # noqa: B023
            run.send_signal(signal.SIGKILL)
            run.wait()
            assert cells(made, 0x10000, 400_000) != file.read_bytes()
        esptool(made.pty, "write-flash", "0x10000", str(file))
        assert cells(made, 0x10000, 400_000) == file.read_bytes()


@pytest.mark.parametrize("inside", [False, True])
def test_power_lost_while_writing(tmp_path: Path, inside: bool) -> None:
    file = tmp_path / "data.bin"
    data = _noise(200_000, 3)
    file.write_bytes(data)
    with board(tmp_path / "b", download=True) as made:
        # Erases count as well: 4 sectors and 64 pages for each of the stub's blocks.
        made.ctl({"do": "cut", "after": 2 * (4 + 64) + 4 + 10, "inside": inside, "seed": 5})
        run = _begun(made, file)
        until(lambda: made.ctl({"do": "status"})["mode"] == "off")
        run.kill()
        run.wait()
        at = 2 * 0x4000 + 10 * 256
        cut = made.ctl({"do": "status"})["flash"]["last_cut"]
        assert (cut["what"], cut["at"], cut["inside"]) == ("program", 0x10000 + at, inside)
        done = at + (cut["done"] if inside else 0)
        found = cells(made, 0x10000, 200_000)
        assert found[:done] == data[:done]
        assert found[done + 1 :].count(0xFF) >= len(found) - done - 1  # all of it is erased
        made.ctl({"do": "power", "on": True})
        esptool(made.pty, "write-flash", "0x10000", str(file))
        assert cells(made, 0x10000, 200_000) == data


def test_rfc2217_resets_into_the_loader_and_out_of_it(tmp_path: Path) -> None:
    """As on a real board: nobody touches a button, the lines of the serial port do it."""
    image = tmp_path / "stand-in.bin"
    image.write_bytes(firmware(CHIPS["esp32"]))
    with board(tmp_path / "b", pty=False, rfc2217=0) as made:
        assert made.ctl({"do": "status"})["mode"] == "empty"
        said = esptool(made.url_rfc2217, "write-flash", "0x1000", str(image), reset=True)
        assert "Hash of data verified." in said
        assert "Hard resetting via RTS pin..." in said
        until(lambda: made.ctl({"do": "status"})["mode"] in ("run", "over"))


@pytest.mark.full
@pytest.mark.parametrize("name", CHIPS)
def test_each_chip_resets_over_rfc2217(name: str, tmp_path: Path) -> None:
    image = tmp_path / "stand-in.bin"
    image.write_bytes(firmware(CHIPS[name]))
    with board(tmp_path / "b", chip=name, pty=False, rfc2217=0) as made:
        at = f"{CHIPS[name].bootloader:#x}"
        said = esptool(made.url_rfc2217, "write-flash", at, str(image), reset=True)
        assert "Hash of data verified." in said
        until(lambda: made.ctl({"do": "status"})["mode"] in ("run", "over"))


@pytest.mark.full
@pytest.mark.parametrize("seed", range(12))
def test_power_lost_anywhere_and_written_again(tmp_path: Path, seed: int) -> None:
    file = tmp_path / "data.bin"
    file.write_bytes(_noise(150_000, seed))
    draw = random.Random(seed)
    with board(tmp_path / "b", download=True) as made:
        for _ in range(3):
            after = draw.randrange(600)
            made.ctl({"do": "cut", "after": after, "inside": draw.random() < 0.5, "seed": after})
            run = _begun(made, file)
            until(lambda: made.ctl({"do": "status"})["mode"] == "off")
            run.kill()
            run.wait()
            made.ctl({"do": "power", "on": True})
        esptool(made.pty, "write-flash", "0x10000", str(file))
        assert cells(made, 0x10000, 150_000) == file.read_bytes()


@pytest.mark.full
def test_all_of_the_flash_there_and_back(tmp_path: Path) -> None:
    """4 MiB that do not compress, over each front."""
    file, back = tmp_path / "data.bin", tmp_path / "back.bin"
    with board(tmp_path / "b", tcp=0, rfc2217=0, download=True) as made:
        for seed, port in enumerate((made.pty, made.url_tcp)):
            data = _noise(4 << 20, seed)
            file.write_bytes(data)
            esptool(port, "write-flash", "--flash-size", "keep", "0x0", str(file))
            assert cells(made, 0, len(data)) == data
            esptool(port, "read-flash", "0x0", f"{4 << 20:#x}", str(back))
            assert back.read_bytes() == data
        data = _noise(200_000, 9)
        file.write_bytes(data)
        esptool(made.url_rfc2217, "write-flash", "0x100000", str(file))
        assert cells(made, 0x100000, len(data)) == data
