"""What comes of the rules among many sites, some of which are bad (what Chen, Vidalis and Yang
leave to future work, IV).

Each round sites publish, messages flow from site to site as the rules let them, readers say what
was bad (and err now and then), ratings are computed anew and told. Sites that lie tell others than
they hold. Time is a round; randomness is passed in. The rules are those of `decide` and `paths`,
the ratings those of `ratings`, what readers say counts as in `events`; signatures are taken as
made.

A bad message that an honest site does not deliver is found: precision is how many of those that
were not delivered were bad, recall how many bad ones were not delivered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from .decide import Counting, Rules, handed
from .events import Events
from .paths import Edges, Oriented, Vector, distances, without
from .ratings import HOUR_MS, SCALE, WEIGHTS, Ratings, Weights

HONEST, CLIENT, MALICIOUS, ON_OFF, COLLUDING, BENDING, MOUTHING = (
    "honest", "bad-clients", "malicious", "on-off", "colluding", "bending", "bad-mouthing",
)  # fmt: skip
KINDS = (HONEST, CLIENT, MALICIOUS, ON_OFF, COLLUDING, BENDING, MOUTHING)
_GANG = frozenset({MALICIOUS, ON_OFF, COLLUDING, BENDING})
"""Those of whom colluders speak well."""
_OPEN = frozenset({MALICIOUS, COLLUDING, BENDING})
"""They let everything through, with their word for it."""
RULES: Mapping[str, Rules] = {
    "neighbour": Rules(way="neighbour"),
    "average": Rules(),
    "weakest": Rules(measure="weakest"),
    "two-signers": Rules(signers=2),
    "spki": Rules(way="spki"),
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
            CLIENT: 0.05, MALICIOUS: 0.03, ON_OFF: 0.03, COLLUDING: 0.03, BENDING: 0.02,
            MOUTHING: 0.02,
        }
    )  # fmt: skip
    history: int = 20
    """Good messages of each neighbour before the first round: nobody is accepted at δ = .5 < π."""
    phase: int = 5
    """Rounds for which an on-off site is good, then bad."""
    client_bad: float = 0.5
    """Of the messages of a site that is honest and has a malicious client."""
    readers: int = 3
    """Of a message, at each site."""
    wrong: float = 0.05
    """How often a reader errs."""
    weights: Weights = WEIGHTS


def of_kind(kind: str, share: float, plan: Plan) -> Plan:
    """The plan with one kind of malice. Colluders bend ratings for somebody: half of them are
    plainly malicious."""
    shares = {} if kind == HONEST else {kind: share}
    if kind == BENDING:
        shares = {BENDING: share / 2, MALICIOUS: share / 2}
    return replace(plan, shares=shares)


class _Message(NamedTuple):
    id: bytes
    origin: str
    bad: bool


@dataclass(slots=True)
class _Site:
    name: str
    kind: str
    neighbours: list[str]
    ratings: Ratings
    events: Events


class Counts(NamedTuple):
    """Of a round, over all honest sites: bad and good messages that were withheld, or delivered."""

    bad_withheld: int
    bad_delivered: int
    good_withheld: int
    good_delivered: int


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
            self.sites[name] = _Site(name, kinds[name], beside, ratings, Events(ratings, 0))
        self._traffic = [self._published(turn) for turn in range(plan.rounds)]
        # Who is linked to whom never changes, so distances are looked for once.
        self._links: Edges = {(o, s.name): 0 for s in self.sites.values() for o in s.neighbours}
        self._distances: dict[tuple[frozenset[str], str], dict[str, int]] = {}
        self._edges: Edges = {}
        self._own: dict[str, Mapping[str, int]] = {}
        self._graphs: dict[frozenset[str], Edges] = {}
        self._views: dict[tuple[frozenset[str], str], Oriented] = {}
        self._counting: dict[tuple[str, str], Counting] = {}

    def _published(self, turn: int) -> list[_Message]:
        names = list(self.sites)
        found = []
        for number in range(self._plan.messages):
            site = self.sites[names[int(self._draw.random() * len(names))]]
            id = b"%d.%d" % (turn, number)
            found.append(_Message(id, site.name, self._is_bad(site, turn)))
        return found

    def _is_bad(self, site: _Site, turn: int) -> bool:
        chance = self._draw.random()
        if site.kind == CLIENT:
            return chance < self._plan.client_bad
        if site.kind == ON_OFF:
            return turn // self._plan.phase % 2 == 1
        return site.kind in (MALICIOUS, COLLUDING)

    def run(self) -> list[Counts]:
        """By round."""
        return [self._round(turn * HOUR_MS, some) for turn, some in enumerate(self._traffic)]

    def _round(self, now_ms: int, messages: Sequence[_Message]) -> Counts:
        self._rate(now_ms)
        counts = {(bad, got): 0 for bad in (True, False) for got in (True, False)}
        judges = [s.name for s in self.sites.values() if s.kind in (HONEST, CLIENT)]
        for message in messages:
            got = self._flow(message, now_ms)
            for name in judges:
                if name != message.origin:
                    counts[message.bad, name in got] += 1
        return Counts(
            counts[True, False], counts[True, True], counts[False, False], counts[False, True]
        )

    def _rate(self, now_ms: int) -> None:
        edges = {}
        for site in self.sites.values():
            site.events.settle(now_ms)
            held = site.ratings.ratings(now_ms)
            self._own[site.name] = held
            for other, rating in held.items():
                edges[other, site.name] = self._told(site, other, rating)
        self._edges = edges
        for kept in (self._graphs, self._views, self._counting):
            kept.clear()

    def _told(self, site: _Site, other: str, rating: int) -> int:
        """What a site says of another, which need not be what it holds."""
        if site.kind in (COLLUDING, BENDING) and self.sites[other].kind in _GANG:
            return SCALE
        return 0 if site.kind in (BENDING, MOUTHING) else rating

    def _flow(self, message: _Message, now_ms: int) -> set[str]:
        """Who delivers it."""
        origin = message.origin
        signers: dict[str, set[str]] = {origin: {origin}}
        got = {origin}
        waiting = deque((origin, other) for other in self.sites[origin].neighbours)
        while waiting:
            by, name = waiting.popleft()
            united = signers.setdefault(name, set())
            united |= signers[by]
            if name in got:
                continue
            site = self.sites[name]
            deliver, sign = self._judged(site, by, origin, united)
            if not deliver:
                continue
            got.add(name)
            if sign:
                united.add(name)
            waiting += [(name, other) for other in site.neighbours if other != by]
            self._read(site, by, message, now_ms)
        return got - {origin}

    def _read(self, site: _Site, by: str, message: _Message, now_ms: int) -> None:
        """Readers say what they think of it."""
        site.events.forwarded(by, message.id, f"@{message.origin}/", now_ms)
        for reader in range(self._plan.readers):
            err = self._draw.random() < self._plan.wrong
            if message.bad != err:
                site.events.vote(str(reader), message.id, False, now_ms)

    def _judged(self, site: _Site, by: str, origin: str, signers: set[str]) -> tuple[bool, bool]:
        if site.kind in _OPEN:
            return True, True
        if by in site.ratings.blocked or (by, origin) in site.ratings.closed:
            return False, False
        does = handed(self._rules, self._own[site.name][by])
        if not does.deliver:
            return False, False
        if self._rules.way == "spki":
            if not self._view(site, origin).signed_throughout(frozenset(signers), site.name):
                return False, False
        elif not self._counts(site, origin).enough(signers):
            return False, False
        return True, does.sign

    def _counts(self, site: _Site, origin: str) -> Counting:
        found = self._counting.get((origin, site.name))
        if found is None:
            blocked, own = site.ratings.blocked, self._own[site.name]
            mine = {n: rating for n, rating in own.items() if n not in blocked}
            found = Counting.of(self._rules, site.name, mine, self._view(site, origin))
            self._counting[origin, site.name] = found
        return found

    def _view(self, site: _Site, origin: str) -> Oriented:
        """The graph without whom the site blocks."""
        blocked = site.ratings.blocked
        found = self._views.get((blocked, origin))
        if found is None:
            edges = self._graphs.get(blocked)
            if edges is None:
                edges = self._graphs[blocked] = without(self._edges, blocked)
            far = self._distances.get((blocked, origin))
            if far is None:
                far = distances(without(self._links, blocked), origin)
                self._distances[blocked, origin] = far
            found = self._views[blocked, origin] = Oriented(edges, origin, far)
        return found


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


def measures(turn: int, counts: Counts) -> dict[str, Any]:
    """Precision, recall, and the share of good messages that are delivered."""
    withheld = counts.bad_withheld + counts.good_withheld
    return {
        "round": turn,
        "precision": _share(counts.bad_withheld, withheld),
        "recall": _share(counts.bad_withheld, counts.bad_withheld + counts.bad_delivered),
        "good_delivered": _share(
            counts.good_delivered, counts.good_delivered + counts.good_withheld
        ),
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
        found["rules"][name] = [measures(n, each) for n, each in enumerate(world.run(), 1)]
        # Of all edges alike: how far what is told has to go depends on the links alone.
        edges = {(o, s.name): SCALE // 2 for s in world.sites.values() for o in s.neighbours}
        found.setdefault("convergence", convergence(edges))
    return found
