"""What the command says in the end: what was read, what was found, where it lies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from . import outputs
from .page import words

_REASONS = 8
_LOGS = {
    "audit": "audit",
    "hil": "rig",
    "nonce": "nonces",
    "bench": "bench rows",
    "simulation": "simulated rounds",
}


def lines(summary: Mapping[str, Any], out: Path, size: str) -> Iterator[str]:
    """For people: a line for each thing there is something to say about."""
    for name, text in _rows(summary, size):
        yield f"{name:<12} {plain(text)}"
    yield ""
    for text in summary["why"]:
        yield f"FOUND        {plain(text)}"
    yield f"{'page':<12} {plain(str(out / outputs.PAGE))}"


def _rows(summary: Mapping[str, Any], size: str) -> Iterator[tuple[str, str]]:
    kept = ", ".join(
        f"{_n(summary['kept'][log])} {name}"
        for log, name in _LOGS.items()
        if summary["kept"].get(log)
    )
    seconds = sum(summary["seconds"].values())
    yield "lines", f"{_n(summary['lines'])}, {seconds:.0f} s ({size} named now)"
    days = "".join(f", {word} {summary[word]}" for word in ("since", "until") if word in summary)
    yield "kept", (kept or "nothing") + days
    yield "repeated", _n(summary["repeated"])
    yield "quarantined", _n(summary["quarantined"])
    for number, (reason, count) in enumerate(summary["reasons"].items()):
        if number == _REASONS:
            yield "", f"... and {len(summary['reasons']) - _REASONS} other reasons"
            break
        yield "", f"{_n(count)}  {reason}"
    if summary["began"]:
        yield "from, to", f"{summary['began']}, {summary['ended']}"
        age = words.age(summary["ended"], summary["made"])
        yield "newest line", f"{age.replace(words.GAP, ' ')} before this report"
    yield from _findings(summary["headline"])


def _findings(headline: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Only of logs that there were."""

    def said(*names: tuple[str, str]) -> str:
        return ", ".join(f"{_n(headline[name])} {text}" for name, text in names)

    if headline["allowed"] is not None:
        yield "decisions", said(("allowed", "allowed"), ("denied", "denied"))
        if headline["unenforced"]:
            yield "unenforced", said(("unenforced", "let through that policy denied"))
        yield "disclosed", said(("disclosed", "messages to readers"))
        yield "labelled", f"{_n(headline['labelled'])} {_s('topic', headline['labelled'])}"
        refused = (("forged", "forged"), ("replayed", "replayed"), ("too_old", "too old"))
        yield "refused", said(*refused, ("old_keys", "with old keys"), ("malformed", "malformed"))
        clients = _s("client", headline["changed"])
        yield "changed", f"{_n(headline['changed'])} {clients} otherwise than before"
    if headline["passed"] is not None:
        verdicts = (("passed", "passed"), ("failed", "failed"), ("skipped", "skipped"))
        yield "rig", said(*verdicts, ("flaky", "flaky"), ("cuts", "power cuts"))
    if headline["nonces"] is not None:
        yield "nonces", said(("nonces", "pairs of key and nonce"), ("nonces_repeated", "twice"))
    if headline["regressions"] is not None:
        yield "regressions", _n(headline["regressions"])


def plain(text: str) -> str:
    """Safe on a terminal: what a log says may hold anything."""
    return "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in text)


def _s(word: str, count: int) -> str:
    return word if count == 1 else word + "s"


def _n(count: int) -> str:
    return f"{count:,}"
