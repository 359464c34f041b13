"""What policy costs a message: nanoseconds of CPU a question, best of several runs; JSON rows.

Run: python gateway/bench/policy.py. "hit": the verdict is cached, topic names are new objects as
they come off the wire; "cold": 100,000 topics in random order, so that the processor's caches miss
as well; "miss": judged anew; "change": one topic gets a label, all else stays cached. What families
measure of themselves comes after that.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from bench_print import row, show
from load_family import benches, site_of

from sealmq.families.engine import Engine
from sealmq.families.labels.family import Labels
from sealmq.families.records import TopicLabel
from sealmq.site.config import loads

TOPICS = 100_000
MISSED = 20_000
RUNS = 5
CONFIG = """
[site]
name = "bench"
id = "00000001"
[labels]
temp = []
ctrl = ["temp"]
[clients]
sensor = { label = "temp" }
panel = { label = "ctrl" }
"""


def wire(topics: Sequence[bytes]) -> list[str]:
    """Names as the codec makes them: fresh objects, hash not yet computed."""
    return [topic.decode() for topic in topics]


def main() -> None:
    topics = [b"machine/%d/temperature" % i for i in range(TOPICS)]
    records = [TopicLabel(topic.decode(), "temp", "sensor", 0) for topic in topics]
    engine = Engine([Labels()], cache_size=4 * TOPICS)
    engine.load(loads(CONFIG), records)
    sensor = engine.connection(engine.who("sensor", 1))
    panel = engine.connection(engine.who("panel", 2))
    random.seed(1)

    def publish(names: Sequence[str]) -> None:
        ask = sensor.publish
        for name in names:
            ask(name, 0, False, 64, 1)

    def deliver(names: Sequence[str]) -> None:
        ask = panel.deliver
        for name in names:
            ask(name, "temp", 0, 1)

    def fresh(ask: Callable[[Sequence[str]], None], pick: Sequence[bytes]) -> int:
        figures = []
        for _ in range(RUNS):
            names = wire(pick)
            before = time.process_time_ns()
            ask(names)
            figures.append((time.process_time_ns() - before) / len(names))
        return round(min(figures))

    def missed(ask: Callable[[Sequence[str]], None]) -> int:
        figures = []
        names = wire(topics[:MISSED])
        for _ in range(RUNS):
            engine.cache.clear()
            before = time.process_time_ns()
            ask(names)
            figures.append((time.process_time_ns() - before) / len(names))
        return round(min(figures))

    one = [topics[7]] * TOPICS
    shuffled = random.sample(topics, TOPICS)
    # (nanoseconds, over how many questions)
    costs = {
        "publish_miss": (missed(publish), MISSED),
        "deliver_miss": (missed(deliver), MISSED),
    }
    publish(wire(topics))
    deliver(wire(topics))
    cached = len(engine.cache)
    costs |= {
        "publish_hit": (fresh(publish, one), TOPICS),
        "deliver_hit": (fresh(deliver, one), TOPICS),
        "publish_cold": (fresh(publish, shuffled), TOPICS),
        "deliver_cold": (fresh(deliver, shuffled), TOPICS),
        "change": (min(changed(engine, records[i : i + 1000]) for i in range(0, 5000, 1000)), 1000),
    }
    rows = [row(name, "labels", cost, "ns of CPU", n, 0) for name, (cost, n) in costs.items()]
    rows.append(row("cached_verdicts", "labels", cached, "verdicts", 1, 0))
    rows.append(row("still_cached", "labels", len(engine.cache), "verdicts", 1, 0))
    for name in benches():
        rows += site_of(name).judging()
    show(rows)


def changed(engine: Engine, records: Sequence[TopicLabel]) -> int:
    """Each record reaches two cached verdicts, of a publisher and of a reader."""
    before = time.process_time_ns()
    for record in records:
        engine.apply([record])
    return round((time.process_time_ns() - before) / len(records))


if __name__ == "__main__":
    main()
