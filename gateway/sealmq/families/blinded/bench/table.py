"""The rows as tables for people: the bars, what matching and encoding cost, large sites, leakage,
the paper's runs beside what it has published. Markdown whose columns line up.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from bench_print import Row

from bench_form import aligned

from .runs import BINS_MS, KB, KNOWN, LABELS, MORE, OURS, PARTS, PLAIN

MOST_RULES_US = 10.0
MOST_CUSTOMER_KB = 300.0
MOST_WRONG = 1e-10
_VARIANTS = (PLAIN, LABELS, OURS, KNOWN)
PAPER = {
    (PLAIN, "pub_to_sub"): "25 to 30, of about 70 %",
    (OURS, "pub_to_sub"): "30 to 35, of about 55 %",
    (PLAIN, "broker"): "0 to 5, of about 95 %",
    (OURS, "broker"): "5 to 10, of about 80 %",
}
"""Fig. 11: milliseconds at 1 KB, one rule."""


class Bar(NamedTuple):
    """`told`: the value in words; `bound`: what it must not pass."""

    what: str
    told: str
    bound: str
    holds: bool


def beside(rows: Sequence[Row], closer: Sequence[Row]) -> list[Row]:
    """The rows of the run in which each was less, since load only adds."""
    other = {_key(one): one for one in closer}
    return [min(one, other.get(_key(one), one), key=lambda r: float(r["value"])) for one in rows]


def _key(one: Row) -> str:
    tells = ("rules", "order", "subscriptions", "encoding", "customers", "kinds", "stage", "below")
    told = [one["params"].get(name) for name in tells]
    return json.dumps([one["measure"], one["variant"], one["size"], told])


def shown(rows: Sequence[Row]) -> list[Row]:
    """All of them."""
    return list(rows)


def bars(rows: Sequence[Row]) -> list[Bar]:
    """Each bar that the rows can tell."""
    found = []
    for one, words, unit, bound in (
        (_get(rows, "rules_uncached", rules=64), "64 rules, uncached, one direction", "µs",
         MOST_RULES_US),
        (_get(rows, "customer"), "filters of a customer", "kB", MOST_CUSTOMER_KB),
        (_get(rows, "wrong_at_most"), "an attribute that is not there is taken for one", "",
         MOST_WRONG),
    ):  # fmt: skip
        if one is not None:
            told = f"{one['value']:.3g} {unit}".rstrip()
            holds = one["value"] <= bound
            found.append(Bar(words, told, f"{bound:g} {unit}".rstrip(), holds))
    return found


def _get(
    rows: Sequence[Row], measure: str, of: str = "", size: int = 0, **params: Any
) -> Row | None:
    for one in rows:
        if one["measure"] == measure and params.items() <= one["params"].items():
            if of in ("", one["variant"]) and size in (0, one["size"]):
                return one
    return None


def table(rows: Sequence[Row]) -> str:
    """The tables, for people."""
    parts = (_held(rows), _costs(rows), _large(rows), _leaks(rows), *_runs(rows))
    return "\n\n".join(part for part in parts if part)


def _held(rows: Sequence[Row]) -> str:
    body = [[b.what, b.told, b.bound, "pass" if b.holds else "MISS"] for b in bars(rows)]
    return aligned(["the bars", "", "at most", ""], body, 1) if body else ""


def _costs(rows: Sequence[Row]) -> str:
    body = [
        [one["measure"].replace("_", " "), _of(one), f"{one['value']:.3g} {one['unit']}"]
        for one in rows
        if not one["measure"].startswith(("leak_", "large_")) and "stage" not in one["params"]
    ]
    return aligned(["what", "of", ""], body) if body else ""


def _of(one: Row) -> str:
    tells = ("rules", "order", "subscriptions", "conjunctions", "attributes")
    params = one["params"]
    return ", ".join(f"{params[name]} {name}" for name in tells if name in params)


_LARGE = {
    "first": "all of it for the first time, s",
    "grant": "a grant to one customer, s",
    "update": "another policy for one kind, s",
    "edit": "the command that changes the text, s",
    "told": "told to each mediator, MB",
    "memory": "memory for it, MiB",
}


def _large(rows: Sequence[Row]) -> str:
    found = [one for one in rows if one["measure"].startswith("large_")]
    told = (one["params"] for one in found)
    sites = list(dict.fromkeys((params["customers"], params["kinds"]) for params in told))
    if not sites:
        return ""
    body = []
    for name, words in _LARGE.items():
        of = [_get(found, f"large_{name}", customers=c, kinds=k) for c, k in sites]
        body.append([words, *("" if one is None else f"{one['value']:.3g}" for one in of)])
    head = ["", *(f"{customers:,} × {kinds}" for customers, kinds in sites)]
    title = "Large sites, customers × kinds of events; CPU of the key generator, or of the command"
    return f"{title}:\n\n{aligned(head, body, 1)}"


def _leaks(rows: Sequence[Row]) -> str:
    leaks = [one for one in rows if one["measure"].startswith("leak_")]
    if not leaks:
        return ""
    names = list(dict.fromkeys(one["measure"] for one in leaks))
    body = []
    for encoding in ("paper", "scoped"):
        of = [_get(leaks, name, encoding=encoding) for name in names]
        body.append([encoding, *("" if one is None else f"{one['value']:.3f}" for one in of)])
    band = leaks[0]["params"]["band"]
    title = f"What filters give away; 0.5 is chance but for mask and positions, ± {band:.2f}:"
    head = ["encoding", *(name.removeprefix("leak_") for name in names)]
    return f"{title}\n\n{aligned(head, body, 1)}"


# --- the paper's runs -----------------------------------------------------------------------------


def _runs(rows: Sequence[Row]) -> list[str]:
    found = [one for one in rows if one["params"].get("stage") == "runs"]
    if not found:
        return []
    sizes = sorted({one["size"] for one in found})
    counts = sorted({one["params"]["rules"] for one in found})
    load = next(one["params"]["load"] for one in found if "load" in one["params"])
    parts = []
    for measure, words in (("pub_to_sub", "Publisher to subscriber, T2 - T1"),
                           ("broker", "The broker, t2 - t1")):  # fmt: skip
        body = []
        for size in sizes:
            for variant in _VARIANTS:
                body += _spans(found, measure, variant, size, 1)
        head = ["size", "", "runs", "least", "p10", "mean", "p50", "p90", "p99", "most"]
        title = f"{words}, in ms, one rule (load average {load:g} when it began)"
        parts.append(f"{title}:\n\n{aligned(head, body, 2)}")
    body = []
    for count in counts:
        cells = [str(count)]
        for measure in ("pub_to_sub", "broker"):
            for variant in (OURS, KNOWN):
                one = _get(found, f"{measure}_p50", variant, KB, rules=count)
                cells.append("" if one is None else f"{one['value']:.3f}")
        body.append(cells)
    head = ["rules", "T2 - T1", "known", "t2 - t1", "known"]
    parts.append(f"By a policy's rules, at 1 KB, p50 in ms:\n\n{aligned(head, body)}")
    return [*parts, _rates(found, sizes), _bins(found), _published(found)]


def _size(size: int) -> str:
    return f"{size // KB:,} KB"


def _spans(rows: Sequence[Row], measure: str, of: str, size: int, rules: int) -> list[list[str]]:
    one = _get(rows, measure, of, size, rules=rules)
    if one is None:
        return []
    p10, p50, p90, p99 = (_part(rows, f"{measure}_{name}", of, size) for name in PARTS)
    least, most = one["params"]["least"], one["params"]["most"]
    values = (least, p10, one["value"], p50, p90, p99, most)
    return [[_size(size), of, f"{one['n']:,}", *(f"{value:.3f}" for value in values)]]


def _part(rows: Sequence[Row], measure: str, of: str, size: int, **params: Any) -> float:
    one = _get(rows, measure, of, size, rules=1, **params)
    return float("nan") if one is None else float(one["value"])


def _rates(rows: Sequence[Row], sizes: Sequence[int]) -> str:
    body = []
    for size in sizes:
        for of in _VARIANTS:
            one, span = (_get(rows, m, of, size, rules=1) for m in ("throughput", "pub_to_sub"))
            if span is not None:
                rate = "" if one is None else f"{one['value']:,.0f}"
                body.append([_size(size), of, f"{1000 / span['value']:,.0f}", rate])
    title = "Messages a second: the paper's 1 / latency; and carried, with some under way at once"
    return f"{title}:\n\n{aligned(['size', '', '1 / latency', 'carried'], body, 2)}"


def _bins(rows: Sequence[Row]) -> str:
    body = []
    below = [*(f"{top:g} ms" for top in BINS_MS), MORE]
    for measure in ("pub_to_sub", "broker"):
        for of in _VARIANTS:
            if _get(rows, measure, of, KB, rules=1) is not None:
                shares = [_part(rows, f"{measure}_share", of, KB, below=one) for one in below]
                cells = (f"{100 * share:.1f}" for share in shares)
                body.append([measure.replace("_", " "), of, *cells])
    head = ["%, below", "", *below]
    return f"How they are distributed, at 1 KB:\n\n{aligned(head, body, 2)}"


def _published(rows: Sequence[Row]) -> str:
    """What the paper says at 1 KB with one rule, beside ours."""
    body = []
    for (of, measure), words in PAPER.items():
        if _get(rows, measure, of, KB, rules=1) is not None:
            low, high = (_part(rows, f"{measure}_{name}", of, KB) for name in ("p10", "p90"))
            between = f"{low:.2f} to {high:.2f}, of 80 %"
            body.append([measure.replace("_", " "), of, words, between])
    if not body:
        return ""
    head = ["1 KB, ms", "", "the paper's Fig. 11", "here"]
    title = "Beside the paper's, which has other machines and a network between"
    return f"{title}:\n\n{aligned(head, body, 4)}"
