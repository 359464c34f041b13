"""Reading texts about purposes by the sentences of the specification: scans, looks at every
character, writes nothing.

For the length of a value's text alone it asks vectorgen's writer, which is as naive.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from families.purposes.texts_made import InOtherWords
from vectorgen.purposes import SEPARATORS, Texts

ASKED = ("mode", "reservations", "eip", "presubs")


class Bad(Exception):
    """No text."""


def check_filter(filt: str) -> str:
    """MQTT 4.7 as a regular expression."""
    if not re.fullmatch(r"(?s:(\+|[^+#/\0]*)(/(\+|[^+#/\0]*))*(/#)?|#)", filt):
        raise Bad(filt)
    if not 0 < len(filt.encode()) <= 1024:
        raise Bad("length")
    return filt


def check_purpose(purpose: str) -> str:
    """1 to 128 bytes, levels that are not empty."""
    if "\0" in purpose or not all(purpose.split("/")) or len(purpose.encode()) > 128:
        raise Bad(purpose)
    return purpose


def check_name(name: str) -> str:
    """A purpose of one level."""
    if "/" in name:
        raise Bad(name)
    return check_purpose(name)


class Naive:
    """A reader of one form: the canonical one or, with these words, the published one."""

    def __init__(self, published: bool = False, words: Mapping[str, str] | None = None) -> None:
        self.texts = InOtherWords(words or {})
        self.words = self.texts.words
        self.published = published

    def name(self, text: str) -> str:
        """What a text means. In the published form what is no escape stands for itself."""
        out, at = "", 0
        while at < len(text):
            for char in self.texts.special:
                escape = self.texts.escaped(char)
                if text.startswith(escape, at):
                    out, at = out + char, at + len(escape)
                    break
            else:
                char = text[at]
                if char in self.texts.special and not self.published:
                    raise Bad(f"{char} at {at}")
                out, at = out + char, at + 1
        return out

    def inside(self, text: str) -> str:
        """A text in braces: what separates is escaped in both forms."""
        if any(self.words[s] in text for s in SEPARATORS):
            raise Bad(text)
        return self.name(text)

    def filter(self, text: str) -> str:
        """A filter's text."""
        levels = []
        for level in text.split("/"):
            for word, wildcard in (("hash", "#"), ("plus", "+")):
                name = self.words[word]
                if level == self.texts.escaped(name[0]) + name[1:]:
                    levels.append(name)
                    break
                if level == name:
                    if not self.published:
                        raise Bad(level)
                    levels.append(wildcard)
                    break
            else:
                levels.append(self.name(level))
        return check_filter("/".join(levels))

    def parts(self, text: str) -> tuple[str, str]:
        """What is before the braces, and in them."""
        where, brace, inside = text.rpartition(self.words["open"])
        if not brace or not inside.endswith(self.words["close"]):
            raise Bad(text)
        return where, inside[: -len(self.words["close"])]

    def purposes(self, text: str) -> tuple[str, ...]:
        """Some, none of them twice."""
        some = [check_purpose(self.inside(p)) for p in text.split(self.words["comma"]) if text]
        if len(set(some)) < len(some):
            raise Bad(text)
        return tuple(some)

    def access(self, text: str) -> tuple[str, str] | None:
        """What read_access gives."""
        if not text.startswith(self.words["ap"] + "/"):
            return None
        where, inside = self.parts(text[len(self.words["ap"]) + 1 :])
        found = self.filter(where), check_purpose(self.inside(inside))
        if len(Texts().access(*found).encode()) > 1024:
            raise Bad("length")
        return found

    def read(self, text: str) -> tuple[str, str, Any, Any]:
        """What read gives."""
        where, inside = self.parts(text)
        word, slash, rest = where.partition("/")
        if not slash:
            raise Bad(text)
        if word == self.words["reserve"]:
            found, again = self.reserve(rest, inside)
        elif word == self.words["pbac"]:
            found, again = self.pbac(rest, inside)
        else:
            raise Bad(word)
        if max(len(text.encode()), len(again.encode())) > 8192:
            raise Bad("length")
        return found

    def reserve(self, rest: str, inside: str) -> tuple[tuple[str, str, Any, Any], str]:
        """A reservation or its end."""
        filt = self.filter(rest)
        if not inside:
            return ("release", filt, (), ()), Texts().release(filt)
        allowed, bar, not_allowed = inside.partition(self.words["bar"])
        if not bar:
            raise Bad(inside)
        aip, pip = self.purposes(allowed), self.purposes(not_allowed)
        return ("reserve", filt, aip, pip), Texts().reserve(filt, aip, pip)

    def pbac(self, where: str, inside: str) -> tuple[tuple[str, str, Any, Any], str]:
        """Presubscriptions, settings and questions."""
        levels = where.split("/")
        verb, rest = levels[0], levels[1:]
        if verb == self.words["presub"] and len(rest) > 1:
            client, filt = check_name(self.name(rest[0])), self.filter("/".join(rest[1:]))
            purpose = check_purpose(self.inside(inside)) if inside else ""
            again = Texts().presubscribe(client, filt, purpose)
            return ("presub", client, filt, purpose), again
        if verb == self.words["set"] and len(rest) == 1:
            name = check_name(self.name(rest[0]))
            value = check_name(self.inside(inside)) if inside else ""
            return ("set", name, value, ""), Texts().setting(name, value)
        asked = {self.words[what]: what for what in ASKED}
        if verb != self.words["get"] or inside or not rest or rest[0] not in asked:
            raise Bad(where)
        what, arg = asked[rest[0]], "/".join(rest[1:])
        if what == "mode" and len(rest) > 1:
            raise Bad(where)
        if what == "presubs":
            arg = check_name(self.name(arg))
        elif what != "mode":
            arg = self.filter(arg)
        if what == "eip" and re.search(r"[+#]", arg):
            raise Bad(arg)
        return ("get", what, arg, ""), Texts().query(what, arg)
