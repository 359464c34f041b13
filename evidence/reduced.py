"""reduced.json: what the report's tables hold of the results, as the pages need it.

`rows`: of the benches, by part, in the form of shared_spec/bench.schema.json; `rig`: of the rig,
of the paper's Table 5 and of simulated sites (of these some rounds alone);
`parts`: who measured when.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.place import REDUCED, EvidenceError

Row = dict[str, Any]
ROUNDS = (2, 10)
"""Of simulated sites: soon, and when those who are bad by turns have been so for five rounds."""


@dataclass(frozen=True, eq=False)
class Reduced:
    """All that a page may show. Compared by identity: what is made of one is kept."""

    parts: dict[str, dict[str, Any]]
    rows: dict[str, list[Row]]
    rig: dict[str, list[Row]]

    def row(self, part: str, measure: str, variant: str) -> Row:
        """The one row of this; EvidenceError if there is none, or more than one."""
        found = [
            row
            for row in self.rows.get(part, [])
            if (row["measure"], row["variant"]) == (measure, variant)
        ]
        if len(found) != 1:
            raise EvidenceError(f"{part} has {len(found)} rows of: {measure} {variant}")
        return found[0]

    def value(self, part: str, measure: str, variant: str) -> float:
        """Its value."""
        return float(self.row(part, measure, variant)["value"])


def order(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Rows by what they are of, the same whatever order they came in."""
    params = sorted((name, str(value)) for name, value in row["params"].items())
    return row["measure"], row["variant"], row["size"], row["unit"], params


def load(path: Path = REDUCED) -> Reduced:
    """What the file says. EvidenceError."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return Reduced(found["parts"], found["rows"], found["rig"])
    except (OSError, ValueError, KeyError) as error:
        raise EvidenceError(f"cannot read {path}: {error}", "make evidence") from error


def text(reduced: Reduced) -> str:
    """As the file has it: a line for each row, so that a change is a line as well."""
    parts = [f'"parts": {_table(reduced.parts)}']
    for name, tables in (("rows", reduced.rows), ("rig", reduced.rig)):
        lists = ",\n".join(
            f"{json.dumps(key)}: [\n" + ",\n".join(map(_line, found)) + "\n]"
            for key, found in sorted(tables.items())
        )
        parts.append(f'"{name}": {{\n{lists}\n}}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _table(found: Mapping[str, Any]) -> str:
    lines = ",\n".join(f"{json.dumps(key)}: {_line(of)}" for key, of in sorted(found.items()))
    return "{\n" + lines + "\n}"


def _line(found: Any) -> str:
    return json.dumps(found, ensure_ascii=False, sort_keys=True)
