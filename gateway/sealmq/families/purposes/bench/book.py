"""What the bench's tables are made of: rows by what they are of, the paper's figures, columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench_print import Row

# Wolf and others, Tables I and II, at 250 clients: messages a second and what is lost of them in
# percent; milliseconds of a round trip and what is added. Theirs is HiveMQ, on machines of a cloud;
# NoF is their extension that looks at every message and filters nothing.
PAPER: dict[str, tuple[float, float | None, float, float | None]] = {
    "mosquitto": (6254.49, None, 50.64, None),
    "NoF": (5404.29, 13.59, 55.20, 9.01),
    "fos": (5467.28, 12.59, 54.13, 6.89),
    "fop-cache": (4998.86, 20.08, 60.59, 19.64),
    "hybrid": (4690.76, 25.00, 67.87, 34.02),
    "fop": (4638.01, 25.85, 68.95, 36.16),
    "fop-flat": (3519.83, 43.72, 1148.30, 2167.57),
}
ORDER = ("mosquitto", "NoF", "labels", "fos", "fop-cache", "hybrid", "fop", "fop-flat")

# The two stages with processes: what differs between the sites of each.
VARIED, HELD_STAGE = "variants", "reservations"
# More rounds of the few variants that the bars are about, taken by themselves.
CLOSER = "closer"


class Book:
    """Rows by what they are of; it knows which of them were looked at."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self.seen: set[int] = set()

    def get(self, measure: str, variant: str, **params: Any) -> Row | None:
        """The row with these params."""
        for at, row in enumerate(self.rows):
            if row["measure"] == measure and row["variant"] == variant:
                if all(row["params"].get(name) == value for name, value in params.items()):
                    self.seen.add(at)
                    return row
        return None

    def varied(self, measure: str, variant: str, **params: Any) -> Row | None:
        """The row of the stage in which the variants differ."""
        return self.get(measure, variant, stage=VARIED, **params)

    def params(self, stage: str) -> dict[str, Any]:
        """What all of a stage was measured with; the reservations where there were any."""
        told: dict[str, Any] = {}
        for row in self.rows:
            of = row["params"]
            if of.get("stage") == stage and (not told or of["reservations"]):
                told = {**of, "n": row["n"]} if row["measure"] == "throughput" else told
        return told

    def variants(self) -> list[str]:
        """Those of the first stage, in the paper's order."""
        there = {r["variant"] for r in self.rows if r["params"].get("stage") == VARIED}
        return [name for name in ORDER if name in there]

    def levels(self, measure: str, stage: str | None = None) -> list[int]:
        """Numbers of reservations for which there is such a row, ascending."""
        rows = [r["params"] for r in self.rows if r["measure"] == measure]
        return sorted({of["reservations"] for of in rows if of.get("stage") == stage} - {0})


# "+1.2 %" of a ratio.
def percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


def short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
