"""Searches in slices: what they say in the end is what a look at everything says then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from families.purposes import purposes_model as model
from families.purposes.purposes_search import SETS, WANTED, found, there
from sealmq.families.api import NotYet
from sealmq.families.purposes import cache as caching
from sealmq.families.purposes import search as searching
from sealmq.families.purposes import store, trie
from sealmq.families.purposes.cache import Cache
from sealmq.families.purposes.store import Reservation, Source, Wanted
from sealmq.families.purposes.tree import Tree

# Among few names, so that they cross, split and fold.
quick = settings(max_examples=100, deadline=None, derandomize=True, database=None)
NAMES = [f for f in model.all_filters() if f.count("/") < 3 and "$x/" not in f]
purposes = st.frozensets(st.sampled_from("pqs"), max_size=2)
sources = st.sampled_from(["client", "site"])
reservations = st.builds(
    lambda f, aip, pip, source: Reservation(f, aip, pip, source=source),
    st.sampled_from(NAMES),
    purposes,
    purposes,
    sources,
)
changes = st.one_of(reservations, st.tuples(st.sampled_from(NAMES), sources))
questions = st.tuples(st.sampled_from(NAMES), st.sampled_from(WANTED))


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """Everything that has a bound reaches it at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(caching, "SLICE", 1)
        patch.setattr(caching, "LOOSE", 3)
        patch.setattr(caching, "STALE", 5)
        patch.setattr(caching, "KNOWN", 2)
        patch.setattr(caching, "MANY", 3)
        patch.setattr(searching, "LEFT", 4)
        patch.setattr(trie, "_WIDE", 1)
        patch.setattr(store, "FEW", 0)
        yield


class Held:
    """A cache, and a plain table of what is in it."""

    def __init__(self, size: int) -> None:
        self.cache = Cache(Tree(), size)
        self.held: dict[tuple[str, Source], Reservation] = {}

    def change(self, what: Reservation | tuple[str, Source]) -> None:
        if isinstance(what, Reservation):
            self.held[what.filter, what.source] = what
            self.cache.put(what)
        else:
            self.held.pop(what, None)
            self.cache.remove(*what)

    def ask(self, filt: str, wanted: Wanted) -> bool | None:
        """A slice, as the family asks for it; what it says is compared."""
        self.cache.rest_on(filt)
        try:
            said = self.cache.any(filt, wanted)
        except NotYet:
            return None
        assert said == there(list(self.held.values()), filt, wanted), (filt, wanted)
        return said


@quick
@given(
    st.integers(1, 6),
    st.sampled_from([0, 3]),
    st.lists(reservations, max_size=12),
    st.lists(st.one_of(changes, questions), max_size=40),
)
def test_a_search_says_what_a_look_at_everything_says_whatever_changes_between_its_slices(
    size: int, few: int, first: list[Reservation], then: list[Reservation | tuple[str, object]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "FEW", few)
        asked_and_changed(size, first, then)


def asked_and_changed(
    size: int, first: list[Reservation], then: list[Reservation | tuple[str, object]]
) -> None:
    """Questions wait, and get a slice each between the changes."""
    site = Held(size)
    for one in first:
        site.change(one)
    waiting: dict[tuple[str, Wanted], None] = {}
    for what in then:
        if isinstance(what, tuple) and isinstance(what[1], Wanted):
            waiting[what[0], what[1]] = None
        else:
            site.change(what)  # type: ignore[arg-type]
        # All that wait get a slice each, then something else happens.
        for question in list(waiting):
            if site.ask(*question) is not None:
                del waiting[question]
    left = count()
    while waiting:
        assert next(left) < 5_000, waiting
        for question in list(waiting):
            if site.ask(*question) is not None:
                del waiting[question]


@quick
@given(st.lists(reservations, max_size=20), st.sampled_from(NAMES), st.lists(changes, max_size=20))
def test_whatever_is_there_all_the_while_is_met_on_the_way(
    first: list[Reservation], filt: str, then: list[Reservation | tuple[str, Source]]
) -> None:
    tree = Tree()
    held: dict[tuple[str, Source], Reservation] = {}
    for one in first:
        tree.put(one)
        held[one.filter, one.source] = one
    stayed: Mapping[tuple[str, Source], Reservation] = dict(held)
    met = []
    steps = tree.steps(filt)
    for what in then:
        met.append(next(steps, None))
        if isinstance(what, Reservation):
            tree.put(what)
            held[what.filter, what.source] = what
        else:
            tree.remove(*what)
            held.pop(what, None)
        stayed = {key: r for key, r in stayed.items() if held.get(key) is r}
    met += steps
    ids = {id(r) for r in met}
    for r in stayed.values():
        assert (id(r) in ids) or not model.crosses(r.filter, filt), (r, filt)


@pytest.mark.parametrize("kind", ["all", "allows", "prohibits", "unspoken"])
def test_a_slice_looks_at_so_many_reservations_and_no_more(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[object] = []

    def counted(*asked: object) -> bool:
        looked.append(asked[-1])
        return False

    monkeypatch.setattr(searching, "meets", counted)
    monkeypatch.setattr(caching, "SLICE", 100)
    cache = Cache(Tree())
    for i in range(2_000):
        cache.put(Reservation(f"a/{i}/b", ["p"], []))
    cache.rest_on("+/#")
    slices = 0
    while True:
        looked.clear()
        slices += 1
        try:
            assert not cache.any("+/#", Wanted(kind, frozenset("q")))  # type: ignore[arg-type]
            break
        except NotYet:
            assert len(looked) <= 100
    dear = 8 if kind == "unspoken" else 1
    assert 19 * dear <= slices <= 22 * dear
    looked.clear()
    cache.put(Reservation("a/1/b", ["s"], []))
    assert not found(cache, "+/#", Wanted(kind, frozenset("q")))  # type: ignore[arg-type]
    assert len(looked) <= 8


def test_what_no_reservation_says_is_known_at_once_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store, "FEW", 64)
    site = Held(100)
    for i in range(100):
        site.change(Reservation(f"a/{i}", ["p"], ["q"]))
    nobodys = [Wanted("allows", frozenset("qs")), Wanted("prohibits", frozenset("ps"))]
    for wanted in nobodys:
        assert site.ask("+/+", wanted) is False
    site.change(Reservation("a/7", ["s"], ["s"]))
    for wanted in nobodys:
        assert found(site.cache, "+/+", wanted)
    site.change(("a/7", "client"))
    for wanted in nobodys:
        assert site.ask("+/+", wanted) is False


def test_changes_without_end_do_not_keep_a_search_from_ending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of them concerns what is searched for."""
    monkeypatch.setattr(caching, "SLICE", 30)
    site = Held(100)
    for i in range(200):
        site.change(Reservation(f"a/{i}", ["s"], []))
    turn = count()

    def change() -> None:
        i = next(turn)
        assert i < 1_000
        site.cache.put(Reservation(f"a/{i % 200}", ["s"], ["p"] if i % 2 else []))

    for kind in ("all", "allows", "unspoken"):
        site.cache.rest_on("a/+")
        wanted = Wanted(kind, frozenset("s" if kind == "unspoken" else "p"))
        assert found(site.cache, "a/+", wanted, change) == (kind == "all")


def test_who_asks_no_longer_keeps_nobody_from_searching() -> None:
    site = Held(100)
    for i in range(50):
        site.change(Reservation(f"a/{i}", ["s"], []))
    for name in ("a/+", "a/#", "+/+", "+/#", "#"):
        assert site.ask(name, Wanted("allows", frozenset("p"))) is None
    asked = count()
    while site.ask("+/#", Wanted("allows", SETS[1])) is None:
        assert next(asked) < 200
    assert len(site.cache._loose) <= 3


def test_what_has_no_place_in_the_cache_is_searched_in_slices_as_well() -> None:
    cache = Cache(Tree())
    for i in range(50):
        cache.put(Reservation(f"a/{i}", ["s"], []))
    long = "+/" * 200 + "#"
    assert len(long) > caching.LONG
    slices = count()
    for _ in range(2):
        cache.put(Reservation("+/" * 31 + "#", ["s"], []))
        assert not found(cache, long, Wanted("allows", frozenset("p")), lambda: next(slices))
    assert next(slices) > 30
    assert cache.asked == 0


def test_what_is_left_of_a_way_is_let_go_with_the_answer() -> None:
    site = Held(100)
    for i in range(50):
        site.change(Reservation(f"a/{i}", ["p"], []))
    wanted = Wanted("allows", frozenset("p"))
    for name in ("+/+", "a/#", "a/+", "#"):
        site.cache.rest_on(name)
        assert found(site.cache, name, wanted)
        searches = site.cache._asked[name].searches
        assert searches is not None
        assert not searches[wanted]._ways
    assert not site.cache._loose
