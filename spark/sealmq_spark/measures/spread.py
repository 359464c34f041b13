"""Medians and tails of repeated measurements, each with its bootstrap interval, in one pass.

Redrawn from n values with replacement, the r-th smallest is at most the k-th smallest of the
original with the probability that a binomial variable (n, k/n) reaches r (Efron 1979). So the ends
of a percentile interval from infinitely many replicates are two of the values themselves, at places
that depend on n alone: no replicates, no randomness, the same on every machine, and the work is
that of putting the values in order, which Spark does on disk where they are many.
"""

from __future__ import annotations

import math
from functools import cache

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ..rules import Sql

OUTSIDE = 0.025
"""Of the replicates, on each side of the interval."""
QUANTILES = {"median": 0.5, "p95": 0.95, "p99": 0.99}
# Up to so many values places are looked up; beyond, the normal approximation hits them.
EXACT = {"median": 100, "p95": 400, "p99": 1000}
_Z = 1.959964
_N, _AT = "_n", "_at"


def spread(values: DataFrame, by: list[str], value: str, *more: Column) -> DataFrame:
    """rows -> by…, n, median, p95, p99, each with _low and _high, more.

    _low to _high: 95 % of all replicates. The three interpolate between values, as usual; the ends
    of the intervals are values. Null values do not count; where all are null n is 0. more:
    aggregates of the same groups.
    """
    own = Window.partitionBy(*by)
    ordered = own.orderBy(F.asc_nulls_last(value))
    ranked = values.withColumns({_N: F.count(value).over(own), _AT: F.row_number().over(ordered)})
    shown = []
    for name, q in QUANTILES.items():
        shown.append(f"percentile({value}, {q}D) AS {name}")
        for end, outside in (("low", OUTSIDE), ("high", 1 - OUTSIDE)):
            there = f"{_AT} = {_place(name, outside)}"
            shown.append(f"max(IF({there}, {value}, NULL)) AS {name}_{end}")
    figures = map(F.expr, (f"max({_N}) AS n", *shown))
    return ranked.groupBy(*by).agg(*figures, *more)


@cache
def place(n: int, q: float, outside: float) -> int:
    """The smallest k, from 1, with P(redrawn quantile q <= k-th smallest of n) >= outside."""
    rank = math.ceil(n * q)
    k = max(1, min(n, _guess(n, q, outside)))
    while k > 1 and _reaches(n, (k - 1) / n, rank) >= outside:
        k -= 1
    while k < n and _reaches(n, k / n, rank) < outside:
        k += 1
    return k


def _reaches(n: int, p: float, rank: int) -> float:
    """P(B >= rank), B binomial (n, p)."""
    if p >= 1:
        return 1.0
    up, down = math.log(p), math.log1p(-p)
    whole = math.lgamma(n + 1)
    return math.fsum(
        math.exp(whole - math.lgamma(i + 1) - math.lgamma(n - i + 1) + i * up + (n - i) * down)
        for i in range(rank, n + 1)
    )


def _guess(n: int, q: float, outside: float) -> int:
    """The same from the normal approximation, with its correction for whole numbers (Wilson)."""
    z = -_Z if outside < 0.5 else _Z
    p = (math.ceil(n * q) - 0.5) / n
    root = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return math.ceil(n * (p + z * z / (2 * n) + root) / (1 + z * z / n))


def _place(name: str, outside: float) -> Sql:
    """`place` of the column n."""
    q, most = QUANTILES[name], EXACT[name]
    known = " ".join(str(place(each, q, outside)) for each in range(1, most + 1))
    # One text is one literal of the plan; a list would be a thousand.
    exact = f"get(CAST(split('{known}', ' ') AS array<int>), CAST({_N} - 1 AS int))"
    z = -_Z if outside < 0.5 else _Z
    p = f"((ceil({_N} * {q}D) - 0.5D) / {_N})"
    root = f"({z}D * sqrt({p} * (1 - {p}) / {_N} + {z * z}D / (4 * {_N} * {_N})))"
    beyond = f"ceil({_N} * ({p} + {z * z}D / (2 * {_N}) + {root}) / (1 + {z * z}D / {_N}))"
    return f"IF({_N} <= {most}, {exact}, {beyond})"
