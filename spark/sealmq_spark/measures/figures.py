"""Every row of the benches as it was measured last, with all its params: what pages are made of."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .cost import newest


def figures(bench: DataFrame) -> DataFrame:
    """bench -> document, measure, variant, size, unit, key, n, value, params.

    document: the name of the file that said so, without its folder. key: as in `cost`. params:
    as the bench wrote them, each as text.
    """
    document = F.regexp_extract("file", "([^/]+)$", 1).alias("document")
    return newest(bench).select(
        document, "measure", "variant", "size", "unit", "key", "n", "value", "params"
    )
