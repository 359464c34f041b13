"""What comes from others about owners: conditions, KeyNote, commands, filters with a condition,
sealed attributes, signed documents, records of the audit log.

The first byte picks what is read. Each says no in its own way; whatever else comes out is a
finding, and so is a condition whose canonical text means something else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from typing import Any, ClassVar

from fuzz.target import Draw, Finding, Target
from sealmq.site.check import parse
from sealmq.site.edit import fill
from sealmq_spec.errors import Malformed

from ..api import FamilyRecord, Later, Proposal, Verdict
from ..ask import Who
from ..attributes import Attributes
from . import archive, client, events, signing, where
from .assertions import BadAssertion, keynote
from .expressions import ConditionError, condition
from .family import Owners
from .simulate import BadLine, at_ms

_KINDS = {"speed": "int", "name": "text", "lit": "bool"}
_SITE = "00000000"


class _Nothing:
    """Of an event about which nothing is known but a few levels."""

    def get(self, name: str) -> Any:
        return {"building": "EECS", "room": "2246", "speed": 51, "retained": False}.get(name)

    def signed(self, address: str) -> None:
        return None


def _condition(draw: Draw) -> None:
    try:
        found = condition(draw.rest().decode("utf-8", "replace"))
    except ConditionError:
        return
    again = condition(found.text)
    if again.text != found.text:
        raise Finding("two texts stand for one condition")
    met, other = (one.met(_Nothing()) if one.met else True for one in (found, again))
    if met is not other:
        raise Finding("a condition's canonical text means something else")


def _keynote(draw: Draw) -> None:
    try:
        keynote(draw.rest().decode("utf-8", "replace"))
    except BadAssertion:
        pass


def _where(draw: Draw) -> None:
    text = draw.rest().decode("utf-8", "replace")
    try:
        found = where.decode(text)
        if found is not None and where.encode(found[0], found[1].text) != text:
            raise Finding("two filters stand for one condition")
    except Malformed:
        pass
    try:
        where.decode(where.encode("a/#", text))
    except (Malformed, UnicodeEncodeError):
        pass


def _attributes(draw: Draw) -> None:
    raw = draw.rest()
    try:
        found = events.read_attributes(raw, _KINDS)
        if events.read_attributes(events.write_attributes(found), _KINDS) != found:
            raise Finding("what is written is not what was read")
    except events.BadAttributes:
        pass
    try:
        client.items([raw.decode("utf-8", "replace")])
    except (Malformed, UnicodeEncodeError):
        pass


def _document(draw: Draw) -> None:
    try:
        found = json.loads(draw.rest())
    except (ValueError, RecursionError):
        return
    try:
        if isinstance(found, dict):
            signing.verify(found)
            raise Finding("a document that nobody has signed is valid")
    except BadAssertion:
        pass


def _record(draw: Draw) -> None:
    then = archive.Archive(draw.number(), Attributes(), 0)
    for at in range(4):
        detail = draw.chunk().decode("utf-8", "replace")
        record = {"event": "command", "at_ms": at, "family": "owners", "client": "a"}
        then.feed([{**record, "detail": detail}])
    then.rows([])


def _time(draw: Draw) -> None:
    try:
        at_ms(draw.rest().decode("utf-8", "replace"))
    except BadLine:
        pass


READERS = (_condition, _keynote, _where, _attributes, _document, _record, _time)


class Fuzz(Target):
    """One text an input, or one command to the paper's campus."""

    longest: ClassVar[int] = 4096
    words: ClassVar[tuple[bytes, ...]] = tuple(
        word.encode()
        for word in (
            "&&", "||", "==", "!=", "<=", ">=", " in [", '"EECS"', "contract(", "true", "false",
            "Authorizer: ", "Licensee: ", "Conditions: ", '-> "true";', "!WHERE/", '{"do":"assert"',
            '"licensees":["Bob"]', '"actions":["RECEIVE"]', '"condition":', '"owner":', '"id":',
            "retract ", "assert ", " by=", " owner=", " licensees=", " condition=", "break-glass",
        )
    )  # fmt: skip

    def __init__(self) -> None:
        site = resources.files("sealmq.site") / "templates" / "head.toml"
        ours = resources.files(__package__) / "templates"
        text = site.read_text("utf-8") + (ours / "order.toml").read_text("utf-8")
        text += (ours / "campus.toml").read_text("utf-8")
        words = {"name": "campus", "id": _SITE, "listen": "127.0.0.1:1883", "broker": "embedded"}
        config: Any = parse(fill(text, words))
        self._family = Owners()
        self._family.configure(config)
        self._now_ms = 0

    def one(self, data: bytes) -> None:
        draw = Draw(data)
        which = draw.number() % (len(READERS) + 1)
        if which < len(READERS):
            READERS[which](draw)
        else:
            self._command(draw)

    def _command(self, draw: Draw) -> None:
        self._now_ms += 60_000
        name = draw.pick(("Alice", "Bob", "location_admin", "owner", "POLICY"))
        who = Who(name, 1, "app", _SITE, "campus")
        got: Any = self._family.command(who, draw.rest(), self._now_ms)
        while isinstance(got, Later):
            got = got.go_on() or got
        if isinstance(got, Verdict):
            if got.allow or len(got.reason.encode()) > 200:
                raise Finding("a refusal that allows, or is longer than a client is told")
        elif isinstance(got, Proposal):
            # In force, and taken back, so that nothing grows.
            self._family.apply(got.records)
            rows = [row for row in got.records if isinstance(row, FamilyRecord)]
            self._family.apply([replace(row, value=None) for row in rows])

    def seeds(self) -> Iterator[bytes]:
        """Some of each that is right."""
        text = (resources.files(__package__) / "templates" / "campus.toml").read_text("utf-8")
        kn = text.partition("keynote = '''")[2].partition("'''")[0]
        yield b"\x01" + kn.encode()
        yield b'\x00building == "EECS" && (extTime in ["A", "B"] || !retained) && speed < 50'
        yield b"\x02" + where.encode("a/+/#", "speed > 50").encode()
        yield b'\x03{"lit":true,"name":"a","speed":51}'
        yield b'\x04{"site":"00000000","authorizer":"a","licensees":["b"],"actions":["*"]}'
        said = b"assert 1 by=a owner=a licensees=b app= type= actions=RECEIVE condition="
        yield b"\x05\x02" + b"".join(bytes((len(one),)) + one for one in (said, b"retract 1"))
        for body in (
            b'{"do":"assert","licensees":["Bob"],"actions":["RECEIVE"],"condition":"lit"}',
            b'{"do":"list"}',
            b'{"do":"who-can","topic":"loc/Alice/a/b"}',
            b'{"do":"types"}',
            b'{"do":"key","public":""}',
            b'{"do":"break-glass","owner":"Bob","reason":"x","minutes":5}',
        ):
            yield b"\x07\x00" + body
