"""What esptool says becomes progress, or a line and a hint. A program in its place shows what it is
given, and how it is ended."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from sealmq_board import esptool_run
from sealmq_board.errors import BoardError
from sealmq_board.esptool_run import EsptoolError, Runner, Ways
from sealmq_board.ports import Port

WAYS = Ways(Port("one", "/dev/one"), "esp32", 115200, "default-reset", "hard-reset")
TOLD = """\
esptool v5.6.0
Connected to ESP32 on /dev/ttyUSB0:
Chip type:          ESP32-D0WD-V3 (revision v3.1)
MAC:                A0:b1:c2:d3:e4:f5
Detected flash size: 4MB
"""


@pytest.mark.parametrize(
    ("said", "text", "hint"),
    [
        ("Could not open /dev/ttyUSB0, the port is busy or doesn't exist.\n"
         "([Errno 13] could not open port /dev/ttyUSB0: [Errno 13] Permission denied)",
         "may not be opened by you", "dialout"),
        ("Could not open /dev/nope, the port is busy or doesn't exist.\n([Errno 2] could not open)",
         "no such port", "board list"),
        ("Could not open /dev/ttyUSB0, the port is busy or doesn't exist.\n(Could not exclusively "
         "lock port: [Errno 11] Resource temporarily unavailable)", "in use", "close"),
        ("Could not open socket://127.0.0.1:9, the port is busy or doesn't exist.\n"
         "(Could not open port: [Errno 111] Connection refused)", "nobody answers", "start"),
        ("Failed to connect to ESP32: No serial data received.", "does not answer", "BOOT"),
        ("Failed to connect to ESP32: Wrong boot mode detected (0x13)!", "does not answer", "BOOT"),
        ("This chip is ESP32-S3, not ESP32. Wrong chip argument?",
         "the board is an ESP32-S3, the bundle for ESP32", "--chip"),
        ("MD5 of file does not match data in flash!", "reads back otherwise", "worn out"),
        ("Verification failed (digest mismatch).", "reads back otherwise", "worn out"),
        ("Failed to write to target RAM (result was C400: Failed SPI operation)",
         "does not take it", "worn out"),
        ("'x' (length 3) at offset 0x00200000 will not fit in 2097152 bytes of flash.",
         "do not fit", "less flash"),
        ("Serial data stream stopped: Possible serial noise or corruption. The chip stopped "
         "responding.", "connection to the board was lost", "cable"),
        ("Failed to set baud rate 921600. The driver may not support this rate.",
         "does not go that fast", "115200"),
        ("Detected flash encryption and secure download mode enabled.", "protection", "README"),
        ("What nobody has ever seen", "esptool ended with 2: What nobody has ever seen", "again"),
    ],
)  # fmt: skip
def test_errors_are_translated(said: str, text: str, hint: str) -> None:
    # What stands before it names a port, a chip and a mode, and means nothing.
    before = "Serial port socket://1.2.3.4:5\nFailed to connect? trying again\nConnecting....\n"
    found = esptool_run.translated(f"{before}ERROR: A fatal error occurred: {said}\n", 2)
    assert text in str(found)
    assert hint in (found.hint or "")


def test_a_killed_one_says_no_error() -> None:
    found = esptool_run.translated(TOLD + "Writing at 0x00010000 [=>  ] 12.5% 1/8 bytes...", -9)
    assert str(found) == "esptool was ended by signal 9"


def test_fields() -> None:
    assert esptool_run.field(TOLD, "MAC") == "A0:b1:c2:d3:e4:f5"
    assert esptool_run.field(TOLD, "Nothing") == ""
    assert esptool_run.flash_size(TOLD) == 4 << 20
    assert esptool_run.flash_size("Auto-detected flash size: 512KB\n") == 512 << 10
    for said in ("", "Detected flash size: Unknown"):
        with pytest.raises(BoardError, match="cannot be detected"):
            esptool_run.flash_size(said)


def test_progress() -> None:
    line = "Writing at 0x00010c00 [=====>        ]  37.5% 1024/2731 bytes..."
    assert esptool_run.written(line) == (0x10C00, 0.375)
    assert esptool_run.written("Wrote 2097152 bytes at 0x00200000 in 1.2 seconds") is None


@pytest.fixture
def instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module `esptool` that is not the real one."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "esptool.py"


def test_what_it_is_given(instead: Path) -> None:
    instead.write_text("import sys; print(*sys.argv[1:], sep='|')")
    lines: list[str] = []
    said = Runner().run(WAYS, ["flash-id"], lines.append)
    assert said == (
        "--chip|esp32|--port|/dev/one|--baud|115200|--before|default-reset|"
        "--after|no-reset|flash-id"
    )
    assert lines == [said]
    assert "--after|hard-reset|" in Runner().run(WAYS, ["flash-id"], lines.append, last=True)


def test_one_in_the_folder_where_somebody_works_is_not_it(
    instead: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instead.write_text("print('the right one')")
    here = tmp_path / "downloads"
    here.mkdir()
    (here / "esptool.py").write_text("print('the wrong one')")
    monkeypatch.chdir(here)
    assert Runner().run(WAYS, [], lambda line: None) == "the right one"


def test_lines_come_as_they_are_printed(instead: Path) -> None:
    instead.write_text(
        "import sys\n"
        "for n in range(3): print(f'\\x1b[1A\\x1b[2KWriting at 0x00001000 {n}%', end='\\r')\n"
        "print(); print(f'\\x1b[31mlast'); sys.exit(3)\n"
    )
    lines: list[str] = []
    with pytest.raises(EsptoolError, match="esptool ended with 3: last"):
        Runner().run(WAYS, [], lines.append)
    assert lines == [f"Writing at 0x00001000 {n}%" for n in range(3)] + ["last"]


def test_one_that_says_nothing_is_ended(instead: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instead.write_text("import time; print('there', flush=True); time.sleep(60)")
    monkeypatch.setattr(esptool_run, "_SILENT", 0.5)
    with pytest.raises(EsptoolError, match="said nothing"):
        Runner().run(WAYS, [], lambda line: None)


def test_stop_ends_all_and_starts_none(instead: Path) -> None:
    instead.write_text("import os, time; print(os.getpid(), flush=True); time.sleep(3600)")
    runner = Runner()
    pids: list[int] = []
    errors: list[str] = []

    def one() -> None:
        try:
            runner.run(WAYS, [], lambda line: pids.append(int(line)))
        except EsptoolError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=one, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 60
    while len(pids) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    runner.stop()
    for thread in threads:
        thread.join(60)
    assert errors == ["stopped", "stopped"]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    with pytest.raises(EsptoolError, match="stopped"):
        runner.run(WAYS, [], lambda line: None)


def test_it_may_be_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = esptool_run.translated(f"{sys.executable}: No module named esptool", 1)
    assert str(found) == "esptool is not installed"
    assert found.hint is not None
    assert "make install EXTRAS=flash" in found.hint
