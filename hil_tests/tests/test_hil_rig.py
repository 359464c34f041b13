"""rig.toml and the command line: what is wrong is told with its place, and nothing is guessed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sealmq_hil.cli import entries, main, parser
from sealmq_hil.errors import RigError
from sealmq_hil.rig import Rig, load

EXAMPLE = Path(__file__).parents[1] / "rig.example.toml"
_BY_ID = "/dev/serial/by-id/usb-one"
GOOD = f"""\
[rig]
wifi = "wifi.json"
gateway = "192.168.1.10"
firmware = {{ esp32 = "fw.bin" }}
wifi_off = ["ap", "down"]
wifi_on = ["ap", "up"]
[[board]]
name = "one"
port = "{_BY_ID}"
power_off = ["hub", "off"]
power_on = ["hub", "on"]
[[board]]
name = "v"
port = "virtual"
bits = 32
"""


def written(tmp_path: Path, text: str, mode: int = 0o600) -> Path:
    wifi = tmp_path / "wifi.json"
    wifi.write_text("{}")
    wifi.chmod(mode)
    (tmp_path / "fw.bin").touch()
    file = tmp_path / "rig.toml"
    file.write_text(text)
    return file


def test_the_example_is_one_with_its_comments_taken_away(tmp_path: Path) -> None:
    assert [board.port for board in load(EXAMPLE).boards] == ["virtual", "virtual"]
    lines = [
        line.removeprefix("# ") if "=" in line or line.startswith("# [[") else line
        for line in EXAMPLE.read_text().splitlines()
    ]
    file = written(tmp_path, "\n".join(lines))
    for name in ("ESP32_GENERIC-v1.25.0.bin", "ESP32_GENERIC_C3-v1.25.0.bin"):
        (tmp_path / name).touch()
    rig = load(file)
    assert [board.kind for board in rig.boards] == [
        *("virtual", "virtual", "serial", "rfc2217", "rfc2217")
    ]
    assert rig.wifi_on
    assert rig.boards[2].power_off[0] == "uhubctl"


def test_a_rig(tmp_path: Path) -> None:
    rig = load(written(tmp_path, GOOD))
    assert (rig.boards[0].kind, rig.boards[1].bits) == ("serial", 32)
    assert rig.firmware == {"esp32": tmp_path / "fw.bin"}
    assert rig.wifi == tmp_path / "wifi.json"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("[rig]", "[rig", "at line 1"),
        ("bits = 32", 'bits = "32"', "board 2: bits is a text; a number was expected"),
        ("bits = 32", "bits = 16", "board v: bits is 16; 32 or 64"),
        ("bits = 32", "bit = 32", "board 2: bit is not known"),
        ("bits = 32", 'arch = "arm"', "board v: arch is 'arm'; x64 or x86"),
        ('name = "v"', 'name = "one"', "two boards have the name one"),
        ('name = "v"', 'name = "a b"', "the name 'a b' is not of letters"),
        ('name = "v"', "", "board 2 has no name"),
        ('port = "virtual"', f'port = "{_BY_ID}"', "two boards have the port"),
        (_BY_ID, "/dev/ttyUSB0", "board one: /dev/ttyUSB0 may be another board tomorrow"),
        (_BY_ID, "COM3", "board one: no port 'COM3'"),
        ('port = "virtual"', 'port = "virtual"\nchip = "esp8266"', "board v: no chip 'esp8266'"),
        ('power_on = ["hub", "on"]', "", "board one: power_off and power_on belong together"),
        ('["hub", "off"]', '"hub off"', "board 1: power_off is a text; a list was expected"),
        ('["hub", "off"]', '["hub", 1]', "board 1: power_off is no list of words"),
        ('wifi_on = ["ap", "up"]', "", "[rig]: wifi_off and wifi_on belong together"),
        ('esp32 = "fw.bin"', 'esp32 = "none.bin"', "[rig] firmware of esp32: there is no file"),
        ('esp32 = "fw.bin"', 'esp9 = "fw.bin"', "[rig] firmware: no chip 'esp9'"),
        ('"wifi.json"', '"no.json"', "no.json: No such file"),
        ("[rig]", "[rigs]", "the file: rigs is not known"),
        ('[[board]]\nname = "v"', '[board]\nname = "v"', "at line"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in GOOD
    with pytest.raises(RigError) as caught:
        load(written(tmp_path, GOOD.replace(old, new)))
    assert told in str(caught.value)


def test_a_wifi_file_for_all_to_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RigError, match="can be read by others"):
        load(written(tmp_path, GOOD, 0o644))


def asked(*words: str, rig: Rig | None = None) -> list[str]:
    """The names of the boards that a command line asks for."""
    args = parser().parse_args(["run", *words])
    return [board.name for board in entries(args, rig or Rig())]


def test_which_boards_are_meant(tmp_path: Path) -> None:
    rig = load(written(tmp_path, GOOD))
    assert asked() == ["virtual-1"]
    assert asked("--boards", "3") == ["virtual-1", "virtual-2", "virtual-3"]
    assert asked(rig=rig) == ["one", "v"]
    assert asked("--board", "v", rig=rig) == ["v"]
    assert asked("--board", _BY_ID, rig=rig) == ["one"]
    assert asked("--board", "virtual", "--board", "rfc2217://h:1") == ["virtual-1", "board-2"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "--board", "/dev/ttyUSB0"], "may be another board tomorrow"),
        (["run", "--board", "nobody"], "no port 'nobody'"),
        (["run", "--boards", "0"], "--boards 0"),
        (["run", "--board", _BY_ID, "--boards", "2"], "--boards counts virtual boards"),
        (["run", "--behaviour", "flush"], "no behaviour 'flush'"),
        (["run", "--cuts", "-1"], "--cuts -1"),
        (["run", "--rig", "/nowhere/rig.toml"], "/nowhere/rig.toml: No such file"),
        (["run", "--broker", "other"], "invalid choice: 'other'"),
        ([], "COMMAND"),
    ],
)
def test_a_wrong_command_line(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) in (1, 2)
    said = capsys.readouterr()
    assert told in said.err
    assert said.err.startswith("sealmq hil: ")
    assert not said.out


def test_the_list_is_for_people_and_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    people = capsys.readouterr().out
    assert main(["list", "--json"]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert all(row["name"] in people and row["text"] in people for row in rows)
    assert next(row for row in rows if row["name"] == "wifi-loss")["needs"] == ["wifi"]
