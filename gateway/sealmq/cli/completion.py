"""`sealmq completion SHELL`: what bash or zsh completes, made from the parser by shtab."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

_EXAMPLES = """\
examples:
  source <(sealmq completion bash)     in this shell
  sealmq completion bash > ~/.local/share/bash-completion/completions/sealmq
  sealmq completion zsh > ~/.zfunc/_sealmq     in a folder that $fpath names
"""
# What a word of this name is: shtab completes paths where it is told so.
_PATHS = {
    "FILE": "FILE",
    "PATH": "FILE",
    "SITE": "DIRECTORY",
    "FOLDER": "DIRECTORY",
    "DIR": "DIRECTORY",
}


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """Add the parser."""
    parser = sub.add_parser(
        "completion",
        help="what a shell completes",
        description="Print the script by which a shell completes sealmq's words.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh"), help="bash or zsh")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    import shtab

    from .main import build

    parser = build()
    for action in _actions(parser):
        kind = _PATHS.get(str(action.metavar))
        if kind is not None:
            action.complete = getattr(shtab, kind)  # type: ignore[attr-defined]
    print(shtab.complete(parser, args.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for made in action.choices.values():
                yield from _actions(made)
        else:
            yield action
