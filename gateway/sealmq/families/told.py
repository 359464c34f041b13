"""What clients and families tell of attributes: `source = "client"` and `source = "events"`.

Who tells is checked here: a client by the name that it has proved, and only while it is named in
`by` and is the one that bore the name then; a family by what `family` says. Everything has an end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from .api import ClientPolicy, FamilyRecord, Proposal, Record, Verdict, deny
from .ask import Who
from .attributes import BETWEEN, Attribute, Declared, fits, is_value, names_in, same, shown, stands
from .topiclabels import NONE

FAMILY = "attributes"
"""Of commands and rows about attributes; no family's name."""
EVENT = "attribute-changed"
MOST = 20_000
"""Values of one attribute that come of events. A value of a further subject is not taken."""
_MOST_BODY = 2048
_MOST_ANSWER = 8192
# Rows that are over and go with a command of the client that has told them.
_SWEEP = 16
# A value is told again when this part of its validity has passed.
_RENEWED = 8
_WORDS = {"name", "subject", "value", "valid_s"}
_HOW = '{"name": "contract", "subject": "bob", "value": "signed", "valid_s": 3600}'


class _Row(NamedTuple):
    """What the store holds. `at`: Unix ms at which it was told by the client `by`."""

    name: str
    subject: str
    value: Any
    until: int
    by: str
    at: int

    @property
    def key(self) -> str:
        return _key(self.name, self.subject)


class Pushed:
    """What clients have told, out of the store's rows."""

    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}
        self._by: dict[str, dict[str, None]] = {}
        self._declared: Mapping[str, Declared] = {}
        self._clients: Mapping[str, ClientPolicy] = {}
        self._since: Mapping[str, int] = {}

    # State; each gives what holds from now on

    def declare(
        self, declared: Mapping[str, Declared], clients: Mapping[str, ClientPolicy]
    ) -> list[Attribute]:
        """There are these attributes and clients from now on."""
        self._declared = {n: d for n, d in declared.items() if d.source == "client"}
        self._clients = clients
        return self._all()

    def apply(self, records: Iterable[Record]) -> list[Attribute]:
        """Rows of the store."""
        out = []
        for record in records:
            if not isinstance(record, FamilyRecord) or record.family != FAMILY:
                continue
            key = record.key
            if (old := self._rows.pop(key, None)) is not None:
                self._by[old.by].pop(key, None)
            name, _, subject = key.partition(BETWEEN)
            held = Attribute(name, subject, None, 0)
            if record.value is not None:
                row = self._rows[key] = _read(key, record.value)
                self._by.setdefault(row.by, {})[key] = None
                held = self._in_force(row)
            if name in self._declared:
                out.append(held)
        return out

    def noted(self, since: Mapping[str, int]) -> tuple[bool, list[Attribute]]:
        """Family.noted, and what holds from now on."""
        self._since = dict(since)
        return any(_void(row, since) for row in self._rows.values()), self._all()

    def bearers(
        self, since: Mapping[str, int], rows: Callable[[], Iterable[Record]]
    ) -> list[Record]:
        """Family.bearers: rows that were told by, or about, an earlier bearer of a name."""
        return [
            FamilyRecord(FAMILY, record.key, None)
            for record in rows()
            if isinstance(record, FamilyRecord)
            and record.family == FAMILY
            and record.value is not None
            and _void(_read(record.key, record.value), since)
        ]

    def told_by(self, name: str, subject: str) -> str:
        """Which client has told what is held; "" for none."""
        row = self._rows.get(_key(name, subject))
        return "" if row is None or name not in self._declared else row.by

    # Of a name that another source has now, that one's values stay.
    def _all(self) -> list[Attribute]:
        return [self._in_force(row) for row in self._rows.values() if row.name in self._declared]

    # No longer than what is declared now, for one that was told under another declaration.
    def _in_force(self, row: _Row) -> Attribute:
        declared, client = self._declared.get(row.name), self._clients.get(row.by)
        if (
            declared is None
            or client is None
            or client.disabled
            or row.by not in declared.by
            or not fits(row.subject, declared.of)
            or _void(row, self._since)
        ):
            return Attribute(row.name, row.subject, None, 0)
        return Attribute(
            row.name, row.subject, row.value, min(row.until, row.at + declared.valid_ms)
        )

    # Commands

    def command(self, who: Who, body: bytes, now_ms: int) -> Proposal | Verdict:
        """Op 0x81 of the family name FAMILY."""
        try:
            if len(body) > _MOST_BODY:
                raise ValueError(f"{len(body)} bytes, at most {_MOST_BODY}")
            said = json.loads(body, object_pairs_hook=_once)
            if not isinstance(said, dict):
                raise ValueError("no table")
        except (ValueError, RecursionError) as error:
            what = "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)[:80]
            return _malformed(what)
        if who.label == NONE:
            return deny("engine.attribute-not-yours", "the client has no label")
        if said.keys() == {"list"}:
            return self._list(who, said["list"], now_ms)
        if not said.keys() <= _WORDS or not {"name", "value"} <= said.keys():
            return _malformed("a name and a value, perhaps a subject and valid_s")
        name = said["name"]
        declared = self._declared.get(name) if isinstance(name, str) else None
        if declared is None or who.client not in declared.by:
            return deny("engine.attribute-not-yours", "this client tells no attribute of that name")
        return self._set(who, declared, said, now_ms)

    def _set(
        self, who: Who, declared: Declared, said: Mapping[str, Any], now_ms: int
    ) -> Proposal | Verdict:
        name, value = said["name"], said["value"]
        subject = _subject(said.get("subject", ""))
        if subject is None or not fits(subject, declared.of):
            return deny("engine.attribute-subject", f"{name} is of {_OF[declared.of]}")
        reader = names_in(subject)[-1] if declared.of in ("subscriber", "pair") else None
        if value is not None and reader is not None and reader not in self._clients:
            return deny("engine.attribute-subject", f"{name} is of a client that is there")
        if value is None:
            if "valid_s" in said:
                return _malformed("what is taken away has no validity")
            return self._proposal(who, name, subject, None, 0, now_ms)
        if not is_value(value):
            return _malformed("a value is text of 256 characters at most, a number, true or false")
        valid = said.get("valid_s", declared.valid_ms // 1000)
        if type(valid) is not int or valid < 1:
            return _malformed("valid_s is a number of seconds from 1 on")
        if valid * 1000 > declared.valid_ms:
            most = declared.valid_ms // 1000
            return deny("engine.attribute-validity", f"{name} is told for {most} s at most")
        return self._proposal(who, name, subject, value, now_ms + valid * 1000, now_ms)

    def _proposal(
        self, who: Who, name: str, subject: str, value: Any, until: int, now_ms: int
    ) -> Proposal:
        key = _key(name, subject)
        row = None
        if value is not None:
            told = {"value": value, "until": until, "by": who.client, "at": now_ms}
            row = json.dumps(told, separators=(",", ":")).encode()
        records = [FamilyRecord(FAMILY, key, row, who.client)]
        for other in self._by.get(who.client, ()):
            if len(records) > _SWEEP:
                break
            if other != key and self._rows[other].until <= now_ms:
                records.append(FamilyRecord(FAMILY, other, None))
        audit: dict[str, Any] = {"attribute": name, "subject": shown(subject) or None}
        if value is not None:
            audit |= {"value": json.dumps(value, ensure_ascii=False), "until_ms": until}
        reply = json.dumps({"until": until}).encode()
        return Proposal(tuple(records), audit, reply, urgent=value is None, event=EVENT)

    # As much as fits into an answer, of what this client may tell.
    def _list(self, who: Who, name: object, now_ms: int) -> Proposal | Verdict:
        own = sorted(n for n, d in self._declared.items() if who.client in d.by)
        if name is not True:
            if name not in own:
                return deny(
                    "engine.attribute-not-yours", "this client tells no attribute of that name"
                )
            own = [str(name)]
        rows: list[Any] = []
        size, more = 0, 0
        for key in sorted(self._rows):
            row = self._rows[key]
            held = self._in_force(row)
            if row.name not in own or held.until <= now_ms:
                continue
            told = [row.name, names_in(row.subject), row.value, held.until, row.by]
            size += len(json.dumps(told)) + 2
            if size > _MOST_ANSWER - 512:
                more += 1
            else:
                rows.append(told)
        return Proposal(reply=json.dumps({"told": rows, "more": more}).encode())


class Derived:
    """What families derive from events at this worker: in force at once, and to be told to the
    other workers. Lost with the process.
    """

    def __init__(self) -> None:
        self._declared: Mapping[str, Declared] = {}
        self._many: dict[str, dict[str, int]] = {}
        # What others have not been told; and what they are being told.
        self._news: dict[tuple[str, str], Attribute] = {}
        self._under_way: dict[tuple[str, str], None] = {}

    def declare(self, declared: Mapping[str, Declared]) -> None:
        """There are these attributes from now on."""
        before = self._declared
        self._declared = {n: d for n, d in declared.items() if d.source == "events"}
        for name, was in before.items():
            if not stands(was, self._declared.get(name)):
                self._many.pop(name, None)
                self._news = {key: row for key, row in self._news.items() if key[0] != name}

    def check(self, family: str, row: Attribute, now_ms: int) -> Attribute:
        """The row as it counts. ValueError: the family must not give it."""
        name, subject, value, until = row
        declared = self._declared.get(name)
        if declared is None or declared.family != family:
            raise ValueError(f"[attributes] has no {name!r} that comes of events of {family}")
        if not fits(subject, declared.of):
            raise ValueError(f"{name} is of {_OF[declared.of]}, not of {subject!r}")
        if until > 0 and not is_value(value):
            raise ValueError(f"{name} cannot be {value!r} until {until!r}")
        if until <= now_ms:
            return Attribute(name, subject, None, 0)
        return Attribute(name, subject, value, min(until, now_ms + declared.valid_ms))

    def news(self, held: Attribute | None, row: Attribute, now_ms: int) -> bool:
        """Whether it is to be held instead of what is. A value that stays is renewed only when a
        part of its validity has passed: not with each message.
        """
        if held is not None and row.until > 0 and same(held, row._replace(until=held.until)):
            if 0 <= row.until - held.until <= self._declared[row.name].valid_ms // _RENEWED:
                return False
        return self._room(row, now_ms)

    # There is a bound; what is held counts for it.
    def _room(self, row: Attribute, now_ms: int) -> bool:
        many = self._many.setdefault(row.name, {})
        if row.until <= 0:
            many.pop(row.subject, None)
            return True
        if row.subject not in many and len(many) >= MOST:
            for subject in [s for s, until in many.items() if until <= now_ms]:
                del many[subject]
            if len(many) >= MOST:
                return False
        many[row.subject] = row.until
        return True

    def changed(self, row: Attribute) -> None:
        """The others are to be told."""
        self._news[row.name, row.subject] = row

    def take(self) -> list[Attribute]:
        """What they have not been told, each once; it is under way until `settled`."""
        news, self._news = self._news, {}
        self._under_way.update(dict.fromkeys(news))
        return list(news.values())

    def settled(self, sent: Iterable[Attribute]) -> None:
        """They have been told."""
        for row in sent:
            self._under_way.pop((row.name, row.subject), None)

    def own(self, row: Attribute) -> bool:
        """Whether what others tell of this is older than what is known here."""
        key = row.name, row.subject
        return key in self._under_way or key in self._news


_OF = {
    "site": "the site: no subject",
    "subscriber": "a client: one name",
    "owner": "an owner: one name",
    "pair": "a pair: [owner, subscriber]",
}


def _key(name: str, subject: str) -> str:
    return f"{name}{BETWEEN}{subject}"


def _read(key: str, value: bytes) -> _Row:
    name, _, subject = key.partition(BETWEEN)
    found = json.loads(value)
    return _Row(name, subject, found["value"], found["until"], found["by"], found["at"])


# Whoever told it, or it is about, bears that name only since it was told.
def _void(row: _Row, since: Mapping[str, int]) -> bool:
    return any(row.at < since.get(name, 0) for name in (row.by, *names_in(row.subject)))


def _subject(said: object) -> str | None:
    names: list[str] = []
    for name in said if isinstance(said, list) else [said] if said != "" else []:
        # What is printable has no U+001F.
        if not isinstance(name, str) or not 0 < len(name) <= 64 or not name.isprintable():
            return None
        names.append(name)
    return BETWEEN.join(names)


def _malformed(what: str) -> Verdict:
    return deny("engine.attribute-malformed", f"{what}: {_HOW}"[:200])


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name twice")
    return found
