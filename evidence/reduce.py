"""From results to reduced.json: `sealmq report` reduces them, and its tables are read back.

The tables of pages are made of what stands in those tables, of nothing else.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from evidence.collect import noted, say
from evidence.parts import PARTS
from evidence.place import REDUCED, WORK, EvidenceError, put, shown
from evidence.reduced import ROUNDS, Reduced, Row, order, text

_BOUND_S = 1800
# A finding (a regression, say) is told and ends in 1; the tables are there all the same.
_FINDING = 1
UNKNOWN = {"began": "", "commit": "unknown", "load": None, "note": "not run by make evidence"}
RIG = ("behaviours", "stages", "cuts", "nonces")
_SIMULATED = (
    "sites", "kind", "rule", "round", "runs", "precision_mean", "recall_mean", "good_mean",
)  # fmt: skip


def reduce() -> Reduced:
    """Writes reduced.json. EvidenceError, also for what the report found."""
    found, why = again(WORK)
    if put(REDUCED, text(found)):
        say(f"{shown(REDUCED)} is new")
    if why:
        raise EvidenceError(f"the report found something: {why}")
    return found


def again(work: Path) -> tuple[Reduced, str]:
    """(what the results reduce to, what the report found that a person should see, or ""). It
    works in that folder. EvidenceError.
    """
    results = [path for part in PARTS for path in part.results if path.exists()]
    out = work / "report"
    finding = _report(results, out)
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    if summary["quarantined"]:
        raise EvidenceError(
            f"{summary['quarantined']} rows or lines are of no contract: {summary['reasons']}",
            f"{shown(out)}/quarantine has them",
        )
    why = "; ".join(map(str, summary.get("why", []))) or f"see {shown(out)}/report.html"
    return _sorted(_tables(out / "tables", work)), why if finding else ""


def _report(results: list[Path], out: Path) -> bool:
    """Whether it found something that a person should see."""
    words = ["-m", "sealmq.cli", "report", *map(str, results), "--out", str(out), "--fresh"]
    say(f"reducing: sealmq report {' '.join(map(shown, results))}")
    try:
        done = subprocess.run(  # noqa: S603 - our own words
            [sys.executable, *words],
            stdout=sys.stderr,
            timeout=_BOUND_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EvidenceError(f"sealmq report took more than {_BOUND_S} s") from error
    if done.returncode not in (0, _FINDING):
        raise EvidenceError(f"sealmq report ended with {done.returncode}; nothing was changed")
    return done.returncode == _FINDING


def _tables(folder: Path, work: Path) -> dict[str, list[dict[str, Any]]]:
    """The report's tables, as plain rows."""
    from sealmq_spark.session import session

    spark = session(scratch=work / "spark", log=work / "spark.log")
    try:
        wanted = ("figures", "paper", "simulations", *RIG)
        return {
            name: [row.asDict(True) for row in spark.read.parquet(str(folder / name)).collect()]
            for name in wanted
        }
    finally:
        spark.stop()


def _sorted(tables: dict[str, list[dict[str, Any]]]) -> Reduced:
    """Rows of the benches by part, in the form of their contract; all in one order."""
    part_of = {path.name: part.name for part in PARTS for path in part.results}
    rows: dict[str, list[Row]] = {}
    for row in tables["figures"]:
        rows.setdefault(part_of[row["document"]], []).append(
            {
                "measure": row["measure"],
                "variant": row["variant"],
                "size": row["size"],
                "value": _number(row["value"]),
                "unit": row["unit"],
                "n": row["n"],
                "params": {name: _param(value) for name, value in row["params"].items()},
            }
        )
    for found in rows.values():
        found.sort(key=order)
    tables["simulations"] = [
        {name: row[name] for name in _SIMULATED}
        for row in tables["simulations"]
        if row["round"] in ROUNDS
    ]
    lists = {
        name: sorted(tables[name], key=lambda row: json.dumps(row, sort_keys=True, default=str))
        for name in ("paper", "simulations", *RIG)
    }
    parts = {}
    for part in PARTS:
        if any(path.exists() for path in part.results):
            parts[part.name] = noted(part) or {**UNKNOWN, "command": part.command()}
    return Reduced(parts, rows, {name: [_plain(r) for r in of] for name, of in lists.items()})


def _number(value: float) -> float:
    return int(value) if float(value).is_integer() else value


def _plain(row: dict[str, Any]) -> Row:
    return {k: _number(v) if isinstance(v, float) else v for k, v in row.items()}


def _param(value: str) -> Any:
    """As the bench wrote it: Spark has params as text."""
    try:
        found = json.loads(value)
    except ValueError:
        return value
    return found if isinstance(found, (bool, int, float)) else value
