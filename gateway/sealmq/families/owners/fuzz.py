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
from . import archive, client, events, records, signing, where
from .assertions import BadAssertion, from_fields, keynote
from .events import EventType
from .expressions import ConditionError, condition, shared
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
    # As the next start reads it, which remembers none.
    shared.pop(found.text, None)
    again = condition.__wrapped__(found.text)
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


_MADE, _SUSPENDED = "0" * 12, "1" * 12
_CONDITIONS = (
    b'building == "EECS" && (extTime in ["A", "B"] || !retained) && speed < 50',
    b"speed < -1 || speed <= 0 || speed > 7 || speed >= 51 || speed == 51 || speed != 51",
    b'!(lit && true || false) && !(room in ["1", 2, true]) && owner == subscriber',
    b'"EECS" == building && 51 > speed && room == "a\\"b\\\\" && retained == false',
    b'contract("https://example.org/terms") && action == "RECEIVE" && qos != 2 && sender == owner',
    b'app_domain == "LOC_APP" && evtType == "LOC_INFO" && (((lit)))',
    'room == "\u00fc\u20ac\U0001f600"\n\t || building != room'.encode(),
)
_COMMANDS = (
    b'{"do":"assert","licensees":["Bob"],"actions":["RECEIVE"],"condition":"retained"}',
    b'{"do":"assert","keynote":"Authorizer: \\"Alice\\"\\nLicensee: \\"Bob\\"\\nConditions: '
    b'action == \\"RECEIVE\\";"}',
    b'{"do":"modify","id":"000000000000","licensees":["Bob"],"actions":["RECEIVE"]}',
    b'{"do":"retract","id":"000000000000"}',
    b'{"do":"confirm","id":"111111111111"}',
    b'{"do":"list","owner":"Alice","by":"Alice","after":"0"}',
    b'{"do":"who-can","topic":"loc/Alice/a/b","action":"PUBLISH","sender":"Bob","attributes":{}}',
    b'{"do":"explain","topic":"loc/Alice/a/b","client":"Bob"}',
    b'{"do":"types"}',
    b'{"do":"sign","address":"urn:a"}',
    b'{"do":"sign","address":"urn:a","withdraw":true}',
    b'{"do":"contracts","owner":"Bob"}',
    b'{"do":"key","public":"' + b"ab" * 32 + b'","signature":""}',
    b'{"do":"appoint","mediator":2}',
    b'{"do":"break-glass","owner":"Bob","reason":"x","minutes":5}',
    b'{"do":"close-glass","owner":"Alice","client":"Bob"}',
    b'{"do":"openings"}',
    b'{"do":"seen"}',
    b'{"do":"seen","to":5}',
)
_SAID = b" by=a owner=a licensees=b app= type= actions=RECEIVE condition=lit"
_RECORDS = (
    (b"assert 1" + _SAID, b"modify 1" + _SAID, b"retract 1" + _SAID),
    (b"assert 1" + _SAID, b"confirm 1 suspended=1" + _SAID, b"retract 1 suspended=2" + _SAID),
    (b"sign urn:a", b"withdraw from urn:a", b"appoint 2", b"appoint 0"),
    (b"break-glass owner=b minutes=5 reason=x", b"close-glass owner=b client=a"),
    (b"advertise A/B topic=x/{u} owner=u control=both", b"confirm A/B", b"withdraw A/B"),
)
# By the administrator.
_TYPES = (
    b'{"do":"advertise","app":"LOC_APP","type":"NEW","topic":"new/{user}/{n:int}","owner":"user",'
    b'"control":"both","admin":"Bob","attributes":{"speed":"int"},"granularity":"matching_set",'
    b'"signed":true}',
    b'{"do":"confirm","id":"LOC_APP/OLD"}',
    b'{"do":"withdraw","app":"LOC_APP","type":"MINE"}',
)
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
        self.taken = False
        """Whether the last input was a command that was not refused."""
        self._rows = list(_rows())

    def one(self, data: bytes) -> None:
        draw = Draw(data)
        self.taken = False
        which = draw.number() % (len(READERS) + 1)
        if which < len(READERS):
            READERS[which](draw)
        else:
            self._command(draw)

    def _command(self, draw: Draw) -> None:
        self._now_ms += 60_000
        name = draw.pick(("Alice", "Bob", "location_admin", "owner", "POLICY"))
        who = Who(name, 1, "app", _SITE, "campus")
        self._family.apply(self._rows)
        got: Any = self._family.command(who, draw.rest(), self._now_ms)
        while isinstance(got, Later):
            got = got.go_on() or got
        if isinstance(got, Verdict):
            if got.allow or len(got.reason.encode()) > 200:
                raise Finding("a refusal that allows, or is longer than a client is told")
        elif isinstance(got, Proposal):
            self.taken = True
            # In force, put back by a backup, and taken away, so that nothing grows.
            self._family.apply(got.records)
            rows = [row for row in got.records if isinstance(row, FamilyRecord)]
            self._family.apply(list(records.put_back(rows, self._now_ms)))
            self._family.apply([replace(row, value=None) for row in rows])

    def seeds(self) -> Iterator[bytes]:
        """Some of each that is right."""
        text = (resources.files(__package__) / "templates" / "campus.toml").read_text("utf-8")
        kn = text.partition("keynote = '''")[2].partition("'''")[0]
        yield b"\x01" + kn.encode()
        for when in _CONDITIONS:
            yield b"\x00" + when
        yield b"\x02" + where.encode("a/+/#", "speed > 50").encode()
        yield b'\x03{"lit":true,"name":"a","speed":51}'
        yield b'\x04{"site":"00000000","authorizer":"a","licensees":["b"],"actions":["*"]}'
        for detail in _RECORDS:
            yield b"\x05\x02" + b"".join(bytes((len(one),)) + one for one in detail)
        for body in _COMMANDS:
            yield b"\x07\x00" + body
        for body in _TYPES:
            yield b"\x07\x02" + body


def _rows() -> Iterator[FamilyRecord]:
    """What there is before each command: some of each that a command changes."""
    said = {"licensees": ["Bob"], "actions": ["RECEIVE"]}
    for id, spans in ((_MADE, ()), (_SUSPENDED, ((1,),))):
        made = from_fields(said, "Alice", "Alice")
        made.id, made.at_ms = id, 1
        yield records.assertion(made, spans)
    grant = {"licensees": ["Alice"], "actions": ["EMERGENCY"]}
    made = from_fields(grant, "location_admin", "Bob")
    made.id, made.at_ms = "2" * 12, 1
    yield records.assertion(made)
    yield records.glass(records.Glass("Alice", "Bob", 1, 1 << 50, "fire"))
    for name, spans in (("MINE", ()), ("OLD", ((1,),))):
        topic = f"{name.lower()}/{{user}}"
        kind = EventType("LOC_APP", name, topic, "user", by="location_admin", at_ms=1)
        yield records.event_type(kind, spans)
