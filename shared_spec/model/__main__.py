"""`cd shared_spec && python -m model`: exit code 0 when nothing was found, 1 for an attack."""

from __future__ import annotations

import argparse
import sys
import textwrap

from .catalogue import ASSUMED, DEFENCES, PADS, WORLDS, check


def _listed() -> None:
    for world in WORLDS:
        print(f"{world.name}: against {world.attacker}")
        for name, text in world.DEFENCES.items():
            print(f"  {name:26}{text}")
        for name, text in world.ASSUMED.items():
            print(f"  {name:26}assumed: {text}")


def _names(text: str) -> frozenset[str]:
    names = frozenset(text.split(","))
    unknown = names - set(DEFENCES) - set(ASSUMED)
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no defence is called {', '.join(sorted(unknown))}; --list shows them all"
        )
    return names


def main(argv: list[str] | None = None) -> int:
    """Searches and prints; see the README."""
    parser = argparse.ArgumentParser(prog="python -m model", description=__doc__)
    parser.add_argument("--pad", choices=PADS, default="ours", help="of the derivation value z")
    parser.add_argument(
        "--without", type=_names, default=frozenset(), metavar="DEFENCE[,DEFENCE]",
        help="take a defence out of the protocol",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="show all defences, and stop")
    parser.add_argument("--full", action="store_true", help="longer sessions; takes minutes")
    options = parser.parse_args(argv)
    if options.list:
        _listed()
        return 0
    states = 0
    for outcome in check(options.without, options.pad, options.full):
        states += outcome.states
        found = f"attack: {outcome.broken}" if outcome.broken else "nothing found"
        print(f"{outcome.world:14}{outcome.states:9,} states  {found}", flush=True)
        if outcome.broken:
            for number, line in enumerate(outcome.trace, 1):
                print(
                    textwrap.fill(
                        line, 98, initial_indent=f"  {number:2}. ", subsequent_indent=" " * 6
                    )
                )
            print(f"model: {states:,} states, an attack found")
            return 1
    print(f"model: {states:,} states, nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
