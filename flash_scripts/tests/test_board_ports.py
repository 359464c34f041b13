"""Boards by USB serial number: exactly that one, never the first port that is there."""

from __future__ import annotations

import argparse
import json
import socket
from types import SimpleNamespace

import pytest

from sealmq_board import cli, enrolment, ports
from sealmq_board.errors import BoardError, UsageError


def plugged(*rows: tuple[str, str | None, int]) -> list[SimpleNamespace]:
    made = [
        SimpleNamespace(device=device, serial_number=serial, vid=vid, pid=0x1001,
                        product="USB JTAG", description="x")
        for device, serial, vid in rows
    ]  # fmt: skip
    # A port of the host itself, no USB behind it.
    other = SimpleNamespace(device="/dev/ttyS0", serial_number=None, vid=None, pid=None,
                            product=None, description="n/a")  # fmt: skip
    return [*made, other]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[SimpleNamespace]:
    boards = plugged(
        ("/dev/ttyACM1", "AA:BB", 0x303A),
        ("/dev/ttyACM0", "CC:DD", 0x303A),
        ("/dev/ttyUSB0", "0001", 0x10C4),
        ("/dev/ttyUSB1", "0001", 0x10C4),
        ("/dev/ttyUSB2", None, 0x1A86),
    )
    monkeypatch.setattr("serial.tools.list_ports.comports", lambda: boards)
    return boards


def chosen(*words: str, several: str = "") -> list[ports.Port]:
    parser = argparse.ArgumentParser()
    ports.add_selectors(parser, several)
    return ports.chosen(parser.parse_args(words))


def test_by_number(here: list[SimpleNamespace]) -> None:
    assert chosen("--board", "AA:BB") == [ports.Port("AA:BB", "/dev/ttyACM1", 330)]
    assert [
        port.url for port in chosen("--board", "CC:DD", "--board", "AA:BB", several="again")
    ] == [
        "/dev/ttyACM0",
        "/dev/ttyACM1",
    ]


@pytest.mark.parametrize("word", ["AA", "aa:bb", "", "None"])
def test_nearly_is_not_enough(here: list[SimpleNamespace], word: str) -> None:
    with pytest.raises(BoardError, match="no board with the id") as caught:
        chosen("--board", word)
    assert "0001, 0001, AA:BB, CC:DD" in str(caught.value)


def test_two_with_one_number_are_not_guessed_between(here: list[SimpleNamespace]) -> None:
    with pytest.raises(BoardError, match="2 boards have the id 0001: /dev/ttyUSB0, /dev/ttyUSB1"):
        chosen("--board", "0001")


def test_none_named_is_no_board(here: list[SimpleNamespace]) -> None:
    with pytest.raises(UsageError, match="no board was named"):
        chosen()
    with pytest.raises(UsageError, match="takes one"):
        chosen("--board", "AA:BB", "--board", "CC:DD")
    with pytest.raises(UsageError, match="the same board"):
        chosen("--port", "socket://h:1", "--port", "socket://h:1", several="again")


def test_lines_reach_the_board_or_not() -> None:
    assert ports.Port("x", "/dev/ttyUSB0").has_lines
    assert ports.Port("x", "rfc2217://127.0.0.1:1").has_lines
    assert not ports.Port("x", "socket://127.0.0.1:1").has_lines
    assert not ports.Port("x", "/dev/pts/7").has_lines


def test_the_list(here: list[SimpleNamespace], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["port"] for row in rows] == [
        "/dev/ttyACM0", "/dev/ttyACM1", "/dev/ttyUSB0", "/dev/ttyUSB1", "/dev/ttyUSB2",
    ]  # fmt: skip
    assert rows[1]["board"] == "AA:BB"
    assert rows[1]["usb"] == "303a:1001"
    assert rows[1]["chip"] == "esp32s3, c3 or c6"
    assert rows[4]["board"] == ""
    assert cli.main(["list"]) == 0
    text = capsys.readouterr().out
    assert "AA:BB  /dev/ttyACM1  USB JTAG" in text
    assert "dialout" in text
    here.clear()
    assert cli.main(["list"]) == 0
    assert "no board is plugged in" in capsys.readouterr().err


def test_a_pico_is_known_by_its_usb(monkeypatch: pytest.MonkeyPatch) -> None:
    pico, other = plugged(("/dev/ttyACM5", "E66", 0x2E8A), ("/dev/ttyACM6", "AA", 0x303A))[:2]
    pico.pid = 0x0005
    monkeypatch.setattr("serial.tools.list_ports.comports", lambda: [pico, other])
    assert [each.chip for each in ports.found()] == [
        "rp2040 or rp2350, with MicroPython",
        "esp32s3, c3 or c6",
    ]
    assert [
        ports.is_pico(port) for port in chosen("--board", "E66", "--board", "AA", several="x")
    ] == [
        True,
        False,
    ]


@pytest.mark.parametrize("patience", ["0", "1"])
def test_who_does_not_answer_at_an_address_is_no_port_of_this_host(
    patience: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        url = f"socket://127.0.0.1:{taken.getsockname()[1]}"
        assert cli.main(["info", "--port", url, "--patience", patience]) == 1
    said = capsys.readouterr().err
    assert f"{url}: " in said
    assert "start the virtual board or the serial server" in said
    assert "dialout" not in said


@pytest.mark.parametrize(
    ("word", "held"),
    [
        ("10.0.0.9:1884", "10.0.0.9:1884"),
        ("[fd00::1]:1884", "fd00::1:1884"),
        ("fd00::1", None),  # whose last group is no port
        ("::1", None),
        ("[fd00::1]", None),
        ("h:0", None),
        ("h:" + "9" * 5000, None),
        ("mdns:1x", None),
    ],
)
def test_addresses_of_mediators(word: str, held: str | None) -> None:
    if held is None:
        with pytest.raises(UsageError):
            enrolment.mediator(word)
    else:
        assert enrolment.mediator(word) == held
