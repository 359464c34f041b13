"""What a field may hold, from its JSON Schema: as a regular expression over JSON, and in words.

Bounded everywhere: Java's matching goes deeper with each repetition of a group, and a line must not
be able to end a job.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .understood import SchemaError, field

WS = r"[ \t]*+"
LARGEST = (1 << 53) - 1
"""Of an integer whose schema has no maximum: what JSON's other readers can hold."""
_HEX = "[0-9a-fA-F]"
_HALF = rf"\\u[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}"
# One character of a text, however it is written.
_UNIT = rf'(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u(?![dD][89a-fA-F]){_HEX}{{4}}|{_HALF})'
_TEXT = 1024
_NUMBER = r"(?:0|[1-9][0-9]{0,30})(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,2})?"
_SHOWN = 120


def shape(schema: Mapping[str, Any]) -> str:
    """A regular expression of Java's for the values, without white space round them. SchemaError.

    multipleOf is no matter of form: contracts.py has a rule for it.
    """
    field(schema)
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return f"(?:{'|'.join(_literal(value) for value in values)})"
    match schema["type"]:
        case "string":
            return _text(schema)
        case "integer":
            return _integer(schema)
        case "boolean":
            return "(?:true|false)"
        case "number":
            return _NUMBER
        case "array":
            item, more = _text(schema["items"]), schema["maxItems"] - 1
            return rf"\[{WS}(?:{item}{WS}(?:,{WS}{item}{WS}){{0,{more}}}+)?\]"
        case _:
            name = f'"{_form(schema["propertyNames"]["pattern"])}"'
            value = f"(?:{_text({})}|-?{_NUMBER}|true|false)"
            one = f"{name}{WS}:{WS}{value}{WS}"
            return rf"\{{{WS}(?:{one}(?:,{WS}{one}){{0,99}}+)?\}}"


def described(schema: Mapping[str, Any]) -> str:
    """The same for people, behind "must be"."""
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " or ".join(str(value) for value in values)[:_SHOWN]
    match schema["type"]:
        case "string" if "pattern" in schema:
            return f"text of the form {schema['pattern']}"[:_SHOWN]
        case "string" if "maxLength" in schema:
            return f"text of {schema.get('minLength', 0)} to {schema['maxLength']} characters"
        case "string":
            return "text"
        case "integer":
            least, most = schema.get("minimum", 0), schema.get("maximum", LARGEST)
            return f"a whole number from {least} to {most}"
        case "boolean":
            return "true or false"
        case "array":
            return f"a list of at most {schema['maxItems']} texts"
        case "object":
            return "an object of texts, numbers, true or false"
    return "a number"


def _literal(value: str | int) -> str:
    return f'"{re.escape(value)}"' if isinstance(value, str) else str(value)


def _text(schema: Mapping[str, Any]) -> str:
    least, most = schema.get("minLength", 0), schema.get("maxLength", _TEXT)
    if "pattern" in schema:
        # What has a form is ASCII without quotes and escapes.
        ahead = f'(?=[^"]{{{least},{most}}}")' if "maxLength" in schema else ""
        return f'"{ahead}{_form(schema["pattern"])}"'
    return f'"{_UNIT}{{{least},{most}}}+"'


def _form(pattern: str) -> str:
    if not (pattern.startswith("^") and pattern.endswith("$")):
        raise SchemaError(f"{pattern}: not of the whole text")
    return f"(?:{pattern[1:-1]})"


def _integer(schema: Mapping[str, Any]) -> str:
    least, most = schema.get("minimum"), schema.get("maximum", LARGEST)
    if least not in (0, 1):
        raise SchemaError(f"minimum {least}, and not 0 or 1")
    digits = str(most)
    parts = ["0"] if least == 0 else []
    if len(digits) > 1:
        parts.append(f"[1-9][0-9]{{0,{len(digits) - 2}}}")
    for at, digit in enumerate(digits):
        first = 1 if at == 0 else 0
        if int(digit) > first:
            after = f"[0-9]{{{len(digits) - at - 1}}}"
            parts.append(f"{digits[:at]}[{first}-{int(digit) - 1}]{after}")
    return f"(?:{'|'.join([*parts, digits])})"
