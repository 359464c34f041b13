"""`sealmq manual`: the manual pages, made from the parsers by argparse-manpage."""

from __future__ import annotations

import argparse
import datetime
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sealmq import __version__

from .errors import UsageError

_EXAMPLES = """\
examples:
  sealmq manual client add | man -l -               read one
  sudo sealmq manual --into /usr/local/share/man/man1    all of them, for `man sealmq-pub`
"""


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """Add the parser."""
    parser = sub.add_parser(
        "manual",
        help="the manual pages of the commands",
        description="Print a command's manual page, or write all of them.",
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "name", metavar="COMMAND", nargs="*", help="the command's words; none: sealmq's own page"
    )
    parser.add_argument("--into", metavar="DIR", type=Path, help="write all pages into this folder")


def run(args: argparse.Namespace) -> int:
    """Print one, or write all."""
    pages = _pages()
    if args.into is None:
        name = " ".join(args.name)
        if name not in pages:
            raise UsageError(f"no such command: {name}", hint="sealmq --help")
        print(pages[name], end="")
        return 0
    args.into.mkdir(parents=True, exist_ok=True)
    for name, page in pages.items():
        (args.into / f"{_file(f'sealmq {name}'.strip())}.1").write_text(page, encoding="utf-8")
    print(f"{len(pages)} pages in {args.into}")
    return 0


def _pages() -> dict[str, str]:
    """The text in man(7) of each command's page, by its words (`client add`; "": sealmq)."""
    from .main import build

    found = dict(_below(build(), "MQTT for fleets of small devices, safe to share"))
    return {name.removeprefix("sealmq").lstrip(): page for name, page in found.items()}


def _below(parser: argparse.ArgumentParser, told: str) -> Iterator[tuple[str, str]]:
    """The page of a parser and those of the commands in it, by its `prog`."""
    subs = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not subs:
        yield parser.prog, _page(parser, told)
        return
    [sub] = subs
    helps = {action.dest: action.help or "" for action in sub._choices_actions}
    # What the programs of their own take, each says itself: sealmq board --help.
    own = {name: made for name, made in sub.choices.items() if made.add_help}
    # Each command has a page, so the list here is a line for each.
    brief = argparse.ArgumentParser(
        prog=parser.prog,
        usage=f"{parser.prog} COMMAND ...",
        description=parser.description,
        epilog=parser.epilog,
        add_help=False,
    )
    wide = max(map(len, helps)) + 2
    listed = "\n".join(f"{name:<{wide}}{text}" for name, text in helps.items())
    see = ", ".join(f"{_file(made.prog)}(1)" for made in own.values())
    yield parser.prog, _page(brief, told, {"commands": _as_it_stands(listed), "see also": see})
    for name, made in own.items():
        yield from _below(made, helps[name])


def _file(prog: str) -> str:
    return prog.replace(" ", "-")


def _page(parser: argparse.ArgumentParser, told: str, more: dict[str, str] | None = None) -> str:
    from argparse_manpage.manpage import Manpage

    if parser.description is None:
        parser.description = told[:1].upper() + told[1:] + "."
    examples, parser.epilog = parser.epilog, None
    page = Manpage(parser)
    page.prog = _file(parser.prog)
    page.source, page.manual = f"SealMQ {__version__}", "SealMQ"
    page.description = told
    page.date = _day()
    for heading, text in (more or {}).items():
        page.add_section(heading, "=", text)
    if examples:
        page.add_section("examples", "=", _as_it_stands(examples.removeprefix("examples:\n")))
    return str(page)


def _as_it_stands(text: str) -> str:
    """Lines that are not filled: tables, commands."""
    lines = text.strip("\n").replace("\\", "\\e").replace("-", "\\-").split("\n")
    # A line that begins with a dot or an apostrophe would be a request of roff's.
    return "\n".join([".nf", *(f"\\&{ln}" if ln[:1] in (".", "'") else ln for ln in lines), ".fi"])


def _day() -> str:
    """Of SOURCE_DATE_EPOCH where a package is built, so that it is the same each time."""
    at = os.environ.get("SOURCE_DATE_EPOCH")
    made = datetime.datetime.fromtimestamp(int(at) if at else time.time(), datetime.UTC)
    return made.date().isoformat()
