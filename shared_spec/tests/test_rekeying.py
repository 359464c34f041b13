"""Claims 1 and 2: what old keys and all public data open, by the paper's formula and by ours.

`rekeying_kg.py` has the attacker. REKEYING.md says what these tests stand for.
"""

from __future__ import annotations

import hashlib
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rekeying_kg import Kg, Order, Root, closure, opened, ours, paper, with_epoch
from sealmq_spec import keys
from sealmq_spec.keys import xor32
from sealmq_spec.records import Roots, derive, make_record
from spec_cipher import make
from spec_people import SITE

TEMP, CTRL, ARM, MONITOR = 16, 17, 18, 23
# The paper's: two machines with a sensor, a control panel, an arm; a control room; a monitor.
FACTORY: Order = {16: set(), 17: {16}, 18: {17}, 19: set(), 20: {19}, 21: {20}, 22: set()}
FACTORY[MONITOR] = {18, 21, 22}
SHAPES: dict[str, Order] = {
    "factory": FACTORY,
    "chain": {1: set(), 2: {1}, 3: {2}, 4: {3}},
    "tree": {1: set(), 2: set(), 3: {1, 2}, 4: set(), 5: {3, 4}},
    "diamond": {1: set(), 2: {1}, 3: {1}, 4: {2, 3}},
    "crown": {1: set(), 2: set(), 3: set(), 4: {1, 2}, 5: {2, 3}, 6: {1, 3}},
    "antichain": {1: set(), 2: set(), 3: set()},
}
quick = settings(max_examples=60, deadline=None, derandomize=True, database=None)


@st.composite
def orders(draw: st.DrawFn) -> Order:
    """Any poset of up to seven labels."""
    size = draw(st.integers(2, 7))
    return {n: draw(st.sets(st.integers(0, n - 1))) if n else set() for n in range(size)}


def revoked(kg: Kg, label: int) -> set[int]:
    """Labels whose new roots a client at `label` computes, once it has been put out."""
    had = kg.held(label)
    new = kg.revoke(label)
    return {root.label for root in opened(kg, had) & new}


def leak(order: Order, label: int) -> set[int]:
    """By the paper's formula: what lies, below a revoked label or there, under one that was not
    rekeyed, and all below that.
    """
    below = closure(order)
    down = below[label] | {label}
    seen = {n for n in down if any(n in below[top] for top in set(order) - down)}
    return seen.union(*(below[n] for n in seen))


def test_the_papers_rekeying_revokes_nothing() -> None:
    assert revoked(Kg(FACTORY, paper), CTRL) == {CTRL, TEMP}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_papers_rekeying_leaks_wherever_something_lies_above(shape: str) -> None:
    order = SHAPES[shape]
    for label in order:
        found = revoked(Kg(order, paper), label)
        assert found == leak(order, label)
        if any(label in low for low in closure(order).values()):
            assert found == closure(order)[label] | {label}


@quick
@given(orders(), st.data())
def test_the_papers_rekeying_leaks_on_random_posets(order: Order, data: st.DataObject) -> None:
    label = data.draw(st.sampled_from(sorted(order)))
    assert revoked(Kg(order, paper), label) == leak(order, label)


@pytest.mark.parametrize("h", [0, 1])
def test_the_papers_attack_in_bytes_and_ours_beside_it(h: int) -> None:
    """z_old ⊕ z_new ⊕ k_n, in both hierarchies."""
    of = ((MONITOR, 1), (TEMP, 1), (TEMP, 2))
    top, old, new = (Roots(n, e, 1, os.urandom(32), os.urandom(32)) for n, e in of)
    k_l, k_old, k_new = ((r.r, r.r_bar)[h] for r in (top, old, new))
    pad = hashlib.sha256(TEMP.to_bytes(4, "big") + k_l).digest()
    assert xor32(xor32(xor32(k_old, pad), xor32(k_new, pad)), k_old) == k_new
    z = [
        make_record(make, SITE, top, n, os.urandom(8), os.urandom(8), 1, 0, bytes(12))
        for n in (old, new)
    ]
    z = [packet[30 + 32 * h : 62 + 32 * h] for packet in z]
    assert xor32(xor32(z[0], z[1]), k_old) != k_new


def restored(pad: object) -> set[Root]:
    """A panel learns a root of the sensors' that is lost with the store, and is put out behind the
    restore, by a key generator that counts and draws on as if nothing had been lost.
    """
    kg = Kg(FACTORY, pad)  # type: ignore[arg-type]
    state = kg.backup()
    kg.revoke(TEMP)
    had = kg.held(CTRL)
    kg.restore(state)
    had |= kg.held(CTRL)
    new = kg.revoke(CTRL)
    return opened(kg, had) & new


def test_with_the_epoch_alone_a_restored_key_generator_revokes_nothing() -> None:
    assert revoked(Kg(FACTORY, with_epoch), CTRL) == set()
    assert {root.label for root in restored(with_epoch)} == {TEMP}


def test_ours_revokes_after_a_restore() -> None:
    assert restored(ours) == set()


def test_a_store_that_is_only_put_back_gives_old_keys_back() -> None:
    """Why a restore rekeys every label: a copied disk does not know who was put out since."""
    kg = Kg(FACTORY, ours)
    state, had = kg.backup(), kg.held(CTRL)
    kg.revoke(CTRL)
    kg.restore(state)
    assert kg.held(CTRL) == had
    assert opened(kg, had) & kg.rekey(set(FACTORY)) == set()


def test_ours_revokes_on_the_factory() -> None:
    for label in FACTORY:
        assert revoked(Kg(FACTORY, ours), label) == set(), label


@pytest.mark.parametrize("shape", SHAPES)
def test_ours_revokes_on_every_shape(shape: str) -> None:
    for label in SHAPES[shape]:
        assert revoked(Kg(SHAPES[shape], ours), label) == set(), label


@quick
@given(orders(), st.data())
def test_ours_revokes_on_any_poset(order: Order, data: st.DataObject) -> None:
    label = data.draw(st.sampled_from(sorted(order)))
    assert revoked(Kg(order, ours), label) == set()


@quick
@given(orders(), st.data())
def test_an_edge_that_is_taken_out_takes_its_keys(order: Order, data: st.DataObject) -> None:
    edges = sorted((top, n) for top, low in order.items() for n in low)
    if not edges:
        return
    upper, lower = data.draw(st.sampled_from(edges))
    for pad in (ours, paper):
        kg = Kg(order, pad)
        had = kg.held(upper)
        new = kg.cut(upper, lower)
        found = {root.label for root in opened(kg, had) & new}
        rekeyed = {root.label for root in new}
        if pad is ours:
            assert found == set()
        else:
            apart = set(order) - rekeyed
            leaks = {n for n in rekeyed if any(n in kg.below[top] for top in apart)}
            assert leaks <= found


HISTORY = st.lists(
    st.sampled_from(["leave", "rekey", "cut", "join", "backup", "restore"]), min_size=1, max_size=6
)


def happen(kg: Kg, what: str, data: st.DataObject, kept: list[dict[str, object]]) -> set[Root]:
    """One thing that a site does. Gives the roots that it drew."""
    if what == "backup":
        kept.append(kg.backup())
        return set()
    if what == "restore" and kept:
        kg.restore(data.draw(st.sampled_from(kept)))
        return kg.rekey(set(kg.below))
    edges = sorted((top, n) for top, low in kg.order.items() for n in low)
    if what == "cut" and edges:
        return kg.cut(*data.draw(st.sampled_from(edges)))
    apart = sorted(
        (a, b) for a in kg.below for b in set(kg.below) - kg.below[a] if a not in kg.downset(b)
    )
    if what == "join" and apart:
        kg.join(*data.draw(st.sampled_from(apart)))
        return set()
    label = data.draw(st.sampled_from(sorted(kg.below)))
    return kg.revoke(label) if what == "leave" else kg.rekey({label})


@quick
@given(orders(), HISTORY, HISTORY, st.data())
def test_ours_revokes_whatever_happened_before_and_after(
    order: Order, before: list[str], after: list[str], data: st.DataObject
) -> None:
    """A member that keeps every root it ever held, is put out, and watches what is public."""
    kg = Kg(order, ours)
    label = data.draw(st.sampled_from(sorted(order)))
    had, ever = kg.held(label), kg.downset(label)
    was = kg.below
    kept: list[dict[str, object]] = []
    for what in before:
        happen(kg, what, data, kept)
        had |= kg.held(label)
        ever |= kg.downset(label)
        was = {n: low | kg.below[n] for n, low in was.items()}
        # The lemma of REKEYING.md: what is current and opens is what it is given.
        assert opened(kg, had) & set(kg.root.values()) == kg.held(label)
    new = kg.revoke(label)
    for what in after:
        new |= happen(kg, what, data, kept)
    found = opened(kg, had)
    assert found & (new | set(kg.root.values())) == set()
    # Old roots: of what it was above, and of what that had been above before it came.
    assert {root.label for root in found} <= ever.union(*(was[n] for n in ever))


@quick
@given(orders(), st.data())
def test_lower_keys_open_nothing_above(order: Order, data: st.DataObject) -> None:
    label = data.draw(st.sampled_from(sorted(order)))
    kg = Kg(order, ours)
    had = kg.held(label)
    kg.rekey(set(order) - kg.downset(label))
    assert opened(kg, had) == had


def test_who_comes_later_opens_the_past() -> None:
    """Not claimed otherwise: back-links lead from a new root to each old one of its label."""
    kg = Kg(FACTORY, ours)
    first = kg.root[CTRL]
    kg.rekey({CTRL})
    kg.rekey({CTRL})
    assert first in opened(kg, {kg.root[CTRL]})


def test_a_record_opens_both_hierarchies_and_only_with_the_source() -> None:
    top, n, other = (Roots(label, 1, 1, os.urandom(32), os.urandom(32)) for label in (16, 17, 16))
    order = bytes(12)
    packet = make_record(make, SITE, top, n, os.urandom(8), os.urandom(8), 1, 0, order)
    found = derive(make, SITE, top, packet)
    assert (found.r, found.r_bar) == (n.r, n.r_bar)
    with pytest.raises(Exception, match="does not verify"):
        derive(make, SITE, other, packet)


numbers = st.integers(0, 2**24 - 1)
eight = st.binary(min_size=8, max_size=8)
sixteen = st.binary(min_size=16, max_size=16)
suites = st.integers(1, 2)
INPUTS = {
    "pad": st.tuples(st.integers(0, 1), numbers, numbers, eight),
    "topic_key": st.tuples(suites, numbers, numbers),
    "outer_key": st.tuples(suites, numbers, numbers, numbers),
    "inner_key": st.tuples(suites, numbers, numbers, eight),
    "link_key": st.tuples(st.integers(1, 4), suites, numbers, numbers, eight),
    "record_key": st.tuples(suites, numbers, numbers),
    "provisioning_key": st.tuples(suites, st.integers(0, 1), sixteen),
    "time_key": st.tuples(suites, sixteen),
}
calls = st.sampled_from(sorted(INPUTS)).flatmap(lambda n: st.tuples(st.just(n), INPUTS[n]))


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(calls, calls)
def test_different_derivations_give_different_keys(
    one: tuple[str, tuple[object, ...]], two: tuple[str, tuple[object, ...]]
) -> None:
    """One root may serve every derivation: their inputs never meet."""
    root = b"\x07" * 32
    made = [getattr(keys, name)(SITE, *args, root) for name, args in (one, two)]
    assert (made[0] == made[1]) == (one == two)
