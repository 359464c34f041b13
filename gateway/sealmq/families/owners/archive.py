"""Could a client have received an event then? Decisions replayed over the audit log's records.

The log has each command that changed something, and what attributes were told. Rows of the store
stand for what was made before the log begins. What neither knows is open: an answer counts as "yes"
or "no" only if it is the same whatever that was. Assertions only add, so one that cannot be read
any more takes a "no" away, and never a "yes".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ..api import FamilyRecord, Policy, Record, UnknownAttribute
from ..attributes import Attribute, Attributes, Declared, pair
from . import records as rows
from .actions import MASKS
from .assertions import Assertion, BadAssertion, from_fields
from .chains import TooMuch
from .events import EventType
from .expressions import OPEN, TRUE, Condition, Kleene, Open, Value, outcomes
from .facts import subject
from .state import State

EVENTS = frozenset(
    {
        "command",
        "attribute-changed",
        "config-reloaded",
        "folded",
        "log-expired",
        "log-lost",
        "start",
    }
)
CUT = 500
"""Characters of `detail`: what is as long as that was cut off, perhaps."""
_SAID = re.compile(
    r"(assert|modify|retract|confirm) (\S+)(?: suspended=([0-9]{1,16}))?(?: by=(\S+))? "
    r"owner=(\S+) licensees=(\S*) app=(\S*) "
    r"type=(\S*) actions=(\S*) condition=(.*)\Z",
    re.S,
)
_GLASS = re.compile(r"break-glass owner=(\S+) minutes=([0-9]{1,4}) reason=(.*)\Z", re.S)
_CLOSED = re.compile(r"close-glass owner=(\S+) client=(\S+)\Z")
_TYPE = re.compile(r"advertise ([^/\s]+)/(\S+) topic=(\S+) owner=(\S+) control=(\S+)\Z")

_AGAIN = (rows.CONSENT, rows.TYPE, rows.MEDIATOR)
"""Rows that are written again where they stand."""

Word = Literal["yes", "no", "unknown"]


class Answer(NamedTuple):
    """`rests_on`: attributes of which nobody knows any more what they were."""

    word: Word
    reason: str
    chain: Sequence[tuple[tuple[str, int], Assertion]] = ()
    rests_on: tuple[str, ...] = ()


@dataclass
class Archive:
    """The site as it was at a time (Unix ms). Feed it the log's records, then the store's rows.

    `attributes`: has the declarations, and the zones of calendars as they were then. `begins_ms`:
    since when the log is there, None without one.
    """

    at_ms: int
    attributes: Attributes
    begins_ms: int | None
    reloads: int = 0
    """Times at which sealmq.toml was taken over again since then; starts, too."""
    lost: int = 0
    unread: list[str] = field(default_factory=list)
    """What was said then, or may have been, and cannot be read any more."""
    started: bool = False
    """Whether the log has a start before: all files of attributes were told then."""
    _then: dict[str, FamilyRecord] = field(default_factory=dict)
    _later: dict[str, FamilyRecord | None] = field(default_factory=dict)
    _expired: bool = False
    """Whether the log's first part is gone: what it tells first may have been said before."""
    _suspended: set[str] = field(default_factory=set)
    """Rows that a backup had put back, and that nobody had confirmed."""

    def feed(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Records of EVENTS, in the log's order."""
        for record in records:
            event, at = record["event"], record["at_ms"]
            if event == "log-lost":
                self.lost += record["count"]
            elif event == "log-expired":
                self._expired = True
            elif event in ("config-reloaded", "start"):
                self.reloads += at > self.at_ms
                self.started |= event == "start" and at <= self.at_ms
            elif event == "folded":
                if record["of"] == "attribute-changed" and record["minute_ms"] <= self.at_ms:
                    self.lost += record["count"]
            elif event == "attribute-changed":
                if at <= self.at_ms:
                    self._told(record)
            elif record["family"] == rows.NAME and "reason" not in record:
                self._command(record, at)

    def _told(self, record: Mapping[str, Any]) -> None:
        name = record["attribute"]
        owner, slash, subscriber = record.get("subject", "").partition("/")
        of = pair(owner, subscriber) if slash else owner
        try:
            value = json.loads(record.get("value", "null"))
        except ValueError:  # it was longer than the log's field
            value = None
        self.attributes.take(Attribute(name, of, value, record.get("until_ms", 0)))

    def knows(self, declared: Declared) -> bool:
        """Whether a value of this attribute that held then would be in the log."""
        if self.lost or self.begins_ms is None:
            return False
        if declared.source == "file":
            return self.started
        return declared.source == "client" and self.begins_ms + declared.valid_ms <= self.at_ms

    def _command(self, record: Mapping[str, Any], at: int) -> None:
        detail, client = record.get("detail", ""), record["client"]
        word, _, rest = detail.partition(" ")
        if word == "confirm" and "/" in rest.partition(" ")[0]:
            return  # a type: the store's row says when
        if word in ("assert", "modify", "retract", "confirm"):
            self._assertion(detail, client, at)
        elif word == "sign":
            self._put(rows.consent(client, rest, at), at)
        elif word == "withdraw" and rest.startswith("from "):
            self._put(rows.gone(rows.consent_key(client, rest[5:])), at, None)
        elif word == "withdraw":
            self._put(rows.gone(rows.TYPE + rest), at, None)
        elif word == "advertise":
            self._type(detail, client, at)
        elif word == "break-glass" and (glass := _GLASS.match(detail)):
            until = at + int(glass[2]) * 60_000
            self._put(rows.glass(rows.Glass(glass[1], client, at, until, glass[3])), at)
        elif word == "close-glass" and (closed := _CLOSED.match(detail)):
            self._close(closed[1], closed[2], at)
        elif word == "appoint" and rest.isdecimal():
            number = int(rest)
            key = rows.MEDIATOR + client
            self._put(rows.mediator(client, number, at) if number else rows.gone(key), at)

    def _put(
        self, row: FamilyRecord, at: int, before: FamilyRecord | Literal["none"] | None = "none"
    ) -> None:
        """A row that was written at `at`. `before`: what had stood there, as far as a record of
        later says it; None: something that is not known."""
        if at <= self.at_ms:
            self._then[row.key] = row
        elif row.key not in self._later:
            self._later[row.key] = rows.gone(row.key) if before == "none" else before

    def _assertion(self, detail: str, client: str, at: int) -> None:
        verb, _, rest = detail.partition(" ")
        id = rest.partition(" ")[0]
        key = rows.ASSERTION + id
        said = _SAID.match(detail) if len(detail) < CUT else None
        if verb == "retract" and at <= self.at_ms:
            self._put(rows.gone(key), at)
            return
        made = None
        # A retraction says what was retracted, and may be another's than the author's.
        by = client if verb != "retract" else said[4] if said else None
        if said and said[3] and int(said[3]) <= self.at_ms < at:
            self._suspended.add(key)
        if said and by:
            fields = {
                "authorizer": by,
                "licensees": said[6].split(","),
                "owner": said[5],
                "app": said[7],
                "type": said[8],
                "actions": [word for word in said[9].split(",") if word in MASKS],
                "condition": said[10],
            }
            try:
                found = from_fields(fields, by, by)
            except BadAssertion:  # of another version
                found = None
            if found is not None:
                found.id, found.at_ms = id, at
                made = rows.assertion(found)
        if at > self.at_ms:
            if verb == "confirm":
                return  # what it was, before it was suspended, other records say and the row
            if verb == "assert":
                self._put(rows.gone(key), at)
            else:
                self._put(rows.gone(key), at, made if verb == "retract" else None)
            return
        if made is None:
            self.unread.append(f"assertion {id}")
            self._put(rows.gone(key), at)
        else:
            self._put(made, at)

    def _type(self, detail: str, client: str, at: int) -> None:
        said = _TYPE.match(detail)
        if said is None:
            return
        app, name, topic, owner, control = said.groups()
        kind = EventType(app, name, topic, owner, control, by=client, at_ms=at)
        self._put(rows.event_type(kind), at)

    def _close(self, owner: str, client: str, at: int) -> None:
        for key, row in list(self._then.items()):
            if at <= self.at_ms and key.startswith(f"{rows.GLASS}{owner}/{client}/") and row.value:
                glass = rows.read_glass(key[2:], row.value)
                self._then[key] = rows.glass(glass._replace(until_ms=min(at, glass.until_ms)))

    def rows(self, held: Iterable[Record]) -> list[FamilyRecord]:
        """The family's rows as they were, as far as log and store know."""
        out = dict(self._then)
        for record in held:
            if not isinstance(record, FamilyRecord) or record.family != rows.NAME:
                continue
            key, value = record.key, record.value
            if value is None:
                continue
            spans = rows.spans(value)
            if any(a <= self.at_ms and (not b or self.at_ms < b[0]) for a, *b in spans):
                self._suspended.add(key)
            if key in self._later:
                continue
            if spans and len(spans[-1]) == 2 and spans[-1][1] <= self.at_ms:
                # It was confirmed, whatever the log says of what was before the backup came back.
                out.pop(key, None)
            # Of glass the key says when.
            glass = key.startswith(rows.GLASS)
            at = int(key.rpartition("/")[2]) if glass else rows.decoded(value).get("at", 0)
            # What the log does not say of a type, the store does.
            known = key in out and not (key.startswith(rows.TYPE) and out[key].value)
            if at <= self.at_ms and not known:
                out[key] = rows.unsuspended(record)
        for key, before in self._later.items():
            if key in out:
                continue
            if before is None or (self._expired and key.startswith(_AGAIN)):
                self.unread.append(f"what {key} was before it was changed")
            elif before.value is not None:
                out[key] = before
        kept = (row for key, row in out.items() if key not in self._suspended)
        return [row for row in kept if row.value is not None]


class _Facts:
    """Of one event then; what nobody knows any more is open."""

    def __init__(
        self,
        archive: Archive,
        state: State,
        values: Mapping[str, Value],
        who: str,
        declared: Mapping[str, Declared],
    ) -> None:
        self._archive, self._state, self._values = archive, state, values
        self._who, self._declared = who, declared
        self.must = False
        self.open: dict[str, None] = {}

    def get(self, name: str) -> Value | Open | None:
        found = self._values.get(name)
        if found is not None:
            return found
        of = self._state.settings.externals.get(name)
        if of is None:
            self.open[name] = None
            return OPEN
        whose = subject(of, str(self._values["owner"]), self._who)
        try:
            value = self._archive.attributes.read(name, whose, self._archive.at_ms).value
        except UnknownAttribute:
            if self._archive.knows(self._declared[name]):
                return None
            self.open[name] = None
            return OPEN
        return value if isinstance(value, str | int) else None

    def signed(self, address: str) -> Kleene | Open:
        return self._state.signed(self._who, address)

    def judge(self, condition: Condition, action: int) -> bool:
        if condition.rest is None:
            return True
        found = outcomes(condition.rest, self)
        return found == TRUE if self.must else bool(found & TRUE)


def could(
    archive: Archive,
    config: Policy,
    held: Iterable[Record],
    client: str,
    topic: str,
    attributes: Mapping[str, Value],
    sender: str,
) -> Answer:
    """Whether the client could have received the event. `held`: the store's rows now; `sender` "":
    not known. `config`: what sealmq.toml says now."""
    state = State()
    state.configure(config)
    state.apply(archive.rows(list(held)))
    path = topic.split("/")
    kind = state.types.of(path)
    levels = None if kind is None else kind.values(path)
    if kind is None or levels is None:
        return _no(archive, "the topic was of no event type")
    owner = kind.owner_of(levels, attributes, sender)
    if not owner:
        return Answer("unknown", "nobody knows whose event it was: name sender and attributes")
    if number := state.elsewhere(owner):
        return Answer("no", f"{owner} had appointed mediator {number}")
    if kind.control == "none":
        return Answer("yes", "events of this type are without control")
    values: dict[str, Value] = {**levels, **attributes, "owner": owner, "subscriber": client}
    values |= {"app_domain": kind.app, "evtType": kind.name, "action": "RECEIVE"}
    if sender:
        values["sender"] = sender
    facts = _Facts(archive, state, values, client, config.attributes)
    plan = state.plans.of(kind, owner)
    ways = state.ways(kind, owner, client, archive.at_ms)
    try:
        for way in ways:
            facts.must = True
            if all(plan.holds(client, action, facts.judge) for action in way):
                chain = plan.full_chain(client, way[0], facts.judge)
                return Answer("yes", f"assertions let {client} receive {owner}'s events", chain)
        facts.must, facts.open = False, {}
        for way in ways:
            if all(plan.holds(client, action, facts.judge) for action in way):
                chain = plan.full_chain(client, way[0], facts.judge)
                reason = "it rests on what nobody knows any more"
                return Answer("unknown", reason, chain, tuple(facts.open))
    except TooMuch:
        return Answer("unknown", "too many assertions would have to be looked at")
    return _no(archive, f"no assertion let {client} receive {owner}'s events")


def _no(archive: Archive, reason: str) -> Answer:
    if archive.unread:
        return Answer("unknown", f"{reason}, as far as the log can be read")
    return Answer("no", reason)
