"""The client of a bridge: it hands on m1 as it is, both ways, and has no key that would open one.

What it receives is sealed to its own link (SPEC.md 3.3, ref 1); what it publishes it seals for its
link alone. What it received counts as taken, and is acknowledged, once `take` has returned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sealmq.client import Client, ClientError, Options
from sealmq.client.cipher import make
from sealmq.client.operations import Draft
from sealmq.client.values import Message, News
from sealmq_spec.const import LIVE, RETAINED
from sealmq_spec.envelope import get_m1
from sealmq_spec.errors import Malformed, SealError
from sealmq_spec.reader import Message as Opened
from sealmq_spec.reader import Reader
from sealmq_spec.topics import check_topic

_KEPT = 64


class Head(NamedTuple):
    """What an m1 says in clear. `origin`: whose boot session it is, without its site."""

    kind: int
    epoch: int
    sender: int
    origin: bytes
    ctr: int
    t_pub: int
    life: int


def head(m1: bytes) -> Head:
    """Malformed."""
    _, kind, untimed, epoch, sender, boot, salt, ctr, t_pub, life = get_m1(m1, 0, len(m1))
    if untimed or kind not in (LIVE, RETAINED):
        raise Malformed("a will, or a clear: they do not cross")
    whose = sender.to_bytes(3, "big") + boot.to_bytes(3, "big") + salt
    return Head(kind, epoch, sender, whose, ctr, t_pub, life)


class _Unopened(Reader):
    def _open_inner(
        self,
        topic: bytes,
        payload: bytearray,
        o: int,
        end: int,
        roots: Any,
        how: int,
        s2: int,
        now: int,
        items: dict[int, bytes],
        tails: Any,
    ) -> Opened:
        m1 = bytes(payload[o:end])
        return Opened(tails[3], m1, tails[0], 0, 0, how, {})


class Passing(Client):
    """take: gets each message, whose payload is an m1."""

    take: Callable[[Message], None] | None = None

    @classmethod
    def of(
        cls,
        enrolment: Mapping[str, Any],
        address: tuple[str, int],
        options: Options,
        take: Callable[[Message], None] | None,
        on_news: Callable[[News], None] | None = None,
    ) -> Passing:
        """Not connected yet. address: the site's own mediator's."""
        host, port = address
        made: Passing = cls.from_enrolment(  # type: ignore[assignment]
            enrolment, host=host, port=port, options=options, on_news=on_news
        )
        made.take = take
        return made

    def _fresh(self) -> None:
        super()._fresh()
        self._boots.reader = _Unopened(  # type: ignore[assignment]
            self._boots.identity, make, _KEPT
        )
        self._desk.take = self.take

    async def pass_on(self, topic: str, m1: bytes, qos: int, retain: bool, within: float) -> None:
        """Publish an m1 of another site. As `publish` otherwise."""
        draft = Draft(topic, check_topic(topic), m1, qos, retain, LIVE, 0, passed=True)
        await self._running().publish(draft, None, within)


__all__ = ["ClientError", "Head", "Passing", "SealError", "head"]
