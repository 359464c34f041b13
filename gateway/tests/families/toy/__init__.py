"""Another family, for the tests: it does what families may do and `labels` does not.

It counts, reads an attribute, sets a TLV, has a topic encoding and a command.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from sealmq.families.api import (
    Ask,
    Change,
    Dep,
    Duties,
    Family,
    FamilyRecord,
    Parsed,
    Policy,
    Proposal,
    PutTlv,
    Question,
    Record,
    Seen,
    Verdict,
    Who,
    allow,
    deny,
)
from sealmq.families.manifest import Manifest, Ref


class Toy(Family):
    """A client may publish `limit` messages, while the site is open."""

    name: ClassVar[str] = "toy"
    rules: ClassVar[dict[str, str]] = {
        "toy.fine": "The toy family has nothing against it.",
        "toy.closed": "The site is closed.",
        "toy.limit": "The client has published all that it may.",
        "toy.command": "The toy family knows one command only.",
    }
    tlvs: ClassVar[frozenset[int]] = frozenset({40})
    parses: ClassVar[frozenset[Question]] = frozenset({"publish", "subscribe"})
    duties: ClassVar[Duties] = {"publish": frozenset({PutTlv})}
    opens: ClassVar[bool] = True

    def __init__(self) -> None:
        self.limit = 0
        self.own: dict[str, int] = {}
        self.count: dict[str, int] = {}
        self.ticks = 0
        self.gone: list[str] = []

    def configure(self, config: Policy) -> Change:
        limit = config.families.get("toy", {}).get("limit", 3)
        changed = limit != self.limit
        self.limit = limit
        return Change([("toy.limit",)] if changed else ())

    def apply(self, records: Sequence[Record]) -> Iterable[Dep]:
        mine = [r for r in records if isinstance(r, FamilyRecord) and r.family == self.name]
        for record in mine:
            if record.value is None:
                self.own.pop(record.key, None)
            else:
                self.own[record.key] = int(record.value)
        return [("toy.count", record.key) for record in mine]

    def parse(self, question: Question, topic: str) -> Parsed | None:
        """~note/the/topic"""
        if not topic.startswith("~"):
            return None
        note, slash, rest = topic[1:].partition("/")
        if not slash:
            raise ValueError("a note without a topic")
        return Parsed(rest, {"note": note})

    def connect(self, ask: Ask) -> Verdict:
        return allow("toy.fine", "fine")

    def publish(self, ask: Ask) -> Verdict:
        if not ask.attribute("open"):
            return deny("toy.closed", "closed")
        client = ask.who.client
        deps: tuple[Dep, ...] = (("toy.count", client), ("toy.limit",))
        if self.count.get(client, 0) >= self.own.get(client, self.limit):
            return deny("toy.limit", f"{self.count[client]} messages", deps=deps)
        note = str(ask.notes.get("toy", {}).get("note", "")).encode()
        return allow("toy.fine", "fine", deps=deps, duties=(PutTlv(40, note),))

    def subscribe(self, ask: Ask) -> Verdict:
        return allow("toy.fine", "fine")

    def deliver(self, ask: Ask) -> Verdict:
        if any(sub.notes.get("toy", {}).get("note") == "mute" for sub in ask.subs):
            return deny("toy.closed", "mute")
        return allow("toy.fine", "fine")

    def command(self, who: Who, body: bytes, now_ms: int) -> Proposal | Verdict:
        if not body.isdigit():
            return deny("toy.command", "a number")
        row = FamilyRecord(self.name, who.client, body)
        return Proposal((row,), {"detail": f"limit {int(body)}"}, b"ok")

    def see(self, what: Seen, ask: Ask) -> Iterable[Dep]:
        client = ask.who.client
        if what == "gone":
            self.gone.append(client)
        if what != "accepted":
            return ()
        self.count[client] = self.count.get(client, 0) + 1
        # Below the limit the answer stays, so the cached one may.
        at_limit = self.count[client] == self.own.get(client, self.limit)
        return [("toy.count", client)] if at_limit else ()

    def tick(self, now_ms: int) -> Iterable[Dep]:
        self.ticks += 1
        return ()

    def explain(self, ask: Ask, verdict: Verdict) -> Sequence[str]:
        return (f"{self.count.get(ask.who.client, 0)} of {self.limit} messages are published",)


MANIFEST = Manifest(
    name="toy",
    family=Ref(":Toy"),
    stands_on=("labels",),
    commands={"toy": Ref("command")},
    hints={"toy.limit": "wait until tomorrow"},
)
