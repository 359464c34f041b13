"""A site's purposes, naively: what sealmq.toml and the commands have said, and what follows.

It knows who may reserve, which reservations count, and which purpose a subscription has; what is
allowed then is purposes_model's. It shares no code with the family.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from families.purposes import purposes_model as model

LABELS = {"low": ["low"], "high": ["low", "high"]}
"""Each label and those that it is at or above."""
CLIENTS = {
    "sensor": "low",
    "control": "high",
    "reader": "top",
    "legacy": "top",
    "dpo": "top",
}
READERS = ("reader", "legacy")
Sets = tuple[frozenset[str], frozenset[str]]
Who3 = tuple[str, tuple[str, ...], tuple[str, ...]]
"""A filter, clients, labels: a grant or a rule for creating topics."""


@dataclass
class File:
    """What sealmq.toml says of it all."""

    mode: str = "hybrid"
    strict: bool = True
    stewards: tuple[str, ...] = ("dpo",)
    tree: dict[str, list[str]] = field(default_factory=dict)
    reserve: dict[str, Sets] = field(default_factory=dict)
    presubscribe: dict[tuple[str, str], str] = field(default_factory=dict)
    grants: list[Who3] = field(default_factory=list)
    creation: list[Who3] = field(default_factory=list)
    topics: dict[str, str] = field(default_factory=dict)

    def text(self, store: str) -> str:
        q = json.dumps
        lines = ["[site]", 'name = "purposes"', 'id = "00c0ffee"', "[policy]"]
        lines += ['order = ["labels", "purposes"]', "[labels]", "low = []", 'high = ["low"]']
        lines += ["[clients]", *(f"{c} = {{ label = {q(name)} }}" for c, name in CLIENTS.items())]
        lines += ["[topics]", *(f"{q(topic)} = {q(name)}" for topic, name in self.topics.items())]
        for filter, clients, labels in self.creation:
            lines += ["[[creation]]", f"filter = {q(filter)}"]
            lines += [f"clients = {q(clients)}", f"labels = {q(labels)}"]
        lines += ["[families.purposes]", f"mode = {q(self.mode)}", f"store = {q(store)}"]
        lines += [f"strict = {q(self.strict)}", f"stewards = {q(self.stewards)}"]
        lines += ["[families.purposes.tree]", *(f"{q(p)} = {q(c)}" for p, c in self.tree.items())]
        lines.append("[families.purposes.reserve]")
        for filter, (aip, pip) in self.reserve.items():
            lines.append(f"{q(filter)} = {{ aip = {q(sorted(aip))}, pip = {q(sorted(pip))} }}")
        lines.append("[families.purposes.presubscribe]")
        for client in sorted({client for client, _ in self.presubscribe}):
            rows = ", ".join(
                f"{q(filter)} = {q(ap)}"
                for (c, filter), ap in self.presubscribe.items()
                if c == client
            )
            lines.append(f"{client} = {{ {rows} }}")
        for filter, clients, labels in self.grants:
            lines += ["[[families.purposes.grant]]", f"filter = {q(filter)}"]
            lines += [f"clients = {q(clients)}", f"labels = {q(labels)}"]
        return "\n".join(lines) + "\n"


@dataclass
class Site:
    """The file, what commands have made of it, topics' labels, and who subscribes to what."""

    file: File
    reserved: dict[str, tuple[Sets, str]] = field(default_factory=dict)
    """By filter: the sets, and the label that the right to reserve hung on, or ""."""
    presubs: dict[tuple[str, str], str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    learned: dict[str, str] = field(default_factory=dict)
    subs: dict[str, dict[str, tuple[str, str | None]]] = field(default_factory=dict)
    """By client and text: the filter without its group, and the purpose that the text names."""

    @property
    def mode(self) -> str:
        return self.settings.get("mode", self.file.mode)

    @property
    def strict(self) -> bool:
        return self.settings.get("strict", "true" if self.file.strict else "false") == "true"

    @property
    def graph(self) -> model.Graph:
        return model.Graph(self.file.tree)

    def label(self, topic: str) -> str | None:
        return self.file.topics.get(topic, self.learned.get(topic))

    def bound(self) -> list[model.Bound]:
        """All reservations that count now."""
        found = [model.Bound(filter, *sets) for filter, sets in self.file.reserve.items()]
        for filter, (sets, label) in self.reserved.items():
            if not label or self.label(filter) in (None, label):
                found.append(model.Bound(filter, *sets))
        return found

    # Commands: whether they are allowed; what they do

    def right(self, client: str, filter: str) -> tuple[bool, str]:
        """Whether the client may reserve the filter, and the label that hangs on."""
        label = CLIENTS[client]
        if filter[0] in "$!@":
            return False, ""
        if client in self.file.stewards:
            return True, ""
        reached = [g for g in self.file.grants if model.crosses(g[0], filter)]
        for grant, clients, labels in reached:
            if client not in clients and label not in labels:
                return False, ""
            if model.covers(grant, filter):
                return True, ""
        if "+" in filter.split("/") or "#" in filter.split("/"):
            return False, ""
        has = self.label(filter)
        if has is not None:
            return has == label, label
        return may_create(self.file.creation, client, filter), label

    def changes(self, client: str, filter: str) -> tuple[bool, str]:
        """As `right`; but a label alone undoes only what hangs on that label, or does not count."""
        may, label = self.right(client, filter)
        if may and label and filter in self.reserved:
            hangs_on = self.reserved[filter][1]
            counts = not hangs_on or self.label(filter) in (None, hangs_on)
            if counts and hangs_on != label:
                return False, ""
        return may, label

    def reserve(self, client: str, filter: str, sets: Sets) -> bool:
        may, label = self.changes(client, filter)
        if not may or not all(self.graph.known(p) for both in sets for p in both):
            return False
        self.reserved[filter] = (sets, label)
        return True

    def release(self, client: str, filter: str) -> bool:
        if not self.changes(client, filter)[0]:
            return False
        self.reserved.pop(filter, None)
        return True

    def presubscribe(self, by: str, client: str, filter: str, ap: str) -> bool:
        if by != client and by not in self.file.stewards:
            return False
        if filter[0] in "$!@" or (ap and not self.graph.known(ap)):
            return False
        self.presubs.pop((client, filter), None)
        if ap:
            self.presubs[client, filter] = ap
        return True

    def set(self, by: str, name: str, value: str) -> bool:
        if by not in self.file.stewards:
            return False
        self.settings.pop(name, None)
        if value:
            self.settings[name] = value
        return True

    # Questions

    def purpose(self, client: str, filter: str, said: str | None) -> str:
        if said is not None:
            return said
        site = self.file.presubscribe.get((client, filter))
        return site if site is not None else self.presubs.get((client, filter), "")

    def subscribe(self, client: str, filter: str, said: str | None) -> bool:
        if filter[0] in "$!@":
            return False
        ap = self.purpose(client, filter, said)
        if ap and not self.graph.known(ap):
            return False
        return model.subscribe(self.mode, self.bound(), self.graph, filter, ap, self.strict)

    def deliver(self, client: str, topic: str) -> bool:
        graph = self.graph
        subs = []
        for filter, said in self.subs.get(client, {}).values():
            ap = self.purpose(client, filter, said)
            subs.append((filter, ap if graph.known(ap) else ""))
        return model.deliver(self.mode, self.bound(), graph, subs, topic, self.strict)


def may_create(creation: Sequence[Who3], client: str, topic: str) -> bool:
    for filter, clients, labels in creation:
        if model.matches(filter, topic):
            return client in clients or CLIENTS[client] in labels
    return True


Op = tuple[Any, ...]
"""A step of a history: what, and with what."""
