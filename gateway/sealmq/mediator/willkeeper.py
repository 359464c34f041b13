"""When wills fire. One that a client left by its own end fires at once; one that it left because
mediator or broker ended fires unless (client, client id) returns within a grace.

A will is on disk from its CONNECT until the broker has it, so it outlives this process. Fired twice
(killed between PUBACK and the store) it has one counter, and readers take it once.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from sealmq.families.engine import Conn
from sealmq.store import StoreError, WillRecord
from sealmq.store.left import gone
from sealmq_spec.errors import SealError

from .links.publish import NotTaken
from .upstream import BrokerAway
from .wills import Fired, judge, seal

if TYPE_CHECKING:
    from .hub import Hub

log = logging.getLogger("sealmq.mediator")

GRACE_S = 5.0
_RETRY_S = 0.5
_FORGET_PAUSES_S = (0.2, 1, 5, 15, 60)

Key = tuple[int, str]


class WillKeeper:
    """All wills of connections that have ended and have not fired."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._left: dict[Key, list[WillRecord]] = {}
        self._some = asyncio.Event()
        for will in hub.store.wills():
            self.leave(will)

    def leave(self, will: WillRecord) -> None:
        """Mediator or broker ended this connection, not its client: it may return."""
        self._left.setdefault((will.client, will.client_id), []).append(will)
        self._some.set()

    def returned(self, client: int, client_id: str) -> None:
        """The client is back: what it left behind does not fire."""
        for will in self._left.pop((client, client_id), ()):
            self.drop(will)

    def drop(self, will: WillRecord) -> None:
        """DISCONNECT, or a connection that never opened: the will is void."""
        self._hub.spawn(self._forget(will), f"will of client {will.client}")

    def fire(self, will: WillRecord, policy: Conn) -> None:
        """The client is gone without DISCONNECT."""
        self._hub.spawn(self._fire(will, policy), f"will of client {will.client}")

    async def run(self) -> None:
        """Fires what was left, a grace after the broker is there. For ever."""
        hub = self._hub
        while True:
            await self._some.wait()
            await hub.house.ready.wait()
            await asyncio.sleep(GRACE_S)
            if not hub.house.ready.is_set():
                continue
            self._some.clear()
            left, self._left = self._left, {}
            for will in (will for row in left.values() for will in row):
                who = hub.engine.who(self._name(will), will.client)
                self.fire(will, hub.engine.connection(who))

    def _name(self, will: WillRecord) -> str:
        client = self._hub.ring.clients.get(will.client)
        return client.name if client is not None else str(will.client)

    async def _fire(self, will: WillRecord, policy: Conn) -> None:
        hub = self._hub
        name = self._name(will)
        now_ms = hub.now_ms()
        try:
            it = judge(hub, will, policy, now_ms)
            policy.close(now_ms)
            taken = await self._deliver(will, it)
        except SealError as error:
            policy.close(now_ms)
            hub.audit.write(
                "publish-refused",
                client=name,
                client_id=will.client_id[:100],
                topic=will.topic[:200],
                rule=error.rule or "mediator.will." + type(error).__name__.lower(),
                reason=str(error)[:500],
            )
        else:
            if taken:
                label = hub.ring.labels[will.label].name
                hub.audit.count_accepted(name, it.topic, label)
        await self._forget(will)

    # The broker may be away, for long: sealed anew for each try, as long as its life lasts.
    # Whether it took it.
    async def _deliver(self, will: WillRecord, it: Fired) -> bool:
        hub = self._hub
        topic = it.topic.encode()
        while True:
            payload = seal(hub, will, it, hub.now_ms())
            if will.retain:
                hub.retained.passed(it.topic, hub.order.ms, hub.order.seq)
                place = it.at_ms // 1000, will.boot, will.ctr
                hub.retained.published(it.topic, will.client, place)
            losses = hub.house.losses
            seq = 0
            # A will is acknowledged to nobody: beyond its client's part it goes without a journal.
            if will.qos and not hub.journal.over(will.client):
                seq = hub.journal.append(topic, payload, will.qos, will.retain, will.client)
            try:
                await hub.messages.publish(topic, payload, will.qos, will.retain)
            except NotTaken as error:
                reason = f"will: {error}"
                await hub.set_aside(topic, payload, will.qos, will.retain, will.client, reason)
                return False
            except BrokerAway:
                await asyncio.sleep(_RETRY_S)
                await hub.house.ready.wait()
            else:
                if will.retain:
                    hub.retained_bytes.took(it.topic, will.client, len(payload))
                await hub.journal.safe(seq)
                if hub.house.losses == losses:
                    return True
            finally:
                hub.journal.acked(seq)

    async def _forget(self, will: WillRecord) -> None:
        for pause in _FORGET_PAUSES_S:
            try:
                await self._hub.store.commit([gone(will)])
                return
            except StoreError:
                await asyncio.sleep(pause)
        log.error("a will of client %d stays in the store: it may fire once more", will.client)
