"""The two clients of a border. The one reads as any client of its label does, and keeps the m1 of
what it has opened; the other seals an m1, which is sent until the broker has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from sealmq.bridge.passing import Passing
from sealmq.client import Client, ClientError, Options
from sealmq.client.cipher import make
from sealmq.client.foreign import Reader
from sealmq.client.opener import Plan
from sealmq.client.seal import seal_inner
from sealmq.client.state import BootFile
from sealmq.client.values import Message
from sealmq_spec.reader import Message as Opened

_KEPT = 1024


class Plain(bytes):
    """A payload. m1: as it came, sealed."""

    m1 = b""


class Keeping(Reader):
    """Opens messages, and keeps the m1 of each."""

    # A clear as well, which the mediator gives to nobody else who could open it.
    classes = (0b0011, 0b1110, 0b0100, 0b0111)

    def _plan_inner(self, plan: Plan, plain: bytes) -> None:
        """No plans for m1: `_open_inner` keeps each m1 that it opens, so it has to open all."""

    def _open_inner(self, topic: bytes, payload: bytearray, o: int, end: int, *rest: Any) -> Opened:
        m1 = bytes(payload[o:end])  # which opening it uses up
        opened = super()._open_inner(topic, payload, o, end, *rest)
        plain = Plain(opened.payload)
        plain.m1 = m1
        return opened._replace(payload=plain)


class Reading(Client):
    """take: gets each message, whose payload is a Plain. What it received is acknowledged once
    `take` has returned; if that raises, the client ends. Never ClientError or SealError: with these
    it connects again with the same windows, and takes for a replay what was not acknowledged.
    """

    take: Callable[[Message], None] | None = None

    @classmethod
    def of(
        cls,
        enrolment: Mapping[str, Any],
        address: tuple[str, int],
        options: Options,
        take: Callable[[Message], None],
    ) -> Reading:
        """Not connected yet. address: the site's own mediator's."""
        host, port = address
        made = cls.from_enrolment(enrolment, host=host, port=port, options=options)
        reading = cast(Reading, made)
        reading.take = take
        return reading

    def _fresh(self) -> None:
        super()._fresh()
        self._boots.reader = Keeping(self._boots.identity, make, _KEPT)
        self._desk.take = self._took

    def _took(self, messages: list[Message]) -> None:
        if self.take is not None:
            for message in messages:
                self.take(message)

    @property
    def label(self) -> int:
        """The number of its label; 0 before it has roots."""
        own = self._boots.identity.own
        return 0 if own is None else int(own.label)

    @property
    def refused(self) -> dict[str, int]:
        """How many deliveries it could not open, by class of error."""
        return dict(self._boots.refused)


class Publishing(Passing):
    """Seals what it publishes by itself, before it is published."""

    @classmethod
    def at(cls, enrolment: Mapping[str, Any], address: tuple[str, int], boot: Path) -> Publishing:
        """Not connected yet. address: the site's own mediator's. boot: the file of its last boot:
        what it seals within one second before a kill and after it is in its order for readers.
        """
        return cast(Publishing, cls.of(enrolment, address, Options(), None, state=BootFile(boot)))

    def seal(self, topic: bytes, payload: bytes, kind: int, life: int, t_pub: int) -> bytes:
        """m1. ClientError: there is no boot session just now."""
        session = self._boots.session
        if session is None:
            raise ClientError("its client is between two boot sessions")
        return seal_inner(session, topic, payload, kind, life, t_pub)
