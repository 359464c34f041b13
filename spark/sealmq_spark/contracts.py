"""The contracts of shared_spec/ as Spark knows them: a table's columns, and what makes a line bad.

One reading of each schema serves both: nothing of it is written a second time here. Only what our
schemas use of JSON Schema is understood; anything else is an error, not a check left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

BAD = "_bad"
"""The column in which from_json puts a line that does not fit the columns."""
KEYS = "_keys"
TYPES = "_types"
"""Columns that `reason` reads beside: the line's keys, and its types as Spark writes them."""

_TREE = Path(__file__).resolve().parents[2] / "shared_spec"
_PACKAGE = Path(__file__).resolve().parent / "schemas"
_TYPES: Mapping[str, T.DataType] = {
    "string": T.StringType(),
    "integer": T.LongType(),
    "number": T.DoubleType(),
    "boolean": T.BooleanType(),
}
_WORDS = frozenset({"description", "title"})


@dataclass(frozen=True)
class Contract:
    """One kind of line. `columns`: of all its events. `rules`: (reason, condition of a bad line).

    `events`: the fields that an event must have and may have; "" where lines are all of one kind.
    """

    name: str
    columns: T.StructType
    fields: tuple[str, ...]
    events: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]
    rules: tuple[tuple[str, Column], ...] = field(repr=False)

    def reason(self) -> Column:
        """Why the line is bad: the first rule that it breaks, or null.

        Beside stand the columns as `from_json` gave them, KEYS and TYPES.
        """
        keys, types = F.col(KEYS), F.col(TYPES)
        there = F.array_compact(F.array(*(self._there(name) for name in self.fields)))
        event = F.col("event") if "" not in self.events else F.lit("")
        needed = F.element_at(self._fields_of(0), event)
        allowed = F.element_at(self._fields_of(1), event)
        unknown = F.array_except(keys, _texts(self.fields))
        found = F.when(keys.isNull(), F.lit("no JSON object"))
        found = found.when(F.size(unknown) > 0, _named("unknown field ", unknown))
        found = found.when(
            F.size(keys) > F.size(F.array_distinct(keys)), F.lit("a field stands twice")
        )
        wrong = F.array_except(keys, there)
        # from_json makes a text of any number or object; TYPES tells what the line itself has.
        other = F.array_compact(F.array(*(self._no_text(name, types) for name in self.texts)))
        found = found.when(F.size(wrong) > 0, _named("null or of another type: ", wrong))
        found = found.when(F.size(other) > 0, _named("no text: ", other))
        found = found.when(allowed.isNull(), F.lit("there is no such event"))
        missing, more = F.array_except(needed, keys), F.array_except(keys, allowed)
        found = found.when(F.size(missing) > 0, _named("missing: ", missing))
        found = found.when(F.size(more) > 0, _named("this event has no ", more))
        for why, broken in self.rules:
            found = found.when(broken, F.lit(why))
        return found.when(F.col(BAD).isNotNull(), F.lit("a field has another type"))

    @property
    def texts(self) -> list[str]:
        """The fields that hold text."""
        return [f.name for f in self.columns if f.dataType == T.StringType() and f.name != BAD]

    def _no_text(self, name: str, types: Column) -> Column:
        said = F.contains(types, F.lit(f"{name}: STRING"))
        return F.when(F.col(name).isNotNull() & ~said, F.lit(name))

    def _there(self, name: str) -> Column:
        return F.when(F.col(name).isNotNull(), F.lit(name))

    def _fields_of(self, which: int) -> Column:
        pairs = [(F.lit(event), _texts(both[which])) for event, both in self.events.items()]
        return F.create_map(*(column for pair in pairs for column in pair))


def _texts(names: Iterable[str]) -> Column:
    return F.array(*(F.lit(name) for name in names)).cast("array<string>")


def _named(text: str, names: Column) -> Column:
    return F.concat(F.lit(text), F.substring(names[0], 1, 64))


@cache
def contract(name: str) -> Contract:
    """The contract `name`.schema.json: audit, hil; or the rows of bench. Needs a SparkSession."""
    schema = _load(name)
    if name == "bench":
        schema = {**schema["$defs"]["row"], "$defs": schema["$defs"]}
    return _contract(name, schema)


def _load(name: str) -> dict[str, Any]:
    for folder in (_PACKAGE, _TREE):
        path = folder / f"{name}.schema.json"
        if path.is_file():
            loaded: dict[str, Any] = json.loads(path.read_bytes())
            return loaded
    raise FileNotFoundError(f"{name}.schema.json lies neither in {_PACKAGE} nor in {_TREE}")


def _contract(name: str, schema: Mapping[str, Any]) -> Contract:
    shapes = _fields(schema)
    columns = [T.StructField(each, _type(shape)) for each, shape in shapes.items()]
    rules = [rule for each, shape in shapes.items() for rule in _value_rules(each, shape)]
    return Contract(
        name,
        T.StructType([*columns, T.StructField(BAD, T.StringType())]),
        tuple(shapes),
        _events(schema),
        (*rules, *_conditions(schema)),
    )


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


def _value_rules(name: str, shape: Mapping[str, Any]) -> Iterator[tuple[str, Column]]:
    value = F.col(name)
    for word, said in shape.items():
        match word:
            case "type" | "items" | "propertyNames" | "additionalProperties":
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
                # What does not fit the column is of another type already.
                if said < (1 << 63) - 1:
                    yield f"{name} is above {said}", value > F.lit(said)
            case "multipleOf":
                yield f"{name} is no multiple of {said}", value % said != 0
            case "minLength":
                yield f"{name} is too short", F.char_length(value) < said
            case "maxLength":
                yield f"{name} is too long", F.char_length(value) > said
            case "maxItems":
                yield f"{name} has too many items", F.size(value) > said
            case _ if word in _WORDS:
                pass
            case _:
                raise NotImplementedError(f"{word!r} of {name} in a schema of shared_spec/")


def _conditions(schema: Mapping[str, Any]) -> Iterator[tuple[str, Column]]:
    """What the rig's schema says beside: a cause belongs to what did not pass; who needs whom."""
    if "if" in schema:
        passed = F.col("outcome") == schema["if"]["properties"]["outcome"]["const"]
        (one,) = schema["else"]["required"]
        yield f"{one} where it passed", passed & F.col(one).isNotNull()
        yield f"{one} is missing", ~passed & F.col(one).isNull()
    for name, others in schema.get("dependentRequired", {}).items():
        for other in others:
            yield f"{name} without {other}", F.col(name).isNotNull() & F.col(other).isNull()
