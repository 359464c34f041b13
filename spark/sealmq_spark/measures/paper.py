"""Table 5 of Chen and Wilson, and the same of what the device bench measured.

The paper: percent more CPU at each stage, containers with a JVM, one message of 1 MiB. Here:
instructions of the client (beside its Table 5 and Figures 4, 5), bytes that the client puts on the
wire (Figure 7), bytes of heap that will do (Figure 6).
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..rules import Sql, listed, literal

STAGES = ("connect", "subscribe", "receive", "publish")
OVERALL = "overall"
_SHOWN = (*STAGES, OVERALL)
COMPARED = {
    "TLS > plain": ("tls13-ecdsa", "plain"),
    "ours > plain": ("sealmq-ccm", "plain"),
    "TLS > ours": ("tls13-ecdsa", "sealmq-ccm"),
}
PAPER = {
    "TLS > plain": (68.0, -6.0, 66.0, 41.0, 54.0),
    "ours > plain": (22.0, -2.0, 86.0, 28.0, 29.0),
    "TLS > ours": (38.0, -4.0, -11.0, 10.0, 20.0),
}
_SIZED = ("receive", "publish", OVERALL)
# Of each kind of figure: which rows, where there are several. heap: the whole client's alone.
_KEYS = {"instructions": "", "wire": "direction=sent", "heap": "bits=64"}


def paper(cost: DataFrame) -> DataFrame:
    """cost -> what (instructions, wire, heap), comparison, size, stage, percent, paper.

    percent: more than the other, here. paper: the same there, where it says so. size: of the
    payload that is received and published; a connect and a subscription have none, and count the
    same for each. overall: all four stages once, where all were measured; of heap the whole client.
    """
    key = "regexp_replace(key, ', messages=.*', '')"
    kept = " OR ".join(
        f"what = '{what}' AND {key} = '{its}' AND stage IN ({listed(stages)})"
        for what, its in _KEYS.items()
        for stages in [(OVERALL,) if what == "heap" else STAGES]
    )
    sized = f"IF(stage IN ({listed(_SIZED)}), size, NULL) AS size"
    # One figure a cell, whatever the documents hold: a map with a key twice would end the job.
    rows = cost.where(kept).selectExpr("what", "stage", "variant", sized, "value")
    cells = rows.groupBy("what", "stage", "variant", "size").agg(F.max("value").alias("value"))
    cell = f"struct({_cell('stage', 'variant', 'size')}, value)"
    values = cells.groupBy("what").agg(
        F.expr(f"map_from_entries(collect_list({cell})) AS of"), F.collect_set("size").alias("s")
    )
    shown = ", ".join(f"struct({n} AS n, '{stage}' AS s)" for n, stage in enumerate(_SHOWN))
    each_size = values.selectExpr("what", "of", "explode(s) AS size")
    each_stage = each_size.selectExpr("*", f"explode(array({shown})) AS at")
    each_pair = each_stage.selectExpr("*", f"explode(array({', '.join(_pairs())})) AS p")
    found = each_pair.selectExpr(
        "what", "p.comparison", "size", "at.s AS stage",
        "round(100 * (p.more / nullif(p.less, 0D) - 1), 1) AS percent",
        "IF(what = 'instructions', element_at(p.paper, at.n + 1), NULL) AS paper",
    )  # fmt: skip
    return found.where("percent IS NOT NULL")


def _cell(stage: Sql, variant: Sql, size: Sql) -> Sql:
    return f"concat_ws(' ', {stage}, {variant}, {size})"


def _pairs() -> Iterator[Sql]:
    for name, (more, less) in COMPARED.items():
        paper = ", ".join(f"{percent}D" for percent in PAPER[name])
        yield (
            f"struct('{name}' AS comparison, {_value(more)} AS more, {_value(less)} AS less, "
            f"array({paper}) AS paper)"
        )


def _value(variant: str) -> Sql:
    """What the stage costs this variant; null where something of it was not measured."""

    def of(stage: str) -> Sql:
        size = "size" if stage in _SIZED else "CAST(NULL AS bigint)"
        return f"of[{_cell(literal(stage), literal(variant), size)}]"

    parts = [of(stage) for stage in STAGES]
    whole = f"coalesce({of(OVERALL)}, {' + '.join(parts)})"
    return f"element_at(array({', '.join(parts)}, {whole}), at.n + 1)"
