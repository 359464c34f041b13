"""Sites whose events have owners: an engine with labels and owners, and short ways to ask it."""

from __future__ import annotations

import inspect
import json
import re
import tomllib
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from sealmq.families.api import FamilyRecord, Later, Proposal, Record, TopicLabel, Verdict
from sealmq.families.attributes import Attribute
from sealmq.families.engine import Conn, Decision, Engine
from sealmq.families.labels.family import Labels
from sealmq.families.owners.events import TLV, write_attributes
from sealmq.families.owners.facts import subject
from sealmq.families.owners.family import Owners
from sealmq.site.check import parse
from sealmq.site.config import Config

TEMPLATES = resources.files("sealmq.families.owners") / "templates"
HEAD = '[site]\nname = "campus"\nid = "00c0ffee"\n'
FOREVER = 1 << 50
# How a mediator asks about what the broker has under a grant of mediators alone.
SEALED: Any = (
    {"grant": ("owners", "mediators")}
    if "grant" in inspect.signature(Conn.deliver).parameters
    else {}
)
# 2004-10-05, a Tuesday.
START = 1_096_988_400_000

PEOPLE = ("admin", "meter", "ann", "bob", "cat", "dan", "eve", "hr")
SITE = (
    HEAD
    + "[labels]\nall = []\n[clients]\n"
    + "".join(f'{name} = {{ label = "all" }}\n' for name in PEOPLE)
    + '[policy]\norder = ["labels", "owners"]\n'
)
LOC = """
[families.owners.types.LOC]
app = "APP"
topic = "loc/{user}/{place}"
owner = "user"
admin = "admin"
"""
ROOT = """
[[families.owners.policy]]
authorizer = "POLICY"
licensees = ["admin"]
actions = ["*"]
condition = 'app_domain == "APP"'
[[families.owners.policy]]
authorizer = "admin"
licensees = ["meter"]
actions = ["PUBLISH"]
[[families.owners.policy]]
authorizer = "admin"
licensees = ["*"]
actions = ["SUBSCRIBE"]
[[families.owners.policy]]
authorizer = "admin"
licensees = ["owner"]
actions = ["RECEIVE", "CHANGE_POLICY", "EMERGENCY"]
"""


@dataclass(frozen=True)
class Outside:
    """An attribute of the site as families see it; the tests tell its values themselves."""

    source: str
    of: str
    hours: None = None
    names: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    family: str = "owners"
    valid_ms: int = FOREVER
    window_ms: int = FOREVER


def config(text: str) -> Config:
    """sealmq.toml without what its sources need to run."""
    table = tomllib.loads(text).get("attributes", {})
    bare = re.sub(r"^\[attributes[^\n]*\n(?:(?!\[).*\n)*", "", text, flags=re.M)
    outside = {
        name: Outside(row["source"], "site" if row["source"] == "calendar" else row.get("of", ""))
        for name, row in table.items()
    }
    return replace(parse(bare), attributes=outside)  # type: ignore[arg-type]


def campus() -> str:
    return HEAD + "".join(
        (TEMPLATES / name).read_text(encoding="utf-8") for name in ("order.toml", "campus.toml")
    )


class People:
    """An engine with one connection a client, and a store that always takes what is proposed."""

    def __init__(self, text: str = SITE + LOC + ROOT, records: tuple[Record, ...] = ()) -> None:
        self.owners = Owners()
        self.faults: list[tuple[str, str, Exception]] = []
        self.engine = Engine(
            [Labels(), self.owners],
            100_000,
            site="00c0ffee",
            on_fault=lambda *fault: self.faults.append(fault),
        )
        self.rows: dict[str, FamilyRecord] = {}
        self.conns: dict[str, Conn] = {}
        self.labelled: set[str] = set()
        self.now = START
        self.text = text
        self.commit(self.engine.load(config(text), records))

    def commit(self, records: Any) -> None:
        for record in records:
            if isinstance(record, FamilyRecord):
                self.rows.pop(record.key, None)
                if record.value is not None:
                    self.rows[record.key] = record
        self.engine.apply(records)

    def reload(self, text: str) -> None:
        self.text = text
        self.commit(self.engine.reload(config(text)).records)

    def conn(self, client: str) -> Conn:
        if client not in self.conns:
            self.conns[client] = self.engine.connection(self.engine.who(client, len(self.conns)))
        return self.conns[client]

    def publish(self, client: str, topic: str, **attributes: Any) -> Decision:
        tlv = {TLV: write_attributes(attributes)} if attributes else {}
        conn = self.conn(client)
        got = conn.publish(topic, 0, False, 0, self.now, tlv)
        if got.label is not None:
            self.engine.apply([TopicLabel(got.topic, got.label, client, self.now)])
            got = conn.publish(topic, 0, False, 0, self.now, tlv)
        return got

    def deliver(
        self, client: str, topic: str, sender: str = "meter", how: int = 0, **attributes: Any
    ) -> Decision:
        tlv = {TLV: write_attributes(attributes)} if attributes else {}
        if topic not in self.labelled:
            # Once: an answer that is kept must not end because a label was told again.
            self.labelled.add(topic)
            self.engine.apply([TopicLabel(topic, "all", "meter", 0)])
        kind = self.owners.state.types.of(topic.split("/"))
        grant = ("owners", "mediators") if kind is not None and kind.seals else None
        got = self.conn(client).deliver(topic, "all", how, self.now, 0, tlv, grant=grant)
        return self.conn(client).for_sender(got, sender) if got.allow and got.duties else got

    def may(self, client: str, topic: str, **more: Any) -> bool:
        return self.deliver(client, topic, **more).allow

    def subscribe(self, client: str, filt: str, qos: int = 0) -> Decision:
        got = self.conn(client).subscribe(filt, qos, self.now)
        if got.allow:
            self.conn(client).subscribed(got, qos, self.now)
        return got

    def told(
        self, name: str, value: Any, owner: str = "", subscriber: str = "", until: int = FOREVER
    ) -> None:
        of = self.owners.state.settings.externals[name]
        self.engine.take_attributes([Attribute(name, subject(of, owner, subscriber), value, until)])

    def accepted(self, topic: str, client: str = "meter") -> None:
        """What an event says of its owner is in force."""
        conn = self.conn(client)
        conn.saw("accepted", topic, self.now)
        conn.ask.fill("publish", topic, self.now)
        rows = [row for row in self.owners.see("accepted", conn.ask) if isinstance(row, Attribute)]
        self.engine.take_attributes(rows)

    def command(self, by: str, do: str, **body: Any) -> Any:
        """The answer, or the rule of the refusal."""
        text = json.dumps({"do": do, **body}).encode()
        got: Any = self.conn(by).command("owners", text, self.now)
        while isinstance(got, Later):
            got = got.go_on() or got
        if isinstance(got, Verdict):
            return got.rule
        assert isinstance(got, Proposal)
        self.commit(got.records)
        return json.loads(got.reply)

    def lets(self, by: str, *licensees: str, actions: Any = "RECEIVE", **more: Any) -> Any:
        """An assertion; its id, or the rule of the refusal."""
        names = list(licensees)
        got = self.command(by, "assert", licensees=names, actions=actions, **more)
        return got if isinstance(got, str) else got["id"]
