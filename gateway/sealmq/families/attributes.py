"""Attributes from outside (XACML's word): the time of day, or what somebody says of a client. Named
sources tell them with a validity; nobody waits for one.

One that is unknown or over is an error, and the engine makes a deny of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from .hours import Named, local_time

BETWEEN = "\x1f"
"""Stands between the two names of a pair, and in no name."""
LONGEST = 256
"""Characters of a value that is text."""
_LARGEST = 1 << 62


class UnknownAttribute(LookupError):
    """No such attribute, or its validity is over."""

    def __init__(self, name: str, subject: str = "") -> None:
        super().__init__(f"{name} of {shown(subject)}" if subject else name)
        self.name = name
        self.subject = subject


class Attribute(NamedTuple):
    """A value that holds before `until` (Unix ms); 0: it holds no more. `subject`: the client that
    it is of, a `pair`, "" for the site itself.
    """

    name: str
    subject: str
    value: Any
    until: int


class Declared(Protocol):
    """One [attributes.NAME]. Times are in ms, 0 where the source has none."""

    @property
    def source(self) -> str:
        """ "time", "file", "calendar", "client", "events" or "count"."""

    @property
    def of(self) -> str:
        """ "subscriber", "owner", "pair" or "site"; "": of a client, or of the site."""

    @property
    def names(self) -> tuple[str, ...]:
        """All values that it can have; empty where that is not known."""

    @property
    def hours(self) -> Named | None:
        """Of a calendar."""

    @property
    def by(self) -> tuple[str, ...]:
        """The clients that tell it."""

    @property
    def family(self) -> str:
        """The family whose `see` gives it."""

    @property
    def valid_ms(self) -> int:
        """The longest validity of a value."""

    @property
    def window_ms(self) -> int:
        """Of a count."""


NONE: Mapping[str, Declared] = {}


def stands(was: Declared, now: Declared | None) -> bool:
    """Whether what was told of an attribute before is what is asked for since it is declared anew.

    What events tell says by its end when it was told: not where it may last longer than it may now.
    """
    if now is None or (was.source, was.of, was.family) != (now.source, now.of, now.family):
        return False
    return now.source != "events" or now.valid_ms >= was.valid_ms


def pair(owner: str, subscriber: str) -> str:
    """The subject of an attribute of both."""
    return f"{owner}{BETWEEN}{subscriber}"


def shown(subject: str) -> str:
    """For a person, and the audit log: a pair is "owner/subscriber"; no name has a /."""
    return subject.replace(BETWEEN, "/")


def names_in(subject: str) -> list[str]:
    """The names of a subject: none, one, or two."""
    return subject.split(BETWEEN) if subject else []


def fits(subject: str, of: str) -> bool:
    """Whether an attribute that is declared so can be of this subject."""
    names = names_in(subject)
    return all(names) and len(names) in _NAMES[of]


_NAMES = {"": (0, 1), "site": (0,), "subscriber": (1,), "owner": (1,), "pair": (2,)}


def is_value(value: object) -> bool:
    """Whether a source may tell it: text, a number, true or false, in bounds."""
    if isinstance(value, str):
        return len(value) <= LONGEST
    if isinstance(value, bool):
        return True
    return isinstance(value, int) and -_LARGEST < value < _LARGEST


def same(one: Attribute | None, other: Attribute) -> bool:
    """Whether they are equal; True and 1 are not."""
    return one is not None and one == other and type(one.value) is type(other.value)


class Attributes:
    """What the sources have told last, by name and subject."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], Attribute] = {}
        self._calendars: dict[str, Named] = {}
        self._declared: Mapping[str, Declared] = NONE
        self._since: Mapping[str, int] = {}

    def declare(self, declared: Mapping[str, Declared]) -> set[str]:
        """There are these from now on. Gives the names that are new, gone, or declared otherwise:
        of these, what does not stand is gone.
        """
        before, self._declared = self._declared, declared
        changed = {n for n in {*before, *declared} if before.get(n) != declared.get(n)}
        self._calendars = {n: d.hours for n, d in declared.items() if d.hours is not None}
        for name in changed:
            was = before.get(name)
            if was is not None and not stands(was, declared.get(name)):
                for key in [key for key in self._held if key[0] == name]:
                    del self._held[key]
        return changed

    def noted(self, since: Mapping[str, int]) -> list[Attribute]:
        """Since when (Unix ms) the clients bear their names. Gives, to be taken, that what events
        told of earlier bearers holds no more; of what clients tell told.Pushed knows.
        """
        self._since = dict(since)
        return [Attribute(*key, None, 0) for key, row in self._held.items() if self._is_void(row)]

    def _is_void(self, row: Attribute) -> bool:
        declared = self._declared.get(row.name)
        if declared is None or declared.source != "events":
            return False
        # It was told then, or later: of whoever has the name since then it may be nobody's.
        at = row.until - declared.valid_ms
        return any(at < self._since.get(name, at) for name in names_in(row.subject))

    def take(self, row: Attribute) -> bool:
        """Whether it is another one than was held."""
        key = row.name, row.subject
        if row.until <= 0 or self._is_void(row):
            return self._held.pop(key, None) is not None
        before, self._held[key] = self._held.get(key), row
        return not same(before, row)

    def held(self, name: str, subject: str) -> Attribute | None:
        """What was told last, though it may be over."""
        return self._held.get((name, subject))

    def all(self) -> list[Attribute]:
        """All that are held."""
        return list(self._held.values())

    def read(self, name: str, subject: str, now_ms: int) -> Attribute:
        """UnknownAttribute when none holds now."""
        held = self._held.get((name, subject))
        if held is None or now_ms >= held.until:
            raise UnknownAttribute(name, subject)
        calendar = self._calendars.get(name)
        if calendar is None:
            return held
        # Of a calendar its zone is told.
        local = local_time(held.value, now_ms)
        if local is None:
            raise UnknownAttribute(name, subject)
        value, until = calendar.look(local)
        return Attribute(name, subject, value, min(until, held.until))
