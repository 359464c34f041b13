"""Claims 1 and 2: what old keys and all public data open, by the paper's formula and by ours."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealmq_spec import keys
from sealmq_spec.keys import xor32
from sealmq_spec.records import Roots, derive, make_record
from spec_cipher import make
from spec_people import SITE

FACTORY = {
    "m1-temp": [],
    "m1-ctrl": ["m1-temp"],
    "m1-arm": ["m1-ctrl"],
    "m2-temp": [],
    "m2-ctrl": ["m2-temp"],
    "m2-arm": ["m2-ctrl"],
    "ctrl-room-temp": [],
    "monitor": ["m1-arm", "m2-arm", "ctrl-room-temp"],
}

# What a pad is made of: label and epoch of the target, a fresh kid, the root of the source.
Pad = Callable[[int, int, bytes, bytes], bytes]


def paper(n: int, epoch: int, kid: bytes, root: bytes) -> bytes:
    """Chen and Wilson 4.3: H(n‖k_l)."""
    return hashlib.sha256(n.to_bytes(4, "big") + root).digest()


def with_epoch(n: int, epoch: int, kid: bytes, root: bytes) -> bytes:
    """The half repair: the epoch, but no kid."""
    return keys.pad(SITE, 0, n, epoch, bytes(8), root)


def ours(n: int, epoch: int, kid: bytes, root: bytes) -> bytes:
    """SPEC.md 2."""
    return keys.pad(SITE, 0, n, epoch, kid, root)


Poset = dict[int, set[int]]


def closed(direct: dict[str, list[str]]) -> tuple[dict[str, int], Poset]:
    """Numbers of labels, and for each number all that lie strictly below."""
    number = {name: 16 + i for i, name in enumerate(direct)}
    below: Poset = {}

    def down(name: str) -> set[int]:
        out: set[int] = set()
        for child in direct[name]:
            out |= {number[child]} | down(child)
        return out

    for name in direct:
        below[number[name]] = down(name)
    return number, below


class Kg:
    """One hierarchy of a key generator: roots, epochs, and the public z values it ever gave out."""

    def __init__(self, below: Poset, pad: Pad) -> None:
        self.below = below
        self.pad = pad
        self.epoch = dict.fromkeys(below, 1)
        self.root = {n: os.urandom(32) for n in below}
        self.public: list[tuple[int, int, int, int, bytes, bytes]] = []
        for top in below:
            self.publish(top, set(below))

    def publish(self, top: int, targets: set[int]) -> None:
        """z from `top` to the targets below it."""
        for n in self.below[top] & targets:
            kid = os.urandom(8)
            pad = self.pad(n, self.epoch[n], kid, self.root[top])
            z = xor32(self.root[n], pad)
            self.public.append((top, self.epoch[top], n, self.epoch[n], kid, z))

    def revoke(self, label: int) -> None:
        """New roots for everything that a client at `label` could open; back-links too."""
        old = {n: (self.epoch[n], self.root[n]) for n in self.below[label] | {label}}
        for n in old:
            self.epoch[n] += 1
            self.root[n] = os.urandom(32)
        for top in self.below:
            self.publish(top, set(self.below) if top in old else set(old))
        for n, (epoch, root) in old.items():
            kid = os.urandom(8)
            z = xor32(root, self.pad(n, epoch, kid, self.root[n]))
            self.public.append((n, self.epoch[n], n, epoch, kid, z))

    def backup(self) -> tuple[dict[int, int], dict[int, bytes]]:
        """What a restore brings back; the public data stays public."""
        return dict(self.epoch), dict(self.root)

    def restore(self, state: tuple[dict[int, int], dict[int, bytes]]) -> None:
        """An older state."""
        self.epoch, self.root = dict(state[0]), dict(state[1])


def closure(kg: Kg, known: set[bytes]) -> set[bytes]:
    """Every root that follows from known ones and all public data: derived, or by XOR of two z."""
    known = set(known)
    while True:
        found = set()
        for _, _, n, e_n, kid, z in kg.public:
            found |= {xor32(z, kg.pad(n, e_n, kid, root)) for root in known}
        found &= kg_secrets(kg)
        for a, b in combinations(kg.public, 2):
            both = xor32(a[5], b[5])
            found |= {xor32(both, root) for root in known} & kg_secrets(kg)
        if found <= known:
            return known
        known |= found


def kg_secrets(kg: Kg) -> set[bytes]:
    """All current roots."""
    return set(kg.root.values())


def opened_after_revoking(kg: Kg, label: int) -> set[int]:
    """Labels whose new roots a client at `label` computes, once it has been put out."""
    had = {kg.root[n] for n in kg.below[label] | {label}}
    kg.revoke(label)
    new = {kg.root[n]: n for n in kg.below[label] | {label}}
    return {n for root, n in new.items() if root in closure(kg, had)}


def test_the_papers_rekeying_revokes_nothing() -> None:
    number, below = closed(FACTORY)
    kg = Kg(below, paper)
    label = number["m1-ctrl"]
    assert opened_after_revoking(kg, label) == {label, number["m1-temp"]}


def test_with_the_epoch_alone_a_restored_key_generator_revokes_nothing() -> None:
    number, below = closed(FACTORY)
    label = number["m1-ctrl"]
    kg = Kg(below, with_epoch)
    assert opened_after_revoking(kg, label) == set()
    kg = Kg(below, with_epoch)
    state = kg.backup()
    kg.revoke(number["m1-temp"])
    had = {kg.root[n] for n in below[label] | {label}}
    kg.restore(state)
    kg.revoke(number["m1-temp"])
    assert kg.root[number["m1-temp"]] in closure(kg, had)


def test_ours_revokes_on_the_factory() -> None:
    number, below = closed(FACTORY)
    for name in FACTORY:
        assert opened_after_revoking(Kg(below, ours), number[name]) == set(), name


def test_ours_revokes_after_a_restore() -> None:
    number, below = closed(FACTORY)
    label = number["m1-ctrl"]
    kg = Kg(below, ours)
    state = kg.backup()
    kg.revoke(number["m1-temp"])
    had = {kg.root[n] for n in below[label] | {label}}
    kg.restore(state)
    kg.revoke(label)
    assert not closure(kg, had) & {kg.root[n] for n in below[label] | {label}}


@st.composite
def posets(draw: st.DrawFn) -> Poset:
    """Any poset of up to six labels."""
    size = draw(st.integers(2, 6))
    below: Poset = {}
    for n in range(size):
        direct = draw(st.sets(st.integers(0, n - 1))) if n else set()
        below[n] = direct.union(*(below[d] for d in direct))
    return {16 + n: {16 + d for d in low} for n, low in below.items()}


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(posets(), st.data())
def test_ours_revokes_on_any_poset(below: Poset, data: st.DataObject) -> None:
    label = data.draw(st.sampled_from(sorted(below)))
    assert opened_after_revoking(Kg(below, ours), label) == set()


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(posets(), st.data())
def test_lower_keys_open_nothing_above(below: Poset, data: st.DataObject) -> None:
    label = data.draw(st.sampled_from(sorted(below)))
    kg = Kg(below, ours)
    had = {kg.root[n] for n in below[label] | {label}}
    assert closure(kg, had) & kg_secrets(kg) == had


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
