"""Rows in the form that every bench of SealMQ prints: shared_spec/bench.schema.json."""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from bench_form import commit

Row = dict[str, Any]


def row(measure: str, variant: str, value: float, unit: str, n: int, size: int = 64) -> Row:
    """One row; `params` says on what it was measured, when, and of which tree."""
    where = {"python": platform.python_version(), "machine": platform.machine(), **made()}
    return {
        "measure": measure,
        "variant": variant,
        "size": size,
        "value": value,
        "unit": unit,
        "n": n,
        "params": where,
    }


@cache
def made() -> Row:
    """When this bench ran (Unix ms), and the commit, with -dirty; the same for all its rows."""
    return {"at_ms": time.time_ns() // 1_000_000, "commit": commit()}


def show(rows: Iterable[Row]) -> None:
    """Prints the one object."""
    print(json.dumps({"rows": list(rows)}))


def text_of(rows: Sequence[Row]) -> str:
    """The file: one row a line."""
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    return f'{{"rows": [\n{lines}\n]}}\n'


def count(text: str) -> int:
    """How many, as given on a command line."""
    number = int(text)
    if not 3 <= number <= 1_000_000:
        raise argparse.ArgumentTypeError("from 3 to 1,000,000")
    return number
