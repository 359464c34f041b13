"""The three stores against loops over sets, over long random histories; what they cost."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterable

import pytest

from families.purposes import purposes_model as model
from families.purposes import purposes_search
from families.purposes.purposes_search import WANTED
from families.purposes.purposes_work import work
from sealmq.families.purposes.store import (
    MAX_LEVELS,
    Eip,
    Reservation,
    Source,
    Store,
    TooDeep,
)
from sealmq.families.purposes.stores import STORES
from sealmq.families.purposes.tree import Tree
from sealmq.families.purposes.trie import Trie

FILTERS = model.all_filters()
SOURCES: tuple[Source, ...] = ("client", "site")


def keys(found: Iterable[Reservation]) -> list[tuple[str, str]]:
    return sorted((r.filter, r.source) for r in found)


def reserve(store: Store, *filters: str) -> None:
    for filter in filters:
        store.put(Reservation(filter, ["p"], []))


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Store:
    return STORES[request.param]()


def history(steps: int, seed: int, names: list[str]) -> None:
    """Reservations come, are overwritten and go; every question is asked of every store."""
    r = random.Random(seed)
    stores = {name: make() for name, make in STORES.items()}
    held: dict[tuple[str, Source], Reservation] = {}
    for step in range(steps):
        key = r.choice(names), r.choice(SOURCES)
        if r.random() < 0.45:
            held.pop(key, None)
            for store in stores.values():
                store.remove(*key)
        else:
            aip, pip = r.sample("pqrs", r.randint(0, 2)), r.sample("pqrs", r.randint(0, 1))
            held[key] = Reservation(key[0], aip, pip, r.choice(["u", "v"]), "l", key[1])
            for store in stores.values():
                store.put(held[key])
        asked, topic = r.choice(names), r.choice(model.UNIVERSE)
        covering = sorted(k for k in held if model.covers(k[0], asked))
        crossing = sorted(k for k in held if model.crosses(k[0], asked))
        matching = sorted(k for k in held if model.matches(k[0], topic))
        wanted = r.choice(WANTED)
        there = purposes_search.there(list(held.values()), asked, wanted)
        aips = {p for k in matching for p in held[k].aip}
        pips = {p for k in matching for p in held[k].pip}
        for name, store in stores.items():
            told = (name, seed, step, asked, topic)
            assert len(store) == len(held), told
            assert store.get(*key) is held.get(key), told
            assert keys(store.covering(asked)) == covering, told
            assert keys(store.crossing(asked)) == crossing, told
            assert keys(store.matching(topic)) == matching, told
            if r.random() < 0.7:
                store.rest_on(asked)
                store.rest_on(topic)
            assert purposes_search.found(store, asked, wanted) == there, (*told, wanted)
            eip = store.eip(topic)
            assert keys(eip.of) == matching, told
            assert (set(eip.aip), set(eip.pip)) == (aips, pips), told
            assert bool(eip) == bool(matching), told
            for by in "uv":
                wild = [k for k, x in held.items() if x.by == by and k[1] == "client"]
                assert store.wild(by) == sum("+" in f or "#" in f for f, _ in wild), told
        if step % 50 == 0:
            assert all(keys(store) == sorted(held) for store in stores.values())


def test_random_histories_of_few_filters() -> None:
    r = random.Random(1)
    for seed in range(6):
        history(150, seed, r.sample(FILTERS, 12))


def test_a_random_history_of_all_filters() -> None:
    history(600, 7, FILTERS)


@pytest.mark.full
def test_long_random_histories() -> None:
    r = random.Random(2)
    for seed in range(20):
        history(1000, seed, r.sample(FILTERS, r.choice([6, 20, 80])))
    history(4_000, 1, FILTERS)


def test_both_sources_hold_beside_each_other(store: Store) -> None:
    mine = Reservation("a/b", ["p"], [])
    sites = Reservation("a/b", ["q"], ["r"], source="site")
    store.put(mine)
    store.put(sites)
    assert store.eip("a/b").aip == {"p", "q"}
    store.remove("a/b", "client")
    store.remove("a/b", "client")
    assert store.eip("a/b").of == (sites,)


def test_an_empty_set_is_a_reservation(store: Store) -> None:
    store.put(Reservation("a", [], []))
    assert store.eip("a")
    assert not store.eip("a").aip
    assert not store.eip("b")


def test_both_spellings_of_everything_are_two_reservations(store: Store) -> None:
    for filter in ("#", "+/#", "/#", "/+/#"):
        store.put(Reservation(filter, ["p"], []))
    assert len(store) == 4
    assert len(store.covering("+/#")) == len(store.covering("#")) == 2
    assert len(store.matching("/x")) == 4
    store.remove("#", "client")
    assert keys(store.covering("#")) == [("+/#", "client")]
    assert len(store.matching("$SYS/x")) == 0


def test_a_filter_is_so_deep_at_most(store: Store) -> None:
    reserve(store, "/" * (MAX_LEVELS - 1))
    for filter in ("/" * MAX_LEVELS, "/" * 1023):
        with pytest.raises(TooDeep):
            reserve(store, filter)
    with pytest.raises(ValueError, match="NUL"):
        reserve(store, "a/\0client")
    assert len(store) == 1


def test_questions_may_be_as_deep_as_mqtt_has_them(store: Store) -> None:
    reserve(store, "a/#", "a/+/#", "b/" * 20 + "c", "b/" * 20 + "d")
    assert len(store.matching("a" + "/" * 1000)) == 2
    assert len(store.covering("/".join("+" * 512))) == 0
    assert len(list(store.crossing("/".join("+" * 512)))) == 2
    assert len(store.matching("b/" * 500)) == 0
    for odd in ("\0", "a/\0client", "a/\0", "\0client"):
        assert not [r for r in store.matching(odd) if not r.filter.startswith("a/")]
        store.rest_on(odd)
        store.eip(odd)
    reserve(store, "x")


@pytest.mark.parametrize("shape", ["fleet/v{}/speed", "v{}/+/speed", "fleet/+/v{}/#", "v{}/#"])
def test_a_question_to_the_tree_costs_the_same_however_many_there_are(shape: str) -> None:
    tree = Tree()
    costs = []
    at = 0
    for count in (10, 1_000, 20_000):
        for i in range(at, count):
            tree.put(Reservation(shape.format(i), ["p"], []))
        at = count
        topic = shape.format(7).replace("+", "x").replace("#", "y/z")
        assert len(tree.matching(topic)) == 1
        costs.append(
            [
                work(lambda topic=topic: tree.matching(topic)),  # type: ignore[misc]
                work(lambda: tree.covering(shape.format(7))),
                work(lambda topic=topic: list(tree.crossing(topic))),  # type: ignore[misc]
                work(lambda: tree.put(Reservation(shape.format(7), ["q"], []))),
            ]
        )
    assert costs[0] == costs[1] == costs[2]
    assert max(costs[0]) < 60


def test_what_a_question_visits_is_bounded_by_the_reservations_with_wildcards() -> None:
    """The worst that 1,024 of them can do: each of 2 to the 10th paths is there.

    Ten more levels would be a thousand times the work and need a thousand times the reservations:
    this is what `wild` is for.
    """
    tree = Tree()
    reserve(tree, *("/".join("a+"[n >> i & 1] for i in range(10)) for n in range(1024)))
    assert tree.wild("") == 1023
    for topic, count in (("a/" * 9 + "a", 1024), ("b/" + "a/" * 8 + "a", 512), ("a/" * 30, 0)):
        assert len(tree.matching(topic)) == count
        assert work(lambda topic=topic: tree.matching(topic)) < 30 * 1024  # type: ignore[misc]
    few = Tree()
    reserve(few, *("/".join("+" * n) for n in range(1, MAX_LEVELS + 1)))
    assert work(lambda: few.matching("/".join("a" * MAX_LEVELS))) < 10 * MAX_LEVELS


def test_a_reservation_takes_few_bytes_and_no_node_of_its_own() -> None:
    count = 20_000
    tracemalloc.start()
    tree = Tree()
    for i in range(count):
        tree.put(Reservation(f"fleet/v{i}/location", ["billing"], ["ads"], "steward"))
    each = tracemalloc.get_traced_memory()[0] / count
    tracemalloc.stop()
    assert each < 400
    assert tree._all.nodes == 1


def test_the_shape_depends_on_what_is_held_alone() -> None:
    r = random.Random(3)
    names = r.sample(FILTERS, 80)
    want: Trie[Reservation] = Trie()
    for name in names[:30]:
        want.put(Reservation(name, [], []))
    got: Trie[Reservation] = Trie()
    r.shuffle(names)
    for name in names:
        got.put(Reservation(name, [], []))
    kept = {x.filter for x in want}
    for name in names:
        if name not in kept:
            assert got.remove(name, "client") is not None

    def shape(node: object) -> object:
        if isinstance(node, dict):
            return {key: shape(below) for key, below in node.items()}
        assert isinstance(node, Reservation)
        return node.filter

    assert shape(got._root) == shape(want._root)
    assert got.nodes == want.nodes
    for name in kept:
        got.remove(name, "client")
    assert (got._root, got.nodes, len(got)) == ({}, 0, 0)


def test_equal_sets_are_one_set() -> None:
    a = Reservation("a", ["p", "q"], ["r"])
    b = Reservation("b", ["q", "p"], ["r"])
    assert a.aip is b.aip
    assert Eip([a, b]).aip is a.aip
    assert Eip([a]).pip is b.pip
