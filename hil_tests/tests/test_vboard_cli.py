"""`sealmq vboard new, run, firmware` as programs: what they print, refuse and leave behind."""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sealmq_vboard
from sealmq_hil import cli as hil_cli
from sealmq_vboard import cli as vboard_cli
from sealmq_vboard.cli import main
from sealmq_vboard.limits import NOT_MODELLED
from vboard_tools import esptool


def test_new_makes_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wifi = tmp_path / "wifi.json"
    wifi.write_text('{"ssid": "shed", "key": "not secret at all"}')
    words = ["new", str(tmp_path / "b"), "--chip", "esp32c3", "--bits", "32", "--wifi", str(wifi)]
    assert main([*words, "--mac", "02:0A:00:00:00:01", "--firmware"]) == 0
    found = json.loads((tmp_path / "b" / "board.json").read_text())
    assert (found["chip"], found["bits"], found["mac"]) == ("esp32c3", 32, "02:0a:00:00:00:01")
    assert found["wifi"] == [{"ssid": "shed", "key": "not secret at all"}]
    assert (tmp_path / "b" / "board.json").stat().st_mode & 0o777 == 0o600
    flash = (tmp_path / "b" / "flash.bin").read_bytes()
    assert len(flash) == 4 << 20
    assert flash[0] == 0xE9
    assert "esp32c3, 02:0a:00:00:00:01, 32-bit" in capsys.readouterr().out
    assert main(words) == 1
    assert "has a board already\nhint: " in capsys.readouterr().err


def test_json_says_what_was_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", str(tmp_path / "b"), "--mac", "02:0a:00:00:00:01", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "folder": str(tmp_path / "b"), "chip": "esp32", "mac": "02:0a:00:00:00:01", "bits": 64
    }  # fmt: skip
    file = tmp_path / "stand-in.bin"
    assert main(["firmware", str(file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"file": str(file), "chip": "esp32", "offset": 0x1000}


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    subs = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not subs:
        yield parser
    for sub in subs:
        for made in sub.choices.values():
            yield from commands(made)


@pytest.mark.parametrize("parser", [vboard_cli._parser(), hil_cli.parser()])
def test_every_command_has_json(parser: argparse.ArgumentParser) -> None:
    """But the switches of `vboard ctl`, which print nothing."""
    without = [
        made.prog
        for made in commands(parser)
        if "--json" not in made._option_string_actions
        and (" ctl " not in made.prog or made.prog.endswith(" status"))
    ]
    assert without == []


@pytest.mark.parametrize("mac", ["02:00:00:00:00", "03:00:00:00:00:00", "none"])
def test_a_mac_that_is_none(tmp_path: Path, mac: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", str(tmp_path / "b"), "--mac", mac]) == 1
    assert capsys.readouterr().err.startswith("sealmq vboard: MAC ")
    assert not (tmp_path / "b" / "flash.bin").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [(None, "holds no board"), ("{", "cannot be read"), ('{"format": 9}', "of this version")],
)
def test_run_refuses_what_is_no_board(
    tmp_path: Path, text: str | None, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / "board.json").write_text(text)
    assert main(["run", str(tmp_path)]) == 1
    assert says in capsys.readouterr().err


def test_the_help_says_what_it_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    for line in NOT_MODELLED:
        assert line in said


def test_the_stand_in_says_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "stand-in.bin"
    assert main(["firmware", str(file), "--chip", "esp32s3", "--size", "300000"]) == 0
    assert "none of Espressif's" in capsys.readouterr().out
    assert 300_000 <= file.stat().st_size < 304_000
    app = tmp_path / "app.bin"
    app.write_bytes(file.read_bytes()[0x10000:])
    for part in (file, app):
        done = subprocess.run(
            [sys.executable, "-m", "esptool", "image-info", str(part)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        assert "sealmq vboard stand-in" in done.stdout
        assert "Detected image type: ESP32-S3" in done.stdout
        assert done.stdout.count("(valid)") == 2
    assert main(["firmware", str(file), "--size", "3000000"]) == 2


def test_run_prints_its_ports_and_stops_when_told(tmp_path: Path) -> None:
    folder = tmp_path / "b"
    assert main(["new", str(folder)]) == 0
    words = ["run", str(folder), "--pty", "--tcp", "0", "--rfc2217", "0", "--download"]
    with subprocess.Popen(
        [sys.executable, "-m", "sealmq_vboard", *words], stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        lines = [run.stdout.readline().split() for _ in range(4)]
        assert [line[0] for line in lines] == ["pty", "tcp", "rfc2217", "ready"]
        assert lines[1][1].startswith("socket://127.0.0.1:")
        assert lines[2][1].startswith("rfc2217://127.0.0.1:")
        assert "Detecting chip type... ESP32" in esptool(lines[0][1], "--no-stub", "chip-id")
        run.send_signal(signal.SIGTERM)
        assert run.wait(60) == 0
    with subprocess.Popen(
        [sys.executable, "-m", "sealmq_vboard", *words, "--json"], stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        assert set(json.loads(run.stdout.readline())) == {"pty", "tcp", "rfc2217"}
        run.send_signal(signal.SIGTERM)
        assert run.wait(60) == 0


@pytest.mark.full
def test_the_readme_s_first_lines(tmp_path: Path) -> None:
    """Line by line in one shell, as it stands there; but on any free port."""
    text = (Path(sealmq_vboard.__file__).parent / "README.md").read_text(encoding="utf-8")
    block = text.split("```console\n")[1].split("```")[0]
    lines = [line[2:] for line in block.splitlines()]
    script = "\n".join(["set -euo pipefail", "trap 'kill %1; wait' EXIT", *lines])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    done = subprocess.run(
        ["bash", "-c", script.replace("4000", str(port))],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    for said in ("ready\n", "MAC:  ", "virtual board", "Detected flash size: 4MB", "not modelled:"):
        assert said in done.stdout
