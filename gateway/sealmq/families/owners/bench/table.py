"""The rows as tables for people: the bars, CPU a message, decisions, how soon what is said counts.
Markdown whose columns line up, so that it reads on a terminal as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from bench_print import Row

from bench_form import aligned

CLOSER = "closer"
MOST_TO_LABELS = 1.02
MOST_DECISION_US = 10.0
MOST_CHAIN_US = 1000.0
AT = 100_000
# The same at the most as at the least, within what two runs of one differ.
MOST_TO_FEWEST = 1.25
VARIANTS = ("labels", "owners", "owners-sealed", "owners-matching-set")


class Bar(NamedTuple):
    """`told`: the value in words; `bound`: what it must not pass."""

    what: str
    told: str
    bound: str
    holds: bool


class _Book:
    """Rows by what they are of; it knows which of them were looked at."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self.seen: set[int] = set()

    def get(self, measure: str, variant: str = "owners", **params: Any) -> Row | None:
        for at, row in enumerate(self.rows):
            if row["measure"] == measure and row["variant"] == variant:
                if all(row["params"].get(name) == value for name, value in params.items()):
                    self.seen.add(at)
                    return row
        return None

    def levels(self) -> list[int]:
        return sorted({row["params"].get("assertions", 0) for row in self.rows} - {0})


def beside(rows: Sequence[Row], closer: Sequence[Row]) -> list[Row]:
    """The rows, and beside them more rounds of the two that the bar is about."""
    return [*rows, *({**r, "params": {**r["params"], "stage": CLOSER}} for r in closer)]


def shown(rows: Sequence[Row]) -> list[Row]:
    """Those of the rows that the tables show."""
    book = _Book(rows)
    _all(book)
    return [row for at, row in enumerate(rows) if at in book.seen]


def table(rows: Sequence[Row]) -> str:
    """Everything that the rows tell."""
    return _all(_Book(rows))


def bars(rows: Sequence[Row]) -> list[Bar]:
    """Each bar that the rows can tell."""
    return _bars(_Book(rows))


def _all(book: _Book) -> str:
    parts = (_held(book), _messages(book), _decisions(book), _ends(book))
    return "\n\n".join(part for part in parts if part)


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _sent(burst: int) -> str:
    return "one at a time" if burst == 1 else f"{burst} at a time"


def _bars(book: _Book) -> list[Bar]:
    told = []
    for burst in (1, 16):
        # Of both runs the one with more rounds.
        for stage in (CLOSER, "messages"):
            params: dict[str, Any] = {"stage": stage, "burst": burst, "process": "mediator"}
            row = book.get("cpu_message_to_labels", **params)
            if row is not None:
                words = f"the mediator's CPU a message to labels, {_sent(burst)}, {row['n']} rounds"
                between = f"{_percent(row['params']['low'])} to {_percent(row['params']['high'])}"
                holds = row["value"] <= MOST_TO_LABELS
                bound = f"{_percent(MOST_TO_LABELS)}"
                told.append(Bar(words, f"{_percent(row['value'])} ({between})", bound, holds))
                break
    row, least = book.get("decision_uncached", assertions=AT), None
    if row is not None:
        words = f"a decision of the family, uncached, at {AT:,} assertions"
        value = row["value"]
        told.append(Bar(words, f"{_short(value)} µs", f"{MOST_DECISION_US:g} µs",
                        value <= MOST_DECISION_US))  # fmt: skip
        least = book.get("decision_uncached", assertions=book.levels()[0])
    if row is not None and least is not None and least is not row:
        ratio = row["value"] / least["value"]
        words = f"the same to {least['params']['assertions']:,} assertions"
        told.append(Bar(words, f"{ratio:.2f} times", f"{MOST_TO_FEWEST} times",
                        ratio <= MOST_TO_FEWEST))  # fmt: skip
    row = book.get("chain_of_five", assertions=AT)
    if row is not None:
        told.append(Bar("a chain of five grants, uncached", f"{_short(row['value'])} µs",
                        f"{MOST_CHAIN_US:,.0f} µs", row["value"] <= MOST_CHAIN_US))  # fmt: skip
    return told


def _held(book: _Book) -> str:
    body = [[b.what, b.told, b.bound, "pass" if b.holds else "MISS"] for b in _bars(book)]
    return aligned(["the bars", "", "at most", ""], body, 1) if body else ""


def _messages(book: _Book) -> str:
    body = []
    for burst in (1, 16):
        for variant in VARIANTS:
            params = {"stage": "messages", "burst": burst}
            row = book.get("cpu_message", variant, process="mediator", **params)
            if row is None:
                continue
            to = book.get("cpu_message_to_labels", variant, process="mediator", **params)
            rate = book.get("throughput", variant, **params)
            between = ["", ""]
            if to is not None:
                low, high = to["params"]["low"], to["params"]["high"]
                between = [_percent(to["value"]), f"{_percent(low)} to {_percent(high)}"]
            told = "" if rate is None else _short(rate["value"])
            body.append([_sent(burst), variant, f"{row['value']:.1f}", *between, told])
    if not body:
        return ""
    head = ["", "", "µs of the mediator", "to labels", "between", "messages/s"]
    title = (
        "CPU a published message, which three clients receive; owners-sealed: of types with sealed "
        "attributes, owners-matching-set: each reader's copy sealed to its link"
    )
    return f"{title}:\n\n{aligned(head, body)}"


_COLUMNS = {
    "decision_uncached": "uncached",
    "decision_planned": "rights known",
    "decision_denied": "denied",
    "policy_uncached": "with labels, uncached",
    "policy_cached": "cached",
    "chain_of_five": "chain of five",
}


def _decisions(book: _Book) -> str:
    body = []
    for level in book.levels():
        rows = [book.get(measure, assertions=level) for measure in _COLUMNS]
        cells = ["" if row is None else _short(row["value"]) for row in rows]
        for measure in ("memory", "memory_each"):
            row = book.get(measure, assertions=level)
            cells.append("" if row is None else _short(row["value"]))
        body.append([f"{level:,}", *cells])
    if not body:
        return ""
    head = ["assertions", *_COLUMNS.values(), "MiB", "bytes each"]
    title = "One decision in microseconds, and what assertions take in memory"
    return f"{title}:\n\n{aligned(head, body)}"


_ENDS = {
    "retracted": "a retraction",
    "attribute": "an attribute that is taken away",
}


def _ends(book: _Book) -> str:
    body = []
    for what, words in _ENDS.items():
        rows = [book.get(f"{what}_{of}") for of in ("p50", "p99", "late")]
        if any(row is not None for row in rows):
            told = ["" if row is None else f"{row['value']:.3g}" for row in rows]
            body.append([words, *told])
    if not body:
        return ""
    body.append(["EMQX, an ACL that is changed", "not", "asked", "again"])
    head = ["", "p50, ms", "p99, ms", "after the reply"]
    title = (
        "From the command to the last delivery that came by what it has ended, in ms, while "
        "messages stream. EMQX, as its documentation says, asks when a client subscribes or "
        "publishes, not when it delivers: a subscription that was allowed is kept"
    )
    return f"{title}:\n\n{aligned(head, body, 1)}"
