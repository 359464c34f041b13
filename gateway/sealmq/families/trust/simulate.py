"""What comes of the rules among many sites, some of which are bad (what Chen, Vidalis and Yang
leave to future work, IV).

Each round sites publish, messages flow from site to site as the rules let them, readers say what
was bad (and err now and then), ratings are computed anew and told. Sites that lie tell others than
they hold. Time is a round; randomness is passed in. The rules are those of `decide` and `paths`,
the ratings those of `ratings`; signatures are taken as made.

A bad message that an honest site does not deliver is found: precision is how many of those that
were not delivered were bad, recall how many bad ones were not delivered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from .decide import Rules, accepts, handed
from .paths import Edges, Least, Oriented, Vector, distances, without
from .ratings import HOUR_MS, SCALE, WEIGHTS, Ratings, Weights

HONEST, CLIENT, MALICIOUS, ON_OFF, COLLUDING, MOUTHING = (
    "honest", "bad clients", "malicious", "on-off", "colluding", "bad-mouthing",
)  # fmt: skip
KINDS = (HONEST, CLIENT, MALICIOUS, ON_OFF, COLLUDING, MOUTHING)
RULES: Mapping[str, Rules] = {
    "neighbour": Rules(way="neighbour"),
    "average": Rules(),
    "weakest": Rules(measure="weakest"),
    "two signers": Rules(signers=2),
}


class Draw(Protocol):
    """random.Random, for instance."""

    def random(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """A simulation. Shares are of all sites; who is of no other kind is honest."""

    sites: int = 64
    links: int = 2
    """That a site makes with those that were there before it."""
    rounds: int = 20
    messages: int = 32
    """A round."""
    shares: Mapping[str, float] = field(
        default_factory=lambda: {
            CLIENT: 0.05, MALICIOUS: 0.05, ON_OFF: 0.03, COLLUDING: 0.03, MOUTHING: 0.02,
        }
    )  # fmt: skip
    history: int = 20
    """Good messages of each neighbour before the first round: nobody is accepted at δ = .5 < π."""
    phase: int = 5
    """Rounds for which an on-off site is good, then bad."""
    client_bad: float = 0.5
    """Of the messages of a site that is honest and has a malicious client."""
    wrong: float = 0.05
    """How often readers err."""
    weights: Weights = WEIGHTS


@dataclass(frozen=True, slots=True)
class _Message:
    origin: str
    bad: bool


@dataclass(slots=True)
class _Site:
    name: str
    kind: str
    neighbours: list[str]
    ratings: Ratings


class World:
    """One run under one rule. The same plan and draw give the same sites and messages."""

    def __init__(self, plan: Plan, rules: Rules, draw: Draw) -> None:
        self._plan, self._rules, self._draw = plan, rules, draw
        links = _links(plan, draw)
        names = sorted({end for link in links for end in link})
        kinds = _kinds(plan, names, draw)
        self.sites: dict[str, _Site] = {}
        for name in names:
            beside = sorted({a if b == name else b for a, b in links if name in (a, b)})
            ratings = Ratings(plan.weights)
            for other in beside:
                ratings.add(other, 0)
                for _ in range(plan.history):
                    ratings.saw(other, True, 0)
            self.sites[name] = _Site(name, kinds[name], beside, ratings)
        self._traffic = [self._published(turn) for turn in range(plan.rounds)]
        self._edges: Edges = {}
        self._own: dict[str, Mapping[str, int]] = {}
        self._views: dict[tuple[frozenset[str], str], Oriented] = {}
        self._leasts: dict[tuple[frozenset[str], str, str], Mapping[str, Least]] = {}

    def _published(self, turn: int) -> list[_Message]:
        names = list(self.sites)
        found = []
        for _ in range(self._plan.messages):
            site = self.sites[names[int(self._draw.random() * len(names))]]
            found.append(_Message(site.name, self._is_bad(site, turn)))
        return found

    def _is_bad(self, site: _Site, turn: int) -> bool:
        chance = self._draw.random()
        if site.kind == CLIENT:
            return chance < self._plan.client_bad
        if site.kind == ON_OFF:
            return turn // self._plan.phase % 2 == 1
        return site.kind in (MALICIOUS, COLLUDING)

    def run(self) -> list[dict[str, Any]]:
        """By round: precision, recall, and the share of good messages that are delivered."""
        found = []
        for turn, messages in enumerate(self._traffic):
            now_ms = turn * HOUR_MS
            self._rate(now_ms)
            counts = {(bad, got): 0 for bad in (True, False) for got in (True, False)}
            for message in messages:
                got = self._flow(message, now_ms)
                for site in self.sites.values():
                    if site.kind in (HONEST, CLIENT) and site.name != message.origin:
                        counts[message.bad, site.name in got] += 1
            found.append(_measures(turn + 1, counts))
        return found

    def _rate(self, now_ms: int) -> None:
        edges = {}
        for site in self.sites.values():
            held = site.ratings.ratings(now_ms)
            self._own[site.name] = held
            for other, rating in held.items():
                edges[other, site.name] = self._told(site, other, rating)
        self._edges = edges
        self._views.clear()
        self._leasts.clear()

    def _told(self, site: _Site, other: str, rating: int) -> int:
        """What a site says of another, which need not be what it holds."""
        if site.kind == MOUTHING:
            return 0
        if site.kind == COLLUDING:
            return SCALE if self.sites[other].kind in (COLLUDING, MALICIOUS, ON_OFF) else 0
        return rating

    def _flow(self, message: _Message, now_ms: int) -> set[str]:
        """Who delivers it."""
        origin = self.sites[message.origin]
        signers: dict[str, set[str]] = {message.origin: {message.origin}}
        got = {message.origin}
        waiting = deque((message.origin, other) for other in origin.neighbours)
        while waiting:
            by, name = waiting.popleft()
            united = signers.setdefault(name, set())
            united |= signers[by]
            if name in got:
                continue
            site = self.sites[name]
            deliver, sign = self._judged(site, by, message.origin, frozenset(united))
            if not deliver:
                continue
            got.add(name)
            if sign:
                united.add(name)
            waiting += [(name, other) for other in site.neighbours if other != by]
            err = self._draw.random() < self._plan.wrong
            site.ratings.saw(by, message.bad == err, now_ms)
        return got - {message.origin}

    def _judged(
        self, site: _Site, by: str, origin: str, signers: frozenset[str]
    ) -> tuple[bool, bool]:
        if site.kind in (MALICIOUS, COLLUDING):  # lets everything through, with its word for it
            return True, True
        blocked = site.ratings.blocked
        if by in blocked:
            return False, False
        graph = self._views.get((blocked, origin))
        if graph is None:
            graph = self._views[blocked, origin] = Oriented(without(self._edges, blocked), origin)
        least = self._leasts.get((blocked, origin, site.name))
        if least is None:
            least = graph.least(site.name, self._rules.measure)
            self._leasts[blocked, origin, site.name] = least
        own = self._own[site.name]
        mine = {n: rating for n, rating in own.items() if n not in blocked}
        if not accepts(self._rules, site.name, signers, mine, graph, least).ok:
            return False, False
        does = handed(self._rules, own[by])
        return does.deliver, does.sign


def _links(plan: Plan, draw: Draw) -> list[tuple[str, str]]:
    """Each site links to some of those before it: one graph, with short ways and long ones."""
    names = [f"g{n:02}" for n in range(plan.sites)]
    found: set[tuple[str, str]] = set()
    for n in range(1, len(names)):
        for _ in range(plan.links):
            found.add((names[int(draw.random() * n)], names[n]))
    return sorted(found)


def _kinds(plan: Plan, names: Sequence[str], draw: Draw) -> dict[str, str]:
    left = sorted(names, key=lambda _: draw.random())
    found = {}
    for kind in KINDS[1:]:
        for _ in range(round(plan.shares.get(kind, 0) * len(names))):
            if left:
                found[left.pop()] = kind
    return {name: found.get(name, HONEST) for name in names}


def _measures(turn: int, counts: Mapping[tuple[bool, bool], int]) -> dict[str, Any]:
    withheld = counts[True, False] + counts[False, False]
    bad = counts[True, False] + counts[True, True]
    good = counts[False, False] + counts[False, True]
    return {
        "round": turn,
        "precision": _share(counts[True, False], withheld),
        "recall": _share(counts[True, False], bad),
        "good_delivered": _share(counts[False, True], good),
    }


def _share(some: int, of: int) -> float | None:
    return round(some / of, 4) if of else None


def convergence(edges: Edges) -> dict[str, int]:
    """How many rounds distance vectors need, at most over all issuers; the longest path, and the
    diameter, which is not enough."""
    rounds = longest = diameter = 0
    sites = sorted({end for pair in edges for end in pair})
    for issuer in sites:
        graph = Oriented(edges, issuer)
        diameter = max(diameter, max(distances(edges, issuer).values()))
        vectors = {site: Vector(site, dict(graph.parents.get(site, ()))) for site in sites}
        longest = max(longest, _longest(graph, sites))
        taken = 0
        while _exchanged(graph, vectors):
            taken += 1
        rounds = max(rounds, taken)
    return {"rounds": rounds, "longest_path": longest, "diameter": diameter}


def _exchanged(graph: Oriented, vectors: Mapping[str, Vector]) -> bool:
    """Whether a round has changed anything: all speak at once of what they knew before it."""
    told = {s: {k: dict(sums) for k, sums in v.sums.items()} for s, v in vectors.items()}
    changed = [
        vectors[child].hear(site, told[site])
        for site in vectors
        for child, _ in graph.children.get(site, ())
    ]
    return any(changed)


def _longest(graph: Oriented, sites: Sequence[str]) -> int:
    """Edges of the longest path of the graph."""
    far = dict.fromkeys(sites, 0)
    for site in sorted(sites, key=lambda site: (graph.distance[site], site)):
        far[site] = max((far[p] + 1 for p, _ in graph.parents.get(site, ())), default=0)
    return max(far.values())


def compare(plan: Plan, rules: Mapping[str, Rules], draw: Mapping[str, Draw]) -> dict[str, Any]:
    """The same world under each rule. draw: for each rule one that begins alike."""
    found: dict[str, Any] = {"plan": asdict(plan), "rules": {}}
    for name, each in rules.items():
        world = World(plan, each, draw[name])
        found["kinds"] = {
            kind: sum(site.kind == kind for site in world.sites.values()) for kind in KINDS
        }
        found["rules"][name] = world.run()
        # Of all edges alike: how far what is told has to go depends on the links alone.
        edges = {(o, s.name): SCALE // 2 for s in world.sites.values() for o in s.neighbours}
        found.setdefault("convergence", convergence(edges))
    return found
