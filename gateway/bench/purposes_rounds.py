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
from purposes_load import Told
from purposes_peer import LoadError
from purposes_stats import Found, found, ratios
from purposes_world import Scene, Variant

# Beyond so much of a core the generator may be what holds the others up.
BUSY = 0.7
# How many messages a client sends at once, and in how many parts a round's span is taken.
PARTS = {1: 4, 16: 2}
BURSTS = tuple(PARTS)
GATEWAY = ("kg", "mediator", "broker")

# (measure, burst or 0, process or "")
Key = tuple[str, int, str]


@dataclass(frozen=True)
class Sizes:
    """How much is done. span_s: how long one measured span shall take, about."""

    pairs: int = 10
    clients: int = 250
    size: int = 64
    span_s: float = 0.8
    calm: int = 100
    commands: int = 8
    few: int = 16
    command_s: float = 0.4
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
    memory: float = 0.0

    def add(self, measure: str, value: float, burst: int = 0, process: str = "") -> None:
        self.values.setdefault((measure, burst, process), []).append(value)


_UNITS = {
    "throughput": "messages/s",
    "round_trip": "ms",
    "round_trip_p95": "ms",
    "round_trip_calm": "ms",
    "cpu_message": "us of CPU",
    "share": "of a core",
    "subscribe_rate": "commands/s",
    "reserve_rate": "commands/s",
    "cpu_subscribe": "us of CPU",
    "cpu_reserve": "us of CPU",
}


class Rounds:
    """Scenes that are measured beside each other."""

    def __init__(self, scenes: Sequence[Scene], sizes: Sizes, said: Callable[[str], None]) -> None:
        self._scenes, self._sizes, self._said = scenes, sizes, said
        self.taken = [Taken(s.variant.name, s.held, s.clients, sizes.size) for s in scenes]
        # How much fits into the spans, by scene; the round that warms up tells.
        self._each: dict[tuple[int, int], int] = {}
        self._counts: dict[tuple[int, str], int] = {}

    def run(self, pairs: int, until: float) -> None:
        """One round to warm up, and `pairs` that count; fewer, but at least one, when it takes
        longer than until (monotonic)."""
        self._warm()
        for turn in range(1, pairs + 1):
            if turn > 1 and time.monotonic() > until:
                break
            for burst in BURSTS:
                self._messages(turn, burst)
            for at in self._order(turn):
                self._commands(at, self.taken[at])
                self._said(f"{self._scenes[at].variant.name}, round {turn} of {pairs}")
        for scene, taken in zip(self._scenes, self.taken, strict=True):
            if scene.variant.sealed:
                taken.memory = scene.memory_mib("mediator")

    # Another one begins each time, and every second time they go backwards.
    def _order(self, turn: int) -> list[int]:
        order = list(range(len(self._scenes)))
        first = turn // 2 % len(order)
        return (order[first:] + order[:first])[:: 1 if turn % 2 else -1]

    # Topics get their labels, caches fill, and each span its length.
    def _warm(self) -> None:
        for at, scene in enumerate(self._scenes):
            for burst in scene.variant.bursts:
                scene.do("messages", each=burst, burst=burst)
                span = scene.do("messages", each=2 * burst, burst=burst)
                fit = 2 * burst * self._sizes.span_s / PARTS[burst] / span["wall_s"]
                self._each[at, burst] = _rounded(fit, burst, self._sizes.most)
            self._commands(at, Taken("", 0, 0, 0))
            self._said(f"{scene.variant.name} is warm")

    # A round's span in several parts, between which the others have theirs: what goes on beside us
    # for a while meets all of them.
    def _messages(self, turn: int, burst: int) -> None:
        spans: dict[int, list[Told]] = {}
        for part in range(PARTS[burst]):
            for at in self._order(turn + part):
                mine = spans.setdefault(at, [])
                slow = sum(span["wall_s"] for span in mine) >= self._sizes.span_s
                if burst in self._scenes[at].variant.bursts and not slow:
                    each = self._each[at, burst]
                    mine.append(self._scenes[at].do("messages", each=each, burst=burst))
        for at, mine in spans.items():
            if mine:
                _add_messages(self.taken[at], mine, burst)

    def _commands(self, at: int, into: Taken) -> None:
        scene, sizes = self._scenes[at], self._sizes
        into.add("round_trip_calm", scene.do("calm", count=sizes.calm)["trip_ms"])
        for what in ("subscribe", "reserve"):
            if what == "reserve" and not scene.variant.mode:
                continue
            count = self._counts.get((at, what), sizes.few)
            span = scene.do(what, count=count)
            wanted = int(count * sizes.command_s / span["wall_s"])
            most = sizes.commands * sizes.clients
            self._counts.setdefault((at, what), max(sizes.few, min(most, wanted)))
            into.add(f"{what}_rate", span["done"] / span["wall_s"])
            _cpu(into, f"cpu_{what}", span["cpu_us"], span["done"], 0)


def _add_messages(into: Taken, spans: Sequence[Told], burst: int) -> None:
    messages = sum(span["messages"] for span in spans)
    wall = sum(span["wall_s"] for span in spans)
    used = {role: sum(span["cpu_us"][role] for span in spans) for role in spans[0]["cpu_us"]}
    into.add("throughput", messages / wall, burst)
    into.add("round_trip", median(span["trip_ms"] for span in spans), burst)
    into.add("round_trip_p95", median(span["trip95_ms"] for span in spans), burst)
    _cpu(into, "cpu_message", used, messages, burst)
    for process, us in used.items():
        into.add("share", us / 1e6 / wall, burst, process)


def _rounded(wanted: float, burst: int, most: int) -> int:
    return max(burst, min(most, int(wanted)) // burst * burst)


def _cpu(into: Taken, measure: str, used: dict[str, float], times: int, burst: int) -> None:
    for process, us in used.items():
        into.add(measure, us / times, burst, process)
    into.add(measure, sum(used.get(role, 0.0) for role in GATEWAY) / times, burst, "gateway")


def rows(taken: Sequence[Taken], stage: str, load: float) -> list[Row]:
    """One row a measure: medians; what each variant is to `labels`, and to itself with the fewest
    reservations, in the same rounds."""
    made: list[Row] = []
    base = next((t for t in taken if t.variant == "labels"), None)
    for one in taken:
        same = [t for t in taken if t.variant == one.variant]
        least = min(same, key=lambda t: t.held)
        for key, values in one.values.items():
            measure, _, process = key
            if measure == "share":
                continue
            made.append(_row(one, measure, _UNITS[measure], found(values), key, stage, load))
            if process == "generator":
                continue
            to = base.values.get(key, []) if base is not None and base is not one else []
            if len(to) == len(values) and min(to) > 0:
                made.append(
                    _row(one, f"{measure}_to_labels", "times", ratios(values, to), key, stage, load)
                )
            if len(same) > 1 and measure == "cpu_message" and process == "mediator":
                of = ratios(values, least.values[key])
                row = _row(one, f"{measure}_to_fewest", "times", of, key, stage, load)
                row["params"]["fewest"] = least.held
                made.append(row)
        if one.memory:
            of = Found(one.memory, one.memory, one.memory, 0.0, 1)
            made.append(_row(one, "memory", "MiB", of, ("memory", 0, "mediator"), stage, load))
    return made


def _row(of: Taken, measure: str, unit: str, got: Found, key: Key, stage: str, load: float) -> Row:
    made = row(measure, of.variant, _short(got.value), unit, got.n, of.size)
    params = made["params"]
    params |= {"clients": of.clients, "reservations": of.held, "stage": stage, "load": load}
    params |= {"low": _short(got.low), "high": _short(got.high), "sure": round(got.sure, 3)}
    _, burst, process = key
    if burst:
        params["burst"] = burst
    if process:
        params["process"] = process
    elif burst:
        for role in ("generator", "mediator"):
            share = of.values.get(("share", burst, role))
            if share:
                params[f"{role}_share"] = round(found(share).value, 2)
        params["generator_busy"] = params["generator_share"] > BUSY
    return made


def _short(value: float) -> float:
    return float(f"{value:.5g}")


@contextmanager
def running(
    wanted: Sequence[tuple[Variant, int]], sizes: Sizes, said: Callable[[str], None]
) -> Iterator[list[Scene]]:
    """Scenes of (variant, reservations), all at once; they end with the block, whatever ends it."""
    scenes: list[Scene] = []
    with tempfile.TemporaryDirectory(prefix="sealmq-bench-", ignore_cleanup_errors=True) as folder:
        try:
            for at, (variant, held) in enumerate(wanted):
                scene = Scene(variant, Path(folder, str(at)), sizes.clients, held)
                scenes.append(scene)
                scene.start(sizes.size)
                said(f"{variant.name} has started")
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


__all__ = ["LoadError", "Progress", "Rounds", "Sizes", "Taken", "load_now", "rows", "running"]
