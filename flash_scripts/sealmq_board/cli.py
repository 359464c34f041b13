"""`sealmq board`: the command table, and the one place where errors become exit codes.

A command is a module of this package with HELP and EXAMPLES (texts), `arguments(parser)`, and
`run(args) -> int`, the exit code. Each also runs by itself: `python -m sealmq_board.build ...`, by
`alone(__spec__)` at its end. Only the module of the command that was asked for is imported.
"""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NoReturn, Protocol, cast

from .errors import Terminated, UsageError, report

# Command: its module, in the order in which somebody with a new board needs them.
COMMANDS = {
    "build": "build",
    "list": "list",
    "flash": "flash",
    "provision": "provision",
    "info": "info",
    "logs": "logs",
    "reset": "reset",
    "update": "update",
    "wipe": "wipe",
}

_EXAMPLES = """\
examples:
  sealmq board build --enrolment m1.sealmq.json --wifi wifi.json -o m1.board
  sealmq board list
  sealmq board flash m1.board --board 0001 --firmware ESP32_GENERIC.bin

Each command tells more: sealmq board COMMAND --help
"""


class Command(Protocol):
    """What every command module offers."""

    HELP: str
    EXAMPLES: str

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add its arguments to the parser."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it; return the exit code."""


class Parser(argparse.ArgumentParser):
    """argparse with our error handler, texts kept as written, and no guessing of options."""

    def __init__(self, prog: str, description: str, epilog: str) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=f"{self.prog} --help")


def load(name: str) -> Command:
    """The module of a command of the table."""
    return cast(Command, importlib.import_module(f"sealmq_board.{COMMANDS[name]}"))


def parser_for(name: str, prog: str) -> Parser:
    """The parser of one command."""
    command = load(name)
    parser = Parser(prog, command.HELP[:1].upper() + command.HELP[1:] + ".", command.EXAMPLES)
    command.arguments(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command of the table; return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    return _caught(lambda: _run(words))


def alone(module: str) -> NoReturn:
    """A command's module as a program of its own; `module` is its __spec__.name."""
    name = next(name for name, file in COMMANDS.items() if file == module.rpartition(".")[2])
    raise SystemExit(_caught(lambda: _command(name, f"python -m {module}", sys.argv[1:])))


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(_help(), end="")
        return 0 if words else 2
    name = words[0]
    if name not in COMMANDS:
        what = "option" if name.startswith("-") else "command"
        raise UsageError(
            f"no such {what}: {name}", f"there is {', '.join(COMMANDS)}", hint="sealmq board --help"
        )
    return _command(name, f"sealmq board {name}", words[1:])


def _command(name: str, prog: str, words: Sequence[str]) -> int:
    return load(name).run(parser_for(name, prog).parse_args(words))


def _help() -> str:
    lines = [f"  {name:<11}{load(name).HELP}" for name in COMMANDS]
    return (
        "usage: sealmq board COMMAND ...\n\nFrom the box to the first sealed reading: boards for "
        "a site.\n\ncommands:\n" + "\n".join(lines) + "\n\n" + _EXAMPLES
    )


# Runs it; whatever it raises becomes an exit code, and a SIGTERM is cleaned up after like Ctrl-C.
def _caught(job: Callable[[], int]) -> int:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        for number in before:
            signal.signal(number, _terminate)
        code = job()
        sys.stdout.flush()
        return code
    except SystemExit as exit_:  # argparse: --help
        return exit_.code if isinstance(exit_.code, int) else 1
    except BaseException as error:
        return report(error)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated
