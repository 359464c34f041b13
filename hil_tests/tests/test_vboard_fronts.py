"""The board's ports, without esptool: who is heard, who is not listened to, what nonsense does."""

from __future__ import annotations

import os
import random
import select
import struct
from pathlib import Path

import pytest
import serial

from sealmq_vboard.slip import frame
from vboard_tools import SYNC, SYNCED, board, connect, hear, mode, until


def test_a_pty_is_plugged_and_unplugged(tmp_path: Path) -> None:
    with board(tmp_path / "b", download=True) as made:
        assert made.pty is not None
        for time_ in range(3):
            fd = os.open(made.pty, os.O_RDWR | os.O_NOCTTY)
            os.write(fd, SYNC * 2)
            if not time_:
                # What it said to nobody, when it was switched on, is lost.
                assert hear(fd, SYNCED * 2) == SYNCED * 2
            else:
                # What is said while the board notices that the last host has left may be thrown
                # away with what that one left: esptool asks again, too.
                for _ in range(60):
                    if select.select([fd], [], [], 1)[0]:
                        break
                    os.write(fd, SYNC * 2)
                hear(fd, SYNCED)
            os.write(fd, SYNC)
            os.close(fd)  # leaves its answer unread


def test_what_a_host_left_unread_is_not_for_the_next(tmp_path: Path) -> None:
    with board(tmp_path / "b", download=True) as made:
        assert made.pty is not None
        fd = os.open(made.pty, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        while select.select([], [fd], [], 1.0)[1]:
            try:
                os.write(fd, SYNC * 500)
            except BlockingIOError:
                continue
        os.close(fd)
        until(lambda: not made.ctl({"do": "status"})["pty_open"])
        fd = os.open(made.pty, os.O_RDWR | os.O_NOCTTY)
        until(lambda: made.ctl({"do": "status"})["pty_open"])
        os.write(fd, SYNC * 2)  # the first may end a packet that was broken off
        assert len(hear(fd, SYNCED)) <= 2 * len(SYNCED)
        os.close(fd)


def test_one_host_at_a_time(tmp_path: Path) -> None:
    with board(tmp_path / "b", pty=False, tcp=0, download=True) as made:
        with connect(made.url_tcp) as first:
            first.sendall(SYNC)
            hear(first.fileno(), SYNCED)
            with connect(made.url_tcp) as second:
                try:
                    assert second.recv(1) == b""
                except ConnectionResetError:
                    pass
            first.sendall(SYNC)
            hear(first.fileno(), SYNCED)
        for _ in range(3):
            with connect(made.url_tcp) as host:
                host.sendall(SYNC)
                try:
                    hear(host.fileno(), SYNCED)
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
            fd = connect(made.url_tcp if front == "tcp" else made.url_rfc2217).detach()
            os.set_blocking(fd, False)
        sent = 0
        while sent < most and select.select([], [fd], [], 1.0)[1]:
            try:
                sent += os.write(fd, SYNC * 500)
            except BlockingIOError:
                continue
        assert sent < most
        assert mode(made) == "download"
        # Once it reads, it goes on.
        hear(fd, SYNCED)
        os.close(fd)
    made.start()  # and nothing of it is left
    made.stop()


def test_rfc2217_lines_and_every_byte(tmp_path: Path) -> None:
    with board(tmp_path / "b", pty=False, rfc2217=0) as made:
        port = serial.serial_for_url(made.url_rfc2217, baudrate=115200, timeout=60)
        with port:
            port.dtr = False
            port.rts = True
            until(lambda: mode(made) == "held")
            port.dtr = True
            port.rts = False
            until(lambda: mode(made) == "download")
            port.read_until(b"waiting for download\r\n")
            port.write(SYNC)
            assert port.read(len(SYNCED)) == SYNCED
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
        until(lambda: mode(made) == "download")  # closing it resets nothing
    assert (tmp_path / "b" / "flash.bin").read_bytes()[0x20000 : 0x20000 + len(data)] == data


def test_bytes_and_lines_arrive_in_their_order(tmp_path: Path) -> None:
    """In one segment: a question, then RTS on, which holds the chip in reset."""
    rts_on = b"\xff\xfa\x2c\x05\x0b\xff\xf0"
    with board(tmp_path / "b", pty=False, rfc2217=0, download=True) as made:
        with connect(made.url_rfc2217) as host:
            host.sendall(SYNC + rts_on + SYNC)
            hear(host.fileno(), SYNCED)
            until(lambda: mode(made) == "held")
        # The host gone, its lines are off.
        until(lambda: mode(made) == "download")


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
                with connect(url) as host:
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
        assert mode(made) != "off"
        assert made.ctl({"do": "reset"})["ok"]


@pytest.mark.parametrize("said", [b"\x03\x77", b"\x01\0", b"\x05", b"", b"\x04\x09"])
def test_a_negotiation_that_cannot_be(
    tmp_path: Path, said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """pyserial's side of it raises KeyError, struct.error and more: the host is hung up on."""
    with board(tmp_path / "b", pty=False, rfc2217=0, download=True) as made:
        for _ in range(2):
            with connect(made.url_rfc2217) as host:
                host.sendall(b"\xff\xfa\x2c" + said + b"\xff\xf0")
                host.sendall(b"\xff\xf0" + SYNC)
                try:
                    while host.recv(4096):
                        pass
                except ConnectionResetError:
                    pass
        assert mode(made) == "download"
    assert not caplog.records
