"""What one decision costs, without sockets and crypto, at so many assertions; a chain of grants;
and the memory of very many. One number of assertions a process; prints rows of JSON.

decision_: the family's own; _uncached: nothing is known yet of owner and reader, _planned: what
holds between them is, the verdict is not. policy_: of labels and owners, by the mediator's way.
Best of several runs; of each the median of its decisions.
"""

from __future__ import annotations

import gc
import itertools
import os
import sys
import time
from collections.abc import Iterator, Sequence
from statistics import median

from bench_print import Row, row, show
from load_cpu import memory_mib

from sealmq.families.api import Family, Verdict
from sealmq.families.conn import Conn
from sealmq.families.decision import Decision
from sealmq.families.engine import Engine
from sealmq.families.records import FamilyRecord, Record, TopicLabel
from sealmq.families.registry import load
from sealmq.site.config import loads

from .. import MANIFEST
from ..family import Owners
from .said import assertion

NOW_MS = 1_800_000_000_001
OWNERS = 400
RUNS = 5
CHAIN = 5
LABEL = "fleet"
CLIENTS = ("reader", "late", *(f"link{n}" for n in range(CHAIN)))
UNIT = "us"
_SLICE = 20_000
_CONFIG = (
    f"""
[site]
name = "bench"
id = "00000001"
[labels]
{LABEL} = []
[clients]
"""
    + "".join(f'{name} = {{ label = "{LABEL}" }}\n' for name in CLIENTS)
    + """
[policy]
order = ["labels", "owners"]
[families.owners.types.VALUE]
app = "BENCH"
topic = "loc/{user}/{place}"
owner = "user"
[[families.owners.policy]]
authorizer = "POLICY"
licensees = ["owner"]
actions = ["RECEIVE", "CHANGE_POLICY"]
"""
)


def _records(count: int) -> Iterator[Record]:
    """Four of each owner: one about the reader, with a condition."""
    for n in range(OWNERS):
        for place in ("hall", "yard"):
            yield TopicLabel(f"loc/owner{n}/{place}", LABEL, "reader", 0)
    yield TopicLabel("loc/chained/hall", LABEL, "reader", 0)
    for n in range(count):
        owner, turn = f"owner{n // 4}", n % 4
        who = "reader" if turn == 0 else f"friend{n % 1000}"
        when = 'place == "hall"' if turn == 0 else ""
        yield FamilyRecord(MANIFEST.name, *assertion(n, owner, who, condition=when))
    names = ["chained", *(f"link{n}" for n in range(CHAIN))]
    for n in range(CHAIN):
        both = {"authorizer": names[n], "actions": ["RECEIVE", "CHANGE_POLICY"],
                "condition": 'place == "hall"'}  # fmt: skip
        yield FamilyRecord(MANIFEST.name, *assertion(count + n, "chained", names[n + 1], **both))


def engine(count: int) -> Engine:
    """As a mediator makes it."""
    made = Engine(load(["labels", "owners"]))
    made.load(loads(_CONFIG), ())
    left = _records(count)
    # In slices: what a start holds besides for a moment is not what assertions take.
    while some := list(itertools.islice(left, _SLICE)):
        made.apply(some)
    return made


def _each(conn: Conn, family: Family | None, topics: Sequence[str], allow: bool) -> float:
    """Median of microseconds a delivery, of the whole policy or of the family alone."""
    took, ask = [], conn.ask
    for topic in topics:
        if family is None:
            began = time.perf_counter_ns()
            said: Decision | Verdict = conn.deliver(topic, LABEL, 0, NOW_MS)
        else:
            ask.fill("deliver", topic, NOW_MS, LABEL)
            began = time.perf_counter_ns()
            said = family.deliver(ask)
        took.append(time.perf_counter_ns() - began)
        if said.allow != allow:
            raise SystemExit(f"{topic}: {said.rule}: {said.reason}")
    return median(took) / 1000


def rows(count: int) -> list[Row]:
    """Those of so many assertions."""
    before = memory_mib(os.getpid())
    made = engine(count)
    gc.collect()
    mib = memory_mib(os.getpid()) - before
    gc.freeze()
    own = made.order[-1]
    if not isinstance(own, Owners):
        raise SystemExit("owners are not the last of the order")
    conn, plans = made.connection(made.who("reader", 1)), own.state.plans
    last = made.connection(made.who(f"link{CHAIN - 1}", 2))
    halls = [f"loc/owner{n}/hall" for n in range(min(OWNERS, count // 4))]
    yards = [topic.replace("hall", "yard") for topic in halls]
    chained = ["loc/chained/hall"]
    found: dict[str, list[float]] = {}
    for _ in range(RUNS):
        made.cache.clear()
        plans.clear()
        _each(last, own, chained, True)  # what holds for all owners is known
        for what, of, family, topics, allow in (
            ("decision_uncached", conn, own, halls, True),
            ("decision_planned", conn, own, halls, True),
            ("decision_denied", conn, own, yards, False),
            ("policy_uncached", conn, None, halls, True),
            ("policy_cached", conn, None, halls, True),
        ):
            found.setdefault(what, []).append(_each(of, family, topics, allow))
        plans.drop("chained")
        found.setdefault("chain_of_five", []).append(_each(last, own, chained, True))
    out = []
    for what, values in found.items():
        one = row(what, "owners", float(f"{min(values):.4g}"), UNIT, RUNS * len(halls), 0)
        out.append(one)
    out.append(row("memory", "owners", round(mib, 1), "MiB", 1, 0))
    out.append(row("memory_each", "owners", round(mib * 2**20 / count), "bytes", count, 0))
    for one in out:
        one["params"] |= {"assertions": count}
    return out


def main(words: Sequence[str]) -> int:
    """ASSERTIONS"""
    show(rows(int(words[0])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
