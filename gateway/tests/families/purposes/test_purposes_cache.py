"""The cache of the stores: a change ends what it crosses and nothing else; memory has an end."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterable

import pytest

from families.purposes import purposes_model as model
from families.purposes.purposes_work import work
from sealmq.families.api import Dep
from sealmq.families.purposes import cache as caching
from sealmq.families.purposes import store, trie
from sealmq.families.purposes.cache import Cache
from sealmq.families.purposes.store import ALL, MAX_LEVELS, SETTINGS, Eip, Reservation, Wanted
from sealmq.families.purposes.tree import Tree

FILTERS = model.all_filters()


def reservation(filter: str, *aip: str) -> Reservation:
    return Reservation(filter, aip, [])


def fine(deps: Iterable[Dep]) -> set[str]:
    return {dep[1] for dep in deps if dep != ALL}


def test_a_change_ends_exactly_what_it_crosses() -> None:
    asked = ["a/b", "a/c", "a/+", "#", "$x/a", "b"]
    cases = {
        "a/b": {"a/b", "a/+", "#"},
        "a/#": {"a/b", "a/c", "a/+", "#"},
        "+": {"b", "#"},
        "$x/#": {"$x/a"},
        "a/b/c": {"#"},
        "": set(),
    }
    for change, ended in cases.items():
        cache = Cache(Tree())
        deps = {name: cache.rest_on(name) for name in asked}
        assert len(set(deps.values())) == len(asked)
        assert ALL not in deps.values()
        if change:
            got = cache.put(reservation(change, "p"))
            assert set(got) == {deps[name] for name in ended}
            assert len(got) == len(ended)
        # What was ended before is not known any more; what is left is.
        left = fine(cache.put(reservation("#"))) | fine(cache.put(reservation("$x/#")))
        assert left == set(asked) - ended


def test_putting_the_same_again_or_removing_nothing() -> None:
    cache = Cache(Tree())
    cache.rest_on("a")
    assert cache.remove("a", "client") == ()
    cache.put(reservation("a", "p"))
    dep = cache.rest_on("a")
    assert cache.rest_on("a") == dep
    assert list(cache.remove("a", "client")) == [dep]
    assert cache.remove("a", "client") == ()


def test_an_eip_is_looked_up_once_between_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    tree = Tree()
    real = tree.eip

    def eip(topic: str) -> Eip:
        looked.append(topic)
        return real(topic)

    monkeypatch.setattr(tree, "eip", eip)
    cache = Cache(tree)
    for _ in range(3):
        cache.rest_on("a/b")
        assert not cache.eip("a/b")
    assert looked == ["a/b"]
    cache.put(reservation("a/c", "q"))
    cache.eip("a/b")
    assert looked == ["a/b"]
    cache.put(reservation("a/+", "p"))
    for _ in range(3):
        cache.rest_on("a/b")
        assert cache.eip("a/b").aip == {"p"}
    assert looked == ["a/b", "a/b"]


def test_what_crosses_a_filter_is_looked_at_once_and_then_only_what_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store, "FEW", 0)
    tree = Tree()
    cache = Cache(tree)
    allows, prohibits = (Wanted(kind, frozenset("p")) for kind in ("allows", "prohibits"))
    cache.put(reservation("b", "q"))
    cache.rest_on("#")
    assert not cache.any("#", allows)
    assert not cache.any("#", prohibits)
    monkeypatch.setattr(tree, "steps", None)
    monkeypatch.setattr(tree, "crossing", None)
    cache.put(reservation("$x/a", "p"))
    assert not cache.any("#", allows)
    cache.put(reservation("a", "p"))
    cache.put(reservation("c", "p"))
    assert cache.any("#", allows)
    assert not cache.any("#", prohibits)
    cache.remove("a", "client")
    assert cache.any("#", allows)
    cache.put(reservation("c", "q"))
    assert not cache.any("#", allows)
    cache.put(Reservation("c", [], ["p"]))
    assert cache.any("#", prohibits)
    cache.remove("c", "client")
    assert not cache.any("#", prohibits)


def test_a_change_that_reaches_very_many_ends_all_in_few_steps_and_searches_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(caching, "MANY", 20)
    monkeypatch.setattr(store, "FEW", 0)
    costs = []
    for count in (200, 2_000):
        cache = Cache(Tree(), 10_000)
        wanted = Wanted("allows", frozenset("p"))
        cache.put(reservation("z"))
        cache.rest_on("#")
        assert not cache.any("#", wanted)
        for i in range(count):
            cache.rest_on(f"a/{i}")
            cache.eip(f"a/{i}")
        assert fine(cache.put(reservation("a/1"))) == {"#", "a/1"}
        costs.append(work(lambda cache=cache: cache.put(reservation("a/#", "p"))))  # type: ignore[misc]
        assert cache.put(reservation("a/+")) == [("purposes", "#")]
        assert cache.any("#", wanted)
        assert cache.eip("a/3").aip == {"p"}
        # What was asked before is let go a little with each that is asked now.
        for i in range(count):
            cache.rest_on(f"b/{i}")
        assert not cache._old
        assert cache.asked == count + 1
    assert costs[1] <= costs[0] + 20


def test_what_is_asked_about_as_a_topic_and_as_a_filter_is_right_as_both() -> None:
    cache = Cache(Tree())
    for aip in ("p", "q", "r"):
        cache.put(reservation("a/+", aip))
        cache.rest_on("a/b")
        assert cache.eip("a/b").aip == {aip}
        assert cache.any("a/b", Wanted("allows", frozenset(aip)))
        assert not cache.any("a/b", Wanted("allows", frozenset("x")))
        assert cache.eip("a/b").aip == {aip}


def test_of_a_filter_answers_for_so_many_purposes_are_kept_and_others_are_still_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store, "FEW", 0)
    cache = Cache(Tree())
    many = [Wanted("allows", frozenset([f"p{i}"])) for i in range(2 * caching.KNOWN)]
    for i, wanted in enumerate(many):
        cache.rest_on("#")
        assert not cache.any("#", wanted)
        cache.put(reservation(f"a/{i}", f"p{i}"))
        assert cache.any("#", wanted)
    assert all(cache.any("#", wanted) for wanted in many)
    searches = cache._asked["#"].searches
    assert searches is not None
    assert len(searches) == caching.KNOWN


def test_what_does_not_fit_rests_on_one_dep_that_every_change_ends() -> None:
    cache = Cache(Tree(), 2)
    first = [cache.rest_on(name) for name in ("a", "b")]
    assert cache.forgotten() == []
    later = [cache.rest_on(name) for name in ("c", "d")]
    assert ALL not in [*first, *later]
    # a and b wait to be forgotten, so there is no room to forget more.
    assert cache.rest_on("e") == ALL
    assert cache.rest_on("d") == later[1]
    assert set(cache.put(reservation("zzz"))) == {*first, ALL}
    assert cache.put(reservation("zzz", "p")) == []
    assert cache.rest_on("e") not in (ALL, *later)
    assert list(cache.forgotten()) == [later[0]]
    assert cache.asked == 2


@pytest.mark.parametrize(
    "name", ["/" * MAX_LEVELS, "x" * (caching.LONG + 1), "a/\0client", "\0"], ids=repr
)
def test_what_is_very_deep_or_long_has_no_place_and_is_still_right(name: str) -> None:
    cache = Cache(Tree())
    for aip in ("p", "q"):
        assert cache.rest_on(name) == ALL
        assert list(cache.put(reservation("#", aip))) == [ALL]
        assert cache.eip(name).aip == {aip}
    assert cache.asked == 0


def test_a_flood_of_topics_takes_so_much_memory_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Deep topics in pairs are the worst: each pair makes a node for every level."""
    monkeypatch.setattr(trie, "_LEVELS", 16)
    size = 100
    cache = Cache(Tree(), size)
    tracemalloc.start()
    low = high = 0
    for i in range(8 * size):
        name = f"{i}/" * (MAX_LEVELS - 2)
        for end in "xy":
            cache.rest_on(name + end)
            cache.eip(name + end)
        if i % 7 == 0:
            cache.forgotten()
        high = max(high, tracemalloc.get_traced_memory()[0])
        # Long after it is full: what other tests left for reuse is used up by then.
        if i == 4 * size:
            low = high
    tracemalloc.stop()
    assert cache.asked <= size
    assert cache._trie.nodes <= 2 * size + MAX_LEVELS
    assert high < low * 1.2
    assert high / size < 3_000


def deps_are_never_missed(steps: int, seed: int, size: int) -> int:
    """Verdicts rest on their deps; one that is still there always says what the store says now."""
    r = random.Random(seed)
    cache = Cache(Tree(), size)
    names = r.sample(FILTERS, 25)
    held: dict[tuple[str, object], frozenset[str]] = {}
    verdicts: dict[str, tuple[Dep, frozenset[str]]] = {}
    kept = 0

    def truth(name: str) -> frozenset[str]:
        """What crosses the name: what an answer about it may look at."""
        return frozenset(
            f"{filter} {source} {sorted(aip)}"
            for (filter, source), aip in held.items()
            if model.crosses(filter, name)
        )

    def end(deps: Iterable[Dep]) -> None:
        gone = set(deps)
        for name in [n for n, (dep, _) in verdicts.items() if dep in gone or SETTINGS in gone]:
            del verdicts[name]

    for step in range(steps):
        what = r.random()
        name = r.choice(names)
        source = r.choice(("client", "site"))
        if what < 0.25:
            aip = frozenset(r.sample("pq", r.randint(0, 2)))
            end(cache.put(Reservation(name, aip, [], source=source)))  # type: ignore[arg-type]
            held[name, source] = aip
        elif what < 0.4:
            end(cache.remove(name, source))  # type: ignore[arg-type]
            held.pop((name, source), None)
        elif what < 0.45:
            end(cache.forgotten())
        elif what < 0.9 or name in verdicts:
            topic = r.choice(model.UNIVERSE[:150]) if what < 0.7 else name
            dep = cache.rest_on(topic)
            assert (dep == ALL) or dep[1] == topic
            assert cache.eip(topic).aip == frozenset().union(
                *(aip for (filter, _), aip in held.items() if model.covers(filter, topic))
            ), (seed, step)
            verdicts[topic] = (dep, truth(topic))
        else:
            cache.any(name, Wanted("allows", frozenset("p")))
        for topic, (_, was) in verdicts.items():
            assert was == truth(topic), (seed, step, topic)
        kept += len(verdicts)
        assert cache.asked <= size
    return kept


def test_a_verdict_that_rests_on_a_dep_is_never_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(4):
        monkeypatch.setattr(caching, "MANY", (3, 1000, 1, 2)[seed])
        assert deps_are_never_missed(100, seed, size=(1000, 8, 3, 1)[seed]) > 100


@pytest.mark.full
def test_no_verdict_is_stale_in_long_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(30):
        monkeypatch.setattr(caching, "MANY", (1000, 10, 3)[seed % 3])
        deps_are_never_missed(1500, seed, size=(1000, 20, 8, 3, 1)[seed % 5])
