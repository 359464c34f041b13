"""Intervals without replicates are those of the bootstrap with ever so many."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from pyspark.sql import SparkSession

from sealmq_spark.measures.spread import EXACT, OUTSIDE, QUANTILES, _guess, place, spread
from spark_rows import plain

DRAWS = 4000


def redrawn(values: list[float], q: float, rng: random.Random) -> tuple[float, float]:
    """A bootstrap as anybody would write it: redraw, take the quantile, cut off the tails."""
    rank = math.ceil(len(values) * q) - 1
    found = sorted(sorted(rng.choices(values, k=len(values)))[rank] for _ in range(DRAWS))
    return found[int(DRAWS * OUTSIDE)], found[int(DRAWS * (1 - OUTSIDE))]


@pytest.mark.parametrize("n", [1, 2, 7, 30])
@pytest.mark.parametrize("q", QUANTILES.values())
def test_places_are_those_of_a_bootstrap(n: int, q: float) -> None:
    rng = random.Random(f"{n} {q}")
    low, high = redrawn([float(k) for k in range(1, n + 1)], q, rng)
    # The tails of the draws themselves waver by a place.
    assert abs(place(n, q, OUTSIDE) - low) <= 1
    assert abs(place(n, q, 1 - OUTSIDE) - high) <= 1


def test_the_median_lies_within_as_often_as_is_said() -> None:
    rng = random.Random("coverage")
    n, tries, within = 25, 600, 0
    low, high = place(n, 0.5, OUTSIDE) - 1, place(n, 0.5, 1 - OUTSIDE) - 1
    for _ in range(tries):
        drawn = sorted(rng.expovariate(1.0) for _ in range(n))
        within += drawn[low] <= math.log(2) <= drawn[high]
    assert 0.92 < within / tries < 0.98


@pytest.mark.parametrize("name", QUANTILES)
def test_beyond_the_table_places_are_off_by_one_at_most(name: str) -> None:
    q = QUANTILES[name]
    for n in (EXACT[name] + 1, 2 * EXACT[name] + 7, 5 * EXACT[name]):
        for outside in (OUTSIDE, 1 - OUTSIDE):
            assert abs(_guess(n, q, outside) - place(n, q, outside)) <= 1


def test_whole_frame(spark: SparkSession) -> None:
    """Groups of one, of two with a tie, of twenty in disorder, of more than the table has; null."""
    rng = random.Random("frame")
    many = [rng.randrange(1, 900) for _ in range(EXACT["p99"] + 500)]
    groups: dict[str, list[int | None]] = {"empty": [None], "many": [*many], "one": [5]}
    groups |= {"two": [4, 4], "twenty": [None, *range(20, 0, -1), None]}
    rows = [(name, value) for name, its in groups.items() for value in its]
    found = plain(spread(spark.createDataFrame(rows, "g string, ms bigint"), ["g"], "ms"), "g")
    ordered = sorted(many)
    n = len(many)

    def at(k: int) -> int:
        return ordered[k - 1]

    expected = {
        "one": (1, 5.0, 5, 5, 5.0, 5, 5, 5.0, 5, 5),
        "twenty": (20, 10.5, 6, 14, 19.05, 16, 20, 19.81, 17, 20),
        "empty": (0, *(None,) * 9),
        "two": (2, 4.0, 4, 4, 4.0, 4, 4, 4.0, 4, 4),
    }
    told = {row[0]: row[1:] for row in found}
    assert set(told) == {"many", *expected}
    for name, row in expected.items():
        assert told[name] == pytest.approx(row), name
    each = told["many"]
    assert each[:2] == (n, statistics.median(many))
    for at_column, q in zip((2, 5, 8), QUANTILES.values(), strict=True):
        for column, outside in ((at_column, OUTSIDE), (at_column + 1, 1 - OUTSIDE)):
            k = place(n, q, outside)
            assert at(k - 1) <= each[column] <= at(min(n, k + 1))
