"""Texts about purposes, read (PURPOSES.md P2, P5): the canonical form, which all of our clients
write (sealmq_spec.purposes), and at a site that says so HivePBAC's, published form, in its words.

What was read is written again: of the canonical form only that one text counts, and in the
published form only what has such a text. No words are taken with which one text could be of both
forms and say two things.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sealmq_spec import purposes
from sealmq_spec.const import MAX_COMMAND
from sealmq_spec.errors import Malformed

RESERVE = "reserve"
RELEASE = "release"
PRESUB = "presub"
SET = "set"
GET = "get"

WORDS: Mapping[str, str] = {
    "reserve": "!RESERVE",
    "ap": "!AP",
    "pbac": "!PBAC",
    "presub": "PRESUB",
    "set": "SET",
    "get": "GET",
    "mode": "MODE",
    "reservations": "RESERVATIONS",
    "eip": "EIP",
    "presubs": "PRESUBS",
    "hash": "HASH",
    "plus": "PLUS",
    "open": "{",
    "close": "}",
    "bar": "|",
    "comma": ",",
    "escape": "%",
}
"""The canonical words, by their names in [families.purposes.words]."""

_FIRST = ("reserve", "ap", "pbac")
_SEPARATORS = ("open", "close", "bar", "comma", "escape")
_LONGEST = 32
# No word's: a level's end, wildcards; and, beside them, what escapes are written with.
_TAKEN = "/#+\0"
_HEX = "0123456789ABCDEF"

Access = tuple[str, str]
"""A subscription: filter and purpose."""
Command = tuple[str, str, Any, Any]
"""(RESERVE, filter, aip, pip), (RELEASE, filter, (), ()), (PRESUB, client, filter, purpose; ""
removes), (SET, name, value, ""), (GET, what, argument, "")."""


class BadWord(ValueError):
    """A word that a site cannot have. `name`: which one; `hint`: for people."""

    def __init__(self, name: str, what: str, hint: str) -> None:
        super().__init__(what)
        self.name = name
        self.what = what
        self.hint = hint


class Reader:
    """The texts that a site's mediator reads."""

    def __init__(self, published: bool = False, words: Mapping[str, str] | None = None) -> None:
        """`words`: a site's own ones of the published form, by names in WORDS. Raises BadWord."""
        self.published = _Form(_chosen(words or {})) if published else None

    def read_access(self, text: str) -> Access | None:
        """A subscription; None if it names no purpose. Raises Malformed."""
        found: Access | None = self._read(_Form.access, text)
        return found

    def read(self, text: str) -> Command:
        """A command. Raises Malformed."""
        if len(purposes.to_raw(text)) > MAX_COMMAND:
            raise Malformed(f"a command has at most {MAX_COMMAND} bytes")
        found: Command | None = self._read(_Form.command, text)
        if found is None:
            raise Malformed(f"no command about purposes: {text[:80]!r}")
        return found

    def _read(self, read: Callable[[_Form, str], tuple[Any, str] | None], text: str) -> Any:
        """The value that `read` finds in the canonical form, else in the published one."""
        wrong: Malformed | None = None
        for form in (_CANONICAL, self.published):
            if form is None:
                continue
            try:
                found = read(form, text)
                if found is None:
                    continue
                value, canonical = found
                if form is _CANONICAL and text != canonical:
                    raise Malformed(f"not as it is written: {text[:80]!r}, {canonical[:80]!r} is")
                return value
            except Malformed as error:
                wrong = error
        if wrong is not None:
            raise wrong
        return None


class _Form:
    """How texts are read with certain words, and what need not be escaped. Values come with their
    canonical text."""

    def __init__(self, words: Mapping[str, str]) -> None:
        self._words = words
        self._open, self._close, self._bar, self._comma, self._escape = (
            words[name] for name in _SEPARATORS
        )
        self._asked = {words[what]: what for what in purposes.ASKED}
        escaped = "#+" + self._comma + self._bar + self._close + self._open + self._escape
        # The escape last: what it stands for is part of no other escape.
        self._unescaped = [(_hexed(self._escape, char), char) for char in escaped]
        # Levels that mean something as a whole.
        self._levels = {words["hash"]: "#", words["plus"]: "+"}
        for word in list(self._levels):
            self._levels[_hexed(self._escape, word[0]) + word[1:]] = word

    def access(self, text: str) -> tuple[Access, str] | None:
        """A subscription; None if it has another first word."""
        found = self._after("ap", text)
        if found is None:
            return None
        filt, purpose = self._filter(found[0]), self._purpose(found[1])
        return (filt, purpose), purposes.access(filt, purpose)

    def command(self, text: str) -> tuple[Command, str] | None:
        """A command; None if it has another first word."""
        found = self._after("reserve", text)
        if found is not None:
            return self._reserve(*found)
        found = self._after("pbac", text)
        return None if found is None else self._pbac(*found)

    def _reserve(self, where: str, inside: str) -> tuple[Command, str]:
        filt = self._filter(where)
        if not inside:
            return (RELEASE, filt, (), ()), purposes.release(filt)
        halves = inside.split(self._bar)
        if len(halves) != 2:
            raise Malformed(f"one {self._bar} between what is allowed and what is not")
        aip, pip = (
            tuple(self._purpose(one) for one in half.split(self._comma)) if half else ()
            for half in halves
        )
        return (RESERVE, filt, aip, pip), purposes.reserve(filt, aip, pip)

    def _pbac(self, where: str, inside: str) -> tuple[Command, str]:
        verb, _, rest = where.partition("/")
        if verb == self._words["presub"]:
            name, _, rest = rest.partition("/")
            client, filt, purpose = self._name(name), self._filter(rest), self._purpose(inside)
            text = purposes.presubscribe(client, filt, purpose)
            return (PRESUB, client, filt, purpose), text
        if verb == self._words["set"]:
            name, value = self._name(rest), self._purpose(inside)
            return (SET, name, value, ""), purposes.setting(name, value)
        word, slash, rest = rest.partition("/")
        if verb != self._words["get"] or inside or word not in self._asked:
            raise Malformed(f"no command about purposes: {where[:80]!r}")
        what = self._asked[word]
        if what == "mode" and slash:
            raise Malformed(f"the mode is not of {rest!r}")
        arg = self._name(rest) if what == "presubs" else self._filter(rest)
        return (GET, what, arg, ""), purposes.query(what, arg)

    def _after(self, first: str, text: str) -> tuple[str, str] | None:
        """What stands after this first word: before the braces, and in them. Canonical texts have
        one open brace, published ones may have more before it."""
        word = self._words[first] + "/"
        if not text.startswith(word):
            return None
        where, brace, inside = text[len(word) :].rpartition(self._open)
        if not brace or not inside.endswith(self._close):
            raise Malformed(f"no {self._open}{self._close} at the end: {text[-80:]!r}")
        return where, inside.removesuffix(self._close)

    def _purpose(self, text: str) -> str:
        for word in (self._open, self._close, self._bar, self._comma):
            if word in text:
                raise Malformed(f"{word} in a purpose is not escaped: {text!r}")
        return self._name(text)

    def _filter(self, text: str) -> str:
        return "/".join([self._levels.get(one) or self._name(one) for one in text.split("/")])

    def _name(self, text: str) -> str:
        """What is no escape stands for itself."""
        if self._escape in text:
            for escaped, char in self._unescaped:
                text = text.replace(escaped, char)
        return text


def _hexed(escape: str, char: str) -> str:
    """The bytes of a character, as they are escaped."""
    return "".join(f"{escape}{byte:02X}" for byte in char.encode())


def _chosen(words: Mapping[str, str]) -> Mapping[str, str]:
    """WORDS with these instead. BadWord if a text could mean two things."""
    found = {name: words.get(name, word) for name, word in WORDS.items()}
    separators = "".join(found[name] for name in _SEPARATORS if isinstance(found[name], str))
    names: dict[str, str] = {}
    for name, word in found.items():
        _check(name, word, _HEX if name in _SEPARATORS else separators)
        other = names.setdefault(word, name)
        if other != name:
            raise BadWord(name, f"{name} is what {other} is: {word!r}", "each word is another one")
    for name in _FIRST:
        if found[name][0] != "!" or found[name] in ("!", "!c1", "!s1"):
            what = f"{name} must begin with ! and is not !c1 or !s1: {found[name]!r}"
            raise BadWord(name, what, f'{name} = "!..."')
    for char in separators:
        with_it = [name for name in _SEPARATORS if char in found[name]]
        if len(with_it) > 1:
            raise BadWord(with_it[1], f"{char!r} is in two separators", "they share no character")
    if len(found["escape"]) != 1:
        raise BadWord("escape", f"escape is one character: {found['escape']!r}", 'escape = "%"')
    _check_apart(found)
    return found


def _check(name: str, word: Any, others: str) -> None:
    """`others`: characters that are not for this word."""
    if not isinstance(word, str) or not 0 < len(word) <= _LONGEST:
        raise BadWord(name, f"{name} has 1 to {_LONGEST} characters: {word!r}", f'{name} = "..."')
    try:
        word.encode()
    except UnicodeEncodeError:
        raise BadWord(name, f"{name} is no UTF-8: {word!r}", f'{name} = "..."') from None
    for char in word:
        if char in _TAKEN or char in others:
            raise BadWord(
                name, f"{name} cannot have {char!r}: {word!r}", "each text means one thing"
            )


def _check_apart(found: Mapping[str, str]) -> None:
    """No text is of both forms, unless it says the same in both: where the canonical form has these
    words, too, and they begin the same kind of text."""
    if not found["close"].endswith(WORDS["close"]):
        return  # they end otherwise
    others = any(found[name] != word for name, word in WORDS.items() if name not in _FIRST)
    for name in _FIRST:
        if found[name] in (WORDS[first] for first in _FIRST) and (
            others or found[name] != WORDS[name]
        ):
            raise BadWord(
                name,
                f"{found[name]} begins canonical texts, and would mean something else here",
                f'{name} = "!..." as in no canonical text; or a close that does not end with }}',
            )


_CANONICAL = _Form(WORDS)
