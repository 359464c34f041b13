"""`sealmq bench bridge`: what a message costs the bridges of two sites, beside Mosquitto's own one,
and what it costs a border, which opens it and seals it again.

Of the sites both bridges' processes count, of Mosquitto both brokers: there the bridge is part of
the broker, and what the brokers do besides (take the message, route it) cannot be told from it. A
site's mediator and broker are measured by `sealmq bench gateway`. Nobody else reads at either side.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence

from bench_beside import OURS, SIZES, THEIRS, in_turns, row, rows_of, run_by, with_load
from bench_command import Command
from bench_print import Row
from bridge_pairs import Brokers, Outlet, Pair, Sites

from bench_form import aligned
from sealmq.families import registry

COMMAND = Command(
    "bridge",
    "sealmq bench bridge",
    "Measure what bridges cost: a message, beside Mosquitto's own bridge over TLS 1.3, and at a "
    "border; a decision about a token that is known; memory; and the rounds until ratings are the "
    "same everywhere.",
    "",
    {"part": ("decision", "memory", "rounds", "crossing", "border")},
    {"pairs": "how many rounds count, both in turns in each (default: 6)"},
    barred=True,
    ours=True,
)
BARS = (
    ("a known token's decision", "decision", 1000.0, "ns"),
    ("a bridged message's CPU, times Mosquitto's bridge", "crossing_ratio", 2.0, "times"),
    ("rounds beyond the longest path's", "rounds_beyond", 0.0, "rounds"),
)


def crossing(quick: bool, pairs: int) -> list[Row]:
    """Both in turns in each round, each size by itself."""
    sizes, many = ((64,), 100) if quick else (SIZES, 1000)
    ways: dict[str, type[Pair]] = {OURS: Sites, THEIRS: Brokers}
    taken = in_turns(ways, sizes, pairs, lambda pair, size: pair.cost_ns(many, size))
    return rows_of(taken, lambda ns: ns / many / 1000, "crossing", "crossing_ratio")


def border(quick: bool, pairs: int) -> list[Row]:
    """Of one process, which has no counterpart."""
    sizes, most = ((64,), 100) if quick else (SIZES, 1000)
    # All are one client's, which may have 32 MiB in the journal until the broker has saved them.
    many = {size: min(most, (1 << 20) // size) for size in sizes}
    taken = in_turns({OURS: Outlet}, sizes, pairs, lambda way, size: way.cost_ns(many[size], size))
    return [
        row("border", variant, statistics.median(costs) / many[size] / 1000, "us", len(costs), size)
        for (variant, size), costs in taken.items()
    ]


def measured(parts: Sequence[str], quick: bool, pairs: int) -> list[Row]:
    """The rows of these parts."""
    rows: list[Row] = []
    for part in parts:
        if part in _LOADED:
            found = _LOADED[part](quick, pairs)
        else:
            found = judged(part, quick)
        rows += with_load(found)
    return rows


_LOADED = {"crossing": crossing, "border": border}


def judged(part: str, quick: bool) -> list[Row]:
    """Of the families that judge between sites."""
    rows: list[Row] = []
    for manifest in registry.manifests():
        if manifest.bench is not None and manifest.bench.between is not None:
            rows += manifest.load(manifest.bench.between)[part](quick)
    return rows


def missed(rows: Sequence[Row]) -> list[str]:
    """The bars that they miss."""
    return [
        f"{what}: {one['value']:.3g} {unit}"
        + (f" at {one['size']} B" if one["size"] else "")
        + f", at most {most:g}"
        for what, measure, most, unit in BARS
        for one in rows
        if one["measure"] == measure and one["value"] > most
    ]


_WORDS = {
    ("crossing", "sealmq"): "a message, both sites' bridges",
    ("crossing", "mosquitto-tls"): "a message, both Mosquittos with TLS 1.3",
    ("crossing_ratio", "sealmq"): "the former, times the latter",
    ("border", "sealmq"): "a message, a border",
    ("decision", "known-token"): "a decision about a known token",
    ("memory", "site"): "a site's knowledge of {gateways} gateways and {tokens} tokens",
    ("rounds_beyond", "longest-path"): "rounds beyond the longest path's, {n} random graphs",
    ("rounds_later", "diameter"): "graphs of these that needed more than the diameter's",
}


def table(rows: Sequence[Row]) -> str:
    """For people: each measure by the bar that it has."""
    bars = {measure: f"{most:g}" for _, measure, most, _ in BARS}
    body = []
    for one in rows:
        words = _WORDS.get((one["measure"], one["variant"]), f"{one['measure']} {one['variant']}")
        size = f"{one['size']:,}" if one["size"] else ""
        value = f"{one['value']:.3g}" if one["value"] < 10_000 else f"{one['value']:,.0f}"
        bar = bars.get(one["measure"], "")
        body.append([words.format(n=one["n"], **one["params"]), size, value, one["unit"], bar])
    return aligned(["", "bytes", "value", "unit", "at most"], body, 2)


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status."""
    given = COMMAND.read(argv)
    parts = given.part or list(COMMAND.only["part"])
    pairs = given.pairs or (3 if given.quick else 6)

    def run() -> list[Row]:
        run_by(given.python)
        return measured(parts, given.quick, pairs)

    return COMMAND.end(given, run, table, missed)


if __name__ == "__main__":
    sys.exit(main())
