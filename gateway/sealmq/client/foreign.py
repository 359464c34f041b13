"""Messages of other sites (SPEC.md 3.5), as feedback names them; and what the client says by itself
of one whose inner tag fails: that a site on its way has made or changed it. Sans-IO.
"""

from __future__ import annotations

from typing import Any

from sealmq.feedback import NAME, Said
from sealmq_spec.const import M1_HEAD
from sealmq_spec.origin import Reader as _Reader
from sealmq_spec.origin import message_id
from sealmq_spec.reader import Message

from .opener import Plan, Whole
from .seal import command_body

_MOST, _EVERY_MS = 5, 60_000
"""So many complaints in so many ms: fewer than a site takes of a client for long (GATEWAY.md G11),
so that its application has a word left, too."""


class Reader(Whole, _Reader):
    """`last`: which message of another site it has begun to open; b"": none."""

    last = b""

    def _plan_inner(self, plan: Plan, plain: bytes) -> None:
        # Below `@` each is named as it is opened.
        if plan.tails is None or plan.tails[3][:1] != "@":
            super()._plan_inner(plan, plain)

    def _open_inner(
        self, topic: bytes, payload: bytearray, o: int, end: int, *rest: Any
    ) -> Message:
        if topic[:1] == b"@":
            self.last = message_id(memoryview(payload)[o:end])
        self.m1 = bytes(payload[o : o + M1_HEAD])
        return super()._open_inner(topic, payload, o, end, *rest)


class Complaints:
    """Of one connection: few enough, and none any more once the site takes none."""

    def __init__(self) -> None:
        self._made: list[int] = []
        self._ctrs: set[int] = set()
        self._unwanted = False

    def about(self, topic: str, message: bytes, mono: int) -> bytes:
        """The body to send; b"": nothing is said."""
        self._made = [at for at in self._made if mono - at < _EVERY_MS]
        if self._unwanted or len(self._made) >= _MOST:
            return b""
        self._made.append(mono)
        return command_body(NAME, Said(False, message, topic).pack())

    def sent(self, ctr: int) -> None:
        """It went out with this ctr."""
        self._ctrs.add(ctr)

    def answered(self, ctr: int, refused: bool) -> bool:
        """An answer, or a notice, for ctr; whether it was about a complaint."""
        if ctr not in self._ctrs:
            return False
        self._ctrs.discard(ctr)
        self._unwanted |= refused
        return True
