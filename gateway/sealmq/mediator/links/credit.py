"""How much of what this mediator publishes may lie in the broker's queue for its live link.

A broker keeps a bounded queue for a connection and drops what exceeds it, without a word; all
readers share the live link's. So now and then a mark goes out over the publish link, which the live
link is subscribed to: what was published before it has passed when it comes back. When half of the
queue may be out, publishers wait. Marks come back in their order; one that does not was dropped,
and perhaps others' messages with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .broker import BrokerAddress

# What one message counts beside its payload.
EACH = 512
# How long a mark may take that the broker has acknowledged.
OVERDUE_S = 30.0


class Credit:
    """Shared by one publish link and one live link. `topic` is where marks go."""

    def __init__(self, address: BrokerAddress, client_id: str) -> None:
        self.topic = f"@{client_id}/mark"
        # So that there are never more messages than half of the queue: each counts EACH at least.
        self.most = max(4 * EACH, address.queue * EACH // 2)
        # Without acknowledgements a mark could overtake what it stands for.
        self.possible = address.qos > 0
        # Told that there is room again.
        self.room: Callable[[], None] = lambda: None
        self._there = False
        self._number = 0
        self._sent = self._passed = 0
        # Marks that are out: what was published before each, and when it was acknowledged.
        self._marks: dict[int, tuple[int, float]] = {}

    @property
    def counts(self) -> bool:
        """Whether the live link is there, and would see a mark."""
        return self._there

    @property
    def full(self) -> bool:
        """Whether nothing more should be published for now."""
        return self._sent - self._passed > self.most

    # --- the publish link ---

    def mark(self, more: int) -> bytes:
        """So much was published since the last mark. What to publish as the next one."""
        self._number += 1
        self._sent += more
        self._marks[self._number] = self._sent, 0.0
        return b"%d" % self._number

    def acknowledged(self, payload: bytes) -> None:
        """The broker has this mark."""
        before = self._marks.get(int(payload))
        if before is not None:
            self._marks[int(payload)] = before[0], asyncio.get_running_loop().time()

    def restart(self) -> None:
        """A link fell: what was out is either lost or comes no more."""
        self._marks.clear()
        self._passed = self._sent
        self.room()

    # --- the live link ---

    def begin(self, there: bool) -> None:
        """The live link is up, and subscribed to marks if the broker lets it; or it is lost."""
        self._there = there
        self.restart()

    def came(self, payload: bytes) -> str | None:
        """A mark came back. Why messages must have been lost before it, or None."""
        number = int(payload) if payload.isdigit() and len(payload) < 20 else 0
        if number not in self._marks:
            return None  # of a link before, or a second copy
        first = next(iter(self._marks))
        if first != number:
            return "the broker dropped messages: more came than it keeps for one connection"
        self._passed, _ = self._marks.pop(number)
        if self._sent - self._passed < self.most // 2:
            self.room()
        return None

    def overdue(self) -> str | None:
        """Why the live link is to be given up, as a mark has not come back for long."""
        for _, since in self._marks.values():
            if since and asyncio.get_running_loop().time() - since > OVERDUE_S:
                return f"a message that the broker acknowledged has not come for {OVERDUE_S:.0f} s"
            break
        return None
