"""Rows in the form that every bench of SealMQ prints: shared_spec/bench.schema.json."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable
from typing import Any

Row = dict[str, Any]


def row(measure: str, variant: str, value: float, unit: str, n: int, size: int = 64) -> Row:
    """One row; `params` says on what it was measured."""
    where = {"python": platform.python_version(), "machine": platform.machine()}
    return {
        "measure": measure,
        "variant": variant,
        "size": size,
        "value": value,
        "unit": unit,
        "n": n,
        "params": where,
    }


def show(rows: Iterable[Row]) -> None:
    """Prints the one object."""
    print(json.dumps({"rows": list(rows)}))
