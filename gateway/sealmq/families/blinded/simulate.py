"""What would happen: events in, receivers out, through the same filters and the same judging. The
site is not changed. Lines are JSON objects; those that publish give an answer:

    {"subscribe": FILTER, "client": NAME}
    {"publish": TOPIC, "client": NAME, "id": ID}    without id: a grant that covers it
    {"grant": {"customer": NAME, "has": [...], "wants": [...]}}
    {"update": {"policy": PREFIX, "let": [...]}}              or {"type": PREFIX, "has": [...]}
    {"event": {"id": ID, "client": NAME, "topic": TOPIC, "session": "..."}}
    {"revoke": {"customer": NAME}}                            or event, policy, type
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from sealmq_spec.errors import SealError

from ..api import FamilyConfigError, Policy, TopicLabel
from ..duties import lies_under
from ..engine import Conn, Engine
from . import coded, edit, kg_part, plain, settings


class BadLine(ValueError):
    """A line that is none of these."""


class Simulation:
    """An engine that has loaded the site, and a key generator's part of its own."""

    def __init__(
        self, engine: Engine, config: Policy, text: str, draw: Callable[[int], bytes], now_ms: int
    ) -> None:
        """`engine` is this one's alone. FamilyConfigError: the text cannot be taken."""
        self._engine, self._config, self._draw, self._now = engine, config, draw, now_ms
        self._conns: dict[str, Conn] = {}
        self._kept = b""
        self.text = text
        self.take(text)

    def take(self, text: str) -> None:
        """What operators have written, from now on."""
        raw = text.encode("utf-8", "surrogatepass")  # JSON has what no text has
        self._kept = kg_part.take(self._config, self._kept, raw, self._draw)
        self.text = text
        rows = dict(kg_part.rows(self._config, self._kept))
        self._engine.take_told({settings.NAME: rows})

    def line(self, text: str) -> dict[str, Any] | None:
        """Take one line; what a publisher's becomes. BadLine."""
        try:
            said = json.loads(text)
        except ValueError as error:
            raise BadLine(f"it is no JSON: {error}") from None
        if not isinstance(said, dict) or not said:
            raise BadLine("a line is a JSON object")
        try:
            if "publish" in said:
                return self.publish(str(said.get("client")), str(said["publish"]), said.get("id"))
            if "subscribe" in said:
                return self._subscribe(str(said.get("client")), str(said["subscribe"]))
            self.take(edit.change(self.text, said))
        except (FamilyConfigError, plain.BadPlain, SealError) as error:
            raise BadLine(str(error)) from None
        return None

    def _conn(self, client: str) -> Conn:
        if client not in self._conns:
            who = self._engine.who(client, len(self._conns) + 1)
            self._conns[client] = self._engine.connection(who)
        return self._conns[client]

    def _subscribe(self, client: str, filt: str) -> dict[str, Any] | None:
        conn = self._conn(client)
        got = conn.subscribe(filt, 0, self._now)
        if not got.allow:
            return {"refused": got.rule, "client": client, "reason": got.reason}
        conn.subscribed(got, 0, self._now)
        return None

    def publish(self, client: str, topic: str, ident: str | None = None) -> dict[str, Any]:
        """Who receives it."""
        if ident is None:
            ids = edit.granted(plain.read(self.text), client, topic)
            ident = ids[0] if ids else None
        answer: dict[str, Any] = {"topic": topic, "policy_id": ident, "receivers": []}
        try:
            tlv = {} if ident is None else {coded.TLV: bytes.fromhex(ident)}
        except (ValueError, TypeError):
            raise BadLine(f"{ident!r} is no policy id") from None
        conn = self._conn(client)
        got = conn.publish(topic, 0, False, 0, self._now, tlv)
        if got.label is not None:
            self._engine.apply([TopicLabel(got.topic, got.label, client, self._now)])
            got = conn.publish(topic, 0, False, 0, self._now, tlv)
        if not got.allow:
            return {**answer, "refused": got.rule, "reason": got.reason}
        label, under = conn.who.label, lies_under(got.duties)
        for name, reader in sorted(self._conns.items()):
            reader.ask.fill("deliver", topic, self._now, label)
            if (
                reader.ask.subs
                and reader.deliver(topic, label, 0, self._now, 0, tlv, grant=under).allow
            ):
                answer["receivers"].append(name)
        return answer
