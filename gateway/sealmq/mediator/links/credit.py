"""How much of what this mediator publishes may lie in the broker's queues for its live links.

A broker keeps a bounded queue for a connection and drops what exceeds it, without a word; all
readers of a worker share its live link's. So now and then a mark goes out over the publish link,
and the live links of all workers, with all of their lines, are subscribed to marks: what was
published before a mark has passed when the mark has come over each of them. When as much may be
out as this worker's part of half of a queue, its publishers wait. Marks come in their order; if one
does not, it was dropped, and perhaps messages with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .broker import BrokerAddress

# Bytes that one message counts beside its payload.
EACH = 512
# How long a mark may take after the broker has acknowledged it.
OVERDUE_S = 30.0


_DROPPED = "the broker dropped messages: more came than it keeps for one connection"
# Marks have rising numbers; a new run of numbers begins after so many, or if some may be lost.
_RUN = 1 << 20


class _Mark:
    """A mark that is out. `sent`: bytes published before it; `acked_s`: when the broker had it;
    `waits`: the workers over whose live links it has not come.
    """

    __slots__ = ("acked_s", "sent", "waits")

    def __init__(self, sent: int, waits: set[int]) -> None:
        self.sent, self.waits, self.acked_s = sent, waits, 0.0


class Credit:
    """Shared by one publish link and one live link. `name`: as all workers have it; `worker`: the
    number of this one of `workers`; `first`: a number that none of them has begun with before.

    `told(worker, number)`: a mark of that worker came here; its Credit is to be told by `marked`.
    `there(on)`: whether marks come over the live link here; the Credits of all other workers are to
    be told by `live`.
    """

    def __init__(
        self,
        address: BrokerAddress,
        name: str,
        worker: int = 0,
        workers: int = 1,
        first: int = 0,
        told: Callable[[int, int], None] = lambda worker, number: None,
        there: Callable[[bool], None] = lambda there: None,
    ) -> None:
        self.topic = f"@{name}/mark"
        # Each message counts EACH at least: so there are never more of them than half of the queue
        # holds. Each queue may get what all workers publish.
        self.most = max(4 * EACH, address.queue * EACH // 2 // workers)
        # Without acknowledgements a mark could overtake messages that were published before it.
        self.possible = address.qos > 0
        # Called when there is room again.
        self.room: Callable[[], None] = lambda: None
        self._worker, self._told, self._tells = worker, told, there
        self._number = first * _RUN * _RUN
        self._sent = self._passed = 0
        self._marks: dict[int, _Mark] = {}
        # Workers whose live links are there.
        self._there: set[int] = set()

    @property
    def counts(self) -> bool:
        """Whether a live link is there that would see a mark."""
        return bool(self._there)

    @property
    def full(self) -> bool:
        """Whether nothing more should be published for now."""
        return self._sent - self._passed > self.most

    # --- the publish link ---

    def mark(self, more: int) -> bytes:
        """`more` bytes were published since the last mark. The payload of the next one."""
        self._number += 1
        self._sent += more
        self._marks[self._number] = _Mark(self._sent, set(self._there))
        return b"%d %d" % (self._worker, self._number)

    def acknowledged(self, payload: bytes) -> None:
        """The broker has this mark."""
        mark = self._marks.get(int(payload.split()[1]))
        if mark is not None:
            mark.acked_s = asyncio.get_running_loop().time()

    def restart(self) -> None:
        """The publish link fell: marks that are out may never come."""
        self._marks.clear()
        self._number |= _RUN - 1
        self._passed = self._sent
        self.room()

    # --- the live links ---

    def begin(self, there: bool) -> None:
        """The live link is up, and subscribed to marks if the broker lets it; or it is lost."""
        if self.possible:
            self.live(self._worker, there)
            self._tells(there)

    def live(self, worker: int, there: bool) -> None:
        """Marks come over that worker's live link, or do not any more."""
        if there:
            self._there.add(worker)
            return
        self._there.discard(worker)
        for mark in self._marks.values():
            mark.waits.discard(worker)
        self._go_on()

    def marked(self, worker: int, number: int) -> None:
        """A mark of this worker came over that worker's live link."""
        mark = self._marks.get(number)
        if mark is not None:
            mark.waits.discard(worker)
            self._go_on()

    def came(self, worker: int, number: int) -> str | None:
        """The next mark of this worker came over the live link here. Why messages must have been
        lost before it, or None.
        """
        if worker != self._worker:
            self._told(worker, number)
            return None
        waiting = (n for n, mark in self._marks.items() if worker in mark.waits)
        first = next(waiting, number)
        if number > first and number in self._marks:
            return _DROPPED
        self.marked(worker, number)
        return None

    def overdue(self) -> str | None:
        """Why to give the live link up: a mark has not come back for long. To be asked about once a
        second, whether the link is there or not.
        """
        before = asyncio.get_running_loop().time() - OVERDUE_S
        late: set[int] = set()
        for mark in self._marks.values():
            if not 0 < mark.acked_s < before:
                break
            late |= mark.waits
        if not late:
            return None
        # Another worker sees by itself, by the next mark, what was dropped.
        for mark in self._marks.values():
            mark.waits -= late - {self._worker}
        self._go_on()
        if self._worker not in late:
            return None
        return f"a message that the broker acknowledged has not come for {OVERDUE_S:.0f} s"

    def _go_on(self) -> None:
        marks = self._marks
        while marks:
            number = next(iter(marks))
            if marks[number].waits:
                break
            self._passed = marks.pop(number).sent
        if self._sent - self._passed < self.most // 2:
            self.room()


class Lines:
    """The lines of one live link, of which each brings marks. A mark has come once every line has
    brought it; by then everything published before the mark has come too. `first` is waited for
    from the beginning, any other line from the first mark on that it brings.
    """

    def __init__(self, credit: Credit, first: object) -> None:
        self._credit, self._first = credit, first
        # Of each line the newest mark that it has brought, by worker.
        self._brought: dict[object, dict[int, int]] = {first: {}}
        # Marks that not every line has brought: (worker, number).
        self._waiting: set[tuple[int, int]] = set()

    def came(self, line: object, payload: bytes) -> str | None:
        """A line has brought this mark. As Credit.came."""
        words = payload.split()
        if len(payload) > 32 or len(words) != 2 or not all(word.isdigit() for word in words):
            return None
        worker, number = int(words[0]), int(words[1])
        brought = self._brought.setdefault(line, {})
        newest = brought.get(worker, 0)
        if number <= newest:
            return None  # a second copy
        brought[worker] = number
        if newest and number > newest + 1 and number // _RUN == newest // _RUN:
            return _DROPPED
        self._waiting.add((worker, number))
        return self._pass(worker)

    def over(self, line: object) -> str | None:
        """It is no more, and nothing is to come over it. As Credit.came."""
        reasons = [self._pass(worker) for worker in self._brought.pop(line, {})]
        return next(filter(None, reasons), None)

    def _pass(self, worker: int) -> str | None:
        rows = self._brought.items()
        least = min(row.get(worker, 0) for of, row in rows if worker in row or of is self._first)
        for mark in sorted(m for m in self._waiting if m[0] == worker and m[1] <= least):
            self._waiting.remove(mark)
            if reason := self._credit.came(*mark):
                return reason
        return None
