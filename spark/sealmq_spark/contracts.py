"""The contracts of shared_spec/ as Spark knows them: a table's columns, and what makes a line bad.

One reading of each schema serves both: nothing of it is written a second time here. Only what our
schemas use of JSON Schema is understood; anything else is an error, not a check left out.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

MARKS: Mapping[str, str] = {"hil": "behaviour", "nonce": "nonce", "audit": "event"}
"""The contracts of lines, and of each the field by which its lines are known."""

KEYS = "keys"
TYPES = "types"
"""Columns that `reason` reads beside: the line's keys, and its types as Spark writes them."""

_TREE = Path(__file__).resolve().parents[2] / "shared_spec"
_PACKAGE = Path(__file__).resolve().parent / "schemas"
_TYPES: Mapping[str, T.DataType] = {
    "string": T.StringType(),
    "integer": T.LongType(),
    "number": T.DoubleType(),
    "boolean": T.BooleanType(),
}


@dataclass(frozen=True)
class Contract:
    """One kind of line. `columns`: of all its events. `rules`: (reason, condition of a bad line).

    `events`: the fields that an event must have and may have; "" where lines are all of one kind.
    """

    name: str
    columns: T.StructType
    events: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]
    rules: tuple[tuple[str, Column], ...] = field(repr=False)

    def parsed(self, raw: Column) -> Column:
        """The line as a struct of `columns`, null in what is not of its type."""
        return F.from_json(raw, self.columns, {"allowNonNumericNumbers": "false"}).alias(self.name)

    def reason(self) -> Column:
        """Why the line is bad: the first rule that it breaks, or null.

        Beside stand KEYS, TYPES and the struct that `parsed` gave.
        """
        keys, types = F.col(KEYS), F.col(TYPES)
        names = self.columns.names
        event = self._at("event") if "" not in self.events else F.lit("")
        needed = F.element_at(self._fields_of(0), event)
        allowed = F.element_at(self._fields_of(1), event)
        unknown = F.array_except(keys, _texts(names))
        there = F.array_compact(F.array(*(self._there(name) for name in names)))
        wrong = F.array_except(keys, there)
        other = F.array_compact(F.array(*self._coerced(types)))
        missing, more = F.array_except(needed, keys), F.array_except(keys, allowed)
        found = (
            F.when(keys.isNull() | types.isNull(), F.lit("no JSON object"))
            .when(F.size(unknown) > 0, _named("unknown field ", unknown))
            .when(F.size(keys) > F.size(F.array_distinct(keys)), F.lit("a field stands twice"))
            .when(F.size(wrong) > 0, _named("null or of another type: ", wrong))
            .when(self._nested(types), F.lit("an object or a list where none can be"))
            .when(F.size(other) > 0, _named("of another type: ", other))
            .when(allowed.isNull(), F.lit("there is no such event"))
            .when(F.size(missing) > 0, _named("missing: ", missing))
            .when(F.size(more) > 0, _named("this event has no ", more))
        )
        for why, broken in self.rules:
            found = found.when(broken, F.lit(why))
        return found

    def _at(self, name: str) -> Column:
        return F.col(f"{self.name}.{name}")

    def _there(self, name: str) -> Column:
        return F.when(self._at(name).isNotNull(), F.lit(name))

    def _of(self, kind: type[T.DataType]) -> list[str]:
        return [each.name for each in self.columns if isinstance(each.dataType, kind)]

    def _coerced(self, types: Column) -> Iterator[Column]:
        """from_json makes a text of any number; TYPES tells what the line itself has."""
        shapes = ((T.StringType, ("STRING",)), (T.ArrayType, ("ARRAY<STRING>", "ARRAY<VOID>")))
        for kind, said in shapes:
            for name in self._of(kind):
                fits = [
                    types.contains(f"{mark}{name}: {one}") for one in said for mark in (" ", "<")
                ]
                none = ~functools.reduce(Column.__or__, fits)
                yield F.when(self._at(name).isNotNull() & none, F.lit(name))

    def _nested(self, types: Column) -> Column:
        """More objects or lists than the fields hold that are such. What is in one could be
        named so as to look like a field's type."""
        broken = F.lit(False)
        for kind, word, own in ((T.MapType, "OBJECT<", 1), (T.ArrayType, "ARRAY<", 0)):
            there = [self._at(name).isNotNull().cast("int") for name in self._of(kind)]
            allowed = functools.reduce(Column.__add__, there, F.lit(own))
            length = F.length(types) - F.length(F.replace(types, F.lit(word), F.lit("")))
            broken = broken | (length > allowed * len(word))
        return broken

    def _fields_of(self, which: int) -> Column:
        pairs = [(F.lit(event), _texts(both[which])) for event, both in self.events.items()]
        return F.create_map(*(column for pair in pairs for column in pair))


def _texts(names: Iterable[str]) -> Column:
    return F.array(*(F.lit(name) for name in names)).cast("array<string>")


def _named(text: str, names: Column) -> Column:
    return F.concat(F.lit(text), F.substring(names[0], 1, 64))


@cache
def contract(name: str) -> Contract:
    """One of MARKS, or "bench": the rows of its documents. Needs a SparkSession.

    Stricter than JSON Schema in two things: an integer is written as one (no 1.0), and no field
    stands twice.
    """
    return _contract(name, _schema(name))


@cache
def columns(name: str) -> T.StructType:
    """The columns of contract `name`. Needs no session."""
    return _columns(_fields(_schema(name)))


def fingerprint() -> str:
    """Of all contracts together: another one where lines would be judged otherwise."""
    texts = [json.dumps(load(name), sort_keys=True) for name in (*sorted(MARKS), "bench")]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:32]


def _schema(name: str) -> dict[str, Any]:
    schema = load(name)
    if name == "bench":
        schema = {**schema["$defs"]["row"], "$defs": schema["$defs"]}
    return schema


def load(name: str) -> dict[str, Any]:
    """The schema as it stands in shared_spec/."""
    for folder in (_PACKAGE, _TREE):
        path = folder / f"{name}.schema.json"
        if path.is_file():
            loaded: dict[str, Any] = json.loads(path.read_bytes())
            return loaded
    raise FileNotFoundError(f"{name}.schema.json lies neither in {_PACKAGE} nor in {_TREE}")


def _contract(name: str, schema: Mapping[str, Any]) -> Contract:
    shapes = _fields(schema)
    rules = [
        rule for each, shape in shapes.items() for rule in _value_rules(f"{name}.{each}", shape)
    ]
    return Contract(name, _columns(shapes), _events(schema), (*rules, *_conditions(name, schema)))


def _columns(shapes: Mapping[str, Mapping[str, Any]]) -> T.StructType:
    return T.StructType([T.StructField(each, _type(shape)) for each, shape in shapes.items()])


def _events(
    schema: Mapping[str, Any],
) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """oneOf: each event has its own fields, some of which it must have."""
    common, needed = tuple(schema["properties"]), tuple(schema.get("required", ()))
    if "oneOf" not in schema:
        return {"": (needed, common)}
    found = {}
    for part in schema["oneOf"]:
        name = part["properties"]["event"]["const"]
        needs = dict.fromkeys((*needed, *part.get("required", ())))
        found[name] = (tuple(needs), tuple(dict.fromkeys((*common, *part["properties"]))))
    return found


def _fields(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Every field of every event, in the schema's order."""
    found: dict[str, Mapping[str, Any]] = {}
    for part in (schema, *schema.get("oneOf", ())):
        for name, shape in part.get("properties", {}).items():
            if "const" in shape and name in found:
                continue
            found.setdefault(name, _resolve(shape, schema))
    return found


def _resolve(shape: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    ref = shape.get("$ref")
    if ref is None:
        return shape
    found: Mapping[str, Any] = schema["$defs"][ref.removeprefix("#/$defs/")]
    return found


def _type(shape: Mapping[str, Any]) -> T.DataType:
    kind = shape.get("type")
    if kind is None:
        values = shape.get("enum", [shape.get("const")])
        kind = "integer" if isinstance(values[0], int) else "string"
    if kind == "array":
        return T.ArrayType(_type(shape["items"]))
    if kind == "object":
        # `params` of a bench's row: kept as text values.
        return T.MapType(T.StringType(), T.StringType())
    return _TYPES[kind]


def _value_rules(path: str, shape: Mapping[str, Any]) -> Iterator[tuple[str, Column]]:
    name, value = path.rpartition(".")[2], F.col(path)
    for word, said in shape.items():
        match word:
            case "type" | "description" | "title":
                pass
            case "const":
                yield f"{name} is not {said}", value != F.lit(said)
            case "enum":
                yield f"{name} is none of its values", ~value.isin(said)
            case "pattern":
                yield f"{name} is not of its form", ~value.rlike(said)
            case "minimum":
                yield f"{name} is below {said}", value < F.lit(said)
            case "maximum":
                yield f"{name} is above {said}", value > F.lit(said)
            case "multipleOf":
                yield f"{name} is no multiple of {said}", value % said != 0
            case "minLength":
                yield f"{name} is too short", F.char_length(value) < said
            case "maxLength":
                yield f"{name} is too long", F.char_length(value) > said
            case "maxItems":
                yield f"{name} has too many items", F.size(value) > said
            case "items":
                yield f"{name} has an item that is null", F.exists(value, F.isnull)
                yield f"{name} has an item that is too long", _any_longer(value, said["maxLength"])
            case "propertyNames":
                yield f"{name} has a name not of its form", _any_unlike(value, said["pattern"])
            case "additionalProperties":
                yield f"{name} has a null", F.exists(F.map_values(value), F.isnull)
            case _:
                raise NotImplementedError(f"{word!r} of {name} in a schema of shared_spec/")


def _any_longer(value: Column, limit: int) -> Column:
    return F.exists(value, lambda item: F.char_length(item) > limit)


def _any_unlike(value: Column, pattern: str) -> Column:
    return F.exists(F.map_keys(value), lambda key: ~key.rlike(pattern))


def _conditions(name: str, schema: Mapping[str, Any]) -> Iterator[tuple[str, Column]]:
    """What the rig's schema says beside: a cause belongs to what did not pass; who needs whom."""

    def there(field: str) -> Column:
        return F.col(f"{name}.{field}").isNotNull()

    if "if" in schema:
        passed = F.col(f"{name}.outcome") == schema["if"]["properties"]["outcome"]["const"]
        (one,) = schema["else"]["required"]
        yield f"{one} where it passed", passed & there(one)
        yield f"{one} is missing", ~passed & ~there(one)
    for first, others in schema.get("dependentRequired", {}).items():
        for other in others:
            yield f"{first} without {other}", there(first) & ~there(other)
