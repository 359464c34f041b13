"""What a report has to say about generated logs, and where it says something else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from spark_tally import Tally

QUESTIONS = {
    "publish-accepted": ("publish", True),
    "delivered": ("deliver", True),
    "connect": ("connect", True),
    "command": ("command", True),
    "config-reloaded": ("config", True),
    "deliver-denied": ("deliver", False),
    "connect-refused": ("connect", False),
    "publish-refused": ("publish", False),
    "subscribe-refused": ("subscribe", False),
    "packet-refused": ("packet", False),
}
"""event -> what was asked, and whether it was allowed; written anew, not taken from the measure."""
_BEYOND = "unenforced"


def differences(truth: Tally, run: Mapping[str, Any]) -> list[str]:
    """In words; none: the report is right. run: as scale_run.py prints it, with --counts."""
    return list(_differences(truth, run["summary"], run["counted"]))


def _differences(
    truth: Tally, summary: Mapping[str, Any], counted: Mapping[str, Any]
) -> Iterator[str]:
    kept = {name: truth.kept[name] for name in summary["kept"]}
    decided: Counter[tuple[str, bool, str]] = Counter()
    for (event, rule), count in truth.decided.items():
        if event != _BEYOND:
            decided[(*QUESTIONS[event], rule)] += count
    said = {(question, allowed, rule): n for question, allowed, rule, n in counted["decisions"]}
    let_through = sum(n for (event, _), n in truth.decided.items() if event == _BEYOND)
    pairs = {
        # A document's rows are counted among the lines.
        "lines": (truth.lines + truth.kept["bench"], summary["lines"]),
        "kept": (kept, summary["kept"]),
        "repeated": (truth.repeated, summary["repeated"]),
        "quarantined": (truth.bad.total(), summary["quarantined"]),
        "events": (dict(truth.events), counted["events"]),
        "topics delivered": (len(truth.topics), counted["topics"]),
        "decisions": (dict(decided), said),
        "unenforced": (let_through, counted["unenforced"]),
    }
    for what, (wanted, found) in pairs.items():
        if wanted == found:
            continue
        if isinstance(wanted, dict) and isinstance(found, dict):
            names = sorted(
                (name for name in {*wanted, *found} if wanted.get(name) != found.get(name)), key=str
            )
            wanted = {name: wanted.get(name) for name in names[:5]}
            found = {name: found.get(name) for name in names[:5]}
        yield f"{what}: {found} instead of {wanted}"
