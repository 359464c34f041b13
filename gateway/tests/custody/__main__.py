"""The exploration as a command; see the package."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys

from .catalogue import DEFENCES, LARGE, WORLDS
from .search import Outcome, search
from .world import Bounds


def main(argv: list[str] | None = None) -> int:
    """0: everything held; 1: something is found, printed step by step; 2: no such name."""
    parser = argparse.ArgumentParser(prog="python -m custody")
    parser.add_argument("world", nargs="*", help="worlds to explore; default: all")
    parser.add_argument("--full", action="store_true", help="the large worlds, too")
    parser.add_argument("--without", metavar="DEFENCE", help="take one defence out of the code")
    parser.add_argument("--list", action="store_true", help="name worlds and defences")
    asked = parser.parse_args(argv)
    known = {**WORLDS, **LARGE}
    for name in asked.world:
        if name not in known:
            parser.error(f"no world is called {name}; --list names them")
    if asked.without and asked.without not in DEFENCES:
        parser.error(f"no defence is called {asked.without}; --list names them")
    if asked.list:
        for name, bounds in known.items():
            print(f"{name:16} {_said(bounds)}")
        for name, defence in DEFENCES.items():
            print(f"{name:16} {defence.text}")
        return 0
    if asked.without:
        defence = DEFENCES[asked.without]
        with defence.out():
            return _show(asked.without, search(defence.world))
    names = asked.world or list(known if asked.full else WORLDS)
    return max([_show(name, search(known[name])) for name in names])


def _said(bounds: Bounds) -> str:
    readers = ", ".join(f"{name} reader at QoS {qos}" for name, qos in bounds.readers.items())
    falls = ", ".join(bounds.crashes) or "nobody"
    return f"messages of QoS {bounds.messages}; {readers}; {bounds.falls} falls of: {falls}"


def _show(name: str, outcome: Outcome) -> int:
    print(f"{name}: {outcome.states} states, {outcome.steps} steps", flush=True)
    if not outcome.bad:
        return 0
    print(f"  {outcome.bad}:")
    for step in outcome.trace:
        print(f"    {step}")
    return 1


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
