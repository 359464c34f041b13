"""Which tables a report has: what makes each, from what, and by which column it is parted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F

from .measures.behaviours import behaviours
from .measures.changed import changed
from .measures.cost import cost
from .measures.cuts import coverage, cuts
from .measures.decisions import decisions
from .measures.disclosures import disclosures
from .measures.figures import figures
from .measures.flaky import flaky
from .measures.gaps import gaps
from .measures.labelling import labelling
from .measures.nonces import nonces, reused
from .measures.paper import paper
from .measures.refusals import refusals
from .measures.regressions import regressions
from .measures.simulations import simulations
from .measures.stages import stages
from .measures.unenforced import unenforced

DAY = "day"


@dataclass(frozen=True)
class Table:
    """`make` gets the `inputs` in their order: logs, or tables that stand further up.

    time: a column of instants, whose date (UTC) is the Parquet folder `day=...`.
    """

    make: Callable[..., DataFrame]
    inputs: tuple[str, ...]
    time: str | None = None


TABLES: Mapping[str, Table] = {
    "decisions": Table(decisions, ("audit",), "hour"),
    "disclosures": Table(disclosures, ("audit",)),
    "labelling": Table(labelling, ("audit",), "at"),
    "refusals": Table(refusals, ("decisions",), "hour"),
    "unenforced": Table(unenforced, ("audit",), "hour"),
    "changed": Table(changed, ("decisions", "audit")),
    "gaps": Table(gaps, ("audit",), "at"),
    "stages": Table(stages, ("hil",)),
    "behaviours": Table(behaviours, ("hil",)),
    "flaky": Table(flaky, ("hil",)),
    "cuts": Table(cuts, ("hil",)),
    "coverage": Table(coverage, ("hil",)),
    "nonces": Table(nonces, ("nonce",)),
    "reused": Table(reused, ("nonces", "nonce")),
    "cost": Table(cost, ("bench",)),
    "paper": Table(paper, ("cost",)),
    "figures": Table(figures, ("bench",)),
    "regressions": Table(regressions, ("hil", "bench")),
    "simulations": Table(simulations, ("simulation",)),
}


def write(
    spark: SparkSession,
    folder: Path,
    frames: Mapping[str, DataFrame],
    empty: Iterable[str] = (),
    told: Callable[[int, str], None] = lambda number, name: None,
) -> tuple[dict[str, DataFrame], set[str]]:
    """Make the tables from the logs' `frames` and write them to folder/NAME: the tables, read back,
    and the names of those that were made of nothing.

    empty: logs without a row; what is made of nothing costs no job. told: is told of each table
    before it is made.
    """
    known = dict(frames)
    none = set(empty)
    made: dict[str, DataFrame] = {}
    for number, (name, table) in enumerate(TABLES.items()):
        told(number, name)
        frame = table.make(*(known[each] for each in table.inputs))
        path = str(folder / name)
        schema = frame.schema
        if none.issuperset(table.inputs):
            none.add(name)
            _nothing(frame, path)
        else:
            _parted(frame, table.time).parquet(path)
            if table.time is not None and not any((folder / name).glob(f"{DAY}=*")):
                _nothing(frame, path)
        made[name] = known[name] = spark.read.schema(schema).parquet(path).select(*schema.names)
    return made, none & set(made)


def _nothing(frame: DataFrame, path: str) -> None:
    """A file without a row: parted by day there would be none at all, and nobody could read it."""
    frame.limit(0).coalesce(1).write.mode("overwrite").parquet(path)


def _parted(frame: DataFrame, time: str | None) -> DataFrameWriter:
    if time is None:
        return frame.write.mode("overwrite")
    # Days that are small share a task, and one that is large is split.
    dated = frame.withColumn(DAY, F.to_date(time)).hint("rebalance", F.col(DAY))
    return dated.write.mode("overwrite").partitionBy(DAY)
