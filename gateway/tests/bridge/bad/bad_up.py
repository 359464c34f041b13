"""`sealmq up` with a bridge that turns bad: python bad_up.py SITE."""

from __future__ import annotations

import functools
import sys

from sealmq.cli import up as command
from sealmq.cli.main import Parser
from sealmq.run import up


def main() -> int:
    parser = Parser(prog="sealmq")
    command.add(parser.add_subparsers())
    modules = {**up.MODULES, "bridge": "bridge.bad.bad_bridge"}
    up.bring_up = functools.partial(up.bring_up, modules=modules)
    return command.run(parser.parse_args(["up", *sys.argv[1:]]))


if __name__ == "__main__":
    sys.exit(main())
