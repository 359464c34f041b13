"""`sealmq bench agent`: what a message costs an agent that takes it in from a plain client, and one
that gives it out to one, beside a Mosquitto at each place that has a bridge over TLS 1.3.

What is between them (a site with its broker; a Mosquitto) is not counted, nor are the clients.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

from agent_pairs import Agents, Bridges, Cost, Ends
from bench_beside import OURS, SIZES, THEIRS, in_turns, rows_of, run_by, with_load
from bench_command import Command
from bench_print import Row

from bench_form import aligned

COMMAND = Command(
    "agent",
    "sealmq bench agent",
    "Measure what a message costs an agent, beside a Mosquitto with a bridge over TLS 1.3.",
    "",
    {},
    {"pairs": "how many rounds count, both in turns in each (default: 6)"},
    barred=True,
    ours=True,
)
BAR = 2.0
_WAYS = {"out": "taken in from a client, and sent on", "in": "come from afar, and given out"}


def measured(quick: bool, pairs: int) -> list[Row]:
    """Both in turns in each round, each size by itself."""
    sizes, many = ((64,), 100) if quick else (SIZES, 1000)
    ways: dict[str, type[Ends]] = {OURS: Agents, THEIRS: Bridges}
    taken = in_turns(ways, sizes, pairs, lambda ends, size: ends.cost(many, size))
    rows = []
    for at, way in enumerate(_WAYS):
        us = partial(_us, at, many)
        rows += rows_of(taken, us, f"message_{way}", f"ratio_{way}")
    return with_load(rows)


def _us(at: int, many: int, cost: Cost) -> float:
    return cost[at] / many / 1000


def missed(rows: Sequence[Row]) -> list[str]:
    """The bars that they miss."""
    return [
        f"a message {_WAYS[way]}: {one['value']:.3g} times Mosquitto's CPU at {one['size']} B, "
        f"at most {BAR:g}"
        for way in _WAYS
        for one in rows
        if one["measure"] == f"ratio_{way}" and one["value"] > BAR
    ]


def table(rows: Sequence[Row]) -> str:
    """For people: a line for each way and size."""
    by = {(one["measure"], one["variant"], one["size"]): one["value"] for one in rows}
    body = []
    for way, words in _WAYS.items():
        for size in sorted({one["size"] for one in rows}):
            ours, theirs = (by[f"message_{way}", variant, size] for variant in (OURS, THEIRS))
            ratio = by[f"ratio_{way}", OURS, size]
            body.append([words, f"{size:,}", f"{ours:.0f}", f"{theirs:.0f}", f"{ratio:.1f}"])
    return aligned(["a message", "bytes", "agent, us", "Mosquitto, us", "times"], body, 2)


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status."""
    given = COMMAND.read(argv)
    pairs = given.pairs or (3 if given.quick else 6)

    def run() -> list[Row]:
        run_by(given.python)
        return measured(given.quick, pairs)

    return COMMAND.end(given, run, table, missed)


if __name__ == "__main__":
    sys.exit(main())
