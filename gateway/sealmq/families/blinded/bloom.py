"""Bloom filters as Python integers, their positions by HMAC-SHA-256 (Definition 11, PRF_BF).

Whether one set lies in another is `a & t == a`: below 100 ns at 2,048 bits, however many are set.
An element has HASHES different positions, so that the fewest and the most bits of a filter are
known beforehand: whoever matches refuses what has fewer (an empty conjunction is in everything) or
more (a filter of ones has everything in it).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import shake_256
from hmac import digest
from math import comb, exp, isqrt, lgamma, log
from struct import Struct, unpack

BITS = 2048
HASHES = 32
CAPACITY = 40
"""Elements of a filter at most, fillers counted."""
MOST_ONES = 990
"""Of 2,048. So an element that is not in there seems to be with less than 8·10⁻¹¹, whatever else
is: `foreign(MOST_ONES)`."""

_SIXTEEN, _FIRST = Struct(">16H"), Struct(">32H")
_ZERO, _ONE = bytes(4), b"\0\0\0\1"
_PIECE = (1 << 60) - 1
_BIT = [1 << at for at in range(BITS)]
# Of a density of ones: halves, quarters, … down to this.
_HALVINGS = 8
# Bytes for bits that are set one by one.
_DRAWN = 512

Filter = int


def prf(key: bytes, *parts: bytes) -> bytes:
    """32 bytes; no two different rows of parts give the same input."""
    text = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return digest(key, text, "sha256")


def positions(key: bytes, element: bytes, bits: int = BITS, hashes: int = HASHES) -> list[int]:
    """Where an element is: `hashes` different positions below `bits`, without bias."""
    span = (1 << 16) - (1 << 16) % bits
    found: dict[int, None] = {}
    block = 0
    while len(found) < hashes:
        for number in _SIXTEEN.unpack(prf(key, element, block.to_bytes(4, "big"))):
            if number < span and len(found) < hashes:
                found[number % bits] = None
        block += 1
    return list(found)


def filled(key: bytes, salt: bytes, made: Filter, ones: int = MOST_ONES) -> Filter:
    """The filter with others of its BITS set by chance, until it has so many ones.

    First each bit with a chance that leaves some to be set, then one after the other: which are set
    is of all choices equally likely. A draw that sets too many is thrown away.
    """
    if made.bit_count() >= ones:
        return made
    free = BITS - made.bit_count()
    missing = ones - made.bit_count()
    # Three standard deviations below what is missing.
    chance = max(missing - 3 * isqrt(free) // 2, 0) * (1 << _HALVINGS) // free
    stream = shake_256(prf(key, salt, b"fill"))
    size, block = BITS // 8, 0
    while True:
        block += _HALVINGS * size
        raw = stream.digest(block)[-_HALVINGS * size :]
        some = _dense(raw, chance) & ~made
        if some.bit_count() <= missing:
            break
    found = made | some
    missing = ones - found.bit_count()
    while missing:
        block += _DRAWN
        for number in unpack(f">{_DRAWN // 2}H", stream.digest(block)[-_DRAWN:]):
            bit = _BIT[number % BITS]
            if not found & bit:
                found |= bit
                missing -= 1
                if not missing:
                    break
    return found


def _dense(raw: bytes, chance: int) -> Filter:
    """Each of BITS bits is one with the chance `chance` / 2 ** _HALVINGS."""
    made, size = 0, BITS // 8
    for n in range(_HALVINGS):
        layer = int.from_bytes(raw[n * size : (n + 1) * size], "big")
        # From the least significant digit of the chance on: or is half more, and half of it.
        made = made | layer if chance >> n & 1 else made & layer
    return made


@lru_cache(4096)
def of_element(key: bytes, element: bytes, bits: int = BITS, hashes: int = HASHES) -> Filter:
    """The filter of one element."""
    made = 0
    if (bits, hashes) == (BITS, HASHES):
        # As `positions` has them, if no two of the first are the same: in most cases.
        for number in _FIRST.unpack(prf(key, element, _ZERO) + prf(key, element, _ONE)):
            made |= _BIT[number % BITS]
        if made.bit_count() == HASHES:
            return made
    for at in positions(key, element, bits, hashes):
        made |= 1 << at
    return made


def of_set(key: bytes, elements: Iterable[bytes], bits: int = BITS, hashes: int = HASHES) -> Filter:
    """The filter of several."""
    made = 0
    for element in elements:
        made |= of_element(key, element, bits, hashes)
    return made


def to_bytes(made: Filter, bits: int = BITS) -> bytes:
    return made.to_bytes(bits // 8, "big")


class Rules:
    """What is asked for: that one of these filters lies in one of what somebody has.

    A short piece of each comes first. It alone says no to nearly all, and costs half as much.
    """

    __slots__ = ("_pairs",)

    def __init__(self, filters: Iterable[Filter]) -> None:
        self._pairs = [(one & _PIECE, one) for one in filters]

    def within(self, sets: Sets) -> bool:
        """Whether `rule & set == rule` of some of both."""
        pairs = self._pairs
        for short, lacks in sets.lacks:
            for piece, rule in pairs:
                if not piece & short and not rule & lacks:
                    return True
        return False


class Sets:
    """What somebody has; kept by what each filter lacks."""

    __slots__ = ("lacks",)

    def __init__(self, filters: Iterable[Filter], bits: int = BITS) -> None:
        ones = (1 << bits) - 1
        self.lacks = [(~one & _PIECE, ~one & ones) for one in filters]


# --- how often a filter is wrong ----------------------------------------------------------------


def foreign(ones: int, bits: int = BITS, hashes: int = HASHES) -> float:
    """The probability that an element that is not in a filter with so many bits set seems to be:
    `hashes` different positions, all among the ones. Exact.
    """
    return comb(ones, hashes) / comb(bits, hashes)


def expected(elements: int, bits: int = BITS, hashes: int = HASHES) -> float:
    """The same before the filter is known: over all that `elements` elements may set. Exact: each
    draws `hashes` different positions, and how many are new is hypergeometric.
    """
    ways = {0: 1.0}
    whole = _log_comb(bits, hashes)
    for _ in range(elements):
        after: dict[int, float] = {}
        for ones, chance in ways.items():
            if chance < 1e-18:
                continue
            for new in range(max(hashes - ones, 0), min(hashes, bits - ones) + 1):
                p = exp(_log_comb(bits - ones, new) + _log_comb(ones, hashes - new) - whole)
                after[ones + new] = after.get(ones + new, 0.0) + chance * p
        ways = after
    return sum(chance * foreign(ones, bits, hashes) for ones, chance in ways.items())


def _log_comb(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def as_printed(elements: int, bits: int, hashes: int) -> float:
    """The paper's (1 - e^(-nk/m))^k: too low, since it takes the mean of the ones for their number,
    and its 0.6185^(m/n) the best number of hashes for each n.
    """
    return (1 - exp(-elements * hashes / bits)) ** hashes


def best_hashes(elements: int, bits: int) -> int:
    """The number of hashes at which half of the bits are set."""
    return max(1, round(log(2) * bits / elements))
