"""A word in a contract that the reader does not translate is an error, wherever it stands."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from sealmq_spark import contracts
from sealmq_spark.rules import rule
from sealmq_spark.understood import SchemaError

Schema = dict[str, Any]

# What JSON Schema 2020-12 checks by, each with a value that it may have.
WORDS: Schema = {
    "allOf": [{}], "anyOf": [{}], "oneOf": [{}], "not": {"required": ["x"]}, "if": {}, "then": {},
    "else": {}, "dependentSchemas": {}, "dependentRequired": {"x": ["y"]}, "prefixItems": [{}],
    "items": {}, "contains": {}, "properties": {"x": {"minItems": 1}}, "patternProperties": {},
    "additionalProperties": False, "propertyNames": {}, "unevaluatedItems": False,
    "unevaluatedProperties": False, "type": "null", "enum": [True], "const": None, "multipleOf": 2,
    "maximum": 5, "exclusiveMaximum": 5, "minimum": 5, "exclusiveMinimum": 5, "maxLength": 5,
    "minLength": 5, "pattern": "x", "maxItems": 5, "minItems": 5, "uniqueItems": True,
    "maxContains": 5, "minContains": 5, "maxProperties": 5, "minProperties": 5, "required": ["x"],
    "format": "date", "contentEncoding": "base64", "contentMediaType": "text/plain",
    "contentSchema": {}, "$ref": "#/$defs/x", "$dynamicRef": "#x", "$anchor": "x",
    "$dynamicAnchor": "x", "$vocabulary": {}, "$comment": "x", "default": 1, "deprecated": True,
    "readOnly": True, "writeOnly": True, "examples": [], "definitions": {}, "minimun": 3,
}  # fmt: skip

# Where: the contract, the way to that part of its schema, and what may be said there besides.
PLACES: dict[str, tuple[str, Callable[[Schema], Schema], str]] = {
    "audit": ("audit", lambda s: s, "required dependentRequired"),
    "audit, an event": ("audit", lambda s: s["oneOf"][0], "required"),
    "audit, an event's name": ("audit", lambda s: s["oneOf"][0]["properties"]["event"], ""),
    "audit, beside a $ref": ("audit", lambda s: s["oneOf"][0]["properties"]["pid"], ""),
    "audit, a definition": ("audit", lambda s: s["$defs"]["topic"], "minLength maxLength"),
    "audit, a list": ("audit", lambda s: s["$defs"]["notes"], "maxItems"),
    "audit, a list's text": (
        "audit", lambda s: s["$defs"]["notes"]["items"], "minLength maxLength"
    ),
    "hil": ("hil", lambda s: s, "required dependentRequired"),
    "hil, if": ("hil", lambda s: s["if"], ""),
    "hil, then": ("hil", lambda s: s["then"], ""),
    "hil, else": ("hil", lambda s: s["else"], ""),
    "hil, an enum": ("hil", lambda s: s["properties"]["outcome"], ""),
    "hil, a constant": ("hil", lambda s: s["properties"]["v"], ""),
    "hil, a boolean": ("hil", lambda s: s["properties"]["cut_inside"], ""),
    "hil, a number": ("hil", lambda s: s["properties"]["ms"], "minimum maximum multipleOf"),
    "nonce": ("nonce", lambda s: s, "required dependentRequired"),
    "nonce, a text": ("nonce", lambda s: s["properties"]["key"], "minLength maxLength"),
    "bench": ("bench", lambda s: s, ""),
    "bench, its rows": ("bench", lambda s: s["properties"]["rows"], ""),
    "bench, a row": ("bench", lambda s: s["$defs"]["row"], "required dependentRequired"),
    "bench, a value": ("bench", lambda s: s["$defs"]["row"]["properties"]["value"], ""),
    "bench, params": ("bench", lambda s: s["$defs"]["row"]["properties"]["params"], ""),
    "bench, their names": (
        "bench", lambda s: s["$defs"]["row"]["properties"]["params"]["propertyNames"], ""
    ),
    "bench, their values": (
        "bench", lambda s: s["$defs"]["row"]["properties"]["params"]["additionalProperties"], ""
    ),
}  # fmt: skip


def read(name: str, schema: Schema, patch: pytest.MonkeyPatch) -> None:
    """As `contract` does, which keeps what it has read."""
    patch.setattr(contracts, "load", lambda _: schema)
    made = contracts._contract(name, contracts._schema(name))
    made.formed("text", "shape")
    made.kept()


@pytest.mark.parametrize("place", list(PLACES))
def test_no_word_is_passed_over(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, way, known = PLACES[place]
    whole = contracts.load(name)
    read(name, whole, monkeypatch)
    passed = set()
    for word, value in WORDS.items():
        schema = copy.deepcopy(whole)
        way(schema)[word] = value
        try:
            read(name, schema, monkeypatch)
        except SchemaError:
            continue
        if way(whole).get(word) != value:
            passed.add(word)
    assert passed == set(known.split())


def test_what_has_to_be_said_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema that leaves open what the reader refuses is not translated, either."""
    for name, word in (
        ("audit", "type"), ("audit", "unevaluatedProperties"), ("nonce", "additionalProperties"),
        ("hil", "then"), ("hil", "else"), ("hil", "if"), ("bench", "required"),
    ):  # fmt: skip
        schema = contracts.load(name)
        del schema[word]
        with monkeypatch.context() as patch, pytest.raises(SchemaError):
            read(name, schema, patch)


def test_an_event_stands_once(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = contracts.load("audit")
    schema["oneOf"].append(schema["oneOf"][0])
    with pytest.raises(SchemaError, match="twice"):
        read("audit", schema, monkeypatch)


@pytest.mark.parametrize(
    "field",
    [
        {}, {"type": "null"}, {"type": ["string", "integer"]}, {"type": "integer"},
        {"type": "number"}, {"type": "array"},
        {"type": "array", "items": {"type": "integer", "minimum": 0}, "maxItems": 3},
        {"type": "array", "items": {"type": "string"}}, {"type": "object"},
        {"type": "string", "pattern": "x"}, {"type": "string", "pattern": "^x+$", "minLength": 3},
        {"enum": ["a", 1]}, {"enum": []}, {"const": True}, {"const": "x", "type": "string"},
    ],
)  # fmt: skip
def test_a_field_without_what_it_needs(field: Schema) -> None:
    with pytest.raises(SchemaError):
        rule(field, "x")
