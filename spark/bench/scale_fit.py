"""A straight line through what was measured, and the rows that the bench writes."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
MILLION = 1e6
MAY_MISS = 10.0
"""Percent that a size may be off the line."""
MEASURED = {
    "start": ("report_start", "s"),
    "seconds": ("report_seconds", "s"),
    "cpu": ("report_cpu", "s"),
    "java": ("report_java_memory", "bytes"),
    "python": ("report_python_memory", "bytes"),
    "read": ("report_read", "bytes"),
    "written": ("report_written", "bytes"),
}
"""What a run tells of itself -> (measure, unit)."""
LINED = ("seconds", "cpu")


@dataclass(frozen=True)
class Line:
    """value = start + each * lines. misses: percent that each point is off, by its lines."""

    start: float
    each: float
    misses: Mapping[int, float]

    @property
    def worst(self) -> float:
        """The largest of the misses, without its sign."""
        return max(abs(miss) for miss in self.misses.values())


def line(points: Mapping[int, float]) -> Line:
    """Through (lines, value), so that the squares of the relative misses are least.

    ValueError: fewer than two points.
    """
    if len(points) < 2:
        raise ValueError("a line needs two points")
    # Weights 1 / value²: ten percent of a small one count as much as ten percent of a large one.
    weights = {x: y**-2 for x, y in points.items()}
    total = sum(weights.values())
    middle = sum(w * x for x, w in weights.items()) / total
    height = sum(weights[x] * y for x, y in points.items()) / total
    across = sum(w * (x - middle) ** 2 for x, w in weights.items())
    each = sum(weights[x] * (x - middle) * (y - height) for x, y in points.items()) / across
    start = height - each * middle
    misses = {x: 100 * (y - start - each * x) / y for x, y in points.items()}
    return Line(start, each, misses)


def row(measure: str, variant: str, value: float, unit: str, n: int, **params: Any) -> Row:
    """As shared_spec/bench.schema.json has it."""
    where = {"python": platform.python_version(), "machine": platform.machine()}
    return {
        "measure": measure,
        "variant": variant,
        "size": 0,
        "value": round(value, 4),
        "unit": unit,
        "n": n,
        "params": {**params, **where},
    }


def rows(samples: Sequence[Mapping[str, Any]], variant: str, load: float) -> list[Row]:
    """Medians over the runs of each size, and how far they were apart."""
    found = []
    for lines in sorted({sample["lines"] for sample in samples}):
        same = [sample for sample in samples if sample["lines"] == lines]
        for name, (measure, unit) in MEASURED.items():
            values = [sample[name] for sample in same]
            found.append(
                row(
                    measure,
                    variant,
                    statistics.median(values),
                    unit,
                    len(same),
                    lines=lines,
                    least=round(min(values), 4),
                    most=round(max(values), 4),
                    load=load,
                )
            )
        one = same[-1]
        for step in one["steps"]:
            value = statistics.median(sample["steps"][step] for sample in same)
            found.append(row("report_step", variant, value, "s", len(same), lines=lines, step=step))
        for of, value in one["bytes"].items():
            found.append(row("report_bytes", variant, value, "bytes", 1, lines=lines, of=of))
    return found


def formats(told: Sequence[Mapping[str, Any]], lines: int) -> list[Row]:
    """Parquet beside JSON: medians of the turns."""
    found = []
    for measure in dict.fromkeys(each["measure"] for each in told):
        for format_ in dict.fromkeys(each["format"] for each in told):
            same = [e for e in told if (e["measure"], e["format"]) == (measure, format_)]
            for name, unit in (("seconds", "s"), ("cpu", "s"), ("read", "bytes")):
                value = statistics.median(each[name] for each in same)
                found.append(
                    row(
                        f"format_{name}",
                        format_,
                        value,
                        unit,
                        len(same),
                        table=measure,
                        lines=lines,
                    )
                )
    for format_ in dict.fromkeys(each["format"] for each in told):
        size = next(each["bytes"] for each in told if each["format"] == format_)
        found.append(row("format_bytes", format_, size, "bytes", 1, lines=lines))
    return found


def lined(rows: Sequence[Row]) -> list[Row]:
    """The line through each of LINED, and how far each size is off it."""
    found = []
    for name in LINED:
        measure = MEASURED[name][0]
        same = [row for row in rows if row["measure"] == measure]
        if len(same) < 2:
            continue
        points = {row["params"]["lines"]: row["value"] for row in same}
        through = line(points)
        variant, n = same[0]["variant"], len(points)
        # Rows hold nothing below 0; the table computes the line anew.
        ends = (("start", max(0.0, through.start)), ("million", through.each * MILLION))
        found += [
            row(f"{measure}_line", variant, max(0.0, value), "s", n, part=part)
            for part, value in ends
        ]
        found += [
            row(f"{measure}_off", variant, abs(miss), "percent", 1, lines=lines)
            for lines, miss in through.misses.items()
        ]
    return found
