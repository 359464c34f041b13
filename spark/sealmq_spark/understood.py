"""Which words of JSON Schema the reader of the contracts knows, and where: any other is an error.

A word that was passed over would be a check that nobody makes: lines that a schema forbids would
count. So every level of a schema is gone through before anything of it is translated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Schema = Mapping[str, Any]

_SAID = frozenset({"title", "description"})
_TOP = _SAID | {"$schema", "$id", "$defs", "type", "properties", "required"}
_CONDITIONS = frozenset({"if", "then", "else", "dependentRequired"})
# Of a field of each type: what `rules` and `contracts` make of it.
_OF_TYPE: Mapping[str, frozenset[str]] = {
    "string": frozenset({"pattern", "minLength", "maxLength"}),
    "integer": frozenset({"minimum", "maximum", "multipleOf"}),
    "number": frozenset({"minimum"}),
    "boolean": frozenset(),
    "array": frozenset({"items", "maxItems"}),
    "object": frozenset({"propertyNames", "additionalProperties"}),
}
_PLAIN = {"type": ["string", "number", "boolean"]}
_ROWS = {
    "type": "object",
    "properties": {"rows": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/row"}}},
    "required": ["rows"],
    "additionalProperties": False,
}


class SchemaError(NotImplementedError):
    """A schema says something that is not translated."""


def document(schema: Schema) -> None:
    """A bench's: an object of its rows and nothing else. SchemaError."""
    beside = _SAID | {"$schema", "$id", "$defs"}
    _is({name: schema[name] for name in schema if name not in beside}, _ROWS, "a document")


def lines(schema: Schema) -> None:
    """A contract of lines or rows: flat objects, perhaps of several events. SchemaError."""
    closed = "unevaluatedProperties" if "oneOf" in schema else "additionalProperties"
    _only(schema, _TOP | _CONDITIONS | {"oneOf", closed}, "at its top")
    _is(schema.get("type"), "object", "type")
    _is(schema.get(closed), False, closed)
    _fields(schema, schema, "at its top")
    events = []
    for part in schema.get("oneOf", ()):
        _only(part, _SAID | {"properties", "required"}, "in oneOf")
        event = part.get("properties", {}).get("event", {})
        _only(event, {"const"}, "event in oneOf")
        events.append(event.get("const"))
        _fields(part, schema, f"event {events[-1]}")
    if None in events or len(set(events)) < len(events):
        raise SchemaError(f"oneOf has an event twice, or one without a name: {events}")
    _conditions(schema)


def field(schema: Schema, where: str = "a field") -> None:
    """What a field may hold. SchemaError."""
    for word in ("const", "enum"):
        if word in schema:
            _only(schema, _SAID | {word}, where)
            values = schema["enum"] if word == "enum" else [schema["const"]]
            if {type(value) for value in values} not in ({str}, {int}):
                raise SchemaError(f"{where}: {word} {values} is neither texts nor whole numbers")
            return
    kind = schema.get("type")
    if not isinstance(kind, str) or kind not in _OF_TYPE:
        raise SchemaError(f"{where}: type {kind}, of {', '.join(sorted(schema)) or 'no words'}")
    _only(schema, _SAID | {"type"} | _OF_TYPE[kind], where)
    match kind:
        case "string":
            _text(schema, where)
        case "integer":
            if "minimum" not in schema:
                raise SchemaError(f"{where}: an integer without minimum")
        case "number":
            _is(schema.get("minimum"), 0, f"{where}, minimum")
        case "array":
            field(schema.get("items", {}), f"{where}, items")
            _is(schema["items"].get("type"), "string", f"{where}, items, type")
            if schema.get("maxItems", 0) < 1:
                raise SchemaError(f"{where}: an array without maxItems")
        case "object":
            names = schema.get("propertyNames", {})
            _only(names, _SAID | {"pattern"}, f"{where}, propertyNames")
            _text(names, f"{where}, propertyNames")
            _is(schema.get("additionalProperties"), _PLAIN, f"{where}, additionalProperties")
            if "pattern" not in names:
                raise SchemaError(f"{where}: names of no pattern")


def _text(schema: Schema, where: str) -> None:
    if "pattern" in schema and "minLength" in schema and "maxLength" not in schema:
        raise SchemaError(f"{where}: pattern and minLength without maxLength")


def _fields(part: Schema, schema: Schema, where: str) -> None:
    for name, one in part.get("properties", {}).items():
        if "$ref" in one:
            _only(one, _SAID | {"$ref"}, f"{where}, {name}")
            _, found, target = one["$ref"].rpartition("#/$defs/")
            if not found or target not in schema.get("$defs", {}):
                raise SchemaError(f"{where}, {name}: there is no {one['$ref']}")
            field(schema["$defs"][target], target)
        else:
            field(one, f"{where}, {name}")


def _conditions(schema: Schema) -> None:
    """A field that belongs to what did not pass, and to that alone; fields that need others."""
    said = {name: schema[name] for name in ("if", "then", "else") if name in schema}
    if said:
        outcome = schema.get("if", {}).get("properties", {}).get("outcome", {}).get("const")
        needed = schema.get("else", {}).get("required", [])
        wanted = {
            "if": {"properties": {"outcome": {"const": outcome}}},
            "then": {"not": {"required": needed}},
            "else": {"required": needed},
        }
        _is(said, wanted, "if, then, else")
        _is(len(needed), 1, "fields that else requires")
    for name, others in schema.get("dependentRequired", {}).items():
        if not all(isinstance(each, str) for each in others):
            raise SchemaError(f"dependentRequired, {name}: {others}")


def _only(schema: Schema, words: Iterable[str], where: str) -> None:
    unknown = schema.keys() - words
    if unknown:
        raise SchemaError(f"{where}: {', '.join(sorted(unknown))}")


def _is(said: Any, wanted: Any, where: str) -> None:
    # 0 is no false, and 1 no true.
    if (type(said), said) != (type(wanted), wanted):
        raise SchemaError(f"{where}: {said}, and not {wanted}")
