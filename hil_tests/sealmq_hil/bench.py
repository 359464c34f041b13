"""One board under test: everything that a behaviour gets into its hands.

Stages are timed and written down as they end. `fresh` is the proof that a board lives: something it
sealed behind a moment was taken by the mediator, reached the broker, and was opened by a reader.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from . import nonces
from .board import Board, Place
from .errors import Failed, Skipped, words
from .line import Line
from .nonces import Seen
from .processes import until
from .results import FAIL, PASS, SKIP, Results, Row, now_ms
from .site import Site, topic_of
from .strategy import Strategy
from .together import Together
from .tools import Tools

_PATIENCE_S = 90.0
_GAPS = 2.5


@dataclass(frozen=True, slots=True)
class Options:
    """Of a run. cuts: of this board, over both behaviours that cut. broker_away_s: how long."""

    cuts: int = 4
    seed: int = 0
    patience_s: float = _PATIENCE_S
    broker_away_s: float = 0.5


@dataclass(slots=True)
class Stage:
    """What a stage has found out besides its time; fields of the schema."""

    more: dict[str, str | int | bool] = field(default_factory=dict)

    def bytes(self, count: int) -> None:
        """Moved in it."""
        self.more["bytes"] = count

    def count(self, count: int) -> None:
        """How many of what it is about."""
        self.more["count"] = count

    def heap(self, free: int) -> None:
        """On the board, behind a collection."""
        self.more["heap"] = free

    def cut(self, place: Place, partition: str) -> None:
        """Where the power went."""
        self.more["cut_after"] = place.after
        self.more["cut_op"] = place.op
        self.more["cut_inside"] = place.inside
        if place.op != "time":
            self.more["cut_address"] = place.address
            self.more["cut_size"] = place.size
            self.more["cut_done"] = place.done
            self.more["cut_partition"] = partition


class Bench:
    """A board, its site, its line, its tools, its dice."""

    def __init__(
        self,
        board: Board,
        site: Site,
        results: Results,
        tools: Tools,
        heavy: threading.Semaphore,
        options: Options,
    ) -> None:
        self.name = board.name
        self.board, self.site, self.tools, self.options = board, site, tools, options
        self.folder: Path = site.folder / board.name
        self.topic = topic_of(board.name)
        self.serial = Line(lambda: board.port, site.folder / f"{board.name}.serial.log")
        board.line = self.serial
        # What computes: bounded by the cores, not by the boards.
        self.heavy = heavy
        self.together: Together | None = None
        self.strategy = Strategy(Ways(self))
        self.dice = random.Random(0)  # noqa: S311 - replayable, nothing secret
        self.behaviour = ""
        self._results = results
        self._told: Callable[[str, str], None] = lambda stage, how: None
        self._repeats = 0
        self.image = ""

    @property
    def client(self) -> int:
        """Its number at the site."""
        return self.site.clients[self.name]

    # --- a behaviour begins, has stages, and ends ------------------------------------------------

    def begin(self, behaviour: str, told: Callable[[str, str], None]) -> None:
        """Dice of its own, so that a behaviour alone draws what it draws in a whole run."""
        self.behaviour, self._told = behaviour, told
        self.dice = random.Random(f"{self.options.seed} {self.name} {behaviour}")  # noqa: S311

    @contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """A part of a behaviour: its line is written when it ends, whichever way."""
        began, at = now_ms(), time.monotonic()
        self._told(name, "")
        made = Stage()
        try:
            yield made
        except Exception as error:
            outcome = SKIP if isinstance(error, Skipped) else FAIL
            self.record(name, outcome, began, _since(at), words(error), made.more)
            raise
        self.record(name, PASS, began, _since(at), "", made.more)
        self._told(name, PASS)

    def record(
        self,
        stage: str,
        outcome: str,
        at_ms: int,
        ms: int,
        cause: str = "",
        more: dict[str, str | int | bool] | None = None,
    ) -> dict[str, object]:
        """One result line."""
        fields = dict(more or {})
        if interpreter := self.board.interpreter():
            fields["interpreter"] = interpreter
        if self.image:
            fields["image"] = self.image
        return self._results.add(
            Row(
                board=self.name,
                kind=self.board.kind,
                chip=self.board.chip,
                behaviour=self.behaviour,
                stage=stage,
                outcome=outcome,
                at_ms=at_ms,
                ms=ms,
                cause=cause,
                more=fields,
            )
        )

    def repeated(self) -> str:
        """Nonces of this board that came twice since it was last asked; "" for none."""
        mine = [key for key in list(self.site.book.twice) if key[1] == str(self.client)]
        fresh, self._repeats = mine[self._repeats :], len(mine)
        return ", ".join(" ".join(key) for key in fresh[:3])

    # --- what it can be seen to do ---------------------------------------------------------------

    def sealed(self, since: float) -> list[Seen]:
        """What it published that got to the broker (on its path, where no tap is at the broker)."""
        use = nonces.INNER if self.site.envelopes is not None else nonces.PUBLISH
        return self.site.book.since(since, use, self.client)

    def fresh(self, since: float, *, not_in: set[str] | None = None) -> Seen:
        """Waits for a message that it sealed and that a reader has opened. not_in: salts of boots
        that are over. Failed.
        """
        try:
            seen = until(
                f"{self.name} to publish",
                lambda: [s for s in self.sealed(since) if not_in is None or s.salt not in not_in],
                self.options.patience_s,
            )[0]
        except Failed as error:
            printed = " / ".join(self.serial.tail(4))
            raise Failed(f"{error}; it printed: {printed or 'nothing'}") from None
        until(
            f"a reader to open what {self.name} published",
            # The taps see it before the mediator's readers do.
            lambda: self.site.above.since(seen.at - 0.5, self.topic),
            self.options.patience_s,
        )
        return seen

    def under(self, since: float, old: int) -> Seen:
        """Waits for a message under an epoch above `old`, as `fresh` does."""
        if self.site.envelopes is None:
            return self.fresh(since)  # nobody looks inside at an embedded broker
        seen = until(
            f"{self.name} to publish under an epoch above {old}",
            lambda: [s for s in self.sealed(since) if s.epoch > old],
            self.options.patience_s,
        )[0]
        self.fresh(seen.at)
        return seen

    def same_boot(self, seen: Seen, before: set[str]) -> None:
        """Failed: it has started again meanwhile."""
        if seen.salt not in before:
            raise Failed("it began another boot session")

    def refused(self, since_ms: int) -> None:
        """Waits until the mediator has refused it, and nothing of it gets through any more."""
        until(
            f"{self.name} to be refused",
            lambda: [
                row
                for row in self.site.audit("connect-refused")
                # Who it was is not proved, so it stands in the reason alone.
                if row["at_ms"] >= since_ms and self.name in row["reason"].split()
            ],
            self.options.patience_s,
        )
        self.silent()

    def rekey_all(self) -> None:
        """New epochs for the labels of all boards, at once; the old ones are over."""
        self.site.rekey()

    def salts(self) -> set[str]:
        """Boot sessions so far."""
        return self.site.book.salts(self.client)

    def silent(self) -> None:
        """Waits until nothing of it has reached the broker for longer than it pauses between two
        messages; what was under way may still come. Failed.
        """
        gap = _GAPS * self.tools.every
        begin = time.monotonic()

        def still() -> bool:
            now = time.monotonic()
            return now - begin > gap and not self.sealed(now - gap)

        until(f"{self.name} to be silent", still, gap + self.options.patience_s)

    def meet(self, action: Callable[[], None] | None = None) -> None:
        """All boards are here; the action is done once."""
        if self.together is None:
            if action is not None:
                action()
        else:
            self.together.meet(self.name, action)

    def close(self) -> None:
        """Nothing of it runs any more."""
        self.serial.close()
        self.board.stop()


class Ways:
    """The strategy's steps on a bench."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def off(self) -> None:
        """Without power."""
        self._bench.board.power(False)

    def loader(self) -> None:
        """Powered, and in the chip's loader."""
        bench = self._bench
        bench.serial.close()
        if "power" in bench.board.means:
            bench.board.power(True)
        bench.board.loader(True)

    def flashed(self) -> None:
        """MicroPython alone."""
        bench = self._bench
        self.loader()
        with bench.heavy:
            bench.tools.bare(bench.board)
        bench.serial.open()
        bench.board.loader(False)

    def provisioned(self, fresh: bool) -> None:
        """Flashed with its bundle, or given its enrolment over MicroPython."""
        bench = self._bench
        if fresh:
            with bench.serial.away(), bench.heavy:
                bench.tools.provision(bench.board, bench.site.enrolment(bench.name), bench.topic)
            bench.board.reset()
            return
        bundle = bench.tools.bundle(bench.board, bench.site.enrolment(bench.name), bench.topic)
        self.loader()
        with bench.heavy:
            bench.image = bench.tools.write(bench.board, bundle).image
        bench.serial.open()
        bench.board.loader(False)

    def publishing(self, running: bool) -> None:
        """A message is read."""
        bench = self._bench
        since = time.monotonic()
        bench.serial.open()
        if running:
            bench.fresh(since)
            return
        before = bench.salts()
        bench.board.reset()
        bench.fresh(since, not_in=before)


def _since(at: float) -> int:
    return round((time.monotonic() - at) * 1000)
