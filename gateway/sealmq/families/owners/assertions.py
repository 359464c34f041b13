"""Assertions in KeyNote's spirit: who lets whom do what, with whose events, while what holds.

An assertion never takes anything away. It is about the events of one owner, or of all (`owner` is
"*"), and about one application and type, or any (""). `text` is its canonical form: what an owner
signs (Ed25519), and what a third party checks without the gateway.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sealmq.near import near

from .actions import ALL_ACTIONS, MASKS, action_named, mask_of, words
from .expressions import Condition, ConditionError, condition
from .names import EVERYBODY, NAME_RULE, OWNER, POLICY, is_name, is_principal

MOST_LICENSEES = 64


class BadAssertion(ValueError):
    """It is no assertion. `key`: which of its words is wrong, or ""."""

    def __init__(self, key: str, what: str, hint: str = "") -> None:
        super().__init__(f"{key}: {what}" if key else what)
        self.key, self.what, self.hint = key, what, hint


class Assertion:
    """One assertion; it never changes. `id`: "" until it has one. `at_ms`: when it was made, 0 of
    the operator's. Frugal: a million of them have to fit.
    """

    __slots__ = (
        "actions",
        "app",
        "at_ms",
        "authorizer",
        "condition",
        "id",
        "licensees",
        "owner",
        "signature",
        "type",
    )

    def __init__(
        self,
        authorizer: str,
        licensees: tuple[str, ...],
        owner: str,
        app: str,
        type: str,
        actions: int,
        condition: Condition,
        *,
        id: str = "",
        at_ms: int = 0,
        signature: bytes = b"",
    ) -> None:
        self.authorizer, self.licensees, self.owner = authorizer, licensees, owner
        self.app, self.type, self.actions, self.condition = app, type, actions, condition
        self.id, self.at_ms, self.signature = id, at_ms, signature

    @property
    def fields(self) -> dict[str, Any]:
        """As JSON has it, without id, time and signature."""
        return {
            "authorizer": self.authorizer,
            "licensees": list(self.licensees),
            "owner": self.owner,
            "app": self.app,
            "type": self.type,
            "actions": words(self.actions),
            "condition": self.condition.text,
        }

    def text(self, site: str) -> bytes:
        """The canonical text: what is signed, for this site alone. No field holds a line break."""
        fields = self.fields
        lines = ["sealmq owners assertion 1", f"site: {site}"]
        for key, value in fields.items():
            lines.append(f"{key}: {', '.join(value) if isinstance(value, list) else value}")
        return "\n".join([*lines, ""]).encode()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Assertion) and all(
            getattr(self, slot) == getattr(other, slot) for slot in self.__slots__
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{self.id} {self.fields}>"


_KEYS = ("authorizer", "licensees", "owner", "app", "type", "actions", "condition")


def from_fields(fields: Mapping[str, Any], authorizer: str, owner: str) -> Assertion:
    """From JSON or TOML, checked. `authorizer` and `owner`: where it names none. BadAssertion."""
    for key in fields:
        if key not in _KEYS:
            raise BadAssertion(key, "unknown key", near(key, _KEYS))
    by = _text(fields, "authorizer", authorizer)
    licensees = _names(fields, "licensees")
    if not licensees:
        raise BadAssertion("licensees", "nobody is licensed", 'name somebody; everybody is "*"')
    app, kind = _text(fields, "app", ""), _text(fields, "type", "")
    of = _text(fields, "owner", owner)
    try:
        when = condition(_text(fields, "condition", ""))
    except ConditionError as error:
        raise BadAssertion("condition", error.what, error.hint) from None
    # Nobody gives all of his rights away by leaving a word out.
    said = when.actions != ALL_ACTIONS and "actions" not in fields
    mask = when.actions if said else _actions(fields.get("actions"))
    return checked(by, licensees, of, app, kind, mask, when)


def checked(
    authorizer: str,
    licensees: Iterable[str],
    owner: str,
    app: str,
    type: str,
    actions: int,
    when: Condition,
) -> Assertion:
    """One of these parts, whatever order the licensees come in. BadAssertion."""
    named = tuple(sorted(set(licensees)))
    if len(named) > MOST_LICENSEES:
        raise BadAssertion("licensees", f"more than {MOST_LICENSEES}", "several assertions say it")
    if authorizer != POLICY and not is_principal(authorizer):
        raise BadAssertion("authorizer", f"{authorizer[:64]!r} is no name", NAME_RULE)
    for name in named:
        if name not in (EVERYBODY, OWNER) and not is_principal(name):
            raise BadAssertion("licensees", f"{name[:64]!r} is no name", NAME_RULE)
    if owner != EVERYBODY and not is_principal(owner):
        raise BadAssertion("owner", f"{owner[:64]!r} is no name", NAME_RULE)
    for key, value in (("app", app), ("type", type)):
        if value and not is_name(value):
            raise BadAssertion(key, f"{value[:64]!r} is no name", NAME_RULE)
    for key, said, required in (
        ("owner", "" if owner == EVERYBODY else owner, when.owner),
        ("app", app, when.app),
        ("type", type, when.type),
    ):
        if said and required and said != required:
            raise BadAssertion(
                "condition", f"it asks for {key} {required}, and the assertion is about {said}"
            )
    if when.owner and not is_principal(when.owner):
        raise BadAssertion("condition", f"nobody is called {when.owner!r}", NAME_RULE)
    if not actions & when.actions:
        raise BadAssertion("actions", "none that the condition lets through", "take one out")
    return Assertion(authorizer, named, owner, app, type, actions, when)


def _text(fields: Mapping[str, Any], key: str, default: str) -> str:
    value = fields.get(key, default)
    if not isinstance(value, str):
        raise BadAssertion(key, f"{key} is a text", f'{key} = "..."')
    return value


def _names(fields: Mapping[str, Any], key: str) -> Sequence[str]:
    value = fields.get(key, [])
    value = [value] if isinstance(value, str) else value
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise BadAssertion(key, f"{key} is a list of names", f'{key} = ["...", "..."]')
    return value


def _actions(value: Any) -> int:
    hint = "some of: " + ", ".join(MASKS) + '; all of them: ["*"]'
    if value in ("*", ["*"]):
        return ALL_ACTIONS
    value = [value] if isinstance(value, str) else value
    if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
        raise BadAssertion("actions", "an assertion says which actions", hint)
    found = []
    for word in value:
        name = action_named(word)
        if name is None:
            raise BadAssertion("actions", f"there is no action {word[:64]!r}", near(word, MASKS))
        found.append(name)
    return mask_of(found)


# --- the paper's KeyNote text --------------------------------------------------------------------

_FIELD = re.compile(
    r"^[ \t]*(?:[0-9]+[ \t]+)?(authorizer|licensees?|conditions?|comment|keynote-version|signature|"
    r"local-constants)[ \t]*:",
    re.I | re.M,
)
_RESULT = re.compile(r'->\s*"(?:true|_MAX_TRUST)"\s*;?\s*\Z')
_MOST_KEYNOTE = 65_536


class KeyNote(NamedTuple):
    """One assertion of the text, before it is known whose events it is about."""

    authorizer: str
    licensees: tuple[str, ...]
    condition: Condition


def keynote(text: str) -> list[KeyNote]:
    """Assertions in the paper's own text (RFC 2704). BadAssertion.

    Authorizer, Licensee(s) joined by ||, and Conditions with one clause -> "true". Whoever is meant
    by no licensee at all has to be named: "*". `**` is `*`.
    """
    if len(text) > _MOST_KEYNOTE:
        raise BadAssertion("keynote", f"more than {_MOST_KEYNOTE} characters", "several files")
    marks = list(_FIELD.finditer(text))
    if not marks or text[: marks[0].start()].strip():
        raise BadAssertion("keynote", "an assertion begins with Authorizer:")
    out: list[KeyNote] = []
    fields: dict[str, str] = {}
    for mark, follows in zip(marks, [*marks[1:], None], strict=True):
        key = mark[1].lower().rstrip("s") if mark[1].lower() != "local-constants" else mark[1]
        value = text[mark.end() : follows.start() if follows else len(text)].strip()
        if key in ("authorizer", "keynote-version") and "authorizer" in fields:
            out.append(_keynote(fields))
            fields = {}
        if key in fields:
            raise BadAssertion("keynote", f"{mark[1]} stands twice", "one assertion, one field")
        if key not in ("authorizer", "licensee", "condition", "comment", "keynote-version"):
            raise BadAssertion("keynote", f"{mark[1]} is not read here", "take it out")
        fields[key] = value
    return [*out, _keynote(fields)]


def _keynote(fields: Mapping[str, str]) -> KeyNote:
    by = fields.get("authorizer", "").strip().strip('"')
    if not by:
        raise BadAssertion("keynote", "an assertion without Authorizer", "Authorizer: NAME")
    if not fields.get("licensee"):
        raise BadAssertion(
            "keynote",
            f"an assertion of {by} names no licensee",
            'for everybody say so: Licensee: "*"',
        )
    names = [name.strip().strip('"') for name in fields["licensee"].strip("() \n").split("||")]
    names = [EVERYBODY if name == "**" else name for name in names]
    for name in names:
        if name not in (EVERYBODY, OWNER) and not is_principal(name):
            raise BadAssertion(
                "keynote", f"{name[:64]!r} is no licensee", "names joined by ||; no && and no k-of"
            )
    text = fields.get("condition", "")
    try:
        return KeyNote(by, tuple(names), condition(_RESULT.sub("", text).strip().rstrip(";")))
    except ConditionError as error:
        raise BadAssertion("keynote", f"{by}: {error.what}", error.hint) from None


def from_keynote(found: KeyNote, owner: str) -> Assertion:
    """`owner`: whose events it is about, unless its condition says so. BadAssertion."""
    when = found.condition
    return checked(
        found.authorizer,
        found.licensees,
        when.owner or owner,
        when.app,
        when.type,
        when.actions,
        when,
    )
