"""What the page is given in tests: an example of everything, and all that is at its edges."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
Shown = dict[str, list[dict[str, Any]]]
Case = tuple[dict[str, Any], Shown]

HOSTILE = (
    "<script>window.hurt = 1</script>",
    '"><img src=x onerror="window.hurt = 1">',
    "</style></svg></table><script>window.hurt = 1</script>",
    "machine/\u202e/erutarepmet\u2066/1",
    "x" * 300,
    "machine/" + "very/long/path/" * 60 + "temperature",
    "\u0645\u0635\u0646\u0639/\u0622\u0644\u0629/\u062d\u0631\u0627\u0631\u0629",
    "\U0001f3ed/\U0001f468\u200d\U0001f469\u200d\U0001f467/\U0001f321\ufe0f" * 20,
    "\u6e29\u5ea6" * 90,
    "z" + "\u0301\u0302\u0303\u0304" * 60,
    "a\u0000b\u0007c\ud800d\uffff",
    "   ",
    "&amp;&lt;&#x3c;",
    "javascript:window.hurt=1",
    "{{7*7}} ${window.hurt=1} --><!--",
    "line\nbreak\u2028and\tmore",
)
_NAMES = (
    "topic", "client", "label", "rule", "purpose", "under", "board", "behaviour", "stage", "part",
    "variant", "measure", "reason", "subject", "key", "runs", "cut_partition", "kind", "question",
    "class", "what", "unit", "commit", "file", "raw", "layer", "comparison",
)  # fmt: skip


def full() -> Case:
    """The example of all that a report can say."""
    summary = json.loads((DATA / "summary.json").read_bytes())
    shown = json.loads((DATA / "shown.json").read_bytes())
    return summary, shown


def empty() -> Case:
    """No line in the logs."""
    summary, shown = full()
    summary.update(lines=0, repeated=0, quarantined=0, reasons={}, began=None, ended=None)
    summary.update(exit=0, why=[], tables={}, seconds={}, logs=[])
    summary["kept"] = dict.fromkeys(summary["kept"], 0)
    summary["headline"] = dict.fromkeys(summary["headline"])
    return summary, {name: [] for name in shown}


def one() -> Case:
    """One row of everything, and nothing to act on."""
    summary, shown = full()
    summary.update(exit=0, why=[])
    summary["headline"].update(regressions=0)
    return summary, {name: rows[:1] for name, rows in shown.items()}


def none_of_them() -> Case:
    """Logs in which all is well: the lists of what is wrong are empty, and counts are 0."""
    summary, shown = full()
    summary["tables"]["gaps"] = 0
    summary.update(exit=0, why=[], quarantined=0)
    wrong = ("forged", "old_keys", "replayed", "too_old", "malformed", "changed", "failed", "flaky")
    for name in (*wrong, "regressions", "nonces_repeated", "denied", "unenforced"):
        summary["headline"][name] = 0
    lists = ("regressions", "flaky", "changed", "refusals", "refusals_time", "quarantine", "gaps")
    for name in (*lists, "decisions_denied"):
        shown[name] = []
    for name, rows in shown.items():
        if name.startswith("decisions_"):
            shown[name] = [{**row, "denied": 0} for row in rows]
    shown["unenforced"] = []
    return summary, shown


def hostile() -> Case:
    """Names, reasons and lines that devices could have made up."""
    summary, shown = full()
    turn = 0

    def spoil(value: Any, name: str) -> Any:
        nonlocal turn
        if isinstance(value, dict):
            return {key: spoil(each, key) for key, each in value.items()}
        if isinstance(value, list):
            return [spoil(each, name) for each in value]
        if isinstance(value, str) and value and name in _NAMES:
            turn += 1
            return HOSTILE[turn % len(HOSTILE)]
        return value

    spoiled = {name: spoil(rows, name) for name, rows in shown.items()}
    # Rows that belong together keep names that agree.
    for name in ("cost", "paper", "stages", "behaviours"):
        names = dict.fromkeys(
            row[key] for row in shown[name] for key in row if key in _NAMES and row[key]
        )
        to = {each: HOSTILE[at % len(HOSTILE)] + str(at) for at, each in enumerate(names)}
        spoiled[name] = [
            {key: to.get(v, v) if key in _NAMES else v for key, v in row.items()}
            for row in shown[name]
        ]
    summary["why"] = [f"the rig: {text}" for text in HOSTILE[:6]]
    summary["logs"] = list(HOSTILE)
    summary["master"] = HOSTILE[4]
    return summary, spoiled


def huge() -> Case:
    """Numbers at the end of what a column holds."""
    summary, shown = full()
    most = (1 << 63) - 1

    def grow(value: Any, name: str) -> Any:
        if isinstance(value, dict):
            return {key: grow(each, key) for key, each in value.items()}
        if isinstance(value, list):
            return [grow(each, name) for each in value]
        fixed = name in ("hours", "v", "exit", "size", "share", "others")
        if isinstance(value, bool) or not isinstance(value, int | float) or fixed:
            return value
        return most if isinstance(value, int) else value * 1e12

    return grow(summary, ""), {name: grow(rows, name) for name, rows in shown.items()}


def many() -> Case:
    """As much as the lists may hold: 400 buckets over years, ten purposes, fifty boards."""
    summary, shown = full()
    start = datetime(2023, 3, 1, tzinfo=UTC)
    hours = [(start + timedelta(hours=48 * i)).strftime("%Y-%m-%dT%H:%M:%SZ") for i in range(400)]
    shown["decisions_time"] = [
        {"hour": hour, "hours": 48, "allowed": 10_000 + 977 * (i % 31), "denied": i % 13 * 40}
        for i, hour in enumerate(hours)
        if i % 57
    ]
    shown["labelling_time"] = [
        {"hour": hour, "hours": 48, "labelled": i % 5, "reset": int(i % 90 == 0)}
        for i, hour in enumerate(hours)
    ]
    shown["refusals_time"] = [
        {"hour": hour, "hours": 48, "class": name, "count": 1 + (i * 7) % 11}
        for i, hour in enumerate(hours)
        for name in ("forged", "replayed", "too old", "malformed")
        if i % 3 == 0
    ]
    shown["disclosures_matrix"] = [
        {"topic": f"hall/{t}/air", "purpose": f"purpose-{p}/for/someone", "count": 3**p + t}
        for t in range(15)
        for p in range(10)
    ]
    shown["behaviours"] = [
        {**row, "board": f"bench-{number}"}
        for number in range(50)
        for row in shown["behaviours"]
        if row["board"] == shown["behaviours"][0]["board"]
    ]
    summary["headline"]["nonces_repeated"] = 40
    shown["reused"] = [
        {
            "runs": "0123456789abcdef", "key": "link", "nonce": f"{number:024x}", "layer": "link",
            "board": "virtual-1", "contents": 2, "pairs": 2, "first": hours[0], "last": hours[-1],
        }
        for number in range(40)
    ]  # fmt: skip
    shown["cost"] += [
        {
            "measure": f"measure_{number % 9}", "variant": f"variant-{number}", "size": 64, "n": 9,
            "unit": "us of CPU", "key": "burst=16, process=mediator", "value": number % 7 * 3.5,
            "low": 0.0, "high": number * 4.0, "to_plain": None, "to_tls": None,
        }
        for number in range(90)
    ]  # fmt: skip
    return summary, shown


CASES: dict[str, Callable[[], Case]] = {
    "full": full,
    "empty": empty,
    "one": one,
    "well": none_of_them,
    "hostile": hostile,
    "huge": huge,
    "many": many,
}


def case(name: str) -> Case:
    """One of CASES, that a test may change."""
    return copy.deepcopy(CASES[name]())
