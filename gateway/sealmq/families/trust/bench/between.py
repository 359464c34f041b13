"""What judging between sites costs, for `sealmq bench bridge`: a decision, memory, and in how many
rounds ratings are the same everywhere.
"""

from __future__ import annotations

import itertools
import random
import statistics
import time
import tracemalloc
from collections.abc import Mapping

from bench_print import Row, row

from ... import signatures
from ..exchange import Exchange
from ..simulate import convergence
from ..tokens import Token, announcement, signed_text

GATEWAYS, TOKENS = 64, 1000
ME = "g00"
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
    found = row("memory", "site", float(held), "bytes", 1, 0)
    found["params"] |= {"gateways": gateways, "tokens": tokens}
    return [found]


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


PARTS = {"decision": decision, "memory": memory, "rounds": rounds}
