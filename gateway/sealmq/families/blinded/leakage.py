"""What filters give away to whoever matches them: measures of both encodings.

The mediator knows all filters and no key; what is measured is what it can tell from them, beside
what it must be able to tell, whether a policy matches. After Onica and others on leakage of Bloom
prefilters, an attacker is as good as the ranking that he can make:

mask         of the bits of BF_a that attributes have set, how many a & ~m names
positions    of an attribute's positions in BF_t, how many t & ~BF_i names
link         two attributes of two customers, the same one or two different ones: how often he is
             right who calls the pair with more positions in common the same (the area under the
             curve; one half is chance)
whole        the same of two customers' whole filters: all attributes the same, or none
dictionary   of an attribute that a customer has and one that nobody has: how often the filter says
             which, to whom all words are known, but no key
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from . import bloom, paper, scoped
from .bloom import Filter
from .words import Atom

Draw = Callable[[int], bytes]
ATTRIBUTES = 3
"""Of a customer in the trials, and of a rule."""


class Leak(NamedTuple):
    """`mask` and `positions`: parts of 1. The others: how often an attacker is right, 0.5 by
    chance; `band`: within so much of one half nothing is shown, at four standard deviations.
    """

    encoding: str
    mask: float
    positions: float
    link: float
    whole: float
    dictionary: float
    band: float


def measure(encoding: str, trials: int, draw: Draw) -> Leak:
    """`draw` gives bytes by chance; `trials` pairs of each sort."""
    made = _Paper(draw) if encoding == "paper" else _Scoped(draw)
    mask, positions = made.recovered(trials)
    same, other, wholes, strangers = [], [], [], []
    known, unknown = [], []
    for turn in range(trials):
        atoms, others = _atoms(turn, b"x"), _atoms(turn, b"y")
        one, two, third = made.customer(atoms), made.customer(atoms), made.customer(others)
        # The places are in the order of the attributes: the first of each are the same one.
        same.append(_common(one.first, two.first))
        other.append(_common(one.first, third.first))
        wholes.append(_common(one.whole, two.whole))
        strangers.append(_common(one.whole, third.whole))
        guess = made.guess(draw)
        known.append(_common(guess(atoms[0]), one.whole))
        unknown.append(_common(guess(others[0]), one.whole))
    band = 4 / (12 * trials) ** 0.5 * 2**0.5
    return Leak(
        encoding,
        mask,
        positions,
        right(same, other),
        right(wholes, strangers),
        right(known, unknown),
        band,
    )


def right(more: Sequence[float], less: Sequence[float]) -> float:
    """How often one of `more` is greater than one of `less`, ties half."""
    low = sorted(less)
    won = sum(bisect_left(low, x) + bisect_right(low, x) for x in more) / 2
    return won / (len(more) * len(less))


def mask_recovers(rule: paper.Conjunct, attributes: Filter) -> tuple[int, int]:
    """How many of the bits that attributes have set in BF_a the mask leaves, and how many there
    are. The mask hides nothing: a & (m | t) == a is (a & ~m) & ~t == 0.
    """
    return (rule.a & ~rule.m & attributes).bit_count(), attributes.bit_count()


class _Customer(NamedTuple):
    """What the mediator sees of one: the whole filter, and what it takes for the positions of the
    first attribute."""

    whole: Filter
    first: Filter


class _Paper:
    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._encoder = paper.Encoder(draw(32), decoys=0.0)

    def customer(self, atoms: Sequence[Atom]) -> _Customer:
        held = self._encoder.held(atoms, self._draw(8))
        # BF_n lacks place 1, so what BF_t has beyond it is the first attribute's.
        return _Customer(held.t, held.t & ~held.each[-1])

    def recovered(self, trials: int) -> tuple[float, float]:
        bits = all_bits = seen = there = 0
        key = self._encoder
        for turn in range(trials):
            atoms = _atoms(turn, b"r")
            rule = key.conjunct(atoms, self._draw(8))
            own = key.of_atoms(atoms)
            found, of = mask_recovers(rule, own)
            bits, all_bits = bits + found, all_bits + of
            first = key.of_atoms(atoms[:1])
            seen += (self.customer(atoms).first & first).bit_count()
            there += first.bit_count()
        return bits / all_bits, seen / there

    def guess(self, draw: Draw) -> Callable[[Atom], Filter]:
        other = paper.Encoder(draw(32), decoys=0.0)
        return lambda atom: other.of_atoms([atom])


class _Scoped:
    def __init__(self, draw: Draw) -> None:
        self._draw, self._root = draw, draw(32)
        self._count = 0

    def customer(self, atoms: Sequence[Atom]) -> _Customer:
        self._count += 1
        key = scoped.key_of(self._root, b"kind", str(self._count), self._draw(16))
        dnf = (tuple(atoms),)
        have = {atom.name: atom.values[0] for atom in atoms}
        (whole,) = scoped.sets(scoped.way(key, b"publisher"), [have], dnf)
        # The best that is left: positions that a rule and the set have in common.
        (rule,) = scoped.rules(scoped.way(key, b"publisher"), dnf)
        return _Customer(whole, rule & whole)

    def recovered(self, trials: int) -> tuple[float, float]:
        return 0.0, 0.0  # there is neither mask nor auxiliary filter

    def guess(self, draw: Draw) -> Callable[[Atom], Filter]:
        key = draw(32)
        return lambda atom: bloom.of_element(key, atom.element)


def _atoms(turn: int, who: bytes) -> list[Atom]:
    tag = who.decode() + str(turn)
    return [Atom(f"n{n}", "=", (f"{tag}-{n}",)) for n in range(ATTRIBUTES)]


def _common(one: Filter, other: Filter) -> float:
    """Jaccard's measure: bits in common, of those that either has."""
    return (one & other).bit_count() / max((one | other).bit_count(), 1)
