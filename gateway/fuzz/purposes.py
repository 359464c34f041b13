"""The texts of purposes: a strict listener, a published one and one with other words.

The first byte picks what is read; the rest is the text, or the parts of a value to be written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from sealmq_spec import purposes
from sealmq_spec.errors import Malformed, Misuse
from sealmq_spec.purposes_read import GET, PRESUB, RELEASE, RESERVE, SET, Reader
from sealmq_spec.purposes_words import NAMES
from sealmq_spec.topics import check_filter

from .target import Draw, Finding, Target

VECTORS = Path(purposes.__file__).parents[1] / "vectors"
STRICT = Reader()
PUBLISHED = Reader(published=True)
OTHER = Reader({"open": "<<", "close": "»", "hash": "ALL", "comma": "&", "escape": "~"})


def _put(by: Reader, value: tuple[Any, ...]) -> str:
    if len(value) == 2:
        return by.access(*value)
    kind, a, b, c = value
    if kind == RESERVE:
        return by.reserve(a, b, c)
    if kind == PRESUB:
        return by.presubscribe(a, b, c)
    return by.release(a) if kind == RELEASE else (by.setting if kind == SET else by.query)(a, b)


def _read(by: Reader, text: str) -> Any:
    return by.read_access(text) or by.read(text)


def _check_value(by: Reader, value: tuple[Any, ...]) -> str:
    """Its text: one that says the same again, to every listener, and is a filter if it must be."""
    text = _put(by, value)
    if _read(by, text) != value:
        raise Finding("a value's text says something else")
    if by is STRICT and _read(PUBLISHED, text) != value:
        raise Finding("a listener for the published form reads an escaped text otherwise")
    if len(value) == 2:
        check_filter(text)
        if "#" in text or "+" in text:
            raise Finding("a client library would find a wildcard")
    return text


def _text(by: Reader, draw: Draw) -> None:
    text = draw.rest().decode("utf-8", "replace")
    value = _read(by, text)
    again = _check_value(by, value)
    if not by.published and again != text:
        raise Finding("two texts stand for one value")


def _strict(draw: Draw) -> None:
    _text(STRICT, draw)


def _published(draw: Draw) -> None:
    _text(PUBLISHED, draw)


def _other(draw: Draw) -> None:
    _text(OTHER, draw)


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
    _check_value(STRICT, _parts(draw))


def _words(draw: Draw) -> None:
    """Other words are refused, or a text means one thing with them as well."""
    words = {
        draw.pick(NAMES): draw.chunk()[:40].decode("utf-8", "replace")
        for _ in range(draw.number() % 4)
    }
    try:
        by = Reader(words)
    except Misuse:
        return
    _check_value(by, _parts(draw))


PARSERS = (_strict, _published, _other, _value, _words)


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
        """Every text of the vectors, and a value of each kind."""
        for path in sorted(VECTORS.glob("purposes-*.json")):
            text = json.loads(path.read_text())["in"].get("text")
            if text:
                for number in range(3):
                    yield bytes((number,)) + bytes.fromhex(text)[:1500]
        for kind in range(6):
            parts = b"".join(bytes((len(p),)) + p for p in (b"a/+/#", b"a{b}", b"x|y\n%23"))
            yield bytes((3, kind)) + parts
            yield bytes((4, 2, 12)) + b"\x02<<" + b"\x10\x03ALL" + bytes((kind,)) + parts
