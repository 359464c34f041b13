"""Messages that wait for the application: bounded by pausing the socket, never by dropping one.

Above the limits nothing more is read. Only while an operation waits for its answer, which comes
through the same socket, reading goes on, up to 8 times the limits: a consumer that publishes
between two messages must not wait for an acknowledgement that it keeps itself from reading.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from .bell import Bell
from .values import Message

_STRETCH = 8
# What a message takes besides its payload and topic, roughly.
_FIXED = 256


class Inbox:
    """Messages in their order. `limit` counts messages, `limit_bytes` their bytes."""

    def __init__(self, limit: int, limit_bytes: int, bell: Bell) -> None:
        self._limit, self._limit_bytes = limit, limit_bytes
        self._bell = bell
        self._messages: deque[Message] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, messages: Sequence[Message]) -> None:
        """Queue messages. The caller asks `admits` before it reads on."""
        self._messages.extend(messages)
        for message in messages:
            self._bytes += len(message.payload) + len(message.topic) + _FIXED
        self._bell.ring()

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)

    def pop(self, most: int) -> list[Message]:
        """The oldest messages, at most so many."""
        waiting = self._messages
        popped = [waiting.popleft() for _ in range(min(most, len(waiting)))]
        for message in popped:
            self._bytes -= len(message.payload) + len(message.topic) + _FIXED
        self._bell.ring()
        return popped

    def admits(self, operation_waits: bool) -> bool:
        """Whether more may be read from the socket."""
        stretch = _STRETCH if operation_waits else 1
        few = len(self._messages) < self._limit * stretch
        return few and self._bytes < self._limit_bytes * stretch
