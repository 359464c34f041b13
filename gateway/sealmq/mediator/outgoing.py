"""Deliveries that a client has not taken yet, bounded: a slow reader costs itself, nobody else.

While its socket is full, what the broker has for it waits here as it came; it is judged and sealed
when it is written, so that it is fresh then and under an epoch that the client holds. QoS 0 waits
in a short queue whose oldest go first. QoS 1 and 2 wait as well; beyond a bound nothing more is
read from the broker for this client, which keeps those within its own limits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from sealmq.mqtt import Publish

from .core.limits import SLOW_BYTES, SLOW_SURE_BYTES

# Of one that waits, beside topic and payload.
_EACH = 200


class Outgoing:
    """deliver: one of them, now. pause: stop or go on reading what the broker has."""

    def __init__(self, deliver: Callable[[Publish], None], pause: Callable[[bool], None]) -> None:
        self._deliver, self._pause = deliver, pause
        self._slow = False
        # Why nothing goes out though the socket takes it.
        self.stopped = False
        self._paused = False
        self._queue: deque[Publish] = deque()
        self._loose = 0
        self._sure = 0

    @property
    def held(self) -> int:
        """Bytes that wait."""
        return self._loose + self._sure

    def put(self, packet: Publish) -> list[Publish]:
        """Delivers or queues one; those that were dropped for it."""
        if not self._slow and not self._queue:
            self._deliver(packet)
            return []
        self._queue.append(packet)
        size = _size(packet)
        if packet.qos:
            self._sure += size
            self._set_pause(self._sure > SLOW_SURE_BYTES)
            return []
        self._loose += size
        return self._shorten() if self._loose > SLOW_BYTES else []

    # The oldest of QoS 0 go, those of QoS 1 and 2 keep their places.
    def _shorten(self) -> list[Publish]:
        dropped = []
        kept: deque[Publish] = deque()
        # To a half: else each further message would walk the queue.
        while self._queue and self._loose > SLOW_BYTES // 2:
            packet = self._queue.popleft()
            if packet.qos:
                kept.append(packet)
            else:
                self._loose -= _size(packet)
                dropped.append(packet)
        kept.extend(self._queue)
        self._queue = kept
        return dropped

    def slow(self, full: bool) -> None:
        """The client's socket is full, or takes more again."""
        self._slow = full
        self.go_on()

    def go_on(self) -> None:
        """Delivers what waits, as far as that is possible."""
        # Delivering may fill the socket again, which comes back here.
        while self._queue and not self._slow and not self.stopped:
            packet = self._queue.popleft()
            if packet.qos:
                self._sure -= _size(packet)
            else:
                self._loose -= _size(packet)
            self._deliver(packet)
        self._set_pause(self._sure > (SLOW_SURE_BYTES // 2 if self._paused else SLOW_SURE_BYTES))

    def _set_pause(self, full: bool) -> None:
        if full != self._paused:
            self._paused = full
            self._pause(full)


def _size(packet: Publish) -> int:
    return len(packet.payload) + len(packet.topic_raw) + _EACH
