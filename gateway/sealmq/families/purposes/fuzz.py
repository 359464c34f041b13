"""The texts of purposes: what our clients write, and what a mediator reads: the canonical form, the
published one, and that in other words.

The first byte picks what is read; the rest is the text, or the parts of a value to be written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from fuzz.target import Draw, Finding, Target
from sealmq_spec import purposes
from sealmq_spec.errors import Malformed
from sealmq_spec.topics import check_filter

from .texts import (
    GET,
    PRESUB,
    RELEASE,
    RESERVE,
    SET,
    WORDS,
    BadWord,
    Reader,
)

CASES = Path(__file__).parents[3] / "tests/families/purposes/texts.json"
CANONICAL = Reader()
PUBLISHED = Reader(True)
OTHER = Reader(True, {"open": "<<", "close": "»", "hash": "ALL", "comma": "&", "escape": "~"})


def _put(value: tuple[Any, ...]) -> str:
    if len(value) == 2:
        return purposes.access(*value)
    kind, a, b, c = value
    if kind == RESERVE:
        return purposes.reserve(a, b, c)
    if kind == PRESUB:
        return purposes.presubscribe(a, b, c)
    if kind == RELEASE:
        return purposes.release(a)
    return (purposes.setting if kind == SET else purposes.query)(a, b)


def _read(by: Reader, text: str) -> Any:
    return by.read_access(text) or by.read(text)


def _check_value(value: tuple[Any, ...], *others: Reader) -> str:
    """Its text: every site reads the same in it, and it is a filter if it must be."""
    text = _put(value)
    for by in (CANONICAL, PUBLISHED, OTHER, *others):
        if _read(by, text) != value:
            raise Finding("a site reads something else in what our clients write")
    if len(value) == 2:
        check_filter(text)
        if "#" in text or "+" in text:
            raise Finding("a client library would find a wildcard")
    return text


def _canonical(draw: Draw) -> None:
    text = draw.rest().decode("utf-8", "replace")
    if _check_value(_read(CANONICAL, text)) != text:
        raise Finding("two texts stand for one value")


def _published(draw: Draw) -> None:
    _check_value(_read(PUBLISHED, draw.rest().decode("utf-8", "replace")))


def _other(draw: Draw) -> None:
    _check_value(_read(OTHER, draw.rest().decode("utf-8", "replace")))


def _parts(draw: Draw) -> tuple[Any, ...]:
    kind = draw.number() % 6
    a, b, c = (draw.chunk().decode("utf-8", "replace") for _ in range(3))
    some, others = (tuple(text.split("\n")) if text else () for text in (b, c))
    values: tuple[tuple[Any, ...], ...] = (
        (a, b), (RESERVE, a, some, others), (RELEASE, a, (), ()), (PRESUB, a, b, c),
        (SET, a, b, ""), (GET, draw.pick(purposes.ASKED), a, ""),
    )  # fmt: skip
    return values[kind]


def _value(draw: Draw) -> None:
    _check_value(_parts(draw))


def _words(draw: Draw) -> None:
    """Other words are refused, or our clients' texts mean the same with them as well."""
    words = {
        draw.pick(tuple(WORDS)): draw.chunk()[:40].decode("utf-8", "replace")
        for _ in range(draw.number() % 4)
    }
    try:
        by = Reader(True, words)
    except BadWord:
        return
    _check_value(_parts(draw), by)


PARSERS = (_canonical, _published, _other, _value, _words)


class Fuzz(Target):
    """One text or value an input; only Malformed comes out."""

    longest: ClassVar[int] = 2048
    words: ClassVar[tuple[bytes, ...]] = tuple(
        word.encode()
        for word in (
            "!AP/", "!RESERVE/", "!PBAC/", "PRESUB/", "SET/", "GET/", "MODE{}", "RESERVATIONS/",
            "EIP/", "PRESUBS/", "HASH", "PLUS", "%48ASH", "%50LUS", "%23", "%2B", "%2C",
            "%7B", "%7C", "%7D", "%25", "{}", "{|}", "{a,b|c}", "/%2B/", "$share/g/", "<<", "»",
            "ALL", "~",
        )
    )  # fmt: skip

    def one(self, data: bytes) -> None:
        draw = Draw(data)
        try:
            draw.pick(PARSERS)(draw)
        except Malformed:
            pass

    def seeds(self) -> Iterator[bytes]:
        """Every text of the mediator's cases, and a value of each kind."""
        for form in json.loads(CASES.read_text("utf-8"))["cases"].values():
            for case in form:
                for number in range(3):
                    yield bytes((number,)) + case["text"].encode()
        for kind in range(6):
            parts = b"".join(bytes((len(p),)) + p for p in (b"a/+/#", b"a{b}", b"x|y\n%23"))
            yield bytes((3, kind)) + parts
            yield bytes((4, 2, 12)) + b"\x02<<" + b"\x10\x03ALL" + bytes((kind,)) + parts
