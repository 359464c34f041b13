"""Which answer of the broker belongs to whom: SUBACKs, or UNSUBACKs, of one connection.

The client chooses its packet ids and the mediator puts packets of its own between. Those take ids
from the far end that the client has not in use; should it take one of them all the same, answers
come in the order of what was sent, so each gets its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_LAST = 65_535
# A client may have nearly all of them under way; a search must end all the same.
_TRIES = 1024


class Answers(Generic[T]):
    """What is awaited, by packet id; an answer is given to what was sent first."""

    def __init__(self) -> None:
        self._awaited: dict[int, deque[Callable[[T], None]]] = {}

    def __contains__(self, packet_id: int) -> bool:
        return packet_id in self._awaited

    def expect(self, packet_id: int, then: Callable[[T], None]) -> None:
        """A packet with this id goes to the broker."""
        self._awaited.setdefault(packet_id, deque()).append(then)

    def came(self, packet_id: int, answer: T) -> None:
        """The broker's answer; one that nobody awaits is dropped."""
        waiting = self._awaited.get(packet_id)
        if waiting is None:
            return
        then = waiting.popleft()
        if not waiting:
            del self._awaited[packet_id]
        then(answer)


class OwnIds:
    """Packet ids for the mediator's own packets."""

    def __init__(self, taken: Callable[[int], bool]) -> None:
        """`taken`: whether the client, or an own packet, has it in use."""
        self._taken = taken
        self._newest = 0

    def take(self) -> int:
        """The next from the far end; after many that are in use, one of these."""
        for _ in range(_TRIES):
            self._newest = self._newest - 1 if self._newest > 1 else _LAST
            if not self._taken(self._newest):
                break
        return self._newest
