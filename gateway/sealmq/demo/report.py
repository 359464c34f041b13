"""The end of a run in words, and summary.json for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from . import hexview
from .acts import FAMILIES
from .evidence import Evidence
from .verdict import Verdict, as_json

VERSION = 1


def summary(evidence: Evidence, verdict: Verdict, seconds: float) -> dict[str, Any]:
    """What summary.json holds."""
    sample = _sample(evidence)
    return {
        "version": VERSION,
        "verdict": "pass" if verdict.holds else "fail",
        "failed": verdict.failed,
        "seconds": round(seconds, 1),
        "messages": verdict.messages,
        "readers": verdict.readers,
        **{key: value for act in FAMILIES for key, value in act.summary(evidence).items()},
        "attempts": [as_json(attempt, finding) for attempt, finding in verdict.findings],
        "broker": {
            "kind": evidence.facts["broker"],
            "bytes": sum(len(s.raw_to) + len(s.raw_from) for s in evidence.broker),
            "packets": sum(len(s.to_server) + len(s.to_client) for s in evidence.broker),
            "plaintext_found": bool(verdict.found),
            "sample_topic": sample[0],
            "sample_hex": sample[1].hex(),
        },
        "network": {"bytes": sum(len(s.raw_to) + len(s.raw_from) for s in evidence.network)},
        "site": evidence.facts["site"],
    }


def _sample(evidence: Evidence) -> tuple[str, bytes]:
    for stream in evidence.broker:
        for packet in reversed(stream.published()):
            if not packet.topic.startswith("@"):
                return packet.topic, packet.payload
    return "", b""


def write(path: Path, told: dict[str, Any]) -> None:
    """Write it in one step."""
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    draft.replace(path)


def show(console: Console, told: dict[str, Any], where: Path) -> None:
    """The verdict, for people."""

    def line(*parts: str | tuple[str, str] | Text) -> None:
        console.print(Text.assemble(*parts), soft_wrap=True, highlight=False)

    line(("What was tried", "bold"))
    for attempt in told["attempts"]:
        mark = ("ok      ", "green") if attempt["ok"] else ("FAILED  ", "bold red")
        line(mark, f"{attempt['title']}: {attempt['outcome']}")
        line((f"        {_evidence(attempt['evidence'])}", "bright_black"))
    broker = told["broker"]
    readers = ", ".join(f"{name} {count}" for name, count in told["readers"].items())
    line(("What was read", "bold"))
    line(f"        {told['messages']} messages published; read by {readers}")
    for act in FAMILIES:
        title, lines = act.show(told)
        line((title, "bold"))
        for text in lines:
            line(f"        {text}")
    line(("What the broker saw", "bold"))
    found = "PLAINTEXT FOUND" if broker["plaintext_found"] else "no reading in any form"
    amount = f"{broker['bytes']} bytes in {broker['packets']} packets"
    line(f"        {broker['kind']}, {amount}: {found} (text, hex, base64)")
    sample = bytes.fromhex(broker["sample_hex"])
    if sample:
        line("        ", hexview.legend(), f" on {broker['sample_topic']}:")
        for at in range(0, len(sample), 32):
            line("        ", hexview.line(sample, at, at + 32))
    for wrong in told["failed"]:
        line((f"FAILED  {wrong}", "bold red"))
    holds = told["verdict"] == "pass"
    words = "everything held" if holds else f"{len(told['failed'])} did not hold"
    style = "bold green" if holds else "bold red"
    line((f"verdict {told['verdict']}: {words}", style), f" ({told['seconds']} s; {where})")


def _evidence(told: dict[str, Any]) -> str:
    rule = told.get("rule", "")
    ids = told.get("audit") or []
    if ids:
        more = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
        count = f"; {told['withheld']} messages withheld" if "withheld" in told else ""
        count += f"; {told['read']} read behind it" if "read" in told else ""
        return f"{rule}; audit record {ids[0]}{more}{count}"
    if "refused" in told:
        return f"{rule}; the reader's own count: {told['refused']}"
    return f"{rule}; no record"
