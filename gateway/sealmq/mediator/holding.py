"""Deliveries held back from a client that does not hold its label's new epoch yet (SPEC.md 7.2).

A mediator seals under a new epoch from its beginning; who sleeps or is just told of it could read
nothing until the key generator's answer is there. So its messages wait here until that answer has
been passed on to it, or for a minute. What waits is bounded: when it is full, nothing more is read
from the broker for this client. Acknowledgements and control packets flow all the time, and while
nothing is held nothing of this stands in a message's way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from sealmq.mqtt import Packet, Publish

from .core.limits import HELD_ALL, HELD_BYTES, HELD_PACKETS, HOLD_S

if TYPE_CHECKING:
    from .connection import Connection
    from .hub import Hub

_WHY = "hold"
# With the key generator away no client can do what it is waited for.
_PATIENCE_S = 5.0


class Holding:
    """What one connection is not sent yet. `epoch`: the newest of its label that the client holds.

    `on`: something is waited for.
    """

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self.epoch = 0
        self.on = False
        self._until = 0.0
        # The epoch that is waited for, or that was waited for in vain.
        self._wanted = 0
        self._queue: deque[Publish] = deque()
        self._bytes = 0

    def begin(self) -> None:
        """The connection opens: its proof's generation tells which epoch the client holds."""
        client = self._conn.client
        label = self._conn.hub.ring.labels.get(client.label)
        known = client.epochs.get(self._conn.link.gen, 0)
        # 0: a generation from before such things were written down.
        self.epoch = known or (label.epoch if label else 0)
        self.look()

    def answered(self, epoch: int) -> None:
        """A provisioning answer that brings this epoch has been passed on."""
        self.epoch = max(self.epoch, epoch)
        self.look()

    def look(self) -> None:
        """Holds, or goes on, as the keyring and what the client has ask for."""
        wanted = self._conn.hub.ring.lacks(self._conn.client, self.epoch)
        if not wanted:
            self.release()
        elif wanted > self._wanted:
            self._wanted = wanted
            self._until = asyncio.get_running_loop().time() + HOLD_S
            self.on = True
            self._conn.upstream.on_packet = self._packet
            self._conn.delivering.hold(True)

    def beat(self, now: float) -> None:
        """About once a second."""
        if not self.on or now < self._until:
            return
        if self._conn.hub.kg is None:
            self._until = now + _PATIENCE_S
            return
        client = self._conn.client
        label = self._conn.hub.ring.labels[client.label].name
        self._conn.hub.audit.write(
            "handover-missed", client=client.name, label=label, epoch=self._wanted
        )
        self.release()

    def release(self) -> None:
        """What was held goes out now, in its order."""
        if not self.on:
            return
        self.on = False
        conn = self._conn
        deliver = conn.delivering.packet
        conn.upstream.on_packet = deliver
        conn.delivering.hold(False)
        queue = self._take()
        for packet in queue:
            deliver(packet)
        conn.upstream.pause(False, _WHY)

    def drop(self) -> None:
        """The connection has ended: the broker still has what it has promised to keep."""
        self.on = False
        self._take()

    def _packet(self, packet: Packet) -> None:
        conn = self._conn
        if not isinstance(packet, Publish):
            conn.delivering.packet(packet)
            return
        self._queue.append(packet)
        self._bytes += len(packet.payload)
        conn.hub.held += len(packet.payload)
        crowded = len(self._queue) >= HELD_PACKETS or self._bytes > HELD_BYTES
        if crowded or conn.hub.held > HELD_ALL:
            conn.upstream.pause(True, _WHY)

    def _take(self) -> deque[Publish]:
        queue, self._queue = self._queue, deque()
        self._conn.hub.held -= self._bytes
        self._bytes = 0
        return queue


def handover(hub: Hub) -> dict[str, object]:
    """For `sealmq status`: label -> Unix time at which its hand-over ends, of those that run; and
    how many connections wait for a new epoch.
    """
    now = hub.now_ms() // 1000
    labels = {
        label.name: label.previous[1]
        for label in hub.ring.labels.values()
        if label.previous and label.previous[1] > now
    }
    held = sum(connection.holding.on for connection in hub.connections)
    return {"labels": labels, "held": held}
