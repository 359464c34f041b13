"""What became worse since the last comparable measurement: of the rig's boards, of the benches."""

from __future__ import annotations

from pyspark.sql import DataFrame

from .regressions_bench import of_bench
from .regressions_rig import of_rig


def regressions(hil: DataFrame, bench: DataFrame) -> DataFrame:
    """hil, bench -> source, subject, part, what, before, now, ratio, measured, against.

    source: rig or bench. subject: the behaviour or measure. part: the stage; of a bench the variant
    and what else tells the row apart. what: fails, skipped, gone (behaviours), slower (times and
    rates), dearer (what is counted). before, now: shares of 1, ms, or the bench's unit. ratio: how
    many times worse, above 1; null where there is none. measured, against: the two runs, or files.
    No row: nothing became worse, or there is nothing to compare with.
    """
    return of_rig(hil).unionByName(of_bench(bench))
