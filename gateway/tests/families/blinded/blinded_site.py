"""A site with blinded policies: an engine, and the key generator's part beside it."""

from __future__ import annotations

import random
from importlib import resources
from typing import Any

from sealmq.families.api import TopicLabel
from sealmq.families.blinded import coded, edit, kg_part
from sealmq.families.blinded.family import Blinded
from sealmq.families.engine import Conn, Decision, Engine
from sealmq.families.labels.family import Labels
from sealmq.site.check import parse
from sealmq.site.config import Config

TEMPLATES = resources.files("sealmq.families.blinded") / "templates"
KEPT = (TEMPLATES / "streaming" / "kept.toml").read_text(encoding="utf-8")
EVENTS = (TEMPLATES / "streaming" / "events.jsonl").read_text(encoding="utf-8").splitlines()
A_X, A_Y, B_Q1, B_Q2, B_LATE = (
    "a10c7be2915f0d34", "4f92d0617ac8be15", "be07412c5d93fa68", "31d8a6f40b7e92c5",
    "9c65e8b1f7204ad3",
)  # fmt: skip
TOPICS = {
    A_X: "stream/a/1", A_Y: "stream/a/2", B_Q1: "stream/b/1", B_Q2: "stream/b/2",
    B_LATE: "stream/b/3",
}  # fmt: skip
READERS = ("X", "Y", "biller", "miner")
MEDIATORS = ("blinded", "mediators")
WORDS = (
    "individual", "company", "datamining", "billing", "statistics", "consumer", "period",
    "service = ", "class = ",
)  # fmt: skip
"""Of attributes: what no mediator may have."""


def config(encoding: str = "scoped", *, without: str = "", more: str = "") -> Config:
    text = '[site]\nname = "s"\nid = "00c0ffee"\n'
    order = (TEMPLATES / "order.toml").read_text(encoding="utf-8")
    text += order + (TEMPLATES / "streaming.toml").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not (without and line.startswith(without + " "))]
    return parse(
        "\n".join(lines)
        .replace("[clients]\n", f"[clients]\n{more}")
        .replace('"scoped"', f'"{encoding}"')
    )


class Streaming:
    """`rows`: what the mediator was told last."""

    def __init__(self, encoding: str = "scoped", kept: str = KEPT) -> None:
        self.draw = random.Random(7)
        self.config = config(encoding)
        self.family = Blinded()
        self.faults: list[Any] = []
        self.engine = Engine(
            [Labels(), self.family], on_fault=lambda *fault: self.faults.append(fault)
        )
        self.engine.apply(self.engine.load(self.config, []))
        self.kept = b""
        self.rows: dict[str, bytes] = {}
        self.text = kept
        self.conns: dict[str, Conn] = {}
        self.now = 1000
        self.put(kept)

    def put(self, text: str) -> None:
        self.kept = kg_part.take(self.config, self.kept, text.encode(), self.draw.randbytes)
        self.text = text
        self.tell(dict(kg_part.rows(self.config, self.kept)))

    def tell(self, rows: dict[str, bytes]) -> None:
        self.rows = rows
        self.engine.take_told({"blinded": rows})

    def change(self, **said: Any) -> None:
        self.put(edit.change(self.text, said))

    def conn(self, client: str) -> Conn:
        if client not in self.conns:
            self.conns[client] = self.engine.connection(self.engine.who(client, len(self.conns)))
        return self.conns[client]

    def publish(self, ident: str | None, topic: str = "", client: str = "jingfang") -> Decision:
        tlv = {} if ident is None else {coded.TLV: bytes.fromhex(ident)}
        topic = topic or TOPICS[ident or A_X]
        got = self.conn(client).publish(topic, 0, False, 10, self.now, tlv)
        if got.label is not None:
            self.engine.apply([TopicLabel(got.topic, got.label, client, self.now)])
            got = self.conn(client).publish(topic, 0, False, 10, self.now, tlv)
        return got

    def deliver(
        self, client: str, ident: str, topic: str = "", *, grant: Any = MEDIATORS
    ) -> Decision:
        conn = self.conn(client)
        if not conn.ask.subs:
            got = conn.subscribe("stream/#", 0, self.now)
            if got.allow:
                conn.subscribed(got, 0, self.now)
        tlv = {coded.TLV: bytes.fromhex(ident)} if ident else {}
        return conn.deliver(topic or TOPICS[ident], "heat", 0, self.now, 0, tlv, grant=grant)

    def receivers(self, ident: str) -> list[str]:
        assert self.publish(ident).allow
        return [client for client in READERS if self.deliver(client, ident).allow]
