"""The contracts of shared_spec/ as Spark knows them: a table's columns, and what makes a line good.

One reading of each schema serves all: nothing of it is written a second time here. Only what our
schemas use of JSON Schema is understood; anything else is an error (understood.py). A line
is one flat object, so one regular expression can say of which fields and values it may be; what
none can say is a rule. All of it are texts of SQL: hundreds of Columns, of which each is a call
into the JVM, and which it has to compile, would cost more than the work.
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
from .shapes import WS, described, shape

MARKS: Mapping[str, str] = {
    "hil": "behaviour", "nonce": "nonce", "audit": "event", "simulation": "simulated",
}  # fmt: skip
"""The contracts of lines, and of each the field by which its lines are known."""

Sql = str
Schema = Mapping[str, Any]

_TREE = Path(__file__).resolve().parents[2] / "shared_spec"
_PACKAGE = Path(__file__).resolve().parent / "schemas"
_TYPES: Mapping[str, T.DataType] = {
    "string": T.StringType(),
    "integer": T.LongType(),
    "number": T.DoubleType(),
    "boolean": T.BooleanType(),
}


@dataclass(frozen=True)
class Event:
    """Which fields it must have, and which it may have, those included."""

    needs: tuple[str, ...]
    may: tuple[str, ...]


@dataclass(frozen=True)
class Contract:
    """One kind of line. `fields`: what each may hold. `rules`: (reason, condition of a bad line).

    `events`: by name; "" where lines are all of one kind.
    """

    name: str
    columns: T.StructType
    fields: Mapping[str, Schema]
    events: Mapping[str, Event]
    rules: tuple[tuple[str, Sql], ...] = field(repr=False)

    def wanted(self, text: Sql) -> Sql:
        """Whether a line wants to be one of these."""
        mark = f'"{MARKS[self.name]}"{WS}:'
        return f"{text} RLIKE {quoted(mark)}"

    def parsed(self, text: Sql) -> Sql:
        """The line as a struct of `columns`."""
        ddl = ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in self.columns)
        return f"from_json({text}, {quoted(ddl)})"

    def good(self, text: Sql) -> Sql:
        """Whether it is one. Beside stands, under the contract's name, what `parsed` gave."""
        each = {name: self._is(text, event) for name, event in self.events.items()}
        whens = " ".join(f"WHEN {quoted(name)} THEN {test}" for name, test in each.items())
        event = each[""] if "" in each else f"CASE {self._at('event')} {whens} END"
        broken = "".join(f" AND NOT coalesce({rule}, false)" for _, rule in self.rules)
        # A variant takes no field twice.
        whole = f"try_parse_json({text}) IS NOT NULL"
        return f"coalesce({event}, false) AND {whole}{broken}"

    def _is(self, text: Sql, event: Event) -> Sql:
        there = "".join(f" AND {self._at(name)} IS NOT NULL" for name in event.needs)
        members = _members(self.fields, event.may)
        # No more of them than there are fields: matching goes deeper with each.
        # \z: $ is also before a line's end, which is U+2028, too.
        whole = rf"^\{{{WS}(?:{members}(?:,{WS}(?=\")|(?=\}}))){{1,{len(event.may)}}}+\}}\z"
        return f"{text} RLIKE {quoted(whole)}{there}"

    def reason(self, text: Sql) -> Sql:
        """What is wrong with a line that is not good. Seldom needed, and not compared with it."""
        keys = f"json_object_keys({text})"
        event = "''" if "" in self.events else f"coalesce({self._at('event')}, '')"
        needs, may = (
            f"element_at(map({', '.join(pairs)}), {event})"
            for pairs in zip(*(
                (f"{quoted(name)}, {_texts(one.needs)}", f"{quoted(name)}, {_texts(one.may)}")
                for name, one in self.events.items()
            ), strict=True)
        )  # fmt: skip
        members = _members(self.fields, self.fields)
        good = rf"^\{{{WS}(?:{members}(?:,{WS}|(?=\}}))){{0,{len(self.fields)}}}+"
        rest = f"regexp_replace({text}, {quoted(good)}, '')"
        first = quoted('^"([a-z_]{1,64})"')
        name = f"regexp_extract({rest}, {first}, 1)"
        must = ", ".join(f"{quoted(n)}, {quoted(described(s))}" for n, s in self.fields.items())
        whens = [
            (f"{keys} IS NULL", "'no JSON object'"),
            (f"size({keys}) > size(array_distinct({keys}))", "'a field stands twice'"),
            *_first("unknown field ", f"array_except({keys}, {_texts(self.fields)})"),
            (f"{may} IS NULL", "'there is no such event'"),
            *_first("missing: ", f"array_except({needs}, {keys})"),
            *_first("this event has no ", f"array_except({keys}, {may})"),
            (f"{rest} LIKE '}}_%'", "'more stands behind the JSON object'"),
            (f"{name} <> ''", f"concat({name}, ' must be ', element_at(map({must}), {name}))"),
            *((rule, quoted(why)) for why, rule in self.rules),
        ]
        said = " ".join(f"WHEN {broken} THEN {why}" for broken, why in whens)
        return f"CASE {said} ELSE 'not as its contract has it' END"

    def _at(self, name: str) -> Sql:
        return f"{self.name}.{name}"


def _members(fields: Mapping[str, Schema], names: Iterable[str]) -> str:
    each = (f'{name}"{WS}:{WS}{shape(fields[name])}' for name in names)
    return f'"(?:{"|".join(each)}){WS}(?=[,}}])'


def quoted(text: str) -> Sql:
    """A text of SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _texts(names: Iterable[str]) -> Sql:
    return f"CAST(array({', '.join(quoted(name) for name in names)}) AS array<string>)"


def _first(text: str, names: Sql) -> Iterator[tuple[Sql, Sql]]:
    """If there are any such names: the text with the first of them."""
    yield f"size({names}) > 0", f"concat({quoted(text)}, substring({names}[0], 1, 64))"


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
    texts = [f"{one.columns.simpleString()}\n{one.good('text')}" for one in made]
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
    rules = [rule for each, one in fields.items() for rule in _multiples(f"{name}.{each}", one)]
    rules += _conditions(name, schema)
    return Contract(name, _columns(fields), fields, _events(schema), tuple(rules))


def _columns(fields: Mapping[str, Schema]) -> T.StructType:
    return T.StructType([T.StructField(each, _type(one)) for each, one in fields.items()])


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


def _type(one: Schema) -> T.DataType:
    kind = one.get("type")
    if kind is None:
        values = one.get("enum", [one.get("const")])
        kind = "integer" if isinstance(values[0], int) else "string"
    if kind == "array":
        return T.ArrayType(_type(one["items"]))
    if kind == "object":
        # `params` of a bench's row: kept as text values.
        return T.MapType(T.StringType(), T.StringType())
    return _TYPES[kind]


def _multiples(path: str, one: Schema) -> Iterator[tuple[str, Sql]]:
    if "multipleOf" in one:
        said = one["multipleOf"]
        yield f"{path.rpartition('.')[2]} must be a multiple of {said}", f"{path} % {said} <> 0"


def _conditions(name: str, schema: Schema) -> Iterator[tuple[str, Sql]]:
    """What the rig's schema says beside: a cause belongs to what did not pass; who needs whom."""
    if "if" in schema:
        passed = f"{name}.outcome = {quoted(schema['if']['properties']['outcome']['const'])}"
        (one,) = schema["else"]["required"]
        yield f"{one} where it passed", f"{passed} AND {name}.{one} IS NOT NULL"
        yield f"{one} is missing", f"NOT {passed} AND {name}.{one} IS NULL"
    for first, others in schema.get("dependentRequired", {}).items():
        for other in others:
            there = f"{name}.{first} IS NOT NULL AND {name}.{other} IS NULL"
            yield f"{first} without {other}", there
