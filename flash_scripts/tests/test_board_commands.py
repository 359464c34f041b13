"""The command line: a table, texts, and errors that an operator can act on."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from board_things import command
from sealmq_board import cli

PACKAGE = Path(cli.__file__).parent


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_tells_what_it_does(name: str) -> None:
    parser = cli.parser_for(name, f"sealmq board {name}")
    text = parser.format_help()
    assert "examples:" in text
    assert f"sealmq board {name}" in parser.epilog if parser.epilog else False
    assert re.match(r"[a-z]|MicroPython", cli.load(name).HELP)
    for action in parser._actions:
        assert action.help, action.dest
    assert "--json" in parser._option_string_actions


def test_the_list_of_commands_has_each_and_none_twice() -> None:
    text = cli._help()
    for name in cli.COMMANDS:
        assert len(re.findall(rf"(?m)^  {name} ", text)) == 1
    assert len(set(cli.COMMANDS.values())) == len(cli.COMMANDS)


@pytest.mark.parametrize("name", ["build", "flash"])
def test_a_command_runs_by_itself(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"sealmq_board.{name}", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"usage: python -m sealmq_board.{name}" in done.stdout
    assert done.stderr == ""  # no RuntimeWarning of a module that is there twice


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["fly"], 2, "no such command: fly"),
        (["build", "-o", "x.board"], 2, "an enrolment is required"),
        (["build", "--enr", "x"], 2, "required"),  # options are not guessed
        (["build", "--enrolment", "/none", "-o", "x.board"], 1, "/none: No such file"),
        (["build", "--enrolment", "/none", "-o", "x"], 2, "ends in .board"),
        (["flash", "x.board", "--firmware", "f"], 2, "no board was named"),
        (["flash", "x", "--firmware", "f", "--port", "/dev/none"], 1, "no port /dev/none"),
        (["flash", "x", "--firmware", "f", "--port", "ftp://x"], 2, "socket://host:port"),
        (["flash", "x", "--firmware", "f", "--board", "nobody"], 1, "no board with the id nobody"),
        (["flash", "x", "--firmware", "f", "--port", "/dev/null", "--port", "/dev/null"], 2,
         "are the same board"),
        (["flash", "x", "y", "--firmware", "f", "--port", "/dev/null"], 2, "2 bundles and 1 b"),
        (["flash", "x", "--firmware", "f", "--port", "/dev/null"], 1, "x is no bundle"),
    ],
)  # fmt: skip
def test_errors_are_one_line_and_a_hint(
    words: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == code
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("sealmq board: ")
    assert text in lines[0]
    assert lines[1].startswith("hint: ")


def test_a_defect_is_called_one_and_shows_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(args: object) -> int:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(cli.load("list"), "run", breaks)
    assert cli.main(["list"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("sealmq board: internal error, ZeroDivisionError: a defect\nhint: ")
    assert "Traceback" not in said
    assert command("--help").stdout.startswith("usage: sealmq board COMMAND")
    assert command().returncode == 2


def test_the_package_never_imports_esptool() -> None:
    for path in PACKAGE.rglob("*.py"):
        assert not re.search(r"(?m)^\s*(import|from) esptool", path.read_text()), path
