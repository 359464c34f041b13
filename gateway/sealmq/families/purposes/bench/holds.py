"""For how long the policy holds the mediator's loop at most: milliseconds of CPU in one go, with a
million reservations. Half of them stand four levels deep, half side by side below one level.

Each row is the longest of `n` calls between which others have a turn.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator

from bench_print import Row, row

from sealmq.families.conn import Conn
from sealmq.families.engine import Engine
from sealmq.families.records import Record
from sealmq.families.registry import load
from sealmq.site.config import loads
from sealmq_spec.purposes import access

from .. import records
from ..store import Reservation

RESERVATIONS = 1_000_000
RESTORED = 1_024
READ = 100_000
NOW_MS = 1_800_000_000_000
WILD = ("#", "+/#", "+/x/#", "+/speed", "house/+/room/+", "+/+/+/+", "house/+/+/#")
CONFIG = """
[site]
name = "bench"
id = "00000001"
[labels]
fleet = []
[clients]
reader = { label = "fleet" }
steward = { label = "fleet" }
[policy]
order = ["labels", "purposes"]
[families.purposes]
mode = "MODE"
stewards = ["steward"]
"""


def _record(filt: str, *aip: str) -> Record:
    return records.reservation(Reservation(filt, aip, ["advertising"], "steward"), NOW_MS)


def _records(count: int) -> Iterator[Record]:
    for n in range(count // 2):
        yield _record(f"house/{n % 1000}/room/{n // 1000}", "billing")
        yield _record(f"v{n}/speed", "billing")
    # Covers every filter and allows none of what is asked for, which one at the end does: so all
    # that crosses is looked at.
    yield _record("#", "care")
    yield _record("last", "research")


class Longest:
    """The longest of some calls."""

    def __init__(self) -> None:
        self.ns = self.calls = 0

    def call(self, act: Callable[[], object]) -> object:
        before = time.process_time_ns()
        got = act()
        self.ns = max(self.ns, time.process_time_ns() - before)
        self.calls += 1
        return got

    def row(self, measure: str, mode: str, count: int) -> Row:
        made = row(measure, mode, round(self.ns / 1e6, 2), "ms of CPU", self.calls, 0)
        made["params"] |= {"reservations": count}
        return made


def rows(count: int = RESERVATIONS) -> list[Row]:
    """All of them."""
    made = Engine(load(["labels", "purposes"]))
    made.load(loads(CONFIG.replace("MODE", "hybrid")), _records(count))
    gc.collect()
    gc.freeze()
    found = [_wild(made).row("hold_wild_filter", "hybrid", count)]
    restored, reader = _restored(made)
    found.append(restored.row("hold_restore", "hybrid", count))
    made.reload(loads(CONFIG.replace("MODE", "fos")))
    due = Longest()
    for conn, raw in made.due():
        while due.call(lambda: conn.again_soon(raw, NOW_MS)) is None:  # noqa: B023
            pass
    found.append(due.row("hold_due", "fos", count))
    found.append(_once(lambda: reader.close(NOW_MS)).row("hold_close", "fos", count))
    made.reload(loads(CONFIG.replace("MODE", "hybrid")))
    _reader(made)
    wide = _once(lambda: made.apply([_record("house/#", "care", "billing")]))
    found.append(wide.row("hold_wide_change", "hybrid", count))
    last = _reader(made)
    found.append(_once(lambda: last.close(NOW_MS)).row("hold_close_reader", "hybrid", count))
    return found


def _once(act: Callable[[], object]) -> Longest:
    longest = Longest()
    longest.call(act)
    return longest


def _wild(made: Engine) -> Longest:
    """Each filter with wildcards, for a purpose that is found at once and one that is not."""
    conn, longest = made.connection(made.who("reader", 1)), Longest()
    for filt in WILD:
        for purpose in ("billing", "research"):
            raw = access(filt, purpose)
            while longest.call(lambda: conn.subscribe_soon(raw, 0, NOW_MS)) is None:  # noqa: B023
                pass
    conn.close(NOW_MS)
    return longest


def _restored(made: Engine) -> tuple[Longest, Conn]:
    """A session with as many subscriptions as one may have comes back."""
    conn, longest = made.connection(made.who("reader", 1)), Longest()
    for n in range(RESTORED):
        raw = access((f"house/+/room/{n}", f"house/{n}/#", f"v{n}/+")[n % 3], "research")

        def one(raw: str = raw) -> bool:
            decision = conn.subscribe_soon(raw, 1, NOW_MS)
            if decision is not None:
                conn.holds(decision, 1)
            return decision is not None

        while not longest.call(one):
            pass
    return longest, conn


def _reader(made: Engine) -> Conn:
    """A reader of everything, who has had messages of very many topics."""
    conn = made.connection(made.who("reader", 1))
    conn.subscribed(conn.subscribe(access("#", "care"), 0, NOW_MS), 0, NOW_MS)
    for n in range(READ):
        conn.deliver(f"house/{n % 1000}/room/{n // 1000}", "fleet", 0, NOW_MS)
    return conn
