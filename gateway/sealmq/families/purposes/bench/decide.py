"""What one decision costs, without sockets and crypto: the engine with both families, asked by the
mediator's own way. One variant and one number of reservations a process; prints rows of JSON.

It is run with gateway/bench in PYTHONPATH. "cached": a topic that was asked for before; "uncached":
each topic for the first time; "change": a reservation that some verdicts rest on is overwritten.
All of it best of several runs and over at most some tenths of a second.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bench_print import Row, row, show
from load_generator import name, topic
from load_sites import LABEL

from sealmq.families.conn import Conn
from sealmq.families.engine import Engine
from sealmq.families.records import FamilyRecord, Record, TopicLabel
from sealmq.families.registry import load
from sealmq.site.config import loads
from sealmq_spec.purposes import access

from .. import MANIFEST
from .site import PURPOSE, record
from .site import held as held_at_first
from .variants import VARIANTS

NOW_MS = 1_800_000_000_001
TOPICS = 250
RUNS = 5
SPAN_S = 0.3
UNIT = "us of CPU"
_CONFIG = """
[site]
name = "bench"
id = "00000001"
[labels]
{label} = []
[clients]
{clients}
[policy]
order = [{order}]
"""
_FAMILY = """
[families.purposes]
mode = "{mode}"
store = "{store}"
strict = true
stewards = ["{steward}"]
"""


def engine(variant: str, held: int) -> Engine:
    """As a mediator makes it, with so many reservations."""
    of = VARIANTS[variant]
    order = [*MANIFEST.stands_on, MANIFEST.name] if of.family else ["labels"]
    clients = "\n".join(f'{name(n)} = {{ label = "{LABEL}" }}' for n in range(TOPICS))
    quoted = ", ".join(f'"{family}"' for family in order)
    text = _CONFIG.format(label=LABEL, clients=clients, order=quoted)
    if of.family:
        text += _FAMILY.format(steward=name(0), **of.settings)
    made = Engine(load(order))
    made.load(loads(text), _records(held if of.family else 0))
    return made


def _records(held: int) -> Iterator[Record]:
    for number in range(TOPICS):
        yield TopicLabel(topic(number), LABEL, name(number), 0)
    if held:
        names, topics = ([of(n) for n in range(TOPICS)] for of in (name, topic))
        for key, value in held_at_first(held, names, topics):
            yield FamilyRecord(MANIFEST.name, key, value)


def reader(made: Engine, variant: str) -> Conn:
    """A connection that has subscribed as the clients of the bench have."""
    conn = made.connection(made.who(name(0), 1))
    family = bool(VARIANTS[variant].family)
    filt = access("bench/#", PURPOSE) if family else "bench/#"
    decision = conn.subscribe(filt, 0, NOW_MS)
    if not decision.allow:
        raise SystemExit(f"the subscription is denied: {decision.rule}: {decision.reason}")
    conn.subscribed(decision, 0, NOW_MS)
    return conn


def measure(variant: str, held: int) -> list[Row]:
    """The rows of one variant."""
    made = engine(variant, held)
    conn = reader(made, variant)
    names = [topic(n).encode() for n in range(TOPICS)]

    def ask(topics: Sequence[str]) -> None:
        deliver = conn.deliver
        for one in topics:
            if not deliver(one, LABEL, 0, NOW_MS).allow:
                raise SystemExit(f"a delivery on {one} is denied")

    def subscribe(topics: Sequence[str]) -> None:
        for one in topics:
            if not conn.subscribe(one, 0, NOW_MS).allow:
                raise SystemExit(f"a subscription to {one} is denied")

    def publish(topics: Sequence[str]) -> None:
        for one in topics:
            if not conn.publish(one, 0, False, 64, NOW_MS).allow:
                raise SystemExit(f"a publish on {one} is denied")

    def change(batch: Sequence[FamilyRecord]) -> None:
        for one in batch:
            made.apply((one,))

    if VARIANTS[variant].family:
        filters = [access(one.decode(), PURPOSE).encode() for one in names]
    else:
        filters = names
    costs = {
        "decision_uncached": _best(made.cache.clear, ask, names),
        "decision_cached": _best(lambda: None, ask, names),
        "publish_judged": _best(made.cache.clear, publish, names),
        "subscription_judged": _best(made.cache.clear, subscribe, filters),
    }
    if VARIANTS[variant].family:
        changes: Any = [
            FamilyRecord(MANIFEST.name, *record(topic(n), name(0), n)) for n in range(TOPICS)
        ]
        costs["change"] = _best(
            lambda: ask([one.decode() for one in names[:1]]),
            change,
            changes,
            fresh=list,
        )
    rows = []
    for what, (cost, n) in costs.items():
        one = row(what, variant, float(f"{cost:.4g}"), UNIT, n, 0)
        one["params"] |= {"reservations": held if VARIANTS[variant].family else 0}
        rows.append(one)
    return rows


# Names as the codec makes them: new objects, hash not yet computed.
def _wire(names: Sequence[bytes]) -> list[str]:
    return [one.decode() for one in names]


# (microseconds of CPU each, over how many), the best of some runs. What takes long is done less
# often: the first run tells how often fits into the span.
def _best(
    before: Callable[[], Any],
    act: Callable[[Any], Any],
    items: Any,
    fresh: Callable[[Any], Any] = _wire,
) -> tuple[float, int]:
    before()
    act(fresh(items[:1]))
    began = time.process_time()
    before()
    act(fresh(items[1:3]))
    one = (time.process_time() - began) / 2
    count = max(1, min(len(items), int(SPAN_S / max(one, 1e-9))))
    figures = []
    end = time.monotonic() + RUNS * SPAN_S
    for _ in range(RUNS):
        batch = fresh(items[:count])
        before()
        start = time.process_time_ns()
        act(batch)
        figures.append((time.process_time_ns() - start) / count / 1000)
        if time.monotonic() > end:
            break
    return min(figures), count


def main(words: Sequence[str]) -> int:
    """VARIANT RESERVATIONS"""
    variant, held = words
    show(measure(variant, int(held)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
