"""The least trustworthy path: every figure of the paper's example, and random graphs against
networkx, which enumerates what is computed here."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import networkx as nx
import pytest

from sealmq.families.trust import example
from sealmq.families.trust.counting import Counting, Rated, Shape, bits
from sealmq.families.trust.decide import Rules, accepts
from sealmq.families.trust.example import PAPER, answer, otherwise, printed
from sealmq.families.trust.paths import Edges, Least, Measure, Oriented, Vector, without

S2 = {"rating": 0.45, "path": [["b2", "b4", "b6"]], "others": []}
S3 = {
    "rating": 0.4,
    "path": [["b3", "b4", "b6"]],
    "others": [{"rating": 0.525, "path": ["b3", "b5", "b6"]}],
}
S1 = {
    "rating": 0.5,
    "path": [["b1", "b2", "b4", "b6"], ["b1", "b3", "b4", "b6"]],
    "others": [{"rating": 0.5833, "path": ["b1", "b3", "b5", "b6"]}],
}


def test_the_paper_s_example_has_the_figures_of_its_text() -> None:
    found = answer(PAPER)
    assert found["signers"] == {"b1": S1, "b2": S2, "b3": S3}
    assert (found["decision"], found["theta"], found["pi"]) == ("accept", 0.5, 0.6)
    assert found["handed_over_by"] == {"b4": "refuse", "b5": "deliver, forward"}
    assert otherwise(PAPER) == {
        "theta 0.51": "refuse",
        "two signers": "refuse",
        "neighbour": "refuse",
        "weakest link": "refuse",
        "spki": "refuse",
    }
    weakest = answer(replace(PAPER, rules=Rules(measure="weakest")))
    assert {s: row["rating"] for s, row in weakest["signers"].items()} == dict.fromkeys(
        ("b1", "b2", "b3"), 0.4
    )


def test_the_average_as_printed_divides_by_sites() -> None:
    assert printed(PAPER) == {"b1": 0.375, "b2": 0.3, "b3": 0.267}


def test_links_that_run_both_ways_change_nothing_of_the_example() -> None:
    back = {(b, a): 100 for a, b in PAPER.edges}
    assert answer(replace(PAPER, edges={**PAPER.edges, **back})) == answer(PAPER)


def test_edges_of_a_blocked_neighbour_leave_the_graph_before_paths_are_rated() -> None:
    found = answer(replace(PAPER, blocked=frozenset({"b4"})))
    ratings = {s: row["rating"] for s, row in found["signers"].items()}
    assert ratings == {"b1": 0.5833, "b2": None, "b3": 0.525}
    assert found["handed_over_by"] == {"b5": "deliver, forward"}


def test_sums_are_compared_undivided() -> None:
    assert Least(19_999, 3).reaches(6666)
    assert not Least(19_999, 3).reaches(6667)
    assert Least(19_998, 3).reaches(6666)
    assert not Least(19_997, 3).reaches(6666)


def test_one_sum_a_site_rates_too_high_where_sums_by_length_do_not() -> None:
    edges = {
        ("o", "a"): 9000,
        ("a", "t"): 5000,  # the least sum, and the average .5
        ("a", "b"): 2000,
        ("b", "c"): 2000,
        ("c", "t"): 2000,  # three edges: a greater sum, the average .2
        ("a", "c"): 10_000,
    }
    graph = Oriented(edges, "o")
    assert graph.sums("t")["a"] == {1: 5000, 2: 12_000, 3: 6000}
    assert graph.least("t", "average")["a"] == Least(6000, 3)


def drawn(draw: random.Random) -> tuple[Edges, str, str]:
    n = draw.randint(3, 8)
    sites = [f"s{i}" for i in range(n)]
    links = {(a, b) for a, b in pairwise(sites)} | {
        (a, b) for a in sites for b in sites if a < b and draw.random() < 0.3
    }
    edges: dict[tuple[str, str], int] = {}
    for a, b in links:
        edges[a, b] = draw.randint(0, 100) * 100
        if draw.random() < 0.9:
            edges[b, a] = draw.randint(0, 100) * 100
    return edges, draw.choice(sites), draw.choice(sites)


def directed(edges: Edges, issuer: str) -> nx.DiGraph:
    """For one issuer, by the definition: a link runs from the nearer site, or the lesser name."""
    far = nx.single_source_shortest_path_length(nx.Graph(list(edges)), issuer)
    made = nx.DiGraph()
    made.add_nodes_from(far)
    made.add_edges_from((a, b) for a, b in edges if a in far and (far[a], a) < (far[b], b))
    return made


def rated(edges: Edges, path: list[str], measure: Measure) -> Fraction:
    ratings = [edges[pair] for pair in pairwise(path)]
    return Fraction(sum(ratings), len(ratings)) if measure == "average" else Fraction(min(ratings))


@pytest.mark.parametrize("measure", ["average", "weakest"])
def test_least_paths_are_what_enumeration_finds(measure: Measure) -> None:
    draw = random.Random(4)
    plain_is_wrong = 0
    for _ in range(400):
        edges, issuer, target = drawn(draw)
        graph, other = Oriented(edges, issuer), directed(edges, issuer)
        least = graph.least(target, measure)
        for source in other:
            every = list(nx.all_simple_paths(other, source, target)) if source != target else []
            assert sorted(map(tuple, every)) == sorted(graph.paths(source, target))
            if not every:
                assert source not in least
                continue
            worst = min(rated(edges, path, measure) for path in every)
            assert Fraction(least[source].total, least[source].edges) == worst
            ties = [tuple(path) for path in every if rated(edges, path, measure) == worst]
            assert sorted(graph.least_paths(source, target, measure)) == sorted(ties)
            if measure == "average":
                by_sum = min(every, key=lambda path: sum(edges[pair] for pair in pairwise(path)))
                plain_is_wrong += rated(edges, by_sum, measure) > worst
    assert measure == "weakest" or plain_is_wrong > 50


def test_a_path_signed_throughout_is_what_enumeration_finds() -> None:
    draw = random.Random(5)
    both = set()
    for _ in range(400):
        edges, issuer, target = drawn(draw)
        graph, other = Oriented(edges, issuer), directed(edges, issuer)
        signers = frozenset(site for site in other if draw.random() < 0.7)
        paths = nx.all_simple_paths(other, issuer, target) if issuer != target else ()
        want = any(signers.issuperset(path[:-1]) for path in paths)
        assert graph.signed_throughout(signers, target) == want
        both.add(want)
    assert both == {True, False}


def test_a_distance_vector_by_length_finds_the_same_within_the_longest_path_s_rounds() -> None:
    draw = random.Random(6)
    more_than_the_diameter = 0
    for _ in range(200):
        edges, issuer, _ = drawn(draw)
        graph, other = Oriented(edges, issuer), directed(edges, issuer)
        sites = {s: Vector(s, dict(graph.parents.get(s, ()))) for s in other}
        rounds = 0
        while True:
            told = {s: {k: dict(v) for k, v in one.sums.items()} for s, one in sites.items()}
            changed = [sites[b].hear(a, told[a]) for a, b in other.edges]
            if not any(changed):
                break
            rounds += 1
        assert rounds <= nx.dag_longest_path_length(other)
        more_than_the_diameter += rounds > nx.diameter(nx.Graph(list(edges)))
        for target, vector in sites.items():
            assert vector.sums == graph.sums(target)
    assert more_than_the_diameter > 20


def test_a_vector_hears_nobody_that_is_farther_from_the_issuer() -> None:
    vector = Vector("me", {"near": 5000})
    assert not vector.hear("far", {"x": {1: 0}})
    assert vector.hear("near", {"me": {1: 0}, "x": {1: 1000}})
    assert vector.sums == {"near": {1: 5000}, "x": {2: 6000}}
    assert not vector.hear("near", {"x": {1: 1000}})


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"ratings": [["b1", "b2", 1.5]]}, "no number from 0 to 1"),
        ({"ratings": [["b1", "b2", 0.12345]]}, "at most four digits"),
        ({"ratings": [["b1", "b1", 0.5]]}, "rated twice, or by itself"),
        ({"ratings": [["b1", "b2"]]}, "what b2 thinks of b1"),
        ({"judge": None}, "no name of a site"),
        ({"way": "any"}, "way is path"),
        ({"accept": 0.7}, "θ ≤ π"),
        ({"k": 0}, "0 signers"),
        ({"thorough": 1}, "'thorough' is no key"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_the_first_thing_that_is(
    change: dict[str, object], what: str
) -> None:
    found = {"ratings": [["b1", "b2", 0.6]], "issuer": "b1", "judge": "b2"}
    assert answer(example.read(found))["decision"] == "accept"
    with pytest.raises(example.BadScene, match=what):
        example.read({**found, **change})


def test_without_takes_both_ends() -> None:
    assert without({("a", "b"): 1, ("b", "c"): 2, ("c", "a"): 3}, {"b"}) == {("c", "a"): 3}


def test_who_counts_is_what_accepting_says() -> None:
    """`Counting` for many messages, `accepts` for one: the same, by every rule and at every θ."""
    draw = random.Random(9)
    seen: dict[tuple[str, str, bool], int] = {}
    for _ in range(900):
        edges, issuer, me = drawn(draw)
        edges = {**{(b, a): draw.randint(0, 100) * 100 for a, b in edges}, **edges}  # both ways
        accept = draw.choice([3000, 5000, draw.randint(0, 60) * 100])
        rules = Rules(
            way=draw.choice(["path", "path", "neighbour", "spki"]), accept=accept,
            measure=draw.choice(["average", "weakest"]), signers=draw.randint(1, 2),
        )  # fmt: skip
        graph = Oriented(edges, issuer)
        names = sorted({site for pair in edges for site in pair} | {issuer, me})
        number = {name: n for n, name in enumerate(names)}
        of = [{number[a]: r for (a, b), r in edges.items() if b == name} for name in names]
        low = [bits([n for n, r in each.items() if r < accept]) for each in of]
        near_by = [bits(each) for each in of]
        shape = Shape(number[issuer], near_by)
        assert [names[n] for n in shape.order] == graph.order
        counting = Counting(shape, rules, Rated(of, low, any(low)))
        for me in names:
            beside = {a: rating for (a, b), rating in edges.items() if b == me}
            near = bits([number[a] for a, rating in beside.items() if rating >= rules.sign])
            signers = frozenset(site for site in names if draw.random() < draw.choice([0.2, 0.7]))
            want = accepts(rules, me, signers, beside, graph, graph.least(me, rules.measure)).ok
            got = counting.accepts(
                number[me], bits([number[s] for s in signers]), bits([number[a] for a in beside]),
                near,
            )  # fmt: skip
            assert got == want
            of_it = (rules.way, rules.measure if rules.way == "path" else "", want)
            seen[of_it] = seen.get(of_it, 0) + 1
    assert len(seen) == 8
    assert min(seen.values()) > 50
