"""[families.owners] of sealmq.toml, checked: one wrong word, and none of it is taken over.

delegation = "dynamic"            what an author's assertions rest on: his CHANGE_POLICY now
                                  (dynamic), or that he had it when he asserted (static, as printed)
authenticate = false              true: a client needs AUTHENTICATE to connect
[families.owners.types.LOC_INFO]  an event type (events.py); others are advertised by command
[families.owners.keys]            OWNER = "64 hex digits": Ed25519, in the place of one by command
[[families.owners.policy]]        an assertion (assertions.py), or keynote = TEXT with many

An assertion that names no owner is about the events of all if POLICY or the administrator of a type
makes it, else about its author's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sealmq.near import near

from ..api import FamilyConfigError, Policy
from . import events
from .assertions import Assertion, BadAssertion, from_fields, from_keynote, keynote
from .events import BadType, EventType
from .names import EVERYBODY, NAME_RULE, POLICY, RESERVED, is_name, is_principal

NAME = "owners"
DELEGATIONS = ("dynamic", "static")
MOST_TYPES = 256
MOST_ASSERTIONS = 10_000
_TYPE_KEYS = (
    "app",
    "topic",
    "owner",
    "control",
    "admin",
    "attributes",
    "granularity",
    "signed",
    "derives",
)
_EXAMPLE = (
    '[[families.owners.policy]] authorizer = "POLICY", licensees = ["..."], actions = ["..."]'
)

SUBJECTS = ("subscriber", "owner", "pair", "site")


@dataclass(frozen=True, slots=True)
class Settings:
    """`externals`: of each attribute of the site that conditions may name, whom it is of (one of
    SUBJECTS). `counts`: those of them that say what a reader got. `mediator`: the number of this
    one.
    """

    dynamic: bool = True
    authenticate: bool = False
    types: tuple[EventType, ...] = ()
    assertions: tuple[Assertion, ...] = ()
    keys: Mapping[str, bytes] = field(default_factory=dict)
    externals: Mapping[str, str] = field(default_factory=dict)
    clients: frozenset[str] = frozenset()
    mediator: int = 0
    counts: frozenset[str] = frozenset()


def read(config: Policy) -> Settings:
    """All of it. FamilyConfigError: the first thing that is wrong."""
    table = config.families.get(NAME, {})
    _only(table, "", ("delegation", "authenticate", "types", "keys", "policy"))
    for name in sorted(RESERVED & set(config.clients)):
        raise FamilyConfigError(
            "", f"a client is called {name}, which means something else here", "rename the client"
        )
    delegation = table.get("delegation", "dynamic")
    if delegation not in DELEGATIONS:
        raise FamilyConfigError(
            "delegation", f"delegation is {delegation!r}", "one of: " + ", ".join(DELEGATIONS)
        )
    authenticate = table.get("authenticate", False)
    if type(authenticate) is not bool:
        raise FamilyConfigError("authenticate", f"{authenticate!r}", "true or false")
    externals = _externals(config)
    types = _types(_table(table, "types"), externals)
    return Settings(
        delegation == "dynamic",
        authenticate,
        types,
        _assertions(table.get("policy", []), types, externals),
        _keys(_table(table, "keys")),
        externals,
        frozenset(config.clients),
        getattr(getattr(config, "mediator", None), "number", 0),
        frozenset(name for name, one in config.attributes.items() if one.source == "count"),
    )


def _externals(config: Policy) -> dict[str, str]:
    """Whom an attribute is of; a clock's steps are no value, a calendar's names are."""
    found = {}
    for name, attribute in config.attributes.items():
        if attribute.source == "time":
            continue
        of = attribute.of or "subscriber"
        found[name] = "subscriber" if of == "client" else of
    return found


def _types(table: Mapping[str, Any], externals: Mapping[str, str]) -> tuple[EventType, ...]:
    out: list[EventType] = []
    if len(table) > MOST_TYPES:
        raise FamilyConfigError("types", f"more than {MOST_TYPES}", "others by command")
    for name, row in table.items():
        key = f"types.{name}"
        if not isinstance(row, Mapping):
            raise FamilyConfigError(key, "a type is a table", f"[families.owners.types.{name}]")
        _only(row, key, _TYPE_KEYS)
        try:
            out.append(type_of(name, row, out, externals))
        except BadType as error:
            at = key if error.key == "name" else f"{key}.{error.key}"
            raise FamilyConfigError(at, error.what, error.hint) from None
    return tuple(out)


def type_of(
    name: str,
    row: Mapping[str, Any],
    others: Iterable[EventType],
    externals: Mapping[str, str],
    by: str = "",
    at_ms: int = 0,
) -> EventType:
    """An event type as TOML or JSON has it. BadType."""
    if not is_name(name):
        raise BadType("name", f"{name[:64]!r} is no name", NAME_RULE)
    for key in row:
        if key not in _TYPE_KEYS:
            raise BadType(key, "unknown key", near(key, _TYPE_KEYS))
    texts = {}
    for key, default in (
        ("app", None),
        ("topic", None),
        ("owner", None),
        ("control", "receive"),
        ("admin", ""),
        ("granularity", "label"),
    ):
        value = row.get(key, default)
        if not isinstance(value, str):
            what = f"{key} is missing" if value is None else f"{value!r} is no text"
            raise BadType(key, what, f'{key} = "..."')
        texts[key] = value
    if not is_name(texts["app"]):
        raise BadType("app", f"{texts['app'][:64]!r} is no name", NAME_RULE)
    if texts["admin"] and not is_principal(texts["admin"]):
        raise BadType("admin", f"{texts['admin'][:64]!r} is no name", NAME_RULE)
    signed = row.get("signed", False)
    if type(signed) is not bool:
        raise BadType("signed", f"{signed!r}", "true or false")
    made = EventType(
        texts["app"],
        name,
        texts["topic"],
        texts["owner"],
        texts["control"],
        texts["admin"],
        _words(row, "attributes", 'attributes = { speed = "int" }'),
        texts["granularity"],
        signed,
        _words(row, "derives", 'derives = { extRoom = "room" }'),
        by,
        at_ms,
    )
    events.check(made, others, externals)
    return made


def _words(row: Mapping[str, Any], key: str, hint: str) -> dict[str, str]:
    value = row.get(key, {})
    if not isinstance(value, Mapping) or not all(isinstance(v, str) for v in value.values()):
        raise BadType(key, f"{key} is a table of texts", hint)
    if any(not is_name(name) for name in value):
        raise BadType(key, "one of them is no name", NAME_RULE)
    return dict(value)


def _assertions(
    rows: Any, types: tuple[EventType, ...], externals: Mapping[str, str]
) -> tuple[Assertion, ...]:
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise FamilyConfigError("policy", "assertions are an array of tables", _EXAMPLE)
    admins = {made.admin for made in types if made.admin} | {POLICY}
    out: list[Assertion] = []
    for at, row in enumerate(rows):
        key = f"policy.{at}"
        try:
            out += _row(row, admins)
        except BadAssertion as error:
            where = f"{key}.{error.key}" if error.key else key
            raise FamilyConfigError(where, error.what, error.hint or _EXAMPLE) from None
        if len(out) > MOST_ASSERTIONS:
            raise FamilyConfigError("policy", f"more than {MOST_ASSERTIONS}", "others by command")
    for number, made in enumerate(out):
        made.id = f"policy.{number + 1}"
        unknown = unknown_names(made, types, externals)
        if unknown:
            raise FamilyConfigError("policy", *unknown)
    return tuple(out)


def _row(row: Mapping[str, Any], admins: set[str]) -> list[Assertion]:
    def owner(by: str) -> str:
        return EVERYBODY if by in admins else by

    if "keynote" in row:
        if len(row) > 1 or not isinstance(row["keynote"], str):
            raise BadAssertion("keynote", "it is a text, and stands alone in its table")
        return [from_keynote(one, owner(one.authorizer)) for one in keynote(row["keynote"])]
    by = row.get("authorizer")
    if not isinstance(by, str):
        raise BadAssertion("authorizer", "who authorizes is missing")
    return [from_fields(row, by, owner(by))]


def unknown_names(
    made: Assertion, types: Iterable[EventType], externals: Iterable[str]
) -> tuple[str, str] | None:
    """What is wrong with the names of its condition, and a hint: a misspelt one is never known."""
    app, kind = made.app or made.condition.app, made.type or made.condition.type
    known = set(events.BUILT_IN) | set(externals)
    for one in types:
        if app in ("", one.app) and kind in ("", one.name):
            known |= one.names
    for name in sorted(made.condition.names - known):
        return f"a condition asks for {name}, which no such event has", near(name, known)
    return None


def _keys(table: Mapping[str, Any]) -> dict[str, bytes]:
    out = {}
    for name, text in table.items():
        try:
            raw = bytes.fromhex(text) if isinstance(text, str) else b""
        except ValueError:
            raw = b""
        if not is_principal(name) or len(raw) != 32:
            raise FamilyConfigError(
                f"keys.{name}", "an Ed25519 public key has 64 hex digits", "sealmq owners key"
            )
        out[name] = raw
    return out


def _table(of: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = of.get(key, {})
    if not isinstance(value, Mapping):
        raise FamilyConfigError(key, f"{key} is a table", f"[families.owners.{key}]")
    return value


def _only(table: Mapping[str, Any], where: str, names: Iterable[str]) -> None:
    for name in table:
        if name not in names:
            key = f"{where}.{name}" if where else name
            raise FamilyConfigError(key, f"unknown key {name!r}", near(name, names))
