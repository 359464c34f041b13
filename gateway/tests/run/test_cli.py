"""The command table: every command exists, is documented with examples, and fails in one line."""

from __future__ import annotations

import argparse
import importlib.util
import io
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sealmq import __version__
from sealmq.cli import main as cli
from sealmq.cli.errors import OperatorError


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Every parser below (and without) this one, commands of commands included."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for made in action.choices.values():
                yield made
                yield from parsers(made)


def sealmq(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sealmq.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, check=False)


@pytest.mark.parametrize("name", cli.commands())
def test_every_command_of_the_table_exists(name: str) -> None:
    command = cli.load(name)
    assert callable(command.add)
    assert callable(command.run)


@pytest.mark.parametrize("name", cli.commands())
def test_every_command_is_documented_with_examples(name: str) -> None:
    parser = cli.build([name])
    found = list(parsers(parser))
    assert found, f"{name} adds no parser"
    for made in found:
        text = made.format_help()
        assert "examples:" in text, f"no examples in: {made.prog} --help"
        assert made.prog in text.partition("examples:")[2], f"no own example: {made.prog} --help"
        for action in made._actions:
            if isinstance(action, argparse._SubParsersAction):
                continue  # its commands have a help each
            assert action.help, f"{made.prog}: {action.dest} has no help"


@pytest.mark.parametrize("name", cli.commands())
def test_the_table_of_the_help_says_what_each_command_does(name: str) -> None:
    parser = cli.build()
    [sub] = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    told = {a.dest: a.help for a in sub._choices_actions}
    assert told.get(name), f"{name} gives no help= to add_parser"


@pytest.mark.parametrize(
    ("words", "missing", "error", "hint"),
    [
        (["board", "build"], "littlefs", "the extra flash", "make install EXTRAS=flash"),
        (["board", "flash"], "esptool", "the extra flash", "make install EXTRAS=flash"),
        (["vboard", "new"], "serial", "the extra flash", "make install EXTRAS=flash"),
        (["hil", "list"], "mpremote", "the extra flash", "make install EXTRAS=flash"),
        (["report", "x"], "pyspark", "the extra spark", "make install EXTRAS=spark"),
        (["vboard", "new"], "sealmq_vboard", "not in an installed gateway", "make setup"),
        (["hil", "list"], "sealmq_hil", "not in an installed gateway", "make setup"),
    ],
)
def test_a_command_whose_extra_is_missing_says_which(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    missing: str,
    error: str,
    hint: str,
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == missing else find(name)
    )
    assert cli.main(words) == 1
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith(f"sealmq: sealmq {words[0]} ")
    assert error in told[0]
    assert told[1].startswith("hint: ")
    assert hint in told[1]


def test_version() -> None:
    done = sealmq("--version")
    assert (done.returncode, done.stdout) == (0, f"sealmq {__version__}\n")


@pytest.mark.parametrize(
    "words", [[], ["fly"], ["status"], ["status", "x", "--wings"], ["status", "x", "--js"]]
)
def test_wrong_usage_is_one_line_a_hint_and_exit_code_2(words: list[str]) -> None:
    done = sealmq(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    first, hint, *more = done.stderr.splitlines()
    assert first.startswith("sealmq: ")
    assert hint.startswith("hint: sealmq")
    assert not more


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """A command `init` that raises what the test puts into the list."""
    errors: list[BaseException] = []

    class Fails:
        def add(self, sub: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
            sub.add_parser("init", help="fails")

        def run(self, args: argparse.Namespace) -> int:
            raise errors[0]

    monkeypatch.setattr(cli, "load", lambda name: Fails())
    return errors


class Expected(Exception):
    """An error of some part of the gateway, as the command line knows it: by its hint."""

    hint = "do better"


@pytest.mark.parametrize(
    ("error", "code", "lines"),
    [
        (
            OperatorError("no such client 'm3'", "one of: m1, m2", hint="sealmq client list SITE"),
            1,
            ["sealmq: no such client 'm3'; one of: m1, m2", "hint: sealmq client list SITE"],
        ),
        (OperatorError("timed out", code=27), 27, ["sealmq: timed out"]),
        (Expected("two\nlines"), 1, ["sealmq: two lines", "hint: do better"]),
        (
            FileNotFoundError(2, "No such file or directory", "/nowhere"),
            1,
            [
                "sealmq: /nowhere: No such file or directory",
                "hint: check the path",
            ],
        ),
        (
            ValueError("oops"),
            1,
            [
                "sealmq: internal error, ValueError: oops",
                "hint: this is a defect of SealMQ; SEALMQ_DEBUG=1 shows where it happened",
            ],
        ),
        (KeyboardInterrupt(), 130, []),
    ],
)
def test_an_error_is_told_without_a_traceback(
    failing: list[BaseException],
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    lines: list[str],
) -> None:
    failing.append(error)
    assert cli.main(["init"]) == code
    assert capsys.readouterr().err.splitlines() == lines


def test_debug_shows_the_traceback(
    failing: list[BaseException],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SEALMQ_DEBUG", "1")
    failing.append(ValueError("oops"))
    assert cli.main(["init"]) == 1
    assert "Traceback" in capsys.readouterr().err


# What has no --json, and why stands in README.md.
WITHOUT_JSON = {"sealmq agent", "sealmq completion", "sealmq manual"}


def test_every_command_has_json_or_a_row_that_says_why_not() -> None:
    """The programs beside us (board, hil, vboard, report) have tests of their own."""
    without = set()
    for parser in parsers(cli.build()):
        groups = any(isinstance(a, argparse._SubParsersAction) for a in parser._actions)
        if parser.add_help and not groups and "--json" not in parser._option_string_actions:
            without.add(parser.prog)
    assert without == WITHOUT_JSON
    page = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    table = page.partition("## For scripts\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z ]+)` \|", table, re.MULTILINE)
    assert WITHOUT_JSON == {f"sealmq {row}" for row in rows} - {"sealmq vboard ctl"}


def test_every_command_has_a_manual_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["manual", "--into", str(tmp_path)]) == 0
    wanted = {parser.prog.replace(" ", "-") for parser in parsers(cli.build()) if parser.add_help}
    assert {file.stem for file in tmp_path.iterdir()} == wanted | {"sealmq"}
    for file in tmp_path.iterdir():
        page = file.read_text(encoding="utf-8")
        for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "EXAMPLES"):
            assert page.count(f".SH {section}\n") == 1, file.name
    page = (tmp_path / "sealmq-pub.1").read_text()
    assert "\\fB\\-\\-retain\\fR" in page
    assert "sealmq pub factory \\-\\-client m1\\-temp\\-sensor" in page
    capsys.readouterr()
    assert cli.main(["manual", "pub"]) == 0
    assert capsys.readouterr().out == page
    assert cli.main(["manual", "fly"]) == 2


@pytest.fixture(scope="module")
def completing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("completion") / "sealmq"
    file.write_text(sealmq("completion", "bash").stdout)
    return file


@pytest.mark.parametrize(
    ("typed", "offers"),
    [
        ("pu", "pub"),
        ("client a", "add"),
        ("client add --seal", "--seal-to"),
        ("sub --enr", "--enrolment"),
    ],
)
def test_bash_completes_commands_and_options(typed: str, offers: str, completing: Path) -> None:
    words = ["sealmq", *typed.split()]
    script = (
        f". {completing}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; "
        "$(complete -p sealmq | sed 's/.* -F \\([^ ]*\\).*/\\1/') sealmq; echo ${COMPREPLY[@]}"
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert offers in done.stdout.split()


def test_the_page_has_each_exit_code_that_a_help_names() -> None:
    """In a table; and a number that no help has any more is taken out of it."""
    page = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    table = page.partition("## Exit codes\n")[2].partition("\n## ")[0]
    rows = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    told = "\n".join(parser.epilog or "" for parser in parsers(cli.build()))
    named = set()
    for text in re.findall(r"(?:E|e)xit codes?:? .*(?:\n.+)*", told):
        named |= {int(code) for code in re.findall(r"(?:^|[:;,] |codes? )(\d{1,3})[ :]", text)}
    assert named >= {0, 1, 2, 3, 12, 27, 130}
    # 4 is a board's, whose commands are a program of their own.
    assert rows == named | {4}


def test_without_stdout_a_command_does_its_work(tmp_path: Path) -> None:
    """As dpkg may start it; it was an internal error."""
    words = (
        f"exec {sys.executable} -m sealmq.cli init {tmp_path}/site --key-file {tmp_path}/key >&-"
    )
    done = subprocess.run(["sh", "-c", words], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "site/sealmq.toml").exists()


@pytest.mark.parametrize("name", ["küche", "k\udcffche"])
def test_a_name_that_a_terminal_has_no_letters_for_is_shown_escaped(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / name
    site.mkdir()
    (site / "sealmq.toml").touch()
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8" if "\udcff" in name else "ascii")
    monkeypatch.setattr(sys, "stdout", out)
    assert cli.main(["down", str(site)]) == 0
    shown = name.encode("ascii", "backslashreplace").decode()
    assert out.buffer.getvalue().decode().endswith(f"/{shown} was not up\n")
