"""What makes two rows of a bench the same thing measured twice (shared_spec/bench.schema.json).

Measure, variant, size, unit, and the params that say under which conditions; not what was found
(`low`, `generator_share`) or happened to be so (`load`). The schema names those; a param that it
does not name tells rows apart, so that nothing is merged that may be two things.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ..contracts import load
from ..rules import Sql, listed
from .columns import LAST_MS, instant_of

WHAT = ["measure", "variant", "size", "unit"]
SAME = [*WHAT, "conditions"]


@cache
def named(which: str) -> tuple[str, ...]:
    """Params that the schema names under `which`: asked, how, place, found."""
    return tuple(load("bench")["$defs"][which]["enum"])


def told(bench: DataFrame) -> DataFrame:
    """bench -> the same with conditions, key, place, asked (texts), low, high, at, in one order.

    conditions: with measure, variant, size and unit, what the row is of. key: of these what a
    reader needs to tell rows apart, "burst=16, process=mediator"; "" for nothing. place: on what it
    was measured. asked: what every variant was asked alike. low, high: null where none were found.
    at: when it was measured, as far as that is known (the document's time if it does not say).
    """
    params = F.col("params")
    at_ms = "try_cast(params['at_ms'] AS bigint)"
    found, how, place, asked = map(named, ("found", "how", "place", "asked"))
    return bench.withColumns(
        {
            "conditions": _text("NOT IN", found),
            "key": _text("NOT IN", (*found, *how, *place)),
            "place": _text("IN", place),
            "asked": _text("IN", asked),
            "low": params["low"].try_cast("double"),
            "high": params["high"].try_cast("double"),
            "at": F.expr(
                f"coalesce(IF({at_ms} BETWEEN 0 AND {LAST_MS}, {instant_of(at_ms)}, NULL), made)"
            ),
        }
    )


def turn() -> Column:
    """1 of what was measured last of the same thing, 2 of what was before that, and so on."""
    newest_first = (F.desc("at"), F.desc("file"), F.desc("n"), F.desc("value"))
    return F.row_number().over(Window.partitionBy(*SAME).orderBy(*newest_first))


def _text(word: Sql, names: Iterable[str]) -> Column:
    """The params whose names are, or are not, of these."""
    kept = f"map_filter(params, (k, v) -> k {word} ({listed(names)}))"
    pairs = f"transform(map_entries({kept}), e -> concat(e.key, '=', e.value))"
    return F.expr(f"coalesce(array_join(sort_array({pairs}), ', '), '')")
