"""The paper's example (III-D and Fig. 4): six sites, and b6 judges a token of b1's client that b1,
b2 and b3 have signed. `answer` says every figure of the text, and what other rules would decide.

A file of the same form may take its place (`sealmq trust paths FILE`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .decide import Rules, accepts, handed
from .paths import MOST_SHOWN, Edges, Least, Oriented, measured, without
from .ratings import SCALE, part
from .wire import NAME


@dataclass(frozen=True, slots=True)
class Scene:
    """Ratings of all edges, a token's issuer and signers, and who judges."""

    edges: Edges
    issuer: str
    signers: frozenset[str]
    judge: str
    rules: Rules
    blocked: frozenset[str] = frozenset()


PAPER = Scene(
    edges={
        ("b1", "b2"): 6000,
        ("b1", "b3"): 7000,
        ("b2", "b4"): 5000,
        ("b3", "b4"): 4000,
        ("b4", "b6"): 4000,
        ("b3", "b5"): 5500,
        ("b5", "b6"): 5000,
    },
    issuer="b1",
    signers=frozenset({"b1", "b2", "b3"}),
    judge="b6",
    rules=Rules(sign=6000, accept=5000),
)


class BadScene(ValueError):
    """A file that is none."""


def read(found: object) -> Scene:
    """{"ratings": [["b1", "b2", 0.6], ...], "issuer": "b1", "signers": [...], "judge": "b6",
    "sign": 0.6, "accept": 0.5, "way": "path", "measure": "average", "k": 1, "blocked": []}: a
    rating is what the second site thinks of the first. BadScene.
    """
    if not isinstance(found, dict):
        raise BadScene("it is no JSON object")
    known = {"ratings", "issuer", "signers", "judge", "sign", "accept", "way", "measure", "k"}
    for key in found.keys() - known - {"blocked"}:
        raise BadScene(f"{key!r} is no key: {', '.join(sorted(known))}, blocked")
    edges: dict[tuple[str, str], int] = {}
    for row in _list(found, "ratings"):
        if not isinstance(row, list) or len(row) != 3:
            raise BadScene('a rating is ["b1", "b2", 0.6]: what b2 thinks of b1')
        a, b = _name(row[0]), _name(row[1])
        if a == b or (a, b) in edges:
            raise BadScene(f"{a} by {b} is rated twice, or by itself")
        edges[a, b] = _part(row[2])
    way, measure = found.get("way", "path"), found.get("measure", "average")
    if way not in ("path", "neighbour", "spki") or measure not in ("average", "weakest"):
        raise BadScene("way is path, neighbour or spki; measure is average or weakest")
    k = found.get("k", 1)
    if type(k) is not int:
        raise BadScene("k is a whole number")
    try:
        rules = Rules(
            way, measure, _part(found.get("sign", 0.6)), _part(found.get("accept", 0.5)), k
        )
    except ValueError as error:
        raise BadScene(str(error)) from None
    issuer = _name(found.get("issuer"))
    signers = frozenset(map(_name, _list(found, "signers", [issuer])))
    blocked = frozenset(map(_name, _list(found, "blocked", [])))
    return Scene(edges, issuer, signers, _name(found.get("judge")), rules, blocked)


def _part(value: object) -> int:
    found = part(value)
    if found is None:
        raise BadScene(f"{value!r} is no number from 0 to 1 of at most four digits")
    return found


def _list(found: Mapping[str, Any], key: str, otherwise: object = None) -> list[Any]:
    value = found.get(key, otherwise)
    if not isinstance(value, list):
        raise BadScene(f"{key} is a list")
    return value


def _name(value: object) -> str:
    if not isinstance(value, str) or NAME.match(value) is None:
        raise BadScene(f"{value!r} is no name of a site")
    return value


def answer(scene: Scene) -> dict[str, Any]:
    """Each signer's least path, the decision, and what comes of it by who hands it over."""
    edges = without(scene.edges, scene.blocked)
    graph = Oriented(edges, scene.issuer)
    decided = _decided(scene, graph, scene.rules)
    judge, rules = scene.judge, scene.rules
    by = {a: rating for (a, b), rating in sorted(edges.items()) if b == judge}
    return {
        "issuer": scene.issuer,
        "judge": judge,
        "theta": rules.accept / SCALE,
        "pi": rules.sign / SCALE,
        "signers": {
            signer: _signer(edges, graph, signer, scene) for signer in sorted(scene.signers)
        },
        "decision": "accept" if decided.ok else "refuse",
        "reason": decided.reason,
        "handed_over_by": {
            site: _does(decided.ok, rules, rating)
            for site, rating in by.items()
            if graph.distance.get(site, 0) < graph.distance.get(judge, 0)
        },
    }


def _decided(scene: Scene, graph: Oriented, rules: Rules) -> Any:
    neighbours = {a: r for (a, b), r in scene.edges.items() if b == scene.judge}
    mine = {a: r for a, r in neighbours.items() if a not in scene.blocked}
    least = graph.least(scene.judge, rules.measure)
    return accepts(rules, scene.judge, scene.signers, mine, graph, least)


def _does(ok: bool, rules: Rules, rating: int) -> str:
    does = handed(rules, rating)
    if not ok or not does.deliver:
        return "refuse"
    return "sign, deliver, forward" if does.sign else "deliver, forward"


def _signer(edges: Edges, graph: Oriented, signer: str, scene: Scene) -> dict[str, Any]:
    measure, judge = scene.rules.measure, scene.judge
    least = graph.least(judge, measure).get(signer)
    if least is None:
        return {"rating": None, "path": [], "others": []}
    ties = some(graph.least_paths(signer, judge, measure))
    rated = [(path, measured(edges, path, measure)) for path in some(graph.paths(signer, judge))]
    return {
        "rating": rounded(least),
        "path": [list(path) for path in ties],
        "others": [
            {"rating": rounded(one), "path": list(path)} for path, one in rated if least.below(one)
        ],
    }


def some(paths: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """As many as are shown."""
    return [path for _, path in zip(range(MOST_SHOWN), paths, strict=False)]


def rounded(least: Least) -> float:
    """For people: four digits."""
    return round(least.rating, 4)


def otherwise(scene: Scene) -> dict[str, str]:
    """What other rules would decide of the same."""
    theta = min(scene.rules.accept, SCALE - 100)
    above = replace(scene.rules, sign=max(scene.rules.sign, theta + 100), accept=theta + 100)
    others = {
        f"theta {(theta + 100) / SCALE:g}": above,
        "two signers": replace(scene.rules, signers=2),
        "neighbour": replace(scene.rules, way="neighbour"),
        "weakest link": replace(scene.rules, measure="weakest"),
        "spki": replace(scene.rules, way="spki"),
    }
    graph = Oriented(without(scene.edges, scene.blocked), scene.issuer)
    return {
        name: "accept" if _decided(scene, graph, rules).ok else "refuse"
        for name, rules in others.items()
    }


def printed(scene: Scene) -> dict[str, float]:
    """The averages as the paper prints the formula, which divides by the number of sites; its
    figures divide by the number of edges."""
    graph = Oriented(without(scene.edges, scene.blocked), scene.issuer)
    return {
        signer: round(min(t / (e + 1) for e, t in sums.items()) / SCALE, 3)
        for signer, sums in sorted(graph.sums(scene.judge).items())
        if signer in scene.signers
    }
