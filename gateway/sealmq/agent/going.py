"""A message of a local client that the site has not decided about, in memory or on disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from sealmq_spec.const import LIFE_FOREVER

from .spool import Kept
from .wire import Pub, Refusal

# The shortest life that a message can be given besides its 60 s (SPEC.md 3.1).
SHORTEST_S = 2
EXPIRED = Refusal("away", "agent.expired", "it waited for the site for too long")

Answer = Callable[[Refusal | None], None]
"""Told what has become of a PUBLISH: None once the site has accepted it. It raises nothing.

asker(), if it has that: itself while its connection is there; then the session that is to know of
it still, or None.
"""


def needed(answers: Iterable[Answer], more: Iterable[Answer]) -> list[Answer]:
    """Of one message that came again and again, those that mean something to somebody still."""
    found: dict[int, Answer] = {}
    for answer in (*answers, *more):
        asks = getattr(answer, "asker", None)
        asker = answer if asks is None else asks()
        if asker is not None:
            found[id(asker)] = answer
    return list(found.values())


class Going:
    """seq: its place; client: who published it; origin: that with its packet id, by which it is
    known when it comes again, "" for QoS 0; put_at, until: Unix seconds; dup: it may be on disk
    already; answers: who is told.
    """

    __slots__ = ("answers", "client", "dup", "origin", "pub", "put_at", "seq", "until")

    def __init__(
        self,
        seq: int,
        client: str,
        pub: Pub,
        put_at: int,
        until: int | None,
        answers: list[Answer],
        origin: str = "",
    ) -> None:
        self.seq, self.client, self.pub, self.answers = seq, client, pub, answers
        self.put_at, self.until, self.dup = put_at, until, pub.dup
        self.origin = origin

    @classmethod
    def of(cls, one: Kept, answers: list[Answer]) -> Going:
        """What was on disk."""
        pub = Pub(one.topic, one.payload, one.qos, one.retain, True, 0, one.put)
        client = one.origin.partition(" ")[2]
        return cls(one.seq, client, pub, one.put_at, one.until, answers, one.origin)

    def kept(self) -> Kept:
        """As it lies on disk."""
        pub = self.pub
        return Kept(
            self.seq, self.origin, pub.topic, pub.payload, pub.qos, pub.retain, pub.put,
            self.put_at, self.until,
        )  # fmt: skip

    def same(self, pub: Pub) -> bool:
        """Whether that is this one, come again."""
        mine = self.pub
        fields = (mine.topic, mine.payload, mine.qos, mine.retain, mine.put)
        return fields == (pub.topic, pub.payload, pub.qos, pub.retain, pub.put)

    def also(self, answers: Iterable[Answer]) -> None:
        """It has come again: they are told, too."""
        self.answers = needed(self.answers, answers)

    def life(self) -> int | None:
        """What it is published with (SPEC.md 3.1): 60 s, or without an end; with an expiry the
        longest 2^n s that is not longer than what is left. None: it is over."""
        if self.until is None:
            return LIFE_FOREVER if self.pub.retain else 0
        # A clock that was set back adds nothing.
        left = int(min(self.until - time.time(), self.until - self.put_at))
        return min(31, left.bit_length() - 1) if left >= SHORTEST_S else None

    def answer(self, refusal: Refusal | None) -> None:
        """Tell whoever waits."""
        for answer in self.answers:
            answer(refusal)
