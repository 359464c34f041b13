"""What comes from other sites: tokens, announcements, introductions, ratings; and files of ratings.

The first byte picks what is read. Each says no in its own way. What is read is written back byte
for byte; a record that nobody has signed moves nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import ClassVar

from fuzz.target import Draw, Finding, Target

from .. import signatures
from . import example
from .exchange import Exchange
from .gossip import RATED, Said, read_ratings, signed_ratings
from .sites import INTRODUCED, Introduction, read_introduction, signed_introduction
from .tokens import ANNOUNCED, Token, announcement, read_announcement, signed_text
from .wire import BadRecord, pack

_NOW, _END = 1_000_000, 2_000_000
_KEYS = {name: bytes([n]) * 32 for n, name in enumerate(("me", "b4", "b5"), 1)}


def _sign(name: str, text: bytes) -> bytes:
    return signatures.sign(_KEYS[name], text)


def _site() -> Exchange:
    made = Exchange("me", signatures.public_of(_KEYS["me"]), lambda text: _sign("me", text))
    for name in ("b4", "b5"):
        made.enrol(name, signatures.public_of(_KEYS[name]), ("#",), _NOW)
    made.tick(_NOW)
    return made


def _right() -> list[bytes]:
    """A record of each kind, of b4."""
    token = Token("b4", "c", ("a/#",), (), 1, _END)
    made = {"b4": _sign("b4", signed_text("b4", token.raw))}
    return [
        announcement(token, made),
        signed_introduction(Introduction("b4", "b9", bytes(32), 1), lambda t: _sign("b4", t)),
        signed_ratings(Said("b4", 1, _END, {"me": 6000}), lambda t: _sign("b4", t)),
    ]


def _read(record: bytes) -> None:
    for read in (read_announcement, read_introduction, read_ratings):
        try:
            found, rest = read(record)
        except BadRecord:
            continue
        if isinstance(rest, dict):
            again = pack(
                ANNOUNCED, found.raw, *(p for w, m in rest.items() for p in (w.encode(), m))
            )
        else:
            again = found.raw + pack(rest)
        if again != record:
            raise Finding("a record is read that is written otherwise")


def _scene(text: bytes) -> None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return
    try:
        example.answer(example.read(found))
    except example.BadScene:
        return


class Fuzz(Target):
    """`python -m fuzz trust`."""

    words: ClassVar = (RATED, INTRODUCED, ANNOUNCED, b'"ratings":', b'"judge":', b'"signers":')

    def __init__(self) -> None:
        self._exchange = _site()
        self._signed = frozenset(_right())

    def one(self, data: bytes) -> None:
        draw = Draw(data)
        which = draw.number() % 3
        if which == 0:
            _read(draw.rest())
        elif which == 1:
            self._receive(draw.rest())
        else:
            _scene(draw.rest())

    def _receive(self, record: bytes) -> None:
        before = dict(self._exchange.edges())
        answer = self._exchange.receive("b4", record, _NOW)
        if answer.ok and record not in self._signed:
            raise Finding("a record is taken that nobody has signed")
        if record in self._signed:
            self._exchange = _site()
        elif self._exchange.edges() != before:
            raise Finding("a record that is refused moves an edge")

    def seeds(self) -> Iterator[bytes]:
        """Some of each that is right."""
        for record in _right():
            yield b"\x00" + record
            yield b"\x01" + record
        yield (
            b'\x02{"ratings":[["a","b",0.6],["b","c",0.5]],"issuer":"a","signers":["a","b"],'
            b'"judge":"c","accept":0.5,"sign":0.6}'
        )
