"""The site's policy as the mediator would judge it now: sealmq.toml, or while that is wrong the one
in force, and the store; read only.

Works whether the gateway runs or not; needs no key. Attributes are what their sources say now.
"""

from __future__ import annotations

from dataclasses import dataclass

from sealmq.attributes.files import BadSource
from sealmq.attributes.sources import has_source, source, why
from sealmq.families import registry
from sealmq.families.api import TopicReset
from sealmq.families.engine import Conn, Decision, Engine
from sealmq.families.records import Record, TopicLabel
from sealmq.site.config import NONE, Config
from sealmq.site.layout import Layout
from sealmq.store import Reader

from . import in_force


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that has a label: fixed in sealmq.toml, or learned from its first publisher."""

    topic: str
    label: str
    fixed: bool
    client: str | None
    at_ms: int | None


class View:
    """`engine` is loaded with `records`; `topics` has every labelled topic by name. `failing`: why
    the source of an attribute says nothing.
    """

    def __init__(self, layout: Layout) -> None:
        self.config: Config = in_force.policy(layout)
        records: list[Record] = []
        if layout.mediator_db.exists():  # it is made by the first `up`
            reader = Reader.open_readonly(layout.mediator_db)
            try:
                records = reader.records()
            finally:
                reader.close()
        policy = self.config.policy
        self.engine = Engine(
            registry.load(policy.order), site=self.config.site.id.hex(), enforce=policy.enforce
        )
        # What the next start or reload would do first: topics set to none are forgotten.
        pending = self.engine.load(self.config, records)
        self.engine.apply(pending)
        self.records: tuple[Record, ...] = (*records, *pending)
        forgotten = {r.topic for r in pending if isinstance(r, TopicReset)}
        learned = [r for r in records if isinstance(r, TopicLabel) and r.topic not in forgotten]
        found = {r.topic: Topic(r.topic, r.label, False, r.client, r.at_ms) for r in learned}
        fixed = {t: label for t, label in self.config.topics.items() if label != NONE}
        found |= {t: Topic(t, label, True, None, None) for t, label in fixed.items()}
        self.topics = dict(sorted(found.items()))
        self.failing: dict[str, str] = {}
        for name, settings in self.config.attributes.items():
            if not has_source(settings):  # it is in the store, or in a mediator's memory
                continue
            try:
                rows = source(name, settings).look()
            except (BadSource, OSError) as error:
                self.failing[name] = why(error)
            else:
                self.engine.take_attributes(rows.values() if rows else ())

    def deliver(self, conn: Conn, topic: str, raw: str | None, now_ms: int) -> Decision:
        """Of a message on the topic now; raw: the subscription that it comes to, as it is sent."""
        if raw is not None:
            # Without a subscription nothing is delivered.
            subscribed = conn.subscribe(raw, 0, now_ms)
            if not subscribed.allow:
                return subscribed
            conn.subscribed(subscribed, 0, now_ms)
        # Each of a peer's messages brings its label, which only the mediator sees: one that may be
        # read is enough.
        asked = [conn.deliver(topic, one, 0, now_ms) for one in self.labels(topic) or ("",)]
        return next((one for one in asked if one.allow), asked[-1])

    def labels(self, topic: str) -> tuple[str, ...]:
        """The labels that a message on the topic may have; on a peer's: all that are imported."""
        known = self.topics.get(topic)
        if known is not None:
            return (known.label,)
        name, slash, _ = topic.partition("/")
        peer = self.config.peers.get(name[1:]) if name[:1] == "@" and slash else None
        return () if peer is None else tuple(peer.label_in(label) for label in peer.imports)
