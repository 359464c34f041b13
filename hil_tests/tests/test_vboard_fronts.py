"""The board's power, its ports and its control requests, without esptool."""

from __future__ import annotations

import os
import random
import select
import socket
import struct
import time
from pathlib import Path

import pytest
import serial

from sealmq_vboard.board import VirtualBoard
from sealmq_vboard.chips import CHIPS
from sealmq_vboard.errors import BoardError
from sealmq_vboard.firmware_image import APP_AT, firmware
from sealmq_vboard.flash import Flash
from sealmq_vboard.image import NoBoot, check_flash
from sealmq_vboard.slip import frame
from vboard_tools import board, until

_SYNC = frame(struct.pack("<BBHI", 0, 8, 36, 0) + b"\x07\x07\x12\x20" + b"\x55" * 32)
_SYNCED = frame(struct.pack("<BBHI", 1, 8, 4, 0x55201207) + bytes(4)) * 8


def _mode(made: VirtualBoard) -> str:
    return str(made.ctl({"do": "status"})["mode"])


def _hear(descriptor: int, wanted: bytes) -> bytes:
    """Reads until that was said."""
    heard = b""
    end = time.monotonic() + 60
    while wanted not in heard:
        assert time.monotonic() < end, heard
        if select.select([descriptor], [], [], 0.2)[0]:
            try:
                heard += os.read(descriptor, 65536)
            except BlockingIOError:
                continue
    return heard


def _connect(url: str | None) -> socket.socket:
    assert url is not None
    host, port = url.split("//")[1].split(":")
    return socket.create_connection((host, int(port)), timeout=60)


def test_a_pty_is_plugged_and_unplugged(tmp_path: Path) -> None:
    with board(tmp_path / "b", download=True) as made:
        assert made.pty is not None
        for time_ in range(3):
            fd = os.open(made.pty, os.O_RDWR | os.O_NOCTTY)
            os.write(fd, _SYNC * 2)
            heard = _hear(fd, _SYNCED * 2)
            if not time_:
                # What it said to nobody, when it was switched on, is lost.
                assert heard == _SYNCED * 2
            os.write(fd, _SYNC)
            os.close(fd)  # leaves its answer unread


def test_one_host_at_a_time(tmp_path: Path) -> None:
    with board(tmp_path / "b", pty=False, tcp=0, download=True) as made:
        with _connect(made.url_tcp) as first:
            first.sendall(_SYNC)
            _hear(first.fileno(), _SYNCED)
            with _connect(made.url_tcp) as second:
                try:
                    assert second.recv(1) == b""
                except ConnectionResetError:
                    pass
            first.sendall(_SYNC)
            _hear(first.fileno(), _SYNCED)
        for _ in range(3):
            with _connect(made.url_tcp) as host:
                host.sendall(_SYNC)
                try:
                    _hear(host.fileno(), _SYNCED)
                    break
                except (ConnectionResetError, AssertionError):
                    continue  # the first had not hung up yet
        else:
            pytest.fail("nobody gets in any more")


@pytest.mark.parametrize("front", ["pty", "tcp", "rfc2217"])
def test_a_host_that_does_not_read_is_not_listened_to(tmp_path: Path, front: str) -> None:
    """SYNCs without end, their answers never read: soon nothing more is taken."""
    most = 40 << 20
    with board(tmp_path / "b", tcp=0, rfc2217=0, download=True) as made:
        if front == "pty":
            assert made.pty is not None
            fd = os.open(made.pty, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        else:
            fd = _connect(made.url_tcp if front == "tcp" else made.url_rfc2217).detach()
            os.set_blocking(fd, False)
        sent = 0
        while sent < most and select.select([], [fd], [], 1.0)[1]:
            try:
                sent += os.write(fd, _SYNC * 500)
            except BlockingIOError:
                continue
        assert sent < most
        assert _mode(made) == "download"
        # Once it reads, it goes on.
        _hear(fd, _SYNCED)
        os.close(fd)
    made.start()  # and nothing of it is left
    made.stop()


def test_rfc2217_lines_and_every_byte(tmp_path: Path) -> None:
    with board(tmp_path / "b", pty=False, rfc2217=0) as made:
        port = serial.serial_for_url(made.url_rfc2217, baudrate=115200, timeout=60)
        with port:
            port.dtr = False
            port.rts = True
            until(lambda: _mode(made) == "held")
            port.dtr = True
            port.rts = False
            until(lambda: _mode(made) == "download")
            port.read_until(b"waiting for download\r\n")
            port.write(_SYNC)
            assert port.read(len(_SYNCED)) == _SYNCED
            # 0xFF is telnet's escape: there and back.
            data = bytes(range(256)) * 2 + b"\xff" * 5
            port.write(_packet(2, struct.pack("<IIII", len(data), 1, 0x400, 0x20000)))
            block = struct.pack("<IIII", len(data), 0, 0, 0) + data
            port.write(_packet(3, block, _xor(data)))
            port.write(_packet(0x0E, struct.pack("<II", 0x20000 + 230, 64)))
            heard = port.read_until(data[230:256]) + port.read(38)
            assert (
                data[230:294].replace(b"\xdb", b"\xdb\xdd").replace(b"\xc0", b"\xdb\xdc") in heard
            )
        until(lambda: _mode(made) == "download")  # closing it resets nothing
    assert (tmp_path / "b" / "flash.bin").read_bytes()[0x20000 : 0x20000 + len(data)] == data


def _packet(command: int, data: bytes, check: int = 0) -> bytes:
    return frame(struct.pack("<BBHI", 0, command, len(data), check) + data)


def _xor(data: bytes) -> int:
    value = 0xEF
    for byte in data:
        value ^= byte
    return value


@pytest.mark.parametrize("seed", range(4))
def test_nonsense_on_every_port(tmp_path: Path, seed: int) -> None:
    """Hangs up at worst; the board lives on."""
    draw = random.Random(seed)
    with board(tmp_path / "b", tcp=0, rfc2217=0, download=True) as made:
        for url in (made.url_tcp, made.url_rfc2217):
            for _ in range(20):
                with _connect(url) as host:
                    telnet = b"".join(
                        draw.choice(
                            [b"\xff", b"\xfa\x2c", b"\xff\xf0", b"\xfb", b"\xc0", draw.randbytes(9)]
                        )
                        for _ in range(draw.randrange(40))
                    )
                    try:
                        host.sendall(telnet)
                    except ConnectionError:
                        continue
        assert _mode(made) != "off"
        assert made.ctl({"do": "reset"})["ok"]


# -- power, reset, boot


def test_what_does_not_boot_is_told_and_tried_again(tmp_path: Path) -> None:
    with board(tmp_path / "b", pty=False, tcp=0) as made:
        with _connect(made.url_tcp) as host:
            said = _hear(host.fileno(), b"rst:0x10 (RTCWDT_RTC_RESET),boot:0x13")
            assert b"waiting" not in said
            said = _hear(host.fileno(), b"invalid header: 0xffffffff\r\n")
            boots = made.ctl({"do": "status"})["boots"]
            until(lambda: made.ctl({"do": "status"})["boots"] > boots)
            made.ctl({"do": "download", "on": True})
            said = _hear(host.fileno(), b"waiting for download\r\n")
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
    with board(tmp_path / "b", pty=False, tcp=0, download=True) as made:
        made.ctl({"do": "power", "on": False})
        with _connect(made.url_tcp) as host:
            host.sendall(_SYNC)
            assert made.ctl({"do": "reset"})["ok"] is False
            made.ctl({"do": "power", "on": True})
            heard = _hear(host.fileno(), b"waiting for download\r\n")
            assert _SYNCED[:12] not in heard
            host.sendall(_SYNC)
            _hear(host.fileno(), _SYNCED)


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
        assert _mode(made) == "download"


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
