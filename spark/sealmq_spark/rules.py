"""What a field may hold, from its JSON Schema: a type, a rule as an expression of Spark's, and the
same in words. One field has one rule, and one reason for the quarantine.

A rule sees a value that has been read. How it is written in the line is the form's matter, the same
for all contracts: what JSON's readers would let pass, or would not tell apart, is no line of ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import types as T

from .understood import SchemaError, field

Sql = str
Schema = Mapping[str, Any]

LARGEST = (1 << 53) - 1
"""Of an integer whose schema has no maximum: what JSON's other readers can hold."""
_TEXT = 1024
_SHOWN = 120

# Blanks are spaces and tabs, names stand without escapes, numbers have no sign. All repetitions are
# possessive: Java's matching goes deeper with each of any other kind, and a line must never end a
# job.
_WS = r"[ \t]*+"
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_LIST = rf"\[{_WS}(?:{_STRING}{_WS}(?:,{_WS})?+)*+\]"
_ATOM = r"[0-9tf][0-9a-zA-Z.+-]*+"
_NAME = '"([a-z_]{1,64})"'
_PLAIN = rf'"[a-z0-9_]++"{_WS}:{_WS}(?:{_STRING}|-?{_ATOM}){_WS}(?:,{_WS})?+'
_VALUE = rf"(?:{_STRING}|{_ATOM}|{_LIST}|\{{{_WS}(?:{_PLAIN})*+\}})"
MEMBERS = rf"^\{{{_WS}(?:{_NAME}{_WS}:{_WS}{_VALUE}{_WS}(?:,{_WS}|(?=\}})))*+"
"""The beginning of a line, for as long as its members have the form of one."""
MEMBER = rf"\G[{{,]{_WS}{_NAME}{_WS}:{_WS}({_VALUE}){_WS}(?=[,}}])"
"""The next member: its name, and its value as it stands there."""
FORM = rf"{MEMBERS}\}}\z"
"""A whole line. $ is also before a line's end, which is U+2028, too."""
FIRST = "^" + _NAME
_CHARACTERS = r'[^"\\\x00-\x1f]*'
_UNESCAPED = f'"{_CHARACTERS}"'
_ESCAPE = r'\\(?:["\\/bfnrt]|u(?!d[89a-f])[0-9a-f]{4})'
_PLAIN_STRING = f'"{_CHARACTERS}(?:{_ESCAPE}{_CHARACTERS})*+"'
# Zeros before it are for the parser to find.
_PLAIN_INTEGER = "[0-9]{1,18}+"
_NEVER = "(?!)"
# In a pattern: some characters, and what else might go on after the end of a text.
_CLASS = re.compile(r"\[[^^\\\]\"][^\\\]\"]*\]")
_OPEN = re.compile(r'[.\\"\[]')

# The type of its column, what Spark says of its shape, and how our writers write one.
_TYPES: Mapping[str, tuple[T.DataType, str, str]] = {
    "string": (T.StringType(), "STRING", "%s"),
    "integer": (T.LongType(), "BIGINT", _PLAIN_INTEGER),
    "number": (T.DoubleType(), r"(?:BIGINT|DECIMAL\([0-9,]+\)|DOUBLE)", _PLAIN_INTEGER),
    "boolean": (T.BooleanType(), "BOOLEAN", "(?:true|false)"),
    "array": (
        T.ArrayType(T.StringType()),
        "ARRAY<(?:STRING|VOID)>",
        r"\[(?:%s(?:,%s)*+)?+\]",
    ),
    # `params` of a bench's row: kept as text values.
    "object": (
        T.MapType(T.StringType(), T.StringType()),
        r"OBJECT<(?:[a-z0-9_]+: (?:STRING|BIGINT|DECIMAL\([0-9,]+\)|DOUBLE|BOOLEAN)(?:, )?)*>",
        _NEVER,
    ),
}


def column(schema: Schema) -> T.DataType:
    """The type of its column."""
    return _TYPES[_kind(schema)][0]


def written(schema: Schema) -> str:
    """What `schema_of_variant` says of such values, as a regular expression."""
    return _TYPES[_kind(schema)][1]


def plain(schema: Schema, escapes: bool) -> tuple[str, bool]:
    """How our writers write such a value, as a regular expression; and whether that is all that its
    rule asks for. escapes: texts may have some."""
    if "const" in schema or "enum" in schema:
        return "(?:" + "|".join(map(_dense, _values(schema))) + ")", True
    pattern = schema.get("pattern", "")[1:-1]
    closed = _CLASS.search(pattern) and not _OPEN.search(_CLASS.sub("", pattern))
    if closed and "maxLength" not in schema:
        return f'"(?:{pattern})"', True
    if unescaped(schema):
        return _UNESCAPED, False
    text = _PLAIN_STRING if escapes else _UNESCAPED
    return _TYPES[_kind(schema)][2].replace("%s", text), False


def unescaped(schema: Schema) -> bool:
    """Whether no escape may stand in it: what has a form is compared as it is written."""
    return _kind(schema) == "string" and bool({"const", "enum", "pattern"} & schema.keys())


def rule(schema: Schema, value: Sql) -> Sql:
    """Whether it may hold this value, which is there and of its type; null: it may not.

    multipleOf is a rule of its own (contracts.py). SchemaError.
    """
    field(schema)
    if "const" in schema or "enum" in schema:
        return f"{value} IN ({listed(_values(schema))})"
    match schema["type"]:
        case "string":
            return _text(schema, value)
        case "integer":
            least, most = _range(schema)
            return f"{value} BETWEEN {least} AND {most}"
        case "number":
            return f"{value} BETWEEN 0 AND 1.7976931348623157E308D"
        case "array":
            items = _text(schema["items"], "x")
            return f"size({value}) <= {schema['maxItems']} AND forall({value}, x -> {items})"
        case "object":
            names = _text({"type": "string", **schema["propertyNames"]}, "x")
            texts = f"forall(map_values({value}), x -> length(x) <= {_TEXT})"
            return f"forall(map_keys({value}), x -> {names}) AND {texts}"
    return "true"


def described(schema: Schema) -> str:
    """The same for people, after "must be"."""
    if "const" in schema or "enum" in schema:
        return " or ".join(map(str, _values(schema)))[:_SHOWN]
    match schema["type"]:
        case "string" if "pattern" in schema:
            return f"text of the form {schema['pattern']}"[:_SHOWN]
        case "string" if "maxLength" in schema:
            return f"text of {schema.get('minLength', 0)} to {schema['maxLength']} characters"
        case "string":
            return "text"
        case "integer":
            least, most = _range(schema)
            return f"a whole number from {least} to {most}"
        case "boolean":
            return "true or false"
        case "array":
            return f"a list of at most {schema['maxItems']} texts"
        case "object":
            return "an object of texts, numbers, true or false"
    return "a number"


def whole(value: Sql, pattern: str) -> Sql:
    """Whether all of a text is of this regular expression."""
    return f"{value} RLIKE " + literal(rf"^(?:{pattern})\z")


def literal(value: str | int) -> Sql:
    """A text or a number of SQL."""
    if isinstance(value, int):
        return str(value)
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def listed(values: Iterable[str | int]) -> Sql:
    """These texts and numbers with commas between them, as they stand after IN."""
    return ", ".join(map(literal, values))


def texts(values: Iterable[str]) -> Sql:
    """These texts as an array in SQL."""
    return f"CAST(array({listed(values)}) AS array<string>)"


def _dense(value: str | int) -> str:
    return str(value) if isinstance(value, int) else f'"{re.escape(value)}"'


def _kind(schema: Schema) -> str:
    if "type" in schema:
        return str(schema["type"])
    return "integer" if isinstance(_values(schema)[0], int) else "string"


def _values(schema: Schema) -> list[Any]:
    return list(schema["enum"]) if "enum" in schema else [schema["const"]]


def _range(schema: Schema) -> tuple[int, int]:
    return schema["minimum"], schema.get("maximum", LARGEST)


def _text(schema: Schema, value: Sql) -> Sql:
    least, most = schema.get("minLength", 0), schema.get("maxLength", _TEXT)
    said = f"length({value}) BETWEEN {least} AND {most}"
    if "pattern" not in schema:
        return said
    pattern = schema["pattern"]
    if not (pattern.startswith("^") and pattern.endswith("$")):
        raise SchemaError(f"{pattern}: not of the whole text")
    form = whole(value, pattern[1:-1])
    return f"{said} AND {form}" if "maxLength" in schema else form
