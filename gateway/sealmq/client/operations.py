"""What an application asks for, from the sealed packet to its answer.

Counters leave in the order of calls (a lock), and never so far ahead of what may be sent again that
the mediator's window would refuse the latter (SPEC.md 6.1, step 2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

from sealmq.mqtt import build
from sealmq_spec.errors import SealError, WrongEpoch
from sealmq_spec.tlv import EMPTY

from .boot import Boots
from .core import Core
from .desk import Desk
from .errors import ClientError, Closed, ConnectionLost, Refused, Unconfirmed
from .life import Life
from .limit import Limit
from .randomness import mono_ms
from .state import own_epoch
from .values import Message, Options

_PING_AGAIN_S = 1.0
# A message waits so long for its sender's name.
_NAMES_S = 2.0


Sealed = Callable[[tuple[int, int]], None]
"""Told under which boot and counter a message leaves (Message.number)."""


class Draft(NamedTuple):
    """A message to publish; all is checked. raw: topic in UTF-8. kind: m1's class. block: TLV.
    passed: the payload is an m1, of another site's client.
    """

    topic: str
    raw: bytes
    payload: bytes
    qos: int
    retain: bool
    kind: int
    life: int
    block: bytes = EMPTY
    passed: bool = False

    def __repr__(self) -> str:
        return f"Draft(topic={self.topic!r}, payload=<{len(self.payload)} bytes>, qos={self.qos})"


class Wanted(NamedTuple):
    """A filter as it goes over the wire, with what is said in it, and as people know it."""

    wire: str
    shown: str
    qos: int = 0


class Operations:
    """Of one client, over all its connections."""

    def __init__(self, boots: Boots, desk: Desk, life: Life, options: Options) -> None:
        self._boots, self._desk, self._life, self._options = boots, desk, life, options
        self._gate = asyncio.Lock()
        self._names = boots.names
        self._naming = asyncio.Lock()

    # --- publish ---------------------------------------------------------------------------------

    async def publish(
        self,
        draft: Draft,
        confirm: float | None,
        within: float | None,
        sealed: Sealed | None = None,
    ) -> None:
        """Publish and wait for what is due. Refused for an old epoch: once more with new roots."""
        used: list[int] = []
        try:
            await self._publish(draft, confirm, within, used, sealed)
        except WrongEpoch as error:
            if not isinstance(error, Refused) or not self._life.may_renew or draft.passed:
                raise
            # Nothing was forwarded, so it may be sealed once more.
            await self._new_roots(used[0], within)
            await self._publish(draft, confirm, within, used, sealed)

    async def _publish(
        self,
        draft: Draft,
        confirm: float | None,
        within: float | None,
        used: list[int],
        sealed: Sealed | None,
    ) -> None:
        """used: the epoch that the message is sealed under comes to its end."""
        acks, receipts = self._desk.acks, self._desk.receipts
        ctr = 0
        try:
            async with self._limit(within, f"publish to {draft.topic}"):
                async with self._gate:
                    core = await self._core(draft.qos)
                    used.append(own_epoch(core.session.ident))
                    ctr, packet = core.publish(
                        draft.raw,
                        draft.payload,
                        draft.qos,
                        draft.retain,
                        draft.kind,
                        draft.life,
                        mono_ms(),
                        draft.block,
                        draft.passed,
                    )
                    if sealed is not None:
                        sealed((core.session.boot, ctr))
                    acked = acks.expect(ctr, draft.topic) if draft.qos else None
                    receipt = receipts.expect(ctr, draft.topic) if confirm is not None else None
                    self._life.send(packet)
                    await self._flush(draft.qos)
                if acked is not None:
                    await acked
            if receipt is not None and confirm is not None:
                await self._confirmed(receipt, draft.topic, confirm)
        finally:
            acks.forget(ctr)
            receipts.forget(ctr)

    def publish_nowait(self, draft: Draft, over: Callable[[Exception | None], None]) -> int:
        """Publish without waiting: `over` is told of the answer to QoS 1 and 2. The counter. 0:
        there is no room now, or no connection; `publish` waits for that.
        """
        life = self._life
        core, wire = life.core, life.wire
        if core is None or wire is None or life.error is not None:
            return 0
        if wire.clogged or self._gate.locked():
            return 0
        if self._boots.worn():
            life.worn()
            return 0
        topic, raw, payload, qos, retain, kind, lives, block, passed = draft
        most = self._options.inflight if qos else 0
        if not self._boots.outbox.admits(core.session.ctr + 1, most):
            return 0
        ctr, packet = core.publish(raw, payload, qos, retain, kind, lives, mono_ms(), block, passed)
        if qos:
            self._desk.acks.call(ctr, topic, over)
        life.send(packet)
        return ctr

    async def _flush(self, qos: int) -> None:
        try:
            await self._life.flush()
        except ConnectionLost:
            # What is kept may be sent again; QoS 0 is not.
            if not qos:
                raise

    async def _confirmed(self, receipt: asyncio.Future[None], topic: str, seconds: float) -> None:
        """PINGREQ makes a mediator that owes a receipt send it (SPEC.md 4.4)."""
        try:
            async with asyncio.timeout(seconds):
                while not receipt.done():
                    self._life.send(build.pingreq())
                    await asyncio.wait([receipt], timeout=_PING_AGAIN_S)
                await receipt
        except TimeoutError:
            raise Unconfirmed(
                f"publish to {topic}: no receipt of the gateway within {seconds:g} s"
            ) from None

    async def _new_roots(self, used: int, within: float | None) -> None:
        core = self._life.core
        if core is not None and own_epoch(core.session.ident) <= used:
            self._life.outdated(used + 1)

        def renewed() -> bool:
            core = self._life.core
            fresh = core is not None and own_epoch(core.session.ident) > used
            return fresh or self._life.error is not None

        async with self._limit(within, "new roots"):
            await self._desk.bell.until(renewed)

    # --- subscribe, unsubscribe ------------------------------------------------------------------

    async def ask(
        self, wanted: Sequence[Wanted], add: bool, within: float | None
    ) -> list[int | Refused]:
        """SUBSCRIBE (`add`) or UNSUBSCRIBE; an answer for each."""
        ctrs: tuple[int, ...] = ()
        grants = self._desk.grants
        what = f"{'subscribe to' if add else 'unsubscribe from'} {wanted[0].shown}"
        try:
            async with self._limit(within, what):
                async with self._gate:
                    core = await self._core(0)
                    if add:
                        ctrs, packet = core.subscribe([(w.wire, w.qos) for w in wanted])
                    else:
                        ctrs, packet = core.unsubscribe([w.wire for w in wanted])
                    named = zip(ctrs, wanted, strict=True)
                    futures = [grants.expect(ctr, w.shown) for ctr, w in named]
                    self._life.send(packet)
                await asyncio.wait(futures)
            answers: list[int | Refused] = []
            for future in futures:
                error = future.exception()
                if error is not None and not isinstance(error, Refused):
                    raise error
                answers.append(future.result() if error is None else error)
            return answers
        finally:
            for ctr in ctrs:
                grants.forget(ctr)

    # --- control, receive ------------------------------------------------------------------------

    async def command(self, family: str, body: bytes, reply: bool, within: float | None) -> bytes:
        """Send a control packet and wait for the reply, if one is expected."""
        ctr = 0
        try:
            async with self._limit(within, f"command for {family}"):
                async with self._gate:
                    core = await self._core(0)
                    packet = core.control(core.session.up(body, mono_ms()))
                    ctr = core.session.ctr
                    replied = self._desk.replies.expect(ctr, family) if reply else None
                    self._life.send(packet)
                    await self._life.flush()
                return b"" if replied is None else await replied
        finally:
            self._desk.replies.forget(ctr)

    async def receive(self, most: int, within: float | None) -> list[Message]:
        """The next messages, at least one; raises what ended the client once all are taken."""
        inbox, life = self._desk.inbox, self._life
        async with Limit(within, "receive"):
            while True:
                await self._desk.bell.until(lambda: bool(inbox) or life.error is not None)
                if not inbox and life.error is not None:
                    raise life.error
                if found := self.receive_nowait(most):
                    return found
                # It stays where it is until its names are there, or nobody tells them.
                await self._ask_names()

    def receive_nowait(self, most: int) -> list[Message]:
        """The next messages, those that are there with their names."""
        inbox, names = self._desk.inbox, self._names
        ready, nameless = 0, False
        for message in islice(inbox, most):
            if message.label[:1] == "#":
                nameless = True
                if self._life.core is not None and names.lacks(message, mono_ms()):
                    break
            ready += 1
        found = inbox.pop(ready) if ready else []
        return [names.named(message) for message in found] if nameless else found

    async def _ask_names(self) -> None:
        async with self._naming:
            pairs = self._names.missing(self._desk.inbox, mono_ms())
            if not pairs:
                return
            try:
                body = self._names.question(pairs)
                self._names.answer(pairs, await self.command("names", body, True, _NAMES_S))
            except (ClientError, SealError):
                self._names.failed(pairs, mono_ms())

    # --- inside ----------------------------------------------------------------------------------

    async def _core(self, qos: int) -> Core:
        """The core of a usable connection, as soon as one more message may be underway."""
        life, boots = self._life, self._boots

        def usable() -> bool:
            core = life.core
            if life.error is not None or core is None:
                return life.error is not None
            inflight = self._options.inflight if qos else 0
            return boots.outbox.admits(core.session.ctr + 1, inflight)

        await self._desk.bell.until(usable)
        core = life.core
        if core is None or life.error is not None:
            raise life.error or Closed("the client is not connected")
        if boots.worn():
            life.worn()
        return core

    def _limit(self, within: float | None, what: str) -> Limit:
        return Limit(self._options.timeout if within is None else within, what)
