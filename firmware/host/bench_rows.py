"""Rows of measurements, the form that every bench prints: shared_spec/bench.schema.json.

`value` is what one time costs, `n` over how many times it was taken, `size` the bytes of payload (0
where there is none), `params` whatever else a reader has to know to take it again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from bench_form import commit

Row = dict[str, Any]
# The end of a variant's name whose AES is in software: in a row a param, so that those whose AES is
# asked alike are compared.
SOFTWARE = "-software"


def row(
    measure: str,
    variant: str,
    size: int,
    value: float,
    unit: str,
    n: int,
    params: Mapping[str, Any] | None = None,
) -> Row:
    """One row. Instructions, bytes and blocks are whole numbers."""
    params = dict(params or {})
    if variant.endswith(SOFTWARE):
        params["aes"] = "software"
    return {
        "measure": measure,
        "variant": variant.removesuffix(SOFTWARE),
        "size": size,
        "value": round(value) if unit in ("instructions", "bytes", "blocks") else value,
        "unit": unit,
        "n": n,
        "params": params,
    }


def whose(found: Row) -> str:
    """Whose row it is, as tasks call it."""
    software = found["params"].get("aes") == "software"
    return f"{found['variant']}{SOFTWARE if software else ''}"


def stamped(rows: Sequence[Row]) -> list[Row]:
    """The rows, each with when it was measured (Unix ms) and of which tree."""
    now = {"at_ms": time.time_ns() // 1_000_000, "commit": commit()}
    return [{**each, "params": {**each["params"], **now}} for each in rows]


def each(base: float, more: float, n_base: int, n_more: int) -> float:
    """What one time costs, of two counts that differ in how often it was done."""
    if n_more <= n_base:
        raise ValueError("the second run has to do it more often")
    return (more - base) / (n_more - n_base)


def value(
    rows: Sequence[Row], measure: str, variant: str, size: int = 64, **params: Any
) -> float | None:
    """The value of a row, None when it was not taken."""
    for found in rows:
        same = (found["measure"], whose(found), found["size"]) == (measure, variant, size)
        if same and all(found["params"].get(name) == wanted for name, wanted in params.items()):
            return float(found["value"])
    return None


def updated(rows: Sequence[Row], fresh: Sequence[Row]) -> list[Row]:
    """`rows` with those that were measured anew in their places, others behind."""
    new = {_key(r): r for r in fresh}
    kept = [new.pop(_key(r), r) for r in rows]
    return [*kept, *new.values()]


def _key(found: Row) -> tuple[Any, ...]:
    apart = (found["params"].get(name) for name in ("bits", "direction", "micropython_version"))
    return found["measure"], whose(found), found["size"], *apart
