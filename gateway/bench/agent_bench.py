"""`sealmq bench agent`: what a message costs an agent that takes it in from a plain client, and one
that gives it out to one, beside a Mosquitto at each place that has a bridge over TLS 1.3.

What is between them (a site with its broker; a Mosquitto) is not counted, nor are the clients.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from agent_pairs import Agents, Bridges, Cost, Ends
from bench_command import Command
from bench_print import Row, row

from bench_form import aligned

COMMAND = Command(
    "agent",
    "sealmq bench agent",
    "Measure what a message costs an agent, beside a Mosquitto with a bridge over TLS 1.3.",
    "",
    {},
    {"pairs": "how many rounds count, both in turns in each (default: 6)"},
    barred=True,
)
SIZES = (16, 64, 256, 1024, 4096, 16384)
BAR = 2.0
_WAYS = {"out": "taken in from a client, and sent on", "in": "come from afar, and given out"}


@contextlib.contextmanager
def _both() -> Iterator[dict[str, Ends]]:
    with tempfile.TemporaryDirectory(prefix="sealmq-bench-") as name, contextlib.ExitStack() as end:
        made: dict[str, Ends] = {}
        for variant, kind in (("sealmq", Agents), ("mosquitto-tls", Bridges)):
            folder = Path(name) / variant
            folder.mkdir()
            ends = made[variant] = kind(folder)
            end.callback(ends.stop)
            ends.start()
        yield made


def measured(quick: bool, pairs: int) -> list[Row]:
    """Both in turns in each round, each size by itself; the first round warms up."""
    sizes, many = ((64,), 100) if quick else (SIZES, 1000)
    taken: dict[tuple[str, int], list[Cost]] = {}
    with _both() as made:
        for turn in range(pairs + 1):
            for size in sizes:
                for variant, ends in made.items():
                    cost = ends.cost(many, size)
                    if turn:
                        taken.setdefault((variant, size), []).append(cost)
    rows = []
    for at, way in enumerate(_WAYS):
        for (variant, size), costs in taken.items():
            us = statistics.median(cost[at] / many / 1000 for cost in costs)
            rows.append(row(f"message_{way}", variant, us, "us", pairs, size))
        for size in sizes:
            both = zip(taken["sealmq", size], taken["mosquitto-tls", size], strict=True)
            ratios = [ours[at] / theirs[at] for ours, theirs in both]
            ratio = row(f"ratio_{way}", "sealmq", statistics.median(ratios), "times", pairs, size)
            ratio["params"] |= {"least": min(ratios), "most": max(ratios)}
            rows.append(ratio)
    for one in rows:
        one["params"]["load"] = round(os.getloadavg()[0], 2)
    return rows


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
            ours, theirs = (
                by[f"message_{way}", variant, size] for variant in ("sealmq", "mosquitto-tls")
            )
            ratio = by[f"ratio_{way}", "sealmq", size]
            body.append([words, f"{size:,}", f"{ours:.0f}", f"{theirs:.0f}", f"{ratio:.1f}"])
    return aligned(["a message", "bytes", "agent, us", "Mosquitto, us", "times"], body, 2)


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status."""
    given = COMMAND.read(argv)
    pairs = given.pairs or (3 if given.quick else 6)
    return COMMAND.end(given, lambda: measured(given.quick, pairs), table, missed)


if __name__ == "__main__":
    sys.exit(main())
