"""The factory with purposes: an engine with labels and purposes, and short ways to speak to it."""

from __future__ import annotations

import json
from typing import Any

from families.factory import FACTORY, Site
from sealmq.families.api import FamilyRecord, Later, Proposal, TopicLabel, Verdict
from sealmq.families.engine import Decision
from sealmq.families.purposes.family import PurposesFamily
from sealmq_spec import purposes as say

ORDER = '[policy]\norder = ["labels", "purposes"]\n'
TEMP = "machine/1/temperature"
ANGLE = "machine/1/arm/angle"
SENSOR, PANEL, OTHER = "m1-temp-sensor", "m1-control-panel", "m2-temp-sensor"
DPO, READER = "root", "monitor"


def at_last(got: Proposal | Verdict | Later) -> Proposal | Verdict:
    """The answer to a command, however many slices it takes."""
    if not isinstance(got, Later):
        return got
    while (answer := got.go_on()) is None:
        pass
    return answer


class House(Site):
    """Stewards: root. `more` follows [families.purposes]."""

    def __init__(self, more: str = "", text: str = FACTORY, head: str = "") -> None:
        self.family = PurposesFamily()
        super().__init__(toml(more, text, head), self.family)

    def tell(self, client: str, text: str | bytes) -> Proposal | Verdict:
        """A command, committed if it is allowed."""
        body = text if isinstance(text, bytes) else text.encode()
        got = at_last(self.conn(client).command("purposes", body, self.now))
        if isinstance(got, Proposal):
            self.commit(list(got.records))
        return got

    def reserve(
        self, client: str, filt: str, aip: tuple[str, ...] = (), pip: tuple[str, ...] = ()
    ) -> str:
        """The rule."""
        return rule(self.tell(client, say.reserve(filt, aip, pip)))

    def release(self, client: str, filt: str) -> str:
        return rule(self.tell(client, say.release(filt)))

    def asked(self, client: str, what: str, arg: str = "") -> dict[str, Any]:
        got = self.tell(client, say.query(what, arg))
        assert isinstance(got, Proposal), got
        assert got.records == ()
        found: dict[str, Any] = json.loads(got.reply)
        return found

    def take(self, client: str, filt: str, ap: str = "", qos: int = 0) -> Decision:
        """Subscribe; when it is allowed the broker accepts it."""
        raw = say.access(filt, ap) if ap else filt
        got = self.conn(client).subscribe(raw, qos, self.now)
        if got.allow:
            self.conn(client).subscribed(got, qos, self.now)
        return got

    def read(self, client: str, topic: str) -> Decision:
        label = self.labels.label_of(topic)
        return self.deliver(client, topic, label or "bottom")

    def label(self, topic: str, label: str) -> None:
        self.commit([TopicLabel(topic, label, "someone", self.now)])

    def rows(self) -> dict[str, bytes | None]:
        """What the store would hold of the family's."""
        found: dict[str, bytes | None] = {}
        for record in self.stored:
            if isinstance(record, FamilyRecord):
                found[record.key] = record.value
        return {key: value for key, value in found.items() if value is not None}


def toml(more: str = "", text: str = FACTORY, head: str = "") -> str:
    return f'{text}{ORDER}{head}[families.purposes]\nstewards = ["{DPO}"]\n{more}'


def rule(got: Proposal | Verdict) -> str:
    """Of a refusal or of what is audited; a refusal is said with a !."""
    if isinstance(got, Verdict):
        assert not got.allow
        assert len(got.reason.encode()) <= 200
        return "!" + got.rule.removeprefix("purposes.")
    return (got.audit or {})["rule"].removeprefix("purposes.")


def said(got: Decision) -> str:
    """The family's own rule; a denial is said with a !."""
    vote = next(v for v in got.votes if v.family == "purposes")
    assert len(vote.reason.encode()) <= 200
    return ("" if got.allow else "!") + vote.rule.removeprefix("purposes.")
