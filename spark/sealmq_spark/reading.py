"""What a line is: of which contract, and what is wrong with it. Pure; nothing is dropped here.

Nothing that a line holds can end a job.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from .contracts import MARKS, columns, contract, shape_of
from .rules import Sql, literal

BAD, BLANK = "bad", "blank"
SHOWN = 500
"""Characters of a bad line that are kept."""
NAMELESS = "of no known contract"
LINES = ", ".join(
    (
        "file string, size bigint, id string, digest bigint, reason string, raw string",
        *(f"{name} {columns(name).simpleString()}" for name in sorted(MARKS)),
        "kind string",
    )
)
"""The columns that `judge` gives."""


def as_written(raw: DataFrame, name: str) -> tuple[DataFrame, Sql]:
    """raw, others -> the same and the struct of contract `name`, which is null where a line is not
    as our writers write it; and the condition of good lines. These are good for `judge` too, with
    the same struct. All other lines are for `judge` to decide."""
    one = contract(name)
    plain = f"is_valid_utf8(raw) AND {one.plain('raw')}"
    lines = raw.selectExpr("*", f"CASE WHEN {plain} THEN {one.parsed('raw')} END AS {name}")
    # What Spark could not read has no field at all.
    return lines, f"coalesce({name}.id IS NOT NULL AND {one.kept(written=True)}, false)"


def judge(raw: DataFrame) -> DataFrame:
    """raw, file, others -> LINES, others. kind: a contract, bad or blank. size: bytes of the line
    and its end.

    A good line has id, digest (of its text) and its contract's struct, a bad one reason, digest and
    raw (cut).
    """
    # To trim means to count all characters, and nearly all lines have nothing to trim.
    trimmed = "IF(startswith(raw, '{') AND endswith(raw, '}'), raw, btrim(raw, ' \\t\\r'))"
    text = raw.selectExpr("*", f"CASE WHEN is_valid_utf8(raw) THEN {trimmed} END AS text")
    shaped = text.selectExpr("*", f"{shape_of('text')} AS shape")
    wants = " ".join(f"WHEN contains(shape, '{MARKS[name]}: ') THEN '{name}'" for name in MARKS)
    wanted = shaped.selectExpr("*", f"CASE {wants} END AS wants")
    parsed = wanted.selectExpr("*", *(_parsed(name) for name in MARKS))
    good = _each(_good, _wanted)
    judged = parsed.selectExpr("*", f"coalesce(CASE {good} END, false) AS good")
    kinds = judged.selectExpr(
        "*",
        f"CASE WHEN text = '' THEN '{BLANK}' WHEN good THEN wants ELSE '{BAD}' END AS kind",
    )
    return kinds.selectExpr(
        "file",
        "CAST(octet_length(raw) + 1 AS bigint) AS size",
        f"CASE {_each(lambda name: f'{name}.id', _is)} END AS id",
        f"CASE WHEN kind <> '{BLANK}' THEN xxhash64(coalesce(text, raw)) END AS digest",
        f"CASE WHEN kind = '{BAD}' THEN {_reason()} END AS reason",
        f"CASE WHEN kind = '{BAD}' THEN {_shown('raw')} END AS raw",
        *(f"CASE WHEN {_is(name)} THEN {name} END AS {name}" for name in sorted(MARKS)),
        "kind",
        *(name for name in raw.columns if name not in ("raw", "file")),
    )


def _each(then: Callable[[str], Sql], when: Callable[[str], Sql]) -> Sql:
    return " ".join(f"WHEN {when(name)} THEN {then(name)}" for name in MARKS)


def _wanted(name: str) -> Sql:
    return f"wants = '{name}'"


def _good(name: str) -> Sql:
    one = contract(name)
    return f"{one.formed('text', 'shape')} AND {one.kept()}"


def _is(name: str) -> Sql:
    return f"kind = '{name}'"


def _parsed(name: str) -> Sql:
    return f"CASE WHEN {_wanted(name)} THEN {contract(name).parsed('text')} END AS {name}"


def _reason() -> Sql:
    each = _each(
        lambda name: contract(name).reason("text"), lambda name: contract(name).wanted("text")
    )
    return (
        "CASE WHEN text IS NULL THEN 'no UTF-8' "
        "WHEN json_object_keys(text) IS NULL THEN 'no JSON object' "
        f"{each} ELSE {literal(NAMELESS)} END"
    )


def _shown(raw: Sql) -> Sql:
    return f"substring(make_valid_utf8({raw}), 1, {SHOWN})"


def rows(documents: DataFrame) -> DataFrame:
    """raw, file, made of whole JSON files -> the rows of benches: bench (struct), file, made,
    reason, raw (cut); a document without rows is one row with its reason."""
    bench = contract("bench")
    listed = documents.selectExpr("file", "made", "raw", f"{_listed('raw')} AS listed")
    each = listed.selectExpr("file", "made", "raw", "explode_outer(listed) AS text")
    parsed = each.selectExpr(
        "*", f"{shape_of('text')} AS shape", f"{bench.parsed('text')} AS bench"
    )
    reason = (
        f"CASE WHEN text IS NULL THEN 'no document of a bench' "
        f"WHEN NOT ({bench.formed('text', 'shape')} AND {bench.kept()}) "
        f"THEN {bench.reason('text')} END AS reason"
    )
    shown = f"{_shown('coalesce(text, raw)')} AS raw"
    return parsed.selectExpr("bench", "file", "made", reason, shown)


def _listed(raw: Sql) -> Sql:
    """The rows of a document as texts; null: it is none."""
    # Behind the first object nobody else looks: what a shell appended would be dropped.
    alone = f"json_array_length(concat('[', {raw}, ']')) = 1"
    whole = f"is_valid_utf8({raw}) AND {alone} AND array_size(json_object_keys({raw})) = 1"
    found = f"from_json({raw}, 'rows array<string>').rows"
    # As texts a row and a text that looks like one are the same: no text is an object.
    objects = f"size(from_json({raw}, 'rows array<struct<measure string>>').rows) > 0"
    return f"CASE WHEN {whole} AND coalesce({objects}, false) THEN {found} END"
