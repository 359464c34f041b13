"""Event types: which topics are events of which application and type, and whose they are (paper
2.1, 2.4, Fig. 5). A topic is of one type at most: patterns of two types never match the same topic.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sealmq_spec.errors import SealError
from sealmq_spec.topics import check_topic, is_reserved

from ..filters import crosses
from .actions import RECEIVE, SUBSCRIBE
from .expressions import Value
from .names import is_principal

CONTROLS = ("none", "subscribe", "receive", "both")
GRANULARITIES = ("label", "matching_set")
KINDS: Mapping[str, type] = {"text": str, "int": int, "bool": bool}
SENDER = "sender"
ATTRIBUTE = "attribute:"
MOST_LEVELS = 16
MOST_ATTRIBUTES = 16
# Names that every event has: no level and no attribute is called so.
BUILT_IN = frozenset(
    {
        "owner",
        "subscriber",
        "sender",
        "app_domain",
        "evtType",
        "action",
        "qos",
        "retained",
        "contract",
        "in",
        "true",
        "false",
    }
)
_LEVEL = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.-]{0,63})(?::(text|int))?\}\Z")
_INT = re.compile(r"(?:0|-?[1-9][0-9]{0,16})\Z")


def is_int(level: str) -> bool:
    """Whether a level is a number, in its one form."""
    return _INT.match(level) is not None


class BadType(ValueError):
    """It is no event type. `key`: which of its words is wrong."""

    def __init__(self, key: str, what: str, hint: str) -> None:
        super().__init__(f"{key}: {what}")
        self.key, self.what, self.hint = key, what, hint


@dataclass(frozen=True, slots=True)
class EventType:
    """One type. `topic` is its pattern as it was written; `owner`: a level, "attribute:NAME" or
    "sender"; `attributes`: the sealed ones, by name, and of which kind they are; `derives`: what an
    event says of its owner, attribute of the site by level or sealed attribute (processEvent,
    paper 3.1). `by`: who has advertised it, "" for the operator.
    """

    app: str
    name: str
    topic: str
    owner: str
    control: str = "receive"
    admin: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    granularity: str = "label"
    signed: bool = False
    derives: Mapping[str, str] = field(default_factory=dict)
    by: str = ""
    at_ms: int = 0
    # Made of the others.
    key: tuple[str, str] = field(init=False, compare=False)
    filter: str = field(init=False, compare=False)
    levels: Mapping[str, int] = field(init=False, compare=False)
    numbers: frozenset[str] = field(init=False, compare=False)
    places: tuple[tuple[str, int, bool], ...] = field(init=False, compare=False)
    """The levels that have names, which they are, and whether they are numbers."""
    dep: tuple[str, ...] = field(init=False, compare=False)
    """What verdicts about its events rest on."""
    seals: bool = field(init=False, compare=False)
    """Whether its messages carry what the broker must not read."""
    on_subscribe: bool = field(init=False, compare=False)
    on_receive: bool = field(init=False, compare=False)
    asked: tuple[int, ...] = field(init=False, compare=False)
    """Actions that a reader has to hold when an event is delivered."""

    def __post_init__(self) -> None:
        levels, numbers, parts = {}, set(), []
        for at, level in enumerate(self.topic.split("/")):
            found = _LEVEL.match(level)
            parts.append("+" if found else level)
            if found:
                levels[found[1]] = at
                if found[2] == "int":
                    numbers.add(found[1])
        object.__setattr__(self, "filter", "/".join(parts))
        object.__setattr__(self, "levels", levels)
        on_subscribe = self.control in ("subscribe", "both")
        on_receive = self.control in ("receive", "both")
        sealing = bool(self.attributes) or self.granularity == "matching_set"
        for name, value in (
            ("key", (self.app, self.name)),
            ("numbers", frozenset(numbers)),
            ("places", tuple((name, at, name in numbers) for name, at in levels.items())),
            ("dep", ("owners", "type", self.app, self.name)),
            ("seals", sealing),
            ("on_subscribe", on_subscribe),
            ("on_receive", on_receive),
            ("asked", (RECEIVE,) * on_receive + (SUBSCRIBE,) * on_subscribe),
        ):
            object.__setattr__(self, name, value)

    @property
    def names(self) -> frozenset[str]:
        """What conditions may ask of its events, besides what all have."""
        return frozenset(self.levels) | frozenset(self.attributes)

    def values(self, path: list[str]) -> dict[str, Value] | None:
        """What the levels of a topic say that matches `filter`; None if one is not of its kind."""
        values: dict[str, Value] = {}
        for name, at, is_number in self.places:
            level = path[at]
            if not is_number:
                values[name] = level
            elif is_int(level):
                values[name] = int(level)
            else:
                return None
        return values

    def owner_of(
        self, values: Mapping[str, Value], sealed: Mapping[str, Value], sender: str
    ) -> str:
        """Whose the event is, or "": nobody's that could be a principal."""
        # Neither `sender` nor what begins with `attribute:` is a level's name.
        name = values.get(self.owner)
        if name is None:
            if self.owner == SENDER:
                name = sender
            else:
                name = sealed.get(self.owner.removeprefix(ATTRIBUTE))
        return name if isinstance(name, str) and is_principal(name) else ""


def check(made: EventType, others: Iterable[EventType], externals: Iterable[str]) -> None:
    """BadType, unless it is one and can stand beside the others."""
    _check_topic(made)
    if made.control not in CONTROLS:
        raise BadType("control", f"{made.control!r}", "one of: " + ", ".join(CONTROLS))
    if made.granularity not in GRANULARITIES:
        raise BadType("granularity", f"{made.granularity!r}", "one of: " + ", ".join(GRANULARITIES))
    if len(made.attributes) > MOST_ATTRIBUTES:
        raise BadType("attributes", f"more than {MOST_ATTRIBUTES}", "an event has few of them")
    externals = frozenset(externals)
    for name in (*made.levels, *made.attributes):
        where = "topic" if name in made.levels else "attributes"
        if name in BUILT_IN or name in externals:
            raise BadType(where, f"{name} has a meaning already", "choose another name for it")
        if name in made.levels and name in made.attributes:
            raise BadType("attributes", f"{name} is a level, too", "choose another name for it")
    for name, kind in made.attributes.items():
        if kind not in KINDS:
            raise BadType("attributes", f"{name} is {kind!r}", "one of: " + ", ".join(KINDS))
    _check_owner(made)
    for external, name in made.derives.items():
        if external not in externals:
            raise BadType(
                "derives", f"there is no attribute {external}", f"[attributes.{external}]"
            )
        if name not in made.names:
            raise BadType("derives", f"{name} is no level and no attribute of it", "take one of it")
    for other in others:
        if other.key == made.key:
            raise BadType("name", f"{made.app} has a type {made.name} already", "another name")
        if crosses(other.filter, made.filter):
            raise BadType(
                "topic",
                f"it reaches topics of {other.app}/{other.name} ({other.topic})",
                "a topic is of one type: give it a first level of its own",
            )


def _check_topic(made: EventType) -> None:
    path = made.topic.split("/")
    if len(path) > MOST_LEVELS:
        raise BadType("topic", f"more than {MOST_LEVELS} levels", "a shorter one")
    try:
        check_topic(made.topic)
    except (SealError, UnicodeEncodeError) as error:
        raise BadType("topic", str(error), "loc/{user}/{building}/{room}") from None
    if is_reserved(made.topic):
        raise BadType("topic", "what begins with $, ! or @ is the protocol's own", "rename it")
    for level in path:
        if ("{" in level or "}" in level) and not _LEVEL.match(level):
            raise BadType("topic", f"{level!r} is no level", "{NAME}, {NAME:int}, or a plain word")
    if len(made.levels) != sum("{" in level for level in path):
        raise BadType("topic", "two levels have one name", "a name for each")


def _check_owner(made: EventType) -> None:
    hint = 'a level of the topic, "attribute:NAME", or "sender"'
    if made.owner == SENDER:
        return
    if made.owner.startswith(ATTRIBUTE):
        if made.attributes.get(made.owner.removeprefix(ATTRIBUTE)) != "text":
            raise BadType("owner", f"{made.owner!r} is no sealed attribute that is a text", hint)
    elif made.owner not in made.levels or made.owner in made.numbers:
        raise BadType("owner", f"{made.owner!r} is no level of the topic that is a text", hint)


# --- sealed attributes ---------------------------------------------------------------------------

TLV = 0x20
"""The item in which a publisher sends them: JSON, an object, in at most 255 bytes."""


class BadAttributes(ValueError):
    """They are not what the type says."""


def read_attributes(raw: bytes | None, kinds: Mapping[str, str]) -> dict[str, Value]:
    """Sealed attributes out of their item; none without one. BadAttributes."""
    if raw is None:
        return {}
    try:
        found = json.loads(
            raw.decode(), object_pairs_hook=_once, parse_float=_no, parse_constant=_no
        )
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise BadAttributes(f"the attributes are no JSON object: {error}") from None
    if not isinstance(found, dict):
        raise BadAttributes("the attributes are no JSON object")
    for name, value in found.items():
        if name not in kinds:
            raise BadAttributes(f"the type has no attribute {name[:64]!r}")
        if type(value) is not KINDS[kinds[name]]:
            raise BadAttributes(f"{name} is no {kinds[name]}")
        if type(value) is int and abs(value) >= 10**17:
            raise BadAttributes(f"{name} has more than 17 digits")
        if type(value) is str and not _is_unicode(value):
            raise BadAttributes(f"{name} is no text of Unicode")
    return found


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in text)


def write_attributes(values: Mapping[str, Value]) -> bytes:
    """The one item that says these; to be at most 255 bytes."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def _no(text: str) -> Any:
    raise ValueError(f"{text} is no whole number")
