"""What a client tells of attributes (GATEWAY.md G8): any bytes are a refusal or a row in bounds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import ClassVar

from sealmq.families.api import FamilyRecord, Proposal, Verdict
from sealmq.families.engine import Engine
from sealmq.families.labels.family import Labels
from sealmq.families.told import FAMILY
from sealmq.site.config import loads

from .target import Finding, Target

_SITE = """
[site]
name = "s"
id = "01020304"
[labels]
low = []
[clients]
hr = { label = "low" }
bob = { label = "low" }
[attributes.contract]
source = "client"
by = ["hr"]
of = "subscriber"
valid = "1h"
[attributes.friend]
source = "client"
by = ["hr"]
of = "pair"
valid = "1h"
[attributes.shift]
source = "client"
by = ["hr"]
of = "site"
valid = "1h"
[attributes.other]
source = "client"
by = ["bob"]
of = "site"
valid = "1h"
"""
_SAID: tuple[object, ...] = (
    {"name": "contract", "subject": "bob", "value": "signed", "valid_s": 60},
    {"name": "friend", "subject": ["alice", "bob"], "value": True},
    {"name": "shift", "value": None},
    {"name": "other", "value": 1},
    {"list": True},
    {"list": "contract"},
)
_NOW_MS = 1_800_000_000_000
_MOST_ANSWER = 8192


class Fuzz(Target):
    """One command; what it proposes is indexed as at a start."""

    longest: ClassVar[int] = 2100
    words: ClassVar[tuple[bytes, ...]] = tuple(
        word.encode()
        for word in (
            '"name"', '"subject"', '"value"', '"valid_s"', '"list"', '"contract"', '"friend"',
            '"shift"', '"other"', '"bob"', '"alice"', "null", "true", "[]", "{}", "\\u001f", "1e9",
        )
    )  # fmt: skip

    def __init__(self) -> None:
        self._config = loads(_SITE)

    def one(self, data: bytes) -> None:
        engine = Engine([Labels()])
        engine.load(self._config, [])
        conn = engine.connection(engine.who("hr"))
        got = conn.command(FAMILY, data, _NOW_MS)
        if isinstance(got, Verdict):
            if got.rule not in engine.rules or len(got.reason.encode()) > 200:
                raise Finding(f"a refusal by {got.rule}: {got.reason!r}")
            return
        if not isinstance(got, Proposal) or len(got.reply) > _MOST_ANSWER:
            raise Finding(f"no answer: {got!r}")
        engine.apply(got.records)
        for row in got.records:
            if not isinstance(row, FamilyRecord) or (row.family, row.client) != (FAMILY, "hr"):
                raise Finding(f"it would write {row!r}")
            name, *subject = row.key.split("\x1f")
            if name == "other" or len(subject) != {"friend": 2}.get(name, 1):
                raise Finding(f"it would tell {row.key!r}")
            held = engine.attributes.held(name, "\x1f".join(subject))
            if (held is None) != (row.value is None):
                raise Finding(f"{row.key!r} is {held!r}")
            if held is not None and not _NOW_MS < held.until <= _NOW_MS + 3_600_000:
                raise Finding(f"it holds until {held.until}")

    def seeds(self) -> Iterator[bytes]:
        for said in _SAID:
            yield json.dumps(said).encode()
