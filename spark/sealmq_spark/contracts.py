"""The contracts of shared_spec/ as Spark knows them: a table's columns, and what makes a line good.

One reading of each schema serves all: nothing of it is written a second time here. Only what our
schemas use of JSON Schema is understood; anything else is an error (understood.py).

A good line has the form of one (rules.FORM), fields of these types and no others (one regular
expression over what Spark says of its shape), and keeps each field's rule and those between fields.
All of it are texts of SQL: hundreds of Columns, each a call into the JVM, would cost more than the
work.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from pyspark.sql import types as T

from . import understood
from .rules import (
    FIRST,
    FORM,
    MEMBER,
    MEMBERS,
    Schema,
    Sql,
    column,
    described,
    listed,
    literal,
    plain,
    rule,
    texts,
    unescaped,
    whole,
    written,
)

MARKS: Mapping[str, str] = {
    "hil": "behaviour", "nonce": "nonce", "audit": "event", "simulation": "simulated",
}  # fmt: skip
"""The contracts of lines, and of each the field by which its lines are known."""

_TREE = Path(__file__).resolve().parents[2] / "shared_spec"
_PACKAGE = Path(__file__).resolve().parent / "schemas"


@dataclass(frozen=True)
class Event:
    """Which fields it must have, and which it may have, those included."""

    needs: tuple[str, ...]
    may: tuple[str, ...]


@dataclass(frozen=True)
class Contract:
    """One kind of line. `fields`: what each may hold. `rules`: (reason, condition of a bad line,
    whose struct is `{line}`).

    `events`: by name; "" where lines are all of one kind.
    """

    name: str
    columns: T.StructType
    fields: Mapping[str, Schema]
    events: Mapping[str, Event]
    rules: tuple[tuple[str, Sql], ...] = field(repr=False)

    def wanted(self, text: Sql) -> Sql:
        """Whether a line that is not good wants to be one of these."""
        return f"{text} RLIKE " + literal(rf'"{MARKS[self.name]}"[ \t]*+:')

    def parsed(self, text: Sql) -> Sql:
        """The line as a struct of `columns`."""
        return f"from_json({text}, {literal(ddl(self.columns))})"

    def plain(self, text: Sql) -> Sql:
        """Whether it is `formed`, and as our writers write it: without blanks, its fields in
        the schema's order. Nearly all good lines are, and it costs a third of `formed`,
        which decides about all others. text: of valid UTF-8. It may still be no JSON, which
        `parsed` says."""
        # Java's matching has a number for each group, and sets all of them at each line: most lines
        # have no escape, and need few groups.
        short, full = (literal(self._plain(escapes=escapes)) for escapes in (False, True))
        escaped = f"contains({text}, '\\\\')"
        return f"IF({escaped}, {text} RLIKE {full}, {text} RLIKE {short})"

    def _plain(self, *, escapes: bool) -> str:
        events = self.events.values()
        last = [name for name in _LAST if all(name in one.may for one in events)]
        needed = [name for name in last if all(name in one.needs for one in events)]
        tail = "".join(self._member(name, needed, escapes) for name in last)
        lines: dict[str, list[str]] = {}
        for event in self.events:
            head, _, rest = self._members(event, last, escapes).partition(_OF_EVENT)
            lines.setdefault(head, []).append(rest)
        # What is the same for all events is looked at once.
        forms = (
            f"{head}{_OF_EVENT}(?:{'|'.join(rests)})" if rests[0] else head
            for head, rests in lines.items()
        )
        return rf"^\{{(?:{'|'.join(forms)}){tail}\}}\z"

    def _members(self, event: str, others: Iterable[str], escapes: bool) -> str:
        one = self.events[event]
        order = [each for each in one.may if each not in _LAST]
        order += [each for each in _LAST if each in one.may and each not in others]
        members = (
            f'{_OF_EVENT}"{event}"'
            if event and each == "event"
            else self._member(each, one.needs, escapes)
            for each in order
        )
        return "".join(members).removeprefix(",")

    def _member(self, name: str, needed: Iterable[str], escapes: bool) -> str:
        member = f',"{name}":{plain(self.fields[name], escapes)[0]}'
        return member if name in needed else f"(?:{member})?+"

    def formed(self, text: Sql, shape: Sql) -> Sql:
        """Whether it has the form of a line, and fields of these types and no others. Beside
        stands, under the contract's name, what `parsed` gave. shape: what `shape_of` says of the
        text, which is so of no line that has a field twice."""
        event = "''" if "" in self.events else self._at("event")
        shapes = "|".join(self._shape(name, event) for name, event in self.events.items())
        # Without its last bracket.
        listed = f"concat({event}, ' ', left({shape}, length({shape}) - 1), ', ')"
        shaped = whole(listed, shapes)
        names = "|".join(name for name, one in self.fields.items() if unescaped(one))
        escaped = f"{text} RLIKE {literal(_ESCAPED % names)}"
        return (
            f"coalesce({shaped} AND {text} RLIKE {literal(FORM)} "
            f"AND NOT (contains({text}, '\\\\') AND {escaped}), false)"
        )

    def kept(self, *, written: bool = False) -> Sql:
        """Whether a line that is `formed` keeps all rules; or one that is `plain` (written), which
        keeps some of them as it is written so."""
        each = [
            f"({self._at(name)} IS NULL OR {rule(one, self._at(name))})"
            for name, one in self.fields.items()
            if not (written and (plain(one, False)[1] or name == "event"))
        ]
        broken = "".join(
            f" AND NOT coalesce({each.format(line=self.name)}, false)" for _, each in self.rules
        )
        return f"coalesce({' AND '.join(each)}{broken}, false)"

    def _shape(self, name: str, event: Event) -> str:
        """As Spark says it: the fields by name, each with a comma after it."""
        each = {one: f"{one}: {written(self.fields[one])}, " for one in sorted(event.may)}
        needed = (text if one in event.needs else f"(?:{text})?+" for one, text in each.items())
        return f"{name} OBJECT<{''.join(needed)}"

    def reason(self, text: Sql) -> Sql:
        """What is wrong with a line that is not good. Seldom needed, and not compared with it."""
        event = "''" if "" in self.events else f"from_json({text}, 'event string').event"
        names, values = (f"regexp_extract_all({text}, {literal(MEMBER)}, {n})" for n in (1, 2))
        wrong = f"zip_with({names}, {values}, (name, value) -> IF({self._kept()}, '', name))"
        found = (
            f"json_object_keys({text})",
            self._of_event(event, {name: one.needs for name, one in self.events.items()}),
            self._of_event(event, {name: one.may for name, one in self.events.items()}),
            f"get(array_remove({wrong}, ''), 0)",
            f"regexp_replace({text}, {literal(MEMBERS)}, '')",
            self.parsed(text),
        )
        each = ", ".join(f"{one} AS {name}" for one, name in zip(found, _FOUND, strict=True))
        return f"transform(array(struct({each})), found -> {self._said()})[0]"

    @staticmethod
    def _of_event(event: Sql, fields: Mapping[str, Iterable[str]]) -> Sql:
        pairs = ", ".join(f"{literal(name)}, {texts(each)}" for name, each in fields.items())
        return f"element_at(map({pairs}), coalesce({event}, ''))"

    def _said(self) -> Sql:
        names, needs, may, wrong, rest, line = (f"found.{name}" for name in _FOUND)
        must = ", ".join(f"{literal(n)}, {literal(described(s))}" for n, s in self.fields.items())
        name = f"coalesce({wrong}, regexp_extract({rest}, {literal(FIRST)}, 1))"
        whens = [
            (f"{names} IS NULL", "'no JSON object'"),
            (f"size({names}) > size(array_distinct({names}))", "'a field stands twice'"),
            *_first("unknown field ", f"array_except({names}, {texts(self.fields)})"),
            (f"{may} IS NULL", "'there is no such event'"),
            *_first("missing: ", f"array_except({needs}, {names})"),
            *_first("this event has no ", f"array_except({names}, {may})"),
            (f"{wrong} IS NULL AND {rest} LIKE '}}_%'", "'more stands behind the JSON object'"),
            (f"{name} <> ''", f"concat({name}, ' must be ', element_at(map({must}), {name}))"),
            *((each.format(line=line), literal(why)) for why, each in self.rules),
        ]
        said = " ".join(f"WHEN {broken} THEN {why}" for broken, why in whens)
        return f"CASE {said} ELSE 'not as its contract has it' END"

    def _kept(self) -> Sql:
        """Whether the field `name` may hold what is written as `value`."""
        alike: dict[Sql, list[str]] = {}
        for each, one in self.fields.items():
            kind = column(one).simpleString()
            value = f"from_json(concat('{{\"x\":', value, '}}'), 'x {kind}').x"
            plain = "NOT contains(value, '\\\\') AND " if unescaped(one) else ""
            shape = whole(shape_of("value"), written(one))
            alike.setdefault(f"{plain}{shape} AND {rule(one, value)}", []).append(each)
        whens = " ".join(
            f"WHEN name IN ({listed(names)}) THEN {kept}" for kept, names in alike.items()
        )
        return f"coalesce(CASE {whens} ELSE true END, false)"

    def _at(self, name: str) -> Sql:
        return f"{self.name}.{name}"


_OF_EVENT = ',"event":'
# Counts are made when a minute is over, seals when a line is written.
_LAST = ("count", "minute_ms", "line", "mac")
_FOUND = ("names", "needs", "may", "wrong", "rest", "line")
# Fields that may have no escape, %s, with one.
_ESCAPED = r'"(?:%s)"[ \t]*+:[ \t]*+"[^"\\]*+\\'


def ddl(columns: T.StructType) -> Sql:
    """These columns as a text, for which Spark is asked less than for their types."""
    return ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in columns)


def shape_of(text: Sql) -> Sql:
    """The types of a JSON text's fields, by their names; null: it is none, or has a field twice."""
    return f"schema_of_variant(try_parse_json({text}))"


def _first(text: str, names: Sql) -> Iterator[tuple[Sql, Sql]]:
    """If there are any such names: the text with the first of them."""
    yield f"size({names}) > 0", f"concat({literal(text)}, substring({names}[0], 1, 64))"


@cache
def contract(name: str) -> Contract:
    """One of MARKS, or "bench": the rows of its documents.

    Stricter than JSON Schema: an integer is written as one (no 1.0), no field stands twice, half a
    surrogate pair is no text, and names, enums and forms stand without escapes.
    """
    return _contract(name, _schema(name))


@cache
def columns(name: str) -> T.StructType:
    """The columns of contract `name`. Needs no session."""
    return _columns(_fields(_schema(name)))


@cache
def of_families() -> tuple[str, ...]:
    """The fields in which policy families say more of a delivery, all of text: those that the
    audit log's record may have, and does not need. Needs no session."""
    schema = _schema("audit")
    delivered = _events(schema)["delivered"]
    # What any line may have, such as its seal, is of no family.
    ours = {*delivered.needs, *schema["properties"]}
    return tuple(name for name in delivered.may if name not in ours)


def fingerprint() -> str:
    """Of all contracts of lines: another one where lines would be judged otherwise, and only there.

    What words a schema has for people does not count: a report would have to read all logs again.
    """
    made = [_contract(name, _schema(name)) for name in sorted(MARKS)]
    texts = [
        f"{one.columns.simpleString()}\n{one.formed('text', 'shape')}{one.kept()}" for one in made
    ]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:32]


def _schema(name: str) -> dict[str, Any]:
    """Of a line or a row. SchemaError: it says something that nothing here checks."""
    schema = load(name)
    if name == "bench":
        understood.document(schema)
        schema = {**schema["$defs"]["row"], "$defs": schema["$defs"]}
    understood.lines(schema)
    return schema


def load(name: str) -> dict[str, Any]:
    """The schema as it stands in shared_spec/."""
    for folder in (_PACKAGE, _TREE):
        path = folder / f"{name}.schema.json"
        if path.is_file():
            loaded: dict[str, Any] = json.loads(path.read_bytes())
            return loaded
    raise FileNotFoundError(f"{name}.schema.json lies neither in {_PACKAGE} nor in {_TREE}")


def _contract(name: str, schema: Schema) -> Contract:
    fields = _fields(schema)
    rules = [rule for each, one in fields.items() for rule in _multiples(each, one)]
    rules += _conditions(schema)
    return Contract(name, _columns(fields), fields, _events(schema), tuple(rules))


def _columns(fields: Mapping[str, Schema]) -> T.StructType:
    return T.StructType([T.StructField(each, column(one)) for each, one in fields.items()])


def _events(schema: Schema) -> dict[str, Event]:
    """oneOf: each event has its own fields, some of which it must have."""
    common, needed = tuple(schema["properties"]), tuple(schema.get("required", ()))
    found = {}
    for part in schema.get("oneOf", ()):
        needs = dict.fromkeys((*needed, *part.get("required", ())))
        may = dict.fromkeys((*common, *part["properties"]))
        found[part["properties"]["event"]["const"]] = Event(tuple(needs), tuple(may))
    return found or {"": Event(needed, common)}


def _fields(schema: Schema) -> dict[str, Schema]:
    """Every field of every event, in the schema's order."""
    found: dict[str, Schema] = {}
    for part in (schema, *schema.get("oneOf", ())):
        for name, one in part.get("properties", {}).items():
            known = _resolve(one, schema)
            if found.setdefault(name, known) != known and "const" not in known:
                raise NotImplementedError(f"{name} is of two kinds in a schema of shared_spec/")
    return found


def _resolve(one: Schema, schema: Schema) -> Schema:
    ref = one.get("$ref")
    if ref is None:
        return one
    found: Schema = schema["$defs"][ref.removeprefix("#/$defs/")]
    return found


def _multiples(name: str, one: Schema) -> Iterator[tuple[str, Sql]]:
    if "multipleOf" in one:
        said = one["multipleOf"]
        yield f"{name} must be a multiple of {said}", f"{{line}}.{name} % {said} <> 0"


def _conditions(schema: Schema) -> Iterator[tuple[str, Sql]]:
    """What the rig's schema says beside: a cause belongs to what did not pass; who needs whom."""
    if "if" in schema:
        passed = f"{{line}}.outcome = {literal(schema['if']['properties']['outcome']['const'])}"
        (one,) = schema["else"]["required"]
        yield f"{one} where it passed", f"{passed} AND {{line}}.{one} IS NOT NULL"
        yield f"{one} is missing", f"NOT {passed} AND {{line}}.{one} IS NULL"
    for first, others in schema.get("dependentRequired", {}).items():
        for other in others:
            there = f"{{line}}.{first} IS NOT NULL AND {{line}}.{other} IS NULL"
            yield f"{first} without {other}", there
