"""How topics came to their labels, and lost them: first publishes (paper, Algorithm 2), resets."""

from __future__ import annotations

from pyspark.sql import DataFrame

from .columns import instant, text


def labelling(audit: DataFrame) -> DataFrame:
    """audit -> site, at (timestamp, UTC), topic, event, client, label, rule.

    event: topic-labelled, or topic-reset, where client, label and rule are "".
    """
    return audit.where("event in ('topic-labelled', 'topic-reset')").select(
        "site",
        instant("at_ms").alias("at"),
        "topic",
        "event",
        *map(text, ("client", "label", "rule")),
    )
