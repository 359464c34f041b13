"""Subscriptions judged in slices: the decision is the one that asking at once gives then."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from families.purposes import purposes_model as model
from sealmq.families.conn import Conn
from sealmq.families.engine import Decision, Engine
from sealmq.families.purposes import cache as caching
from sealmq.families.purposes import records, store
from sealmq.families.purposes.store import Reservation
from sealmq.families.records import Record
from sealmq.families.registry import load
from sealmq.site.config import Config, loads
from sealmq_spec.purposes import access

quick = settings(max_examples=100, deadline=None, derandomize=True, database=None)
NAMES = [f for f in model.all_filters() if f.count("/") < 2 and "$x" not in f]
SITE = """
[site]
name = "slices"
id = "00c0ffee"
[policy]
order = ["labels", "purposes"]
[labels]
car = []
[clients]
reader = { label = "car" }
dpo = { label = "top" }
[families.purposes]
stewards = ["dpo"]
mode = "MODE"
strict = STRICT
store = "STORE"
"""


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(caching, "SLICE", 1)
        patch.setattr(store, "FEW", 0)
        yield


class Asked:
    """One site, and a reader there."""

    def __init__(self, mode: str, strict: bool, kind: str) -> None:
        self._text = SITE.replace("STORE", kind)
        self.engine = Engine(load(["labels", "purposes"]))
        self.engine.load(self._config(mode, strict), [])
        self.reader: Conn = self.engine.connection(self.engine.who("reader", 1))

    def _config(self, mode: str, strict: bool) -> Config:
        text = self._text.replace("MODE", mode).replace("STRICT", str(strict).lower())
        return loads(text)

    def change(self, what: Record | tuple[str, bool]) -> None:
        if isinstance(what, tuple):
            self.engine.reload(self._config(*what))
        else:
            self.engine.apply([what])


def row(filt: str, aip: frozenset[str], pip: frozenset[str]) -> Record:
    return records.reservation(Reservation(filt, aip, pip, "dpo"), 1)


purposes = st.frozensets(st.sampled_from("pq"), max_size=2)
modes = st.tuples(st.sampled_from(["hybrid", "hybrid", "fos", "fop"]), st.booleans())
rows = st.builds(row, st.sampled_from(NAMES), purposes, purposes)
releases = st.builds(records.released, st.sampled_from(NAMES))
filters = st.lists(
    st.builds(access, st.sampled_from(NAMES), st.sampled_from("pqr")), min_size=1, max_size=3
)


@quick
@given(modes, filters, st.lists(rows, max_size=12), st.lists(rows | releases | modes, max_size=25))
def test_a_decision_in_slices_is_the_one_at_once_whatever_changes_between_them(
    mode: tuple[str, bool],
    asked: list[str],
    first: list[Record],
    then: list[Record | tuple[str, bool]],
) -> None:
    soon, plain = Asked(*mode, "cache"), Asked(*mode, "tree")

    def slice_of(raw: str) -> Decision | None:
        got = soon.reader.subscribe_soon(raw, 0, 1)
        if got is not None:
            want = plain.reader.subscribe(raw, 0, 1)
            assert (got.allow, got.votes[-1]) == (want.allow, want.votes[-1])
        return got

    for site in (soon, plain):
        site.engine.apply(first)
    for one in then:
        for raw in asked:
            slice_of(raw)
        soon.change(one)
        plain.change(one)
    for raw in asked:
        assert any(slice_of(raw) is not None for _ in range(1_000))


def held(filters: int) -> Asked:
    """A site with many reservations, and a reader who holds so many subscriptions."""
    site = Asked("hybrid", True, "cache")
    site.engine.apply([row("#", frozenset("q"), frozenset())])
    site.engine.apply([row(f"a/{i}", frozenset("p"), frozenset()) for i in range(100)])
    for i in range(filters):
        raw = access(f"a/+/{i}/#", "q")
        site.reader.holds(site.reader.subscribe(raw, 0, 1), 0)
    return site


def test_what_is_left_meanwhile_is_not_held_again() -> None:
    site = held(1)
    raw = access("a/+/#", "r")
    decision = site.reader.subscribe(access("a/1/+", "q"), 0, 1)
    site.reader.holds(decision, 0)
    assert site.reader.holding(decision.raw)
    assert site.reader.subscribe_soon(raw, 0, 1) is None
    site.reader.unsubscribed(decision.raw)
    assert not site.reader.holding(decision.raw)
    assert site.reader.again_soon(decision.raw, 1) is None
    assert site.reader.again(decision.raw, 1) is None


def test_what_is_due_is_judged_again_in_slices_and_once_for_all_who_ask_the_same() -> None:
    site = held(0)
    raw = access("+/#", "p")
    site.reader.holds(site.reader.subscribe(raw, 0, 1), 0)
    # The steward's own reservation no longer covers it by itself: all have to be looked at.
    site.change(("fos", True))
    assert site.engine.due() == [(site.reader, raw)]
    site.engine.apply([row("#", frozenset("p"), frozenset())])
    slices = 1
    while (again := site.reader.again_soon(raw, 1)) is None:
        slices += 1
    assert again.allow
    assert slices > 50
    other = site.engine.connection(site.engine.who("reader", 2))
    assert other.subscribe_soon(raw, 0, 1) is not None
    site.engine.apply([row("a/7", frozenset("p"), frozenset("p"))])
    assert (site.reader, raw) in site.engine.due()
    slices = 1
    while (again := site.reader.again_soon(raw, 1)) is None:
        slices += 1
    assert not again.allow
    assert slices <= 3
