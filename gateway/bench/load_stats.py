"""Medians and their intervals from few rounds, by order statistics: no distribution is assumed."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from statistics import median
from typing import NamedTuple

SURE = 0.95


class Found(NamedTuple):
    """A median and what it lies between, with probability `sure` (below 0.95 with few rounds)."""

    value: float
    low: float
    high: float
    sure: float
    n: int


def found(values: Sequence[float]) -> Found:
    """Of at least one value. The interval is the narrowest that holds with 0.95, or all of them.

    With n independent values the median lies between the k-th smallest and the k-th largest with
    probability 1 - 2 P(B < k), B binomial (n, 1/2).
    """
    ordered = sorted(values)
    n = len(ordered)
    k = 1
    while k < n // 2 and _between(n, k + 1) >= SURE:
        k += 1
    return Found(median(ordered), ordered[k - 1], ordered[-k], _between(n, k), n)


def _between(n: int, k: int) -> float:
    outside: float = 2 * sum(comb(n, i) for i in range(k)) / 2**n
    return max(0.0, 1 - outside)


def ratios(of: Sequence[float], to: Sequence[float]) -> Found:
    """What `of` is to `to`, round by round: what changed from round to round hit both."""
    return found([a / b for a, b in zip(of, to, strict=True)])
