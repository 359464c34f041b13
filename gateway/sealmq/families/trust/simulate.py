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

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from .counting import Counting, Rated, Shape, bits
from .decide import Rules, handed
from .events import Words
from .paths import Edges, Oriented, Vector, distances
from .ratings import HOUR_MS, SCALE, WEIGHTS, Channel, Ratings, Weights

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
    origin: int
    bad: bool


class _Flow(NamedTuple):
    """How an issuer's messages go in a round. got: who has one in the end, as a set. hops: to whom,
    one after the other, and as what it is rated there."""

    got: int
    hops: list[tuple[int, Channel]]


@dataclass(slots=True)
class _Site:
    name: str
    kind: str
    neighbours: list[str]
    ratings: Ratings
    words: Words
    lets_all: bool
    """Whether it lets everything through, with its word for it."""
    came: list[tuple[Channel, Sequence[str]]] = field(default_factory=list)
    """Of each message of a round as what it is rated, and which readers call it bad."""
    # Of a round, neighbours as sets of `counting`:
    blocked: int = 0
    open: int = 0
    """Those that are not blocked."""
    near: int = 0
    """Of these, those rated at π."""
    delivers: int = 0
    signs: int = 0
    """What it does with an accepted message, by who hands it over."""
    closed: frozenset[Channel] = frozenset()


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
        self._names = names = sorted({end for link in links for end in link})
        self._number = {name: n for n, name in enumerate(names)}
        kinds = _kinds(plan, names, draw)
        self.sites: dict[str, _Site] = {}
        before = Ratings(plan.weights)
        before.add("", 0)
        for _ in range(plan.history):
            before.saw("", True, 0)
        history = before.evidence("", 0)
        for name in names:
            beside = sorted({a if b == name else b for a, b in links if name in (a, b)})
            ratings = Ratings(plan.weights)
            for other in beside:
                ratings.add(other, 0)
                ratings.restore(other, *history, 0)
            kind, words = kinds[name], Words(plan.weights.half_life_ms)
            self.sites[name] = _Site(name, kind, beside, ratings, words, kind in _OPEN)
        self._at = list(self.sites.values())
        self._judges = bits([n for n, s in enumerate(self._at) if s.kind in (HONEST, CLIENT)])
        self._handed_on = self._ways()
        self._readers = [str(n) for n in range(plan.readers)]
        self._traffic = [self._published(turn) for turn in range(plan.rounds)]
        # Who is linked to whom never changes, so shapes are looked for once.
        self._beside = [bits(self._number[name] for name in s.neighbours) for s in self._at]
        self._shapes: dict[tuple[int, int], Shape] = {}
        self._told = Rated((), (), False)
        # By issuer, and by whom a site blocks.
        self._counting: list[dict[int, Counting]] = []
        # Of a round by issuer: nothing changes in it, so what an issuer publishes goes one way.
        self._flows: dict[int, _Flow] = {}

    def _ways(self) -> list[dict[int, list[tuple[int, int]]]]:
        """By site, and by who has handed a message over (itself: its own one): from whom to whom
        it goes then."""
        found = []
        for n, site in enumerate(self._at):
            beside = [self._number[name] for name in site.neighbours]
            found.append({by: [(n, to) for to in beside if to != by] for by in (n, *beside)})
        return found

    def _published(self, turn: int) -> list[_Message]:
        found = []
        for _ in range(self._plan.messages):
            origin = int(self._draw.random() * len(self._at))
            found.append(_Message(origin, self._is_bad(self._at[origin], turn)))
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
        delivered, withheld = [0, 0], [0, 0]  # good, bad
        for origin, bad in messages:
            flow = self._flows.get(origin)
            if flow is None:
                flow = self._flows[origin] = self._flow(origin)
            self._read(flow, bad)
            judges = self._judges & ~(1 << origin)
            delivered[bad] += (judges & flow.got).bit_count()
            withheld[bad] += (judges & ~flow.got).bit_count()
        return Counts(withheld[True], delivered[True], withheld[False], delivered[False])

    def _rate(self, now_ms: int) -> None:
        of, low, number = [], [], self._number
        for site in self._at:
            enough = site.words.are_enough
            rated = [(way, not enough(said, way[0], now_ms)) for way, said in site.came]
            site.came.clear()
            site.words.age(now_ms)
            site.ratings.saw_all(rated, now_ms)
            held = site.ratings.ratings(now_ms)
            self._settled(site, held)
            told = {number[o]: self._says(site, o, rating) for o, rating in held.items()}
            of.append(told)
            low.append(bits([n for n, rating in told.items() if rating < self._rules.accept]))
        self._told = Rated(of, low, any(low))
        self._counting = [{} for _ in self._at]
        self._flows.clear()

    def _settled(self, site: _Site, held: Mapping[str, int]) -> None:
        """What it goes by in this round."""
        number, blocked, site.closed = self._number, site.ratings.blocked, site.ratings.closed
        site.blocked = bits([number[name] for name in blocked])
        own = {number[name]: rating for name, rating in held.items() if name not in blocked}
        does = {n: handed(self._rules, rating) for n, rating in own.items()}
        site.open = bits(list(own))
        site.near = bits([n for n, rating in own.items() if rating >= self._rules.sign])
        site.delivers = bits([n for n, done in does.items() if done.deliver])
        site.signs = bits([n for n, done in does.items() if done.sign])

    def _says(self, site: _Site, other: str, rating: int) -> int:
        """What a site says of another, which need not be what it holds."""
        if site.kind in (COLLUDING, BENDING) and self.sites[other].kind in _GANG:
            return SCALE
        return 0 if site.kind in (BENDING, MOUTHING) else rating

    def _flow(self, origin: int) -> _Flow:
        at, handed_on, counting = self._at, self._handed_on, self._counting[origin]
        ways = [(name, self._names[origin]) for name in self._names]
        got, hops = 1 << origin, []
        signers = [0] * len(at)
        signers[origin] = got
        waiting = [*handed_on[origin][origin]]
        for by, to in waiting:  # it grows meanwhile
            signed = signers[to] = signers[to] | signers[by]
            if got >> to & 1:
                continue
            site = at[to]
            if site.lets_all:
                sign = 1
            elif site.delivers >> by & 1 and ways[by] not in site.closed:
                counts = counting.get(site.blocked) or self._counts(site, origin)
                if not counts.accepts(to, signed, site.open, site.near):
                    continue
                sign = site.signs >> by & 1
            else:
                continue
            got |= 1 << to
            signers[to] = signed | sign << to
            waiting += handed_on[to][by]
            hops.append((to, ways[by]))
        return _Flow(got, hops)

    def _read(self, flow: _Flow, bad: bool) -> None:
        """Readers say what they think of a message."""
        at, readers = self._at, self._readers
        draw, wrong = self._draw.random, self._plan.wrong
        for to, way in flow.hops:
            against = [reader for reader in readers if bad != (draw() < wrong)]
            at[to].came.append((way, against))

    def _counts(self, site: _Site, origin: int) -> Counting:
        """Of the graph without whom the site blocks."""
        blocked = site.blocked
        shape = self._shapes.get((blocked, origin))
        if shape is None:
            beside = [0 if blocked >> n & 1 else s & ~blocked for n, s in enumerate(self._beside)]
            shape = self._shapes[blocked, origin] = Shape(origin, beside)
        found = self._counting[origin][blocked] = Counting(shape, self._rules, self._told)
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
