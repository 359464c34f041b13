"""The rounds: every variant in turns, so that whatever changes on the machine meets all of them;
the first round warms up and is thrown away. Bounded in count and in time."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench_print import Row, row
from load_generator import Told
from load_sites import Scene, Variant
from load_stats import Found, found

# Beyond so much of a core the generator may be what holds the others up.
BUSY = 0.7
# How many messages a client sends at once, and in how many parts a round's span is taken.
PARTS = {1: 4, 16: 2}
BURSTS = tuple(PARTS)
GENERATOR = "generator"

# (measure, burst or 0, process or "")
Key = tuple[str, int, str]
UNITS = {
    "throughput": "messages/s",
    "round_trip": "ms",
    "round_trip_p95": "ms",
    "cpu_message": "us of CPU",
}


@dataclass(frozen=True)
class Sizes:
    """How much is done. span_s: how long one measured span shall take, about."""

    pairs: int = 10
    clients: int = 250
    size: int = 64
    span_s: float = 0.8
    most: int = 192
    minutes: float = 12.0


class Progress:
    """One line on a terminal that is written over; elsewhere a line for each tenth."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._start = total, 0, time.monotonic()
        self._live = sys.stderr.isatty()

    def done(self, what: str, steps: int = 1) -> None:
        """So many steps are done, the last of them `what`."""
        before, self._done = self._done, min(self._total, self._done + steps)
        seconds, share = time.monotonic() - self._start, self._done / self._total
        left = seconds / share - seconds
        filled = int(24 * share)
        bar = f"[{'#' * filled}{'.' * (24 - filled)}]"
        line = f"bench: {bar} {share:4.0%}, {seconds:.0f} s, {left:.0f} s more: {what}"
        if self._live:
            print(f"\r{line[:78]:<78}", end="", file=sys.stderr, flush=True)
            if self._done == self._total:
                print(file=sys.stderr)
        elif int(10 * share) > int(10 * before / self._total):
            print(line, file=sys.stderr, flush=True)


@dataclass
class Taken:
    """What one scene gave, round by round."""

    variant: str
    held: int
    clients: int
    size: int
    # A value a round.
    values: dict[Key, list[float]] = field(default_factory=dict)

    def add(self, measure: str, value: float, burst: int = 0, process: str = "") -> None:
        self.values.setdefault((measure, burst, process), []).append(value)


class Rounds:
    """Scenes that are measured beside each other."""

    def __init__(
        self, scenes: Sequence[Scene], sizes: Sizes, progress: Callable[[str], None]
    ) -> None:
        self.scenes, self.sizes, self.progress = scenes, sizes, progress
        self.taken = [Taken(s.variant.name, s.held, s.clients, sizes.size) for s in scenes]
        # How much fits into the spans, by scene; the round that warms up tells.
        self._each: dict[tuple[int, int], int] = {}

    def run(self, pairs: int, until: float) -> None:
        """One round to warm up, and `pairs` that count; fewer, but at least one, when it takes
        longer than until (monotonic)."""
        for at, scene in enumerate(self.scenes):
            self.warm(at)
            self.progress(f"{scene.variant.name} is warm")
        for turn in range(1, pairs + 1):
            if turn > 1 and time.monotonic() > until:
                break
            for burst in BURSTS:
                self._messages(turn, burst)
            for at in self._order(turn):
                self.more(at, self.taken[at])
                self.progress(f"{self.scenes[at].variant.name}, round {turn} of {pairs}")

    def more(self, at: int, into: Taken) -> None:
        """What else is measured in each round."""

    def warm(self, at: int) -> None:
        """Topics get their labels, caches fill, and each span its length."""
        scene = self.scenes[at]
        for burst in scene.variant.bursts:
            scene.do("messages", each=burst, burst=burst)
            span = scene.do("messages", each=2 * burst, burst=burst)
            fit = 2 * burst * self.sizes.span_s / PARTS[burst] / span["wall_s"]
            self._each[at, burst] = _rounded(fit, burst, self.sizes.most)
        self.more(at, Taken("", 0, 0, 0))

    def _order(self, turn: int) -> list[int]:
        return in_turns(len(self.scenes), turn)

    # A round's span in several parts, between which the others have theirs: what goes on beside us
    # for a while meets all of them.
    def _messages(self, turn: int, burst: int) -> None:
        spans: dict[int, list[Told]] = {}
        for part in range(PARTS[burst]):
            for at in self._order(turn + part):
                mine = spans.setdefault(at, [])
                slow = sum(span["wall_s"] for span in mine) >= self.sizes.span_s
                if burst in self.scenes[at].variant.bursts and not slow:
                    each = self._each[at, burst]
                    mine.append(self.scenes[at].do("messages", each=each, burst=burst))
        for at, mine in spans.items():
            if mine:
                _add_messages(self.taken[at], mine, burst)


def in_turns(count: int, turn: int) -> list[int]:
    """Another one begins each time, and every second time they go backwards."""
    order = list(range(count))
    first = turn // 2 % count
    return (order[first:] + order[:first])[:: 1 if turn % 2 else -1]


def _add_messages(into: Taken, spans: Sequence[Told], burst: int) -> None:
    messages = sum(span["messages"] for span in spans)
    wall = sum(span["wall_s"] for span in spans)
    roles = {role: None for span in spans for role in span["cpu_us"]}
    used = {role: sum(span["cpu_us"].get(role, 0.0) for span in spans) for role in roles}
    into.add("throughput", messages / wall, burst)
    into.add("round_trip", median(span["trip_ms"] for span in spans), burst)
    into.add("round_trip_p95", median(span["trip95_ms"] for span in spans), burst)
    add_cpu(into, "cpu_message", used, messages, burst)
    add_shares(into, used, wall, burst)


def add_shares(into: Taken, used: dict[str, float], wall_s: float, burst: int = 0) -> None:
    """Which share of a core each process used."""
    for process, us in used.items():
        into.add("share", us / 1e6 / wall_s, burst, process)


def _rounded(wanted: float, burst: int, most: int) -> int:
    return max(burst, min(most, int(wanted)) // burst * burst)


def add_cpu(into: Taken, measure: str, used: dict[str, float], times: float, burst: int) -> None:
    """CPU a time by process; "gateway" is all of them, but not the generator."""
    for process, us in used.items():
        into.add(measure, us / times, burst, process)
    gateway = sum(us for role, us in used.items() if role != GENERATOR)
    into.add(measure, gateway / times, burst, "gateway")


def row_of(
    of: Taken, measure: str, unit: str, got: Found, key: Key, stage: str, load: float
) -> Row:
    """A row with its interval, and with what the generator used beside it."""
    made = row(measure, of.variant, short_value(got.value), unit, got.n, of.size)
    params = made["params"]
    params |= {"clients": of.clients, "reservations": of.held, "stage": stage, "load": load}
    params |= {"low": short_value(got.low), "high": short_value(got.high)}
    params["sure"] = round(got.sure, 3)
    _, burst, process = key
    if burst:
        params["burst"] = burst
    if process:
        params["process"] = process
    elif ("share", burst, GENERATOR) in of.values:
        for role in (GENERATOR, "mediator"):
            share = of.values.get(("share", burst, role))
            if share:
                params[f"{role}_share"] = round(found(share).value, 2)
        params["generator_busy"] = params["generator_share"] > BUSY
    return made


def short_value(value: float) -> float:
    """Five digits."""
    return float(f"{value:.5g}")


@contextmanager
def running(
    wanted: Sequence[tuple[Variant, int]], clients: int, size: int, progress: Callable[[str], None]
) -> Iterator[list[Scene]]:
    """Scenes of (variant, reservations), all at once; they end with the block, whatever ends it."""
    scenes: list[Scene] = []
    with tempfile.TemporaryDirectory(prefix="sealmq-bench-", ignore_cleanup_errors=True) as folder:
        try:
            for at, (variant, held) in enumerate(wanted):
                scene = Scene(variant, Path(folder, str(at)), clients, held)
                scenes.append(scene)
                scene.start(size)
                progress(f"{variant.name} has started")
            yield scenes
        finally:
            # All at once, and whatever comes: a second Ctrl-C must not leave processes behind.
            before = signal.signal(signal.SIGINT, signal.SIG_IGN)
            for scene in scenes:
                scene.leave()
            for scene in scenes:
                scene.stop()
            signal.signal(signal.SIGINT, before)


def load_now() -> float:
    """The machine's load average of the last minute."""
    return round(os.getloadavg()[0], 1)
