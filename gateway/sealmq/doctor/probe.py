"""Connections to somebody's broker, as its accounts, and what is seen there.

A SUBACK or a PUBACK proves nothing either way: brokers grant what they do not deliver, and
acknowledge what they drop. What counts is which message came to whom. Each message is of the
doctor's own, and has a mark that no other has.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from sealmq.broker.errors import BrokerError, Refused, Silent
from sealmq.broker.peer import Peer
from sealmq.broker.target import Target
from sealmq.mqtt import Publish, Will

from .accounts import Account, Accounts
from .result import Unclear

SYS = "$SYS/"
PREFIX = b"sealmq doctor, may be deleted: "
REFUSED = 0x80
_MOST_UNREAD = 16 << 20
BREAKS_OFF = (BrokerError, Unclear, OSError)
"""What ends a try without a result."""
Lines: TypeAlias = dict[Account, Peer]
Back: TypeAlias = tuple[str, Account]


@dataclass(frozen=True, slots=True)
class Where:
    """host: its name, of which its certificate has to be. address: what that was resolved to.

    context, bare: for TLS, with the client's certificate and without one; None: no TLS.
    """

    host: str
    address: str
    port: int
    context: ssl.SSLContext | None = None
    bare: ssl.SSLContext | None = None

    @property
    def exposed(self) -> bool:
        """Whether passwords cross a network without TLS."""
        return self.context is None and not ipaddress.ip_address(self.address).is_loopback


@dataclass(frozen=True, slots=True)
class Limits:
    """Of a visit: seconds for all of it, seconds for an answer, messages sent and received."""

    seconds: float = 120.0
    answer_s: float = 5.0
    messages: int = 2000


@dataclass(slots=True)
class Came:
    """What came to one account: marks, those that came as retained (b"": of somebody else's), and
    whether anything came of `$SYS`. Nobody else's payload is kept.
    """

    marks: set[bytes] = field(default_factory=set)
    retained: set[bytes] = field(default_factory=set)
    sys: bool = False

    def add(self, message: Publish) -> None:
        own = message.payload.startswith(PREFIX)
        if own:
            self.marks.add(message.payload)
        if message.retain:
            self.retained.add(message.payload if own else b"")
        self.sys = self.sys or message.topic.startswith(SYS)


def mark_of_ours() -> bytes:
    return PREFIX + os.urandom(16).hex().encode()


def new_name() -> str:
    return f"sealmq-doctor-{os.urandom(6).hex()}"


class Probe:
    """One visit's. `seen`: whether any account was let in."""

    def __init__(self, where: Where, accounts: Accounts, limits: Limits) -> None:
        self.where, self.accounts, self.limits = where, accounts, limits
        self.messages = 0
        self.seen = False

    def peer(
        self,
        who: Account | None,
        name: str = "",
        *,
        clean: bool = True,
        will: Will | None = None,
        target: Target | None = None,
        bare: bool = False,
    ) -> Peer:
        where = self.where
        if target is None:
            user, password = (None, None) if who is None else (who.name, who.password)
            target = Target(where.address, where.port, user, password)
        return Peer(
            target,
            name or (who.client_id if who else "") or new_name(),
            clean=clean,
            timeout_s=self.limits.answer_s,
            context=where.bare if bare else where.context,
            name=where.host,
            will=will,
            most_unread=_MOST_UNREAD,
        )

    @asynccontextmanager
    async def enter(
        self, who: Account, name: str = "", *, clean: bool = True, will: Will | None = None
    ) -> AsyncIterator[Peer]:
        """A connection that has been let in."""
        async with self.peer(who, name, clean=clean, will=will) as line:
            if line.code:
                raise Refused(f"{who.name} is refused, CONNACK {line.code}", line.code)
            self.seen = True
            yield line

    @asynccontextmanager
    async def lines(self, *who: Account) -> AsyncIterator[Lines]:
        """One connection for each account: some brokers let in one at a time."""
        async with AsyncExitStack() as stack:
            yield {one: await stack.enter_async_context(self.enter(one)) for one in {*who}}

    def count(self) -> None:
        self.messages += 1
        if self.messages > self.limits.messages:
            raise Unclear(f"its {self.limits.messages} messages are spent (--messages)")

    async def publish(self, line: Peer, topic: str, *, retain: bool = False) -> bytes:
        """A message of its own kind; returns when it is acknowledged."""
        self.count()
        mark = mark_of_ours()
        await line.publish(topic, mark, retain=retain)
        return mark

    async def take(self, line: Peer, came: Came) -> None:
        """The next message."""
        came.add(await line.message())
        self.count()

    async def until(self, line: Peer, mark: bytes, came: Came) -> None:
        """Reads on until the mark has come."""
        while mark not in came.marks:
            await self.take(line, came)

    async def carried(self, lines: Lines, writer: Account, reader: Account, topic: str) -> bytes:
        """The control: a message that the reader, who has subscribed, gets."""
        mark = await self.publish(lines[writer], topic)
        await self.until(lines[reader], mark, Came())
        return mark

    async def now(self, line: Peer, came: Came) -> None:
        """What has come to it by now, as far as the answer to a ping tells."""
        await line.held()
        with contextlib.suppress(Silent):
            while True:
                came.add(await line.message(0))
                self.count()

    def back(self, who: Account) -> Back | None:
        """What it may read, and who may write that: a later message must come to it."""
        return (who.read[0], self.accounts.writer(who.read[0], who)) if who.read else None
