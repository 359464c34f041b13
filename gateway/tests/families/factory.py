"""The paper's factory (section 3.3, Fig. 2 and Table 1) and short ways to ask about it."""

from __future__ import annotations

from sealmq.families.api import Family, Record, TopicLabel
from sealmq.families.engine import Conn, Decision, Engine
from sealmq.families.labels.family import Labels
from sealmq.site.check import parse
from sealmq.site.config import Config, loads

HEAD = """
[site]
name = "factory"
id = "00c0ffee"
"""

FACTORY = (
    HEAD
    + """
[labels]
m1-temp = []
m1-ctrl = ["m1-temp"]
m1-arm = ["m1-ctrl"]
m2-temp = []
m2-ctrl = ["m2-temp"]
m2-arm = ["m2-ctrl"]
ctrl-room-temp = []
monitor = ["m1-arm", "m2-arm", "ctrl-room-temp"]
[clients]
m1-temp-sensor = { label = "m1-temp" }
m1-control-panel = { label = "m1-ctrl" }
m1-arm-operator = { label = "m1-arm" }
m2-temp-sensor = { label = "m2-temp" }
m2-control-panel = { label = "m2-ctrl" }
m2-arm-operator = { label = "m2-arm" }
control-room-temp-sensor = { label = "ctrl-room-temp" }
monitor = { label = "monitor", kind = "app" }
public = { label = "bottom" }
root = { label = "top" }
off = { label = "none" }
[topics]
"machine/1/temperature" = "m1-temp"
"machine/1/arm/angle" = "m1-ctrl"
"machine/1/arm/height" = "m1-ctrl"
"machine/2/temperature" = "m2-temp"
"machine/2/arm/angle" = "m2-ctrl"
"machine/2/arm/height" = "m2-ctrl"
"control-room/temperature" = "ctrl-room-temp"
"""
)


class Site:
    """An engine with one connection a client, and a store that always takes what is proposed."""

    def __init__(
        self, text: str = FACTORY, *families: Family, enforce: bool = True, size: int = 1000
    ) -> None:
        self.config = parse(text)
        self.labels = Labels()
        self.faults: list[tuple[str, str, Exception]] = []
        self.engine = Engine(
            [self.labels, *families],
            size,
            site="00c0ffee",
            enforce=enforce,
            on_fault=lambda *fault: self.faults.append(fault),
        )
        self.stored: list[Record] = []
        self.commit(self.engine.load(self.config, []))
        self.conns: dict[str, Conn] = {}
        self.now = 1000

    def commit(self, records: list[Record]) -> None:
        self.stored += records
        self.engine.apply(records)

    def reload(self, text: str) -> list[str]:
        self.config = parse(text)
        done = self.engine.reload(self.config, enforce=self.config.policy.enforce)
        self.commit(done.records)
        return sorted(conn.who.client for conn in done.connections)

    def conn(self, client: str) -> Conn:
        if client not in self.conns:
            self.conns[client] = self.engine.connection(self.engine.who(client, len(self.conns)))
        return self.conns[client]

    def publish(self, client: str, topic: str, *, qos: int = 0, retain: bool = False) -> Decision:
        """As the mediator does it: a first publish commits the label and asks again."""
        got = self.conn(client).publish(topic, qos, retain, 10, self.now)
        if got.label is not None:
            self.commit([TopicLabel(got.topic, got.label, client, self.now)])
            got = self.conn(client).publish(topic, qos, retain, 10, self.now)
        return got

    def subscribe(self, client: str, filter: str) -> Decision:
        return self.conn(client).subscribe(filter, 0, self.now)

    def deliver(self, client: str, topic: str, label: str, how: int = 0) -> Decision:
        return self.conn(client).deliver(topic, label, how, self.now)

    def connect(self, client: str) -> Decision:
        return self.conn(client).connect(self.now)


def config(text: str) -> Config:
    return loads(HEAD + text)
