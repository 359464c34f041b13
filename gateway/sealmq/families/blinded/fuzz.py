"""What a mediator reads of blinded policies: rows that the key generator tells, and the item of a
message; and what operators write.

The first byte picks what is read. A row that is taken has filters in bounds, and is written as it
was read; nobody is let have anything by rows but those who match in them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from importlib import resources
from typing import Any, ClassVar

from fuzz.target import Draw, Finding, Target
from sealmq.site.check import parse
from sealmq_spec.errors import Malformed

from ..api import TopicLabel
from ..engine import Engine
from ..registry import load
from . import client, coded, edit, kg_part, plain, words
from .bloom import HASHES, MOST_ONES
from .coded import BadRow

_ID = "00000000000000aa"
_TOPIC = "stream/a/1"
_SITE = f"""
[site]
name = "s"
id = "00c0ffee"
[labels]
all = []
[clients]
writer = {{ label = "all" }}
reader = {{ label = "all" }}
[policy]
order = ["labels", "blinded"]
[topics]
"{_TOPIC}" = "all"
"""
_KEPT = f"""
[customers.reader]
has = ["a = 1 & b = 2"]
wants = ["c = 3"]
[policies.stream]
let = ["a = 1", "b != 2"]
[types.stream]
has = ["c = 3"]
[[events]]
id = "{_ID}"
client = "writer"
topic = "stream"
"""


def _pair(draw: Draw) -> None:
    raw = draw.rest()
    try:
        pair = coded.read_pair(raw)
    except BadRow:
        return
    if coded.write_pair(pair) != raw:
        raise Finding("two rows stand for one pair")
    _bounded([*pair.let, *pair.wants], [*pair.has, *pair.is_])
    if not pair.let or bool(pair.wants) == pair.open:
        raise Finding("a policy without conjunctions is taken")


def _side(draw: Draw) -> None:
    raw = draw.rest()
    try:
        side = coded.read_side(raw)
    except BadRow:
        return
    if coded.write_side(side) != raw:
        raise Finding("two rows stand for one side")
    _bounded([a & ~m for a, m in side.rules], [one for held in side.helds for one in held])


def _bounded(rules: list[int], sets: list[int]) -> None:
    if any(one.bit_count() < HASHES // 2 for one in rules):
        raise Finding("an empty conjunction is taken")
    if any(one.bit_count() > MOST_ONES for one in sets):
        raise Finding("a filter of ones is taken")


def _event(draw: Draw) -> None:
    try:
        event = coded.read_event(draw.rest())
    except BadRow:
        return
    if coded.read_event(coded.write_event(event)) != event:
        raise Finding("what is written is not what was read")
    event.covers(_TOPIC)


def _option(draw: Draw) -> None:
    try:
        client.items([draw.rest().decode("utf-8", "replace")])
    except Malformed:
        pass


def _words(draw: Draw) -> None:
    text = draw.rest().decode("utf-8", "replace")
    try:
        atoms = words.conjunction(text)
        if words.conjunction(" & ".join(atom.text for atom in atoms)) != atoms:
            raise Finding("a canonical text means something else")
    except words.BadWords:
        pass


def _text(draw: Draw) -> None:
    text = draw.rest().decode("utf-8", "replace")
    try:
        plain.read(text)
        edit.grant(text, "reader", ["a = 1"], None)
        edit.event(text, "bb" * 8, "writer", "x", "", False)
    except plain.BadPlain:
        pass


READERS = (_pair, _side, _event, _option, _words, _text)


class Fuzz(Target):
    """One row, or all of a site's with some of them spoiled."""

    longest: ClassVar[int] = 4096
    words: ClassVar[tuple[bytes, ...]] = (
        b"e/", b"m/", b"k/", b"c/", _ID.encode(), b'"client":"', b'"topic":"', b'"but":[',
        b'"kind":"', b'"sealed":true', b" & ", b" != ", b" in {", b"..", b"action = ",
        b"[customers.", b"has = [", b"wants = [", b"let = [", b"[[events]]",
    )  # fmt: skip

    def __init__(self) -> None:
        config: Any = parse(_SITE)
        # The same rows each time: an input stands for itself.
        draw = random.Random(20)  # noqa: S311
        kept = kg_part.take(config, b"", _KEPT.encode(), draw.randbytes)
        self._rows = dict(kg_part.rows(config, kept))
        self.taken = False
        """Whether the last input were rows by which the reader gets something."""
        self.faults: list[Any] = []
        self._engine = Engine(
            load(["labels", "blinded"]), on_fault=lambda *fault: self.faults.append(fault)
        )
        self._engine.apply(self._engine.load(config, [TopicLabel(_TOPIC, "all", "writer", 0)]))
        self._reader = self._engine.connection(self._engine.who("reader", 2))
        self._writer = self._engine.connection(self._engine.who("writer", 1))
        self._engine.take_told({"blinded": self._rows})
        self._reader.subscribed(self._reader.subscribe("stream/#", 0, 0), 0, 0)

    def one(self, data: bytes) -> None:
        draw = Draw(data)
        self.taken = False
        which = draw.number() % (len(READERS) + 1)
        if which < len(READERS):
            READERS[which](draw)
        else:
            self._told(draw)

    def _told(self, draw: Draw) -> None:
        """Rows of the site, some of them cut, with other bytes or under other keys; and an item."""
        rows, spoiled = dict(self._rows), False
        item = draw.take(draw.number() % (coded.ID + 2)) or bytes.fromhex(_ID)
        while draw.more():
            key = draw.pick(sorted(rows))
            row, at = bytearray(rows[key]), draw.number(2)
            at %= len(row) + 1
            new = draw.chunk()
            row[at : at + len(new)] = new
            spoiled = spoiled or bytes(row) != rows[key]
            rows[key if draw.number() % 4 else draw.chunk().decode("latin-1")] = bytes(row)
        self._engine.take_told({"blinded": rows})
        tlv = {coded.TLV: item}
        self._writer.publish(_TOPIC, 0, False, 10, 0, tlv)
        grant = ("blinded", coded.GRANT)
        got = self._reader.deliver(_TOPIC, "all", 0, 0, 0, tlv, grant=grant)
        if self._reader.deliver(_TOPIC, "all", 0, 0, 0, tlv, grant=None).allow:
            raise Finding("an item that no mediator has put is taken")
        if self.faults:
            raise Finding(f"the family failed: {self.faults.pop()}")
        self.taken = got.allow
        if not spoiled and got.allow != (item.hex() == _ID):
            raise Finding("what the key generator tells says something else")

    def seeds(self) -> Iterator[bytes]:
        """Some of each that is right."""
        for key, row in sorted(self._rows.items()):
            yield bytes(("m e".index(key[0]),)) + row
        encoded = _paper_rows()
        yield b"\x01" + encoded
        yield b"\x02" + b"[" * 2000
        yield b"\x03" + _ID.encode()
        for text in ("a = 1 & b != x & c in {1, 2}", 'a in 3..7 & b >= -4 & c = "x & y"'):
            yield b"\x04" + text.encode()
        yield b"\x05" + _KEPT.encode()
        example = resources.files(__package__) / "templates" / "streaming" / "kept.toml"
        yield b"\x05" + example.read_bytes()[: self.longest - 1]
        yield b"\x06"
        yield b"\x06\x08" + bytes.fromhex(_ID)
        for at in range(len(self._rows)):
            yield b"\x06\x00" + bytes((at, 0, 3, 1, 255, 1))


def _paper_rows() -> bytes:
    config: Any = parse(_SITE + '[families.blinded]\nencoding = "paper"\nlength = 2\n')
    draw = random.Random(20)  # noqa: S311
    kept = kg_part.take(config, b"", _KEPT.encode(), draw.randbytes)
    return dict(kg_part.rows(config, kept))[coded.CUSTOMER + "reader"]
