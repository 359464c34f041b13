"""The client of a bridge: it hands on m1 as it is, both ways, and has no key that would open one.

What it receives is sealed to its own link (SPEC.md 3.3, ref 1); what it publishes it seals for its
link alone. What it receives is acknowledged by `settle`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

from sealmq.client import Client, Options
from sealmq.client.cipher import make
from sealmq.client.opener import Opener, Plan
from sealmq.client.operations import Draft
from sealmq.client.state import State
from sealmq.client.values import Message, News
from sealmq_spec.const import LIVE, WILL
from sealmq_spec.envelope import CTR1, get_m1
from sealmq_spec.errors import Malformed
from sealmq_spec.reader import Message as Opened
from sealmq_spec.tlv import EMPTY
from sealmq_spec.topics import check_topic

_KEPT = 64
_new = tuple.__new__
# Where sender, boot and salt begin in an m1; up to the counter.
_WHOSE = CTR1 - 14
# Epoch, origin, counter.
_WHICH = struct.Struct(f">2xBH{_WHOSE - 5}x14sBH").unpack_from


class Head(NamedTuple):
    """What an m1 says in clear. `origin`: whose boot session it is (sender, boot, salt), without
    its site."""

    kind: int
    epoch: int
    sender: int
    origin: bytes
    ctr: int
    t_pub: int
    life: int


def head(m1: bytes) -> Head:
    """Malformed."""
    _, kind, untimed, epoch, sender, _, _, ctr, t_pub, life = get_m1(m1, 0, len(m1))
    if untimed or kind == WILL:
        raise Malformed("a will: they do not cross")
    return _new(Head, (kind, epoch, sender, m1[_WHOSE:CTR1], ctr, t_pub, life))


def which(m1: bytes) -> tuple[bytes, int, int]:
    """origin, ctr and epoch of an m1 whose head has been looked at."""
    high, low, origin, top, rest = _WHICH(m1)
    return origin, top << 16 | rest, high << 16 | low


@lru_cache(1024)
def _raw(topic: str) -> bytes:
    return check_topic(topic)


class _Unopened(Opener):
    def _open_inner(self, topic: bytes, payload: bytearray, o: int, end: int, *rest: Any) -> Opened:
        _, how, _, _, _, tails = rest
        return Opened(tails[3], bytes(payload[o:end]), tails[0], 0, 0, how, {})

    def _inside(
        self, plan: Plan, topic: bytes, head: bytes, plain: bytes, s2: int, now: int
    ) -> Opened:
        # What the TLV block says of label and topic; the same as it was means the same.
        end = plain[0] + 1
        block = plain[:end]
        known = plan.inner.get(block)
        if known is None:
            opened = super()._inside(plan, topic, head, plain, s2, now)
            if plain[0] < 128 and len(plan.inner) < self.limit:
                plan.inner[block] = opened.topic, opened.label
            return opened
        text, label = known
        return _new(Opened, (text, plain[end:], label, 0, 0, plan.how, {}))


class Passing(Client):
    """take: gets this client and messages, whose payloads are m1."""

    take: Callable[[Passing, list[Message]], None] | None = None

    @classmethod
    def of(
        cls,
        enrolment: Mapping[str, Any],
        address: tuple[str, int],
        options: Options,
        take: Callable[[Passing, list[Message]], None] | None,
        on_news: Callable[[News], None] | None = None,
        state: State | None = None,
    ) -> Passing:
        """Not connected yet. address: the site's own mediator's."""
        host, port = address
        made: Passing = cls.from_enrolment(  # type: ignore[assignment]
            enrolment, state, host=host, port=port, options=options, on_news=on_news
        )
        made.take = take
        return made

    def _fresh(self) -> None:
        super()._fresh()
        self._boots.reader = _Unopened(  # type: ignore[assignment]
            self._boots.identity, make, _KEPT
        )
        self._desk.take = None if self.take is None else partial(self.take, self)

    async def pass_on(self, topic: str, m1: bytes, qos: int, retain: bool, within: float) -> None:
        """Publish an m1 of another site. As `publish` otherwise."""
        draft = Draft(topic, _raw(topic), m1, qos, retain, LIVE, 0, passed=True)
        await self._running().publish(draft, None, within)

    def pass_on_nowait(
        self, topic: str, m1: bytes, retain: bool, over: Callable[[Exception | None], None]
    ) -> bool:
        """The same with QoS 1, as `publish_nowait`."""
        draft = _new(Draft, (topic, _raw(topic), m1, 1, retain, LIVE, 0, EMPTY, True))
        return self._operations.publish_nowait(draft, over) > 0
