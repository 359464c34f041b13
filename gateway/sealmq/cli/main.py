"""`sealmq`: the command table, and the one place where errors become exit codes.

A command `a-b` is the module `sealmq.cli.a_b`, or what a policy family's manifest names for it: it
has `add(sub)`, which adds its parser, and `run(args) -> int`, which returns the exit code. Only the
module of the command that was asked for is imported, so that `sealmq pub` does not load a broker.
"""

from __future__ import annotations

import argparse
import importlib
import io
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NoReturn, cast

from sealmq import __version__
from sealmq.families import registry
from sealmq.families.api import FamilyError, UnfitFamily
from sealmq.families.faults import of_family
from sealmq.families.manifest import Command

from . import beside
from .errors import UsageError, report

_GENERAL = (
    "init",
    "up",
    "down",
    "reload",
    "log",
    "audit",
    "status",
    "doctor",
    "broker",
    "client",
    "peer",
    "border",
    "rekey",
    "backup",
    "restore",
    "reopen",
    "policy",
    "topic",
    "attribute",
    "explain",
    "pub",
    "sub",
    "find",
    "agent",
    "bench",
    "system-users",
    "completion",
    "manual",
)

_EXAMPLES = """\
examples:
  sealmq init factory --example factory    a site folder with a commented sealmq.toml
  sealmq up factory --detach               key generator, broker and mediator, in the background
  sealmq status factory                    are all three ready?
  sealmq sub factory --client monitor -t 'machine/+/temperature' --purpose service -v
  sealmq pub factory --client m1-temp-sensor -t machine/1/temperature -m 21.5

Each command tells more: sealmq COMMAND --help
"""


class Parser(argparse.ArgumentParser):
    """argparse with our error handler, texts kept as written, and no guessing of options.

    short_help: whether -h is the help, as --help is.
    """

    def __init__(self, *args: Any, short_help: bool = True, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        kwargs.setdefault("allow_abbrev", False)
        if not short_help:
            kwargs["add_help"] = False
        super().__init__(*args, **kwargs)
        if not short_help:
            self.add_help = True
            self.add_argument("--help", action="help", help="show this help message and exit")
        # Whether words of a list may stand before and after options, as in `SITE --json NAME`.
        self.intermixed = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """As argparse does it; where wanted, with options between the words."""
        if not self.intermixed:
            return super().parse_known_args(args, namespace)
        self.intermixed = False  # it comes back here for each half of the work
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self.intermixed = True

    def error(self, message: str) -> NoReturn:
        hints = [f"{self.prog} --help"]
        if message.endswith("expected one argument"):
            option = message.removeprefix("argument ").partition(":")[0].partition("/")[0]
            hints.append(f"one that begins with -: {option}=-...")
        raise _wrong_words(message, *hints)


# A word may be a broken family's.
def _wrong_words(what: str, *hints: str) -> UsageError:
    return UsageError(what, hint="\n".join([*hints, *map(str, registry.broken())]))


def commands() -> dict[str, Callable[[], Command]]:
    """The table, and how each is loaded: the general ones, then those of the policy families."""
    return _table()[0]


def _table() -> tuple[dict[str, Callable[[], Command]], list[FamilyError]]:
    """`commands`, and the families that have the word of another."""
    table: dict[str, Callable[[], Command]] = {name: partial(_general, name) for name in _GENERAL}
    second: list[FamilyError] = []
    for manifest in registry.manifests():
        for name, ref in manifest.commands.items():
            if name not in table and name not in beside.PROGRAMS:
                table[name] = partial(manifest.load, ref)
                continue
            text = f"the policy family {manifest.name!r} has a second command {name!r}"
            hint = "give it another word in `commands` of its manifest"
            second.append(UnfitFamily(manifest.name, text, hint))
    return table, second


def _general(name: str) -> Command:
    return cast(Command, importlib.import_module(f"{__package__}.{name.replace('-', '_')}"))


def load(name: str) -> Command:
    """A command of the table."""
    return _general(name) if name in _GENERAL else commands()[name]()


def build(names: Iterable[str] = ()) -> Parser:
    """The parser with these commands (all of them for the help)."""
    parser = Parser(
        prog="sealmq",
        description="MQTT for fleets of small devices: the broker sees ciphertext, topics carry "
        "labels, readers open what they may.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("--version", action="version", version=f"sealmq {__version__}")
    sub = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    if names:
        for name in names:
            _add(sub, name)
        return parser
    beside.add(sub)
    table, left_out = _table()
    for name in table:
        try:
            _add(sub, name)
        except Exception as error:  # one family that is broken does not take the help of the rest
            if (fault := of_family(error)) is None:
                raise
            left_out.append(fault)
    lines = [f"left out: {fault}\n" for fault in (*registry.broken(), *left_out)]
    parser.epilog = "\n".join([_EXAMPLES, *lines])
    return parser


def _add(sub: argparse._SubParsersAction[Any], name: str) -> None:
    command = load(name)
    command.add(sub)
    parser_of(sub, name).set_defaults(_run=command.run)


def parser_of(sub: argparse._SubParsersAction[Any], name: str) -> argparse.ArgumentParser:
    """The parser that `add` has made for the command."""
    made = sub.choices.get(name)
    if made is None:
        raise RuntimeError(f"the module of the command {name!r} did not add it")
    return cast(argparse.ArgumentParser, made)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; every error ends here."""
    words = list(sys.argv[1:] if argv is None else argv)
    _show_what_it_cannot()
    try:
        if words and words[0] in beside.PROGRAMS:
            beside.run(words[0], words[1:])
        known = words and (words[0] in _GENERAL or words[0] in commands())
        args, left = build(words[:1] if known else ()).parse_known_args(words)
        if left:
            what = f"unrecognized arguments: {' '.join(left)}"
            raise _wrong_words(what, f"sealmq {args.command} --help")
        run = cast(Callable[[argparse.Namespace], int], args._run)
        code = run(args)
        if sys.stdout is not None:  # a package's script may have none
            sys.stdout.flush()
    except SystemExit:  # argparse, after --help and --version
        raise
    except BaseException as error:  # one handler: no traceback ever reaches an operator
        return report(error)
    return code


# A name that a terminal's encoding has no letters for, or that is no text, as a folder's may be.
def _show_what_it_cannot() -> None:
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    sys.exit(main())
