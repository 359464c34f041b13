"""What a mediator writes into its audit log.

Counted records come at a minute's end with the minute before in them, the others as they happen, so
that a segment is not in the order of its times; a few counts are hours late.
"""

from __future__ import annotations

import random

import spark_world as world
from spark_tally import Tally


class Lines:
    """One process's lines, which the makers of spark_events and spark_bad write.

    head: what its ids begin with. process: its site, role and inst as fields.
    """

    def __init__(self, rng: random.Random, head: str, process: str, first_topic: int) -> None:
        self.rnd = rng.random
        self.tally = Tally()
        self.at = self.number = 0
        self._head, self._process, self._new_topic = head, process, first_topic
        self._kept: list[str] = []
        # A connect whose id a bad line may take: number and ms.
        self.lonely: tuple[int, int] | None = None

    def start(self, number: int, at: int | None = None) -> str:
        """What every record of the process begins with; bad ones too."""
        made = self.at if at is None else at
        return f'"v":1,"id":"{self._head}{number}","at_ms":{made},{self._process}'

    def record(self, event: str, rest: str, at: int | None = None) -> str:
        """A good line; rest: its further fields, each behind a comma."""
        self.number += 1
        text = f'{{{self.start(self.number, at)},"event":"{event}"{rest}}}'
        tally = self.tally
        tally.kept["audit"] += 1
        tally.events[event] += 1
        if self.kept_last():
            self._kept.append(text)
        return text

    def counted(self, event: str, rest: str, count: int) -> str:
        """A count of the minute before; of 500 one is up to two hours late."""
        minute = self.at // world.MINUTE_MS * world.MINUTE_MS
        at = minute + (self.number & 63)
        minute -= world.MINUTE_MS
        if self.rnd() < 0.002:
            minute -= int(self.rnd() * 120) * world.MINUTE_MS
        return self.record(event, f'{rest},"count":{count},"minute_ms":{minute}', at)

    def kept_last(self) -> bool:
        """Whether the last line may be repeated later."""
        return self.number % 29 == 0

    def how_many(self) -> int:
        """Messages of a minute: mostly one to four, seldom many."""
        drawn = self.rnd()
        return 1 + int(4 * drawn) if drawn < 0.995 else 1 + int(60 * self.rnd())

    def device(self) -> str:
        """A device's name."""
        return f"device-{int(self.rnd() * world.DEVICES)}"

    def peer(self) -> str:
        """Where it connects from."""
        drawn = int(self.rnd() * 60_000)
        return f"10.20.{drawn // 250}.{drawn % 250}"

    def repeated(self) -> str | None:
        """An earlier line of the segment once more."""
        if not self._kept:
            return None
        self.tally.repeated += 1
        return self._kept[int(self.rnd() * len(self._kept))]

    def new_topic(self) -> int:
        """The number of a topic that has no label yet."""
        self._new_topic += 1
        return self._new_topic - 1

    def remembered(self) -> list[str]:
        """Lines that may be written again elsewhere."""
        return self._kept
