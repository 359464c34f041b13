"""The board's power and reset, what boots and what does not, and requests that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest
import serial

from sealmq_vboard.board import VirtualBoard
from sealmq_vboard.chips import CHIPS
from sealmq_vboard.errors import BoardError
from sealmq_vboard.firmware_image import APP_AT, firmware
from sealmq_vboard.flash import Flash
from sealmq_vboard.image import NoBoot, check_flash
from vboard_tools import SYNC, SYNCED, board, connect, hear, mode, until


def test_what_does_not_boot_is_told_and_tried_again(tmp_path: Path) -> None:
    with board(tmp_path / "b", pty=False, tcp=0) as made:
        with connect(made.url_tcp) as host:
            said = hear(host.fileno(), b"rst:0x10 (RTCWDT_RTC_RESET),boot:0x13")
            assert b"waiting" not in said
            said = hear(host.fileno(), b"invalid header: 0xffffffff\r\n")
            boots = made.ctl({"do": "status"})["boots"]
            until(lambda: made.ctl({"do": "status"})["boots"] > boots)
            made.ctl({"do": "download", "on": True})
            said = hear(host.fileno(), b"waiting for download\r\n")
            assert b"boot:0x3 (DOWNLOAD_BOOT" in said


def _damaged(at: int, new: bytes) -> bytes:
    whole = bytearray(firmware(CHIPS["esp32"]))
    whole[at - 0x1000 : at - 0x1000 + len(new)] = new
    return bytes(whole)


@pytest.mark.parametrize(
    ("image", "said"),
    [
        (firmware(CHIPS["esp32s2"]), "image is for chip id 2, this is ESP32"),
        (_damaged(0x1000, b"\xff" * 16), "invalid header: 0xffffffff"),
        (_damaged(0x1030, b"X"), "checksum failed"),
        (_damaged(0x8000, b"\xff" * 64), "partition 0 invalid magic number 0xffff"),
        (_damaged(0x8002, b"\x07"), "partition table: MD5 does not fit"),
        (_damaged(APP_AT, b"\xff"), "invalid header"),
        (_damaged(APP_AT + 0x1C, b"\xff\xff\xff\x00"), "is longer than its place"),
        # As a writer that was stopped leaves it: the checksum fits by chance, the digest does not.
        (_damaged(APP_AT + 0x50, b"sealmq vboard stand-ni"), "has invalid hash"),
        (firmware(CHIPS["esp32"])[:-20], "has invalid hash"),
    ],
)
def test_a_half_written_firmware_does_not_boot(tmp_path: Path, image: bytes, said: str) -> None:
    path = tmp_path / "flash.bin"
    Flash.create(path)
    with Flash(path) as flash:
        flash.program(0x1000, image)
        with pytest.raises(NoBoot, match=said):
            check_flash(flash.read, flash.size, CHIPS["esp32"])


def test_power_is_off_until_it_is_switched_on(tmp_path: Path) -> None:
    with board(tmp_path / "b", pty=False, tcp=0, rfc2217=0, download=True) as made:
        made.ctl({"do": "power", "on": False})
        with connect(made.url_tcp) as host:
            host.sendall(SYNC)
            assert made.ctl({"do": "reset"})["ok"] is False
            with serial.serial_for_url(made.url_rfc2217, timeout=60) as port:
                port.rts, port.dtr = True, False  # the EN button
                port.rts = False
            assert mode(made) == "off"
            made.ctl({"do": "power", "on": True})
            heard = hear(host.fileno(), b"waiting for download\r\n")
            assert SYNCED[:12] not in heard
            host.sendall(SYNC)
            hear(host.fileno(), SYNCED)


@pytest.mark.parametrize(
    "request_",
    [
        {"do": "power"},
        {"do": "cut", "after": -1},
        {"do": "cut", "after": "soon"},
        {"do": "cut"},
        {"do": "fault", "sector": 4096, "how": "fail"},
        {"do": "fault", "sector": 1, "how": "burn"},
        {"do": "fly"},
        {},
    ],
)
def test_requests_that_cannot_be(tmp_path: Path, request_: dict[str, object]) -> None:
    with board(tmp_path / "b", pty=False, tcp=0, download=True) as made:
        answer = made.ctl(request_)
        assert answer["ok"] is False
        assert answer["error"]
        assert mode(made) == "download"


def test_a_board_runs_once(tmp_path: Path) -> None:
    with board(tmp_path / "b", pty=False, tcp=0, download=True) as made:
        with pytest.raises(BoardError, match="running already"):
            VirtualBoard(made.folder).start()
    again = VirtualBoard(made.folder, download=True)
    again.start()
    again.stop()


def test_a_port_that_is_taken_stops_the_start(tmp_path: Path) -> None:
    with board(tmp_path / "b", pty=False, tcp=0, download=True) as made:
        assert made.url_tcp is not None
        port = int(made.url_tcp.rsplit(":", 1)[1])
        with pytest.raises(OSError, match="in use"), board(tmp_path / "c", tcp=port):
            pass
