"""HTML and SVG in which nothing stands unescaped: what is not Markup is text, and text is escaped.

Topics, names and reasons come from devices. Beside the markup's own signs, characters that nobody
sees, or that turn the text round them, are written as their code points.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterable

from .words import width

# Controls, formats, surrogates, unassigned, line and paragraph separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"})
# They join the parts of an emoji, or the letters of Persian; between Latin letters they only hide.
_JOINERS = frozenset("\u200c\u200d")
_MARKS = 3
_VOID = frozenset({"br", "meta", "hr", "wbr"})


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def plain(text: str) -> str:
    """`text` as it may be shown: what is hidden, or hides others, as its code point."""
    if text.isascii() and text.isprintable():
        return text
    found: list[str] = []
    marks = 0
    for at, sign in enumerate(text):
        category = unicodedata.category(sign)
        marks = marks + 1 if category in ("Mn", "Me") else 0
        joins = sign in _JOINERS and at > 0 and ord(text[at - 1]) > 0x24F
        hidden = category in _HIDDEN and not joins
        found.append(_code(sign) if hidden or marks > _MARKS else sign)
    return "".join(found)


def _code(sign: str) -> str:
    return f"\u2039U+{ord(sign):04X}\u203a"


def escape(text: str) -> Markup:
    """For an element's text and for an attribute's value."""
    return Markup(html.escape(plain(text)))


def tag(element: str, /, *children: object, **attributes: object) -> Markup:
    """An element. `class_` loses its underscore, others become hyphens; None: left out."""
    said = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    if element in _VOID:
        return Markup(f"<{element}{said}>")
    return Markup(f"<{element}{said}>{joined(children)}</{element}>")


def joined(children: Iterable[object]) -> Markup:
    """Children one after the other: text escaped, markup as it is, None left out."""
    return Markup("".join(_text(child) for child in children))


def _attribute(key: str, value: object) -> str:
    key = key.rstrip("_")
    # SVG has attributes in mixed case and with hyphens; nobody names one with an underscore.
    return f' {key.replace("_", "-")}="{escape(str(value))}"'


def _text(child: object) -> str:
    match child:
        case None:
            return ""
        case Markup():
            return child
        case str():
            return escape(child)
        case int() | float():
            return escape(str(child))
        case Iterable():
            return joined(child)
        case _:
            raise TypeError(f"{type(child).__name__} is neither text nor markup")


def named(text: str | None, room: int = 72, empty: str = "none", breaks: str = "/_") -> Markup:
    """A name that came from outside: isolated, cut in its middle, in full in its title. breaks: the
    signs after which it may end a line, so that a narrow column parts it between words."""
    if not text:
        return tag("span", empty, class_="none")
    shown = cut(plain(text), room)
    full = None if shown == text else text
    parted = str(escape(shown))
    for sign in breaks:
        parted = parted.replace(sign, f"{sign}{tag('wbr')}")
    return tag("bdi", Markup(parted), class_="name", title=full)


def rule(text: str | None, room: int = 72, empty: str = "none") -> Markup:
    """A rule's name, which may end a line after each of its dots."""
    return named(text, room, empty, breaks="._")


def cut(text: str, room: int) -> str:
    """`text` in at most `room` columns, the middle left out: the ends of a topic say most."""
    if width(text) <= room:
        return text
    head = _first(text, (room - 1) * 3 // 5)
    tail = _first(text[::-1], room - 1 - width(head))[::-1]
    # A mark belongs to the sign before it, which is gone.
    while tail and unicodedata.combining(tail[0]):
        tail = tail[1:]
    return f"{head}…{tail}"


def _first(text: str, room: int) -> str:
    used = 0
    for at, sign in enumerate(text):
        used += width(sign)
        if used > room:
            return text[:at]
    return text
