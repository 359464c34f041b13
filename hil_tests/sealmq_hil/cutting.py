"""Cutting a board's power again and again while it starts, each time at a place that was drawn."""

from __future__ import annotations

import time
from collections.abc import Callable

from .bench import Bench
from .board import CUT, Place
from .cuts import Cut, draw
from .errors import Failed
from .processes import until
from .tools import partition

# A real board's start, in which its power goes at a time.
_LONGEST_MS = 4000


class Cutting:
    """before: what is done while the board is off, each time; its start then has more to write."""

    def __init__(self, bench: Bench, before: Callable[[], None] | None = None) -> None:
        self._bench, self._before = bench, before
        self._counted = CUT in bench.board.means

    def measure(self) -> int:
        """How many changes of the flash a start makes until it publishes; of a real board the
        milliseconds that it takes.
        """
        bench = self._bench
        self._off()
        since, before = time.monotonic(), bench.salts()
        first = bench.board.changes() if self._counted else 0
        bench.board.power(True)
        bench.fresh(since, not_in=before)
        if self._counted:
            return max(1, bench.board.changes() - first)
        return min(_LONGEST_MS, round((time.monotonic() - since) * 1000))

    def all(self, count: int, first: int, changes: int) -> None:
        """So many cuts, each a stage with its place. Failed: fewer fell inside than were to."""
        cuts = draw(self._bench.dice, count, first, changes)
        inside = 0
        for cut in cuts:
            with self._bench.stage("cut") as stage:
                place = self._once(cut)
                stage.cut(place, partition(place.address))
                inside += place.inside
                self._recovers()
        if self._counted and 2 * inside < count:
            raise Failed(f"{inside} of {count} cuts fell inside of a change; half were to")

    def _off(self) -> None:
        self._bench.board.power(False)
        if self._before is not None:
            self._before()

    def _once(self, cut: Cut) -> Place:
        bench = self._bench
        self._off()
        if not self._counted:
            bench.board.power(True)
            time.sleep(cut.after / 1000)
            bench.board.power(False)
            return Place(max(1, cut.after), "time")
        after = cut.after
        while True:
            since, salts = time.monotonic(), bench.salts()
            bench.board.arm(after, cut.inside, cut.seed)
            bench.board.power(True)

            def went_or_lives(since: float = since, salts: set[str] = salts) -> Place | bool:
                place = bench.board.place()
                return place or any(s.salt not in salts for s in bench.sealed(since))

            what = f"the power to go at change {after + 1} of its flash"
            found = until(what, went_or_lives, bench.options.patience_s)
            if isinstance(found, Place):
                return found
            # This start had less to write.
            bench.board.disarm()
            if not after:
                raise Failed("a start that writes nothing")
            after -= 1
            self._off()

    def _recovers(self) -> None:
        bench = self._bench
        before, since = bench.salts(), time.monotonic()
        bench.board.power(True)
        bench.fresh(since, not_in=before)
