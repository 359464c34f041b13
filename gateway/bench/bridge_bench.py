"""`sealmq bench bridge`: what a message costs the bridges of two sites, beside Mosquitto's own one.

Of the sites both bridges' processes count, of Mosquitto both brokers: there the bridge is part of
the broker, and what the brokers do besides (take the message, route it) cannot be told from it. A
site's mediator and broker are measured by `sealmq bench gateway`. Nobody else reads at either side.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench_command import Command
from bench_print import Row, row
from bridge_pairs import Brokers, Pair, Sites

from bench_form import aligned
from sealmq.families import signatures
from sealmq.families.trust.exchange import Exchange
from sealmq.families.trust.simulate import convergence
from sealmq.families.trust.tokens import Token, announcement, signed_text

COMMAND = Command(
    "bridge",
    "sealmq bench bridge",
    "Measure what bridges cost: a message, beside Mosquitto's own bridge over TLS 1.3; a decision "
    "about a token that is known; memory; and the rounds until ratings are the same everywhere.",
    "",
    {"part": ("decision", "memory", "rounds", "crossing")},
    {"pairs": "how many rounds count, both in turns in each (default: 6)"},
    barred=True,
)
SIZES = (16, 64, 256, 1024, 4096, 16384)
GATEWAYS, TOKENS = 64, 1000
ME = "g00"
BARS = (
    ("a known token's decision", "decision", 1000.0, "ns"),
    ("a bridged message's CPU, times Mosquitto's bridge", "crossing_ratio", 2.0, "times"),
    ("rounds beyond the longest path's", "rounds_beyond", 0.0, "rounds"),
)
_NOW = 1_800_000_000_000
_END = _NOW + 86_400_000


def _private(site: str) -> bytes:
    return site.encode().ljust(32, b"\1")


def _site(name: str) -> Exchange:
    key = _private(name)
    return Exchange(name, signatures.public_of(key), lambda text: signatures.sign(key, text))


def _exchange(peers: Mapping[str, Exchange], tokens: int) -> tuple[Exchange, list[bytes]]:
    """A site with all these as neighbours, which have told it what they rate and let it have, and
    shown it their clients' tokens; the ids of these."""
    made = _site(ME)
    for name, peer in peers.items():
        made.enrol(name, signatures.public_of(_private(name)), ["#"], _NOW)
        made.joined(name, _NOW)
        peer.enrol(ME, signatures.public_of(_private(ME)), ["#"], _NOW)
        peer.joined(ME, _NOW)
    for site in (made, *peers.values()):
        site.tick(_NOW)
    while _told(made, peers):
        pass
    ids = []
    for n, issuer in zip(range(tokens), itertools.cycle(peers), strict=False):
        token = Token(issuer, f"client-{n}", (f"machine/{n}/#",), (), 1, _END)
        said = {issuer: signatures.sign(_private(issuer), signed_text(issuer, token.raw))}
        done = made.receive(issuer, announcement(token, said), _NOW)
        if not done.ok:
            raise ValueError(f"a token is refused: {done.rule}: {done.reason}")
        ids.append(token.id)
    return made, ids


def _told(made: Exchange, peers: Mapping[str, Exchange]) -> bool:
    said = [made.receive(name, r, _NOW) for name, p in peers.items() for r in p.pending(ME)]
    said += [p.receive(ME, r, _NOW) for name, p in peers.items() for r in made.pending(name)]
    return bool(said)


def _peers(count: int) -> dict[str, Exchange]:
    return {name: _site(name) for name in (f"g{n:02}" for n in range(1, count))}


def decision(quick: bool) -> list[Row]:
    """A message under a token that is known, on a topic that it was on before: all that
    Exchange.message does, its call included, over many tokens in turn."""
    peers = _peers(8)
    made, ids = _exchange(peers, 64)
    asks = [
        (by, one, f"machine/{n}/value")
        for n, (one, by) in enumerate(zip(ids, itertools.cycle(peers), strict=False))
    ]
    for ask in asks:
        if not made.message(*ask, _NOW).accept:
            raise ValueError("a message under a known token is refused")
    turns, many = (5, 50) if quick else (15, 2000)
    clock = time.process_time_ns
    taken = []
    for _ in range(turns):
        begun = clock()
        for _ in range(many):
            for by, one, topic in asks:
                made.message(by, one, topic, _NOW)
        taken.append((clock() - begun) / many / len(asks))
    return [row("decision", "known-token", statistics.median(taken), "ns", turns * many, 0)]


def memory(quick: bool) -> list[Row]:
    """What a site holds of so many gateways and tokens."""
    gateways, tokens = (8, 50) if quick else (GATEWAYS, TOKENS)
    _exchange(_peers(2), 1)  # modules and their tables are there anyway
    peers = _peers(gateways)
    tracemalloc.start()
    try:
        made, ids = _exchange(peers, tokens)
        peers.clear()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    if len(list(made.all_known())) < len(ids):
        raise ValueError("not all tokens are known")
    return [row("memory", "site", float(held), "bytes", 1, 0) | _params(
        gateways=gateways, tokens=tokens)]  # fmt: skip


def _params(**more: Any) -> dict[str, Any]:
    return {"more": more}


def rounds(quick: bool) -> list[Row]:
    """On random graphs: by how many rounds ratings came later than the longest path's, at most."""
    draw = random.Random(7)  # noqa: S311 - the same graphs each time
    graphs, beyond, later = (10 if quick else 300), 0, 0
    for _ in range(graphs):
        names = [f"g{n:02}" for n in range(draw.randint(4, 12))]
        edges: dict[tuple[str, str], int] = {}
        for n in range(1, len(names)):
            for _ in range(2):
                one = names[draw.randrange(n)]
                edges[one, names[n]] = draw.randint(0, 10_000)
                edges[names[n], one] = draw.randint(0, 10_000)
        found = convergence(edges)
        beyond = max(beyond, found["rounds"] - found["longest_path"])
        later += found["rounds"] > found["diameter"]
    return [
        row("rounds_beyond", "longest-path", float(max(beyond, 0)), "rounds", graphs, 0),
        row("rounds_later", "diameter", float(later), "graphs", graphs, 0),
    ]


@contextlib.contextmanager
def _both() -> Iterator[dict[str, Pair]]:
    with tempfile.TemporaryDirectory(prefix="sealmq-bench-") as name, contextlib.ExitStack() as end:
        made: dict[str, Pair] = {}
        for variant, kind in (("sealmq", Sites), ("mosquitto-tls", Brokers)):
            folder = Path(name) / variant
            folder.mkdir()
            pair = made[variant] = kind(folder)
            end.callback(pair.stop)
            pair.start()
        yield made


def crossing(quick: bool, pairs: int) -> list[Row]:
    """Both in turns in each round, each size by itself."""
    sizes, many = ((64,), 100) if quick else (SIZES, 1000)
    taken: dict[tuple[str, int], list[float]] = {}
    with _both() as made:
        for turn in range(pairs + 1):  # the first one warms up
            for size in sizes:
                for variant, pair in made.items():
                    cost = pair.cost_ns(many, size) / many / 1000
                    if turn:
                        taken.setdefault((variant, size), []).append(cost)
    rows = []
    for (variant, size), costs in taken.items():
        rows.append(row("crossing", variant, statistics.median(costs), "us", len(costs), size))
    for size in sizes:
        ratios = [
            ours / theirs
            for ours, theirs in zip(
                taken["sealmq", size], taken["mosquitto-tls", size], strict=True
            )
        ]
        ratio = row("crossing_ratio", "sealmq", statistics.median(ratios), "times", pairs, size)
        ratio["params"] |= {"least": min(ratios), "most": max(ratios)}
        rows.append(ratio)
    return rows


def measured(parts: Sequence[str], quick: bool, pairs: int) -> list[Row]:
    """The rows of these parts."""
    rows: list[Row] = []
    for part in parts:
        found = crossing(quick, pairs) if part == "crossing" else _PARTS[part](quick)
        for one in found:
            one["params"] |= one.pop("more", {}) | {"load": round(os.getloadavg()[0], 2)}
        rows += found
    return rows


_PARTS = {"decision": decision, "memory": memory, "rounds": rounds}


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


def table(rows: Sequence[Row]) -> str:
    """For people."""
    body = [
        [one["measure"], one["variant"], str(one["size"] or ""), f"{one['value']:.5g}", one["unit"]]
        for one in rows
    ]
    return aligned(["measure", "variant", "bytes", "value", "unit"], body, 2)


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status."""
    given = COMMAND.read(argv)
    parts = given.part or list(COMMAND.only["part"])
    pairs = given.pairs or (3 if given.quick else 6)
    return COMMAND.end(given, lambda: measured(parts, given.quick, pairs), table, missed)


if __name__ == "__main__":
    sys.exit(main())
