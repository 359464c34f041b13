"""`sealmq up` with fake key generator and mediator: python fake_up.py SITE [OPTIONS]."""

from __future__ import annotations

import functools
import json
import os
import sys

from sealmq.cli import up as command
from sealmq.cli.errors import report
from sealmq.cli.main import Parser
from sealmq.run import brokers, roles, up
from sealmq.site import masterkey

FAKES = {**up.MODULES, **{role: f"run.fakes.fake_{role}" for role in ("kg", "mediator")}}


def main() -> int:
    # Shorter times, for tests that have to wait for them.
    for name, value in json.loads(os.environ.get("FAKE_TIMES", "{}")).items():
        setattr(roles if hasattr(roles, name) else brokers, name, value)
    # scrypt is to cost a fifth of a second; these keys open nothing.
    masterkey._N = 1 << 10
    parser = Parser(prog="sealmq")
    command.add(parser.add_subparsers())
    up.bring_up = functools.partial(up.bring_up, modules=FAKES)
    try:
        return command.run(parser.parse_args(["up", *sys.argv[1:]]))
    except Exception as error:
        return report(error)


if __name__ == "__main__":
    sys.exit(main())
