"""Purposes above and below one another: by name, by edges; what is allowed; what cannot be."""

from __future__ import annotations

import random
from collections.abc import Collection

import pytest

from families.purposes import purposes_model as model
from sealmq.families.purposes import dag
from sealmq.families.purposes.dag import BadTree, Purposes


def allows(purposes: Purposes, aip: Collection[str], pip: Collection[str], ap: str) -> bool:
    """(ap or an ancestor in AIP) and (neither ap nor an ancestor in PIP)."""
    above = purposes.above(ap)
    return not above.isdisjoint(aip) and above.isdisjoint(pip)


def test_the_papers_example() -> None:
    """Section V-A: marketing is allowed, all but marketing/individualized; so is operational."""
    purposes = Purposes({"operational": ["billing", "route-optimization"]})
    aip, pip = {"operational", "marketing"}, {"marketing/individualized"}
    assert allows(purposes, aip, pip, "billing")
    assert allows(purposes, aip, pip, "operational/any")
    assert allows(purposes, aip, pip, "marketing")
    assert allows(purposes, aip, pip, "marketing/analytics")
    assert not allows(purposes, aip, pip, "marketing/individualized")
    assert not allows(purposes, aip, pip, "marketing/individualized/mail")
    assert not allows(purposes, aip, pip, "research")
    assert not allows(purposes, (), (), "billing")


def test_a_child_does_not_allow_its_parent_and_a_name_is_no_level() -> None:
    purposes = Purposes()
    assert not allows(purposes, {"a/b"}, (), "a")
    assert not allows(purposes, {"a"}, (), "ab")
    assert purposes.above("a/b/c") == {"a", "a/b", "a/b/c"}


def test_a_purpose_may_have_several_parents_and_a_prohibition_comes_down_each_way() -> None:
    purposes = Purposes({"care": ["alarm"], "research": ["alarm"], "alarm": ["alarm-test"]})
    assert purposes.above("alarm-test/x") == {
        "alarm-test/x",
        "alarm-test",
        "alarm",
        "care",
        "research",
    }
    assert allows(purposes, {"care"}, (), "alarm-test")
    assert not allows(purposes, {"care"}, {"research"}, "alarm-test")


def test_with_a_tree_only_its_purposes_are_known() -> None:
    purposes = Purposes({"operational": ["operational/billing/car"], "care": []})
    for name in ("operational", "operational/billing", "operational/billing/car", "care"):
        assert purposes.known(name)
    assert not purposes.known("operational/biling")
    assert purposes.suggest("operational/biling") == "operational/billing"
    assert purposes.suggest("zzzzzz") == ""
    assert purposes
    assert not Purposes()
    assert Purposes().known("anything")


@pytest.mark.parametrize(
    ("tree", "key", "way"),
    [
        ({"a": ["a"]}, "a", "a > a"),
        ({"a": ["b"], "b": ["c"], "c": ["a"]}, "", " > "),
        ({"a/b": ["a"]}, "a/b", "a/b"),
        ({"x": ["y"], "y/z": ["x"]}, "", " > "),
    ],
)
def test_a_circle_is_refused_by_name(tree: dict[str, list[str]], key: str, way: str) -> None:
    with pytest.raises(BadTree) as caught:
        Purposes(tree)
    assert caught.value.key in tree
    if key:
        assert caught.value.key == key
    assert way in caught.value.what
    first, *_, last = caught.value.what.split(": ")[1].split(" > ")
    assert first == last


def test_deep_and_wide_graphs_need_no_recursion() -> None:
    line = {f"p{i}": [f"p{i + 1}"] for i in range(5000)}
    purposes = Purposes(line)
    assert len(purposes.above("p5000")) == 5001
    with pytest.raises(BadTree):
        Purposes({**line, "p5000": ["p0"]})
    # A ladder has 2 to the 40th ways up, and 81 purposes.
    ladder = {f"{x}{i}": [f"l{i + 1}", f"r{i + 1}"] for i in range(40) for x in "lr"}
    assert len(Purposes(ladder).above("l40")) == 81


def test_what_clients_ask_for_is_not_remembered_without_end() -> None:
    purposes = Purposes()
    for i in range(3 * dag.MEMO):
        purposes.above(f"p/{i}")
    assert len(purposes._above) <= dag.MEMO


def test_random_graphs_agree_with_the_model() -> None:
    r = random.Random(6)
    names = ["a", "b", "c", "d", "a/x", "b/x", "a/x/y", "c/z"]
    refused = 0
    for _ in range(400):
        edges = {
            parent: r.sample(names, r.randint(0, 2)) for parent in r.sample(names, r.randint(0, 4))
        }
        graph = model.Graph(edges)
        # A circle: somebody has an ancestor that has it as one.
        circle = any(
            a != b and a in graph.ancestors(b) and b in graph.ancestors(a)
            for a in names
            for b in names
        ) or any(parent in below for parent, below in edges.items())
        try:
            purposes = Purposes(edges)
        except BadTree:
            assert circle, edges
            refused += 1
            continue
        assert not circle, edges
        for name in [*names, "e", "a/x/q", "c"]:
            assert purposes.above(name) == graph.ancestors(name)
            assert purposes.known(name) == graph.known(name)
        for _ in range(5):
            aip, pip = r.sample(names, 2), r.sample(names, r.randint(0, 2))
            ap = r.choice(names)
            assert allows(purposes, aip, pip, ap) == graph.allows(aip, pip, ap)
    assert 20 < refused < 380
