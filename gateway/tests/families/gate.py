"""A family that follows subscriptions: a purpose is open or shut, by a record of its own.

`!AP/FILTER{PURPOSE}`, with # as %23 or HASH, says a subscription's purpose. No reservations and no
trees: just what a family needs that wants subscriptions paused and resumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from sealmq.families.api import (
    FOREVER,
    Ask,
    Dep,
    Duties,
    Family,
    FamilyRecord,
    Follow,
    Parsed,
    Proposal,
    Question,
    Record,
    Rewrite,
    Verdict,
    Who,
    allow,
    deny,
)

HEAD = "!AP/"


def shut(*purposes: str) -> list[Record]:
    """Records that shut these."""
    return [FamilyRecord("gate", purpose, b"shut") for purpose in purposes]


def opened(*purposes: str) -> list[Record]:
    """Records that open these again."""
    return [FamilyRecord("gate", purpose, None) for purpose in purposes]


class Gate(Family):
    """All purposes are open, but for those that are shut. None: what says no purpose is denied."""

    name: ClassVar[str] = "gate"
    rules: ClassVar[dict[str, str]] = {
        "gate.open": "The purpose is open.",
        "gate.shut": "The purpose is shut.",
        "gate.none": "No purpose is said.",
    }
    parses: ClassVar[frozenset[Question]] = frozenset({"subscribe"})
    duties: ClassVar[Duties] = {"subscribe": frozenset({Follow, Rewrite})}
    audited: ClassVar[frozenset[str]] = frozenset({"purpose", "under"})

    def __init__(self) -> None:
        self.shut: set[str] = set()
        self.until = FOREVER
        # Put into the name of a group, with the purpose.
        self.mark = ""
        # Tests put something in front of it.
        self.judge = self._judge

    def apply(self, records: Sequence[Record]) -> Iterable[Dep]:
        mine = [r for r in records if isinstance(r, FamilyRecord) and r.family == self.name]
        for record in mine:
            (self.shut.discard if record.value is None else self.shut.add)(record.key)
        return [("gate", record.key) for record in mine]

    def parse(self, question: Question, topic: str) -> Parsed | None:
        if not topic.startswith(HEAD):
            return None
        filt, brace, rest = topic.removeprefix(HEAD).rpartition("{")
        if not brace or not rest.endswith("}"):
            raise ValueError("no purpose")
        filt = filt.replace("%23", "#").replace("HASH", "#")
        return Parsed(filt, {"purpose": rest[:-1], "filter": filt})

    def connect(self, ask: Ask) -> Verdict:
        return allow("gate.open", "open")

    publish = connect

    def subscribe(self, ask: Ask) -> Verdict:
        return self.judge(ask)

    def _judge(self, ask: Ask) -> Verdict:
        purpose = ask.notes.get("gate", {}).get("purpose", "")
        verdict = self._of([purpose] if purpose else [])
        if not verdict.allow:
            return verdict
        _, share, rest = ask.topic.partition("$share/")
        again: tuple[Rewrite, ...] = ()
        if share and not rest.startswith(purpose + self.mark):
            again = (Rewrite(f"$share/{purpose}{self.mark}.{rest}"),)
        return allow(
            "gate.open", "open", until=self.until, deps=verdict.deps, duties=(Follow(), *again)
        )

    def deliver(self, ask: Ask) -> Verdict:
        return self._of([sub.notes["gate"]["purpose"] for sub in ask.subs if "gate" in sub.notes])

    def command(self, who: Who, body: bytes, now_ms: int) -> Proposal | Verdict:
        word, _, purpose = body.decode().partition(" ")
        rows = (shut if word == "shut" else opened)(purpose)
        return Proposal(tuple(rows), {"detail": f"{word} {purpose}"}, b"ok")

    def _of(self, purposes: Sequence[str]) -> Verdict:
        deps = tuple(("gate", purpose) for purpose in purposes)
        for purpose in purposes:
            if purpose not in self.shut:
                return allow(
                    "gate.open", "open", deps=deps, audit=(("purpose", purpose), ("under", "gate"))
                )
        rule = "gate.shut" if purposes else "gate.none"
        return deny(rule, "not open", deps=deps)
