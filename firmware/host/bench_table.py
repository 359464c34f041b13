"""The rows as tables for people: figures by size, the bars, the paper's table beside ours."""

from __future__ import annotations

from collections.abc import Sequence

from bench_rows import Row


def table(rows: Sequence[Row]) -> str:
    """All rows, one a line."""
    return "\n".join(
        f"{r['measure']:<20}{r['variant']:<16}{r['size']:>6}{r['value']:>14,} {r['unit']}  "
        + ", ".join(f"{name} {what}" for name, what in r["params"].items())
        for r in rows
    )
