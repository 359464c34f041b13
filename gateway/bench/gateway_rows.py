"""Rows of the gateway's bench: medians by variant, and what each is to another, round by round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench_print import Row
from gateway_variants import BASE, FAMILIES, LABELS, TWO
from load_rounds import UNITS, Taken, row_of
from load_stats import found, ratios

# By variant, whom it is compared with, and what the measure is called then.
TO = {
    LABELS: ((BASE, "to_mosquitto_tls"),),
    **{v.name: ((BASE, "to_mosquitto_tls"), (LABELS, "to_labels")) for v in FAMILIES.values()},
    TWO: ((LABELS, "to_one_worker"),),
}


def rows(
    taken: Sequence[Taken], stage: str, load: float, units: Mapping[str, str] = UNITS
) -> list[Row]:
    """One row a measure of `units`, burst and process; CPU of the whole gateway and throughput
    compared as well."""
    made: list[Row] = []
    by_name = {one.variant: one for one in taken}
    for one in taken:
        for key, values in one.values.items():
            measure, _, process = key
            if measure not in units:
                continue
            made.append(row_of(one, measure, units[measure], found(values), key, stage, load))
            if (measure, process) not in (("cpu_message", "gateway"), ("throughput", "")):
                continue
            for name, words in TO.get(one.variant, ()):
                to = by_name[name].values.get(key, []) if name in by_name else []
                if len(to) == len(values) and min(to) > 0:
                    got = ratios(values, to)
                    made.append(row_of(one, f"{measure}_{words}", "times", got, key, stage, load))
    return made
