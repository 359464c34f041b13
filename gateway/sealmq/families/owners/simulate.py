"""What would happen: events in, receivers out, without a mediator. Nothing of the site is changed.

Lines are JSON objects; those that publish give an answer:

    {"at": "2026-03-02T10:00:00Z"}                      the time from now on, UTC (or Unix ms)
    {"subscribe": FILTER, "client": NAME, "where": CONDITION}
    {"unsubscribe": FILTER, "client": NAME}
    {"publish": TOPIC, "client": NAME, "attributes": {"speed": 51}}
    {"set": NAME, "value": VALUE, "owner": NAME, "subscriber": NAME, "valid_s": 3600}
    {"command": {"do": "assert", ...}, "client": NAME}
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from sealmq_spec.errors import SealError

from ..api import Later, TopicLabel, Verdict
from ..attributes import Attribute
from ..duties import lies_under
from ..engine import Conn, Engine
from . import events, where
from .facts import subject
from .settings import NAME
from .state import State

_AT = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)Z\Z")
# Later than that there may be no time in another zone.
_END_MS = 253_370_764_800_000
_KEYS = {
    "at": (),
    "subscribe": ("client", "where"),
    "unsubscribe": ("client", "where"),
    "publish": ("client", "attributes"),
    "set": ("value", "owner", "subscriber", "valid_s"),
    "command": ("client",),
}


class BadLine(ValueError):
    """A line that is none of these."""


def at_ms(text: object) -> int:
    """Unix ms of a time in UTC, or of Unix ms. BadLine."""
    found = _AT.match(text) if isinstance(text, str) else None
    ms = text if type(text) is int else _calendar_ms(*map(int, found.groups())) if found else -1
    if not 0 <= ms < _END_MS:
        raise BadLine(f"{text!r:.40} is no time from 1970 to 9998: 2026-03-02T10:00:00Z")
    return ms


def _calendar_ms(year: int, month: int, day: int, hour: int, minute: int, second: int) -> int:
    """Unix ms; -1 if no calendar has it."""
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    last = 28 + leap if month == 2 else 31 - (month - 1) % 7 % 2
    if not (0 < month <= 12 and 0 < day <= last and hour < 24 and minute < 60 and second < 60):
        return -1
    # Days since 1970-01-01 of the civil calendar; years begin in March.
    y = year - (month <= 2)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days = y * 365 + y // 4 - y // 100 + y // 400 + of_year - 719_468
    return ((days * 24 + hour) * 60 + minute) * 60_000 + second * 1000


class Simulation:
    """An engine that has loaded a site, and clients that are not there."""

    def __init__(self, engine: Engine, state: State, now_ms: int) -> None:
        """`state`: of the engine's Owners. The engine is this one's alone."""
        self._engine, self._state = engine, state
        self.now_ms = now_ms
        self._conns: dict[str, Conn] = {}

    def line(self, text: str) -> dict[str, Any] | None:
        """Take one line; what a publisher's becomes. BadLine."""
        try:
            found = json.loads(text)
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise BadLine("a line has texts of Unicode, no halves") from None
        except (ValueError, RecursionError) as error:
            raise BadLine(f"it is no JSON: {error}") from None
        if not isinstance(found, dict):
            raise BadLine("a line is a JSON object")
        what = [word for word in _KEYS if word in found]
        if len(what) != 1:
            raise BadLine(f"a line has one of: {', '.join(_KEYS)}")
        for key in found:
            if key != what[0] and key not in _KEYS[what[0]]:
                raise BadLine(f"{key!r} does not go with {what[0]}")
        try:
            return self._take(what[0], found)
        except SealError as error:
            raise BadLine(str(error)) from None

    def _take(self, what: str, line: Mapping[str, Any]) -> dict[str, Any] | None:
        if what == "at":
            self.now_ms = at_ms(line["at"])
            self._engine.tick(self.now_ms)
            return None
        if what == "set":
            self._set(line)
            return None
        client = line.get("client")
        if not isinstance(client, str):
            raise BadLine("whose it is says client")
        if what == "command":
            return self._command(client, line["command"])
        said = line[what]
        if not isinstance(said, str):
            raise BadLine(f"{said!r} is no topic or filter")
        if what == "publish":
            attributes = line.get("attributes") or {}
            if not isinstance(attributes, Mapping):
                raise BadLine('attributes are an object: {"speed": 51}')
            return self.publish(client, said, attributes)
        when = line.get("where") or ""
        if not isinstance(when, str):
            raise BadLine("where is a condition in a text")
        filt = where.encode(said, when) if when else said
        if what == "unsubscribe":
            self.conn(client).unsubscribed(filt)
            return None
        return self._subscribe(client, filt)

    def conn(self, client: str) -> Conn:
        if client not in self._conns:
            who = self._engine.who(client, len(self._conns) + 1)
            self._conns[client] = self._engine.connection(who)
        return self._conns[client]

    def _subscribe(self, client: str, filt: str) -> dict[str, Any] | None:
        conn = self.conn(client)
        got = conn.subscribe(filt, 0, self.now_ms)
        if not got.allow:
            return {"refused": got.topic, "client": client, "rule": got.rule, "reason": got.reason}
        conn.subscribed(got, 0, self.now_ms)
        return None

    def publish(self, client: str, topic: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Who receives it: each client once, whatever many of its filters match."""
        conn, now = self.conn(client), self.now_ms
        tlv = {events.TLV: events.write_attributes(attributes)} if attributes else {}
        got = conn.publish(topic, 0, False, 0, now, tlv)
        if got.label is not None:
            self._engine.apply([TopicLabel(got.topic, got.label, client, now)])
            got = conn.publish(topic, 0, False, 0, now, tlv)
        kind = self._state.types.of(topic.split("/"))
        name = kind.name if kind else ""
        answer: dict[str, Any] = {"topic": topic, "type": name, "receivers": []}
        if not got.allow:
            return {**answer, "refused": got.rule, "reason": got.reason}
        conn.saw("accepted", topic, now, tlv=tlv)
        label, under = conn.who.label, lies_under(got.duties)
        for client_name, reader in sorted(self._conns.items()):
            reader.ask.fill("deliver", topic, now, label)
            if not reader.ask.subs:
                continue
            decision = reader.deliver(topic, label, 0, now, 0, tlv, grant=under)
            if decision.allow and decision.duties:
                decision = reader.for_sender(decision, client)
            if decision.allow:
                answer["receivers"].append(client_name)
        return answer

    def _set(self, line: Mapping[str, Any]) -> None:
        name, value, valid = line["set"], line.get("value"), line.get("valid_s", 10**9)
        of = self._state.settings.externals.get(name) if isinstance(name, str) else None
        if of is None:
            raise BadLine(f"{name!r} is no attribute of the site that conditions ask for")
        if type(valid) is not int or not (value is None or isinstance(value, str | int)):
            raise BadLine("value is a text, a number, true, false or null; valid_s is a number")
        owner, subscriber = (str(line.get(key) or "") for key in ("owner", "subscriber"))
        until = 0 if value is None else self.now_ms + valid * 1000
        whose = subject(of, owner, subscriber)
        self._engine.take_attributes([Attribute(name, whose, value, until)])

    def _command(self, client: str, said: object) -> dict[str, Any]:
        got: Any = self.conn(client).command(NAME, json.dumps(said).encode(), self.now_ms)
        while isinstance(got, Later):
            got = got.go_on() or got
        if isinstance(got, Verdict):
            return {"client": client, "refused": got.rule, "reason": got.reason}
        self._engine.apply(got.records)
        return {"client": client, "answer": json.loads(got.reply or b"{}")}
