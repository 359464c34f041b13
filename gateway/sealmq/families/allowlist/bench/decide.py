"""What a verdict under a hundred rules costs, judged anew: nanoseconds of CPU, best of runs. Of
rules that name senders also one that is cached, compared with the message's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import tomlkit
from bench_print import Row, row

from sealmq.families.engine import Engine
from sealmq.families.records import TopicLabel
from sealmq.families.registry import load
from sealmq.site.config import loads

from .. import MANIFEST

TOPICS = 2000
RUNS = 5
_NOW_MS = 1
_CONFIG = """
[site]
name = "bench"
id = "00000001"
[labels]
fleet = []
[clients]
c = { label = "fleet" }
f = { label = "fleet" }
[policy]
order = []
"""


def rows(put_in: Callable[[Any, Sequence[str], Any], None]) -> list[Row]:
    """A publish and a delivery, each of another topic, of which each is allowed; and a delivery of
    what a sender that is named publishes. put_in: the rules about one client."""
    doc: Any = tomlkit.parse(_CONFIG)
    order = [*MANIFEST.stands_on, MANIFEST.name]
    doc["policy"]["order"] = order
    put_in(doc, ["c"], {})
    doc["families"][MANIFEST.name]["rule"] += [
        {"clients": ["f"], "read": [f"house/{n}/#"], "from": ["c"]} for n in range(100)
    ]
    topics = [f"house/{n % 100}/{n}" for n in range(TOPICS)]
    engine = Engine(load(order), cache_size=4 * TOPICS)
    engine.load(loads(doc.as_string()), [TopicLabel(topic, "fleet", "c", 0) for topic in topics])
    conn = engine.connection(engine.who("c", 1))
    conn.subscribed(conn.subscribe("house/#", 0, _NOW_MS), 0, _NOW_MS)

    def publish(names: Sequence[str]) -> None:
        if not all(conn.publish(name, 0, False, 64, _NOW_MS).allow for name in names):
            raise SystemExit("a publish is denied")

    def deliver(names: Sequence[str]) -> None:
        if not all(conn.deliver(name, "fleet", 0, _NOW_MS).allow for name in names):
            raise SystemExit("a delivery is denied")

    by_sender = engine.connection(engine.who("f", 2))

    def deliver_from(names: Sequence[str]) -> None:
        ask, compare = by_sender.deliver, by_sender.for_sender
        if not all(compare(ask(name, "fleet", 0, _NOW_MS), "c").allow for name in names):
            raise SystemExit("a delivery is denied")

    def best(ask: Callable[[Sequence[str]], None], before_each: Callable[[], None]) -> int:
        figures = []
        for _ in range(RUNS):
            before_each()
            before = time.process_time_ns()
            ask(topics)
            figures.append((time.process_time_ns() - before) / TOPICS)
        return round(min(figures))

    forget = engine.cache.clear
    costs = {
        "publish_miss": best(publish, forget),
        "deliver_miss": best(deliver, forget),
        "deliver_from_miss": best(deliver_from, forget),
        "deliver_from_hit": best(deliver_from, lambda: None),
    }
    return [row(name, MANIFEST.name, cost, "ns of CPU", TOPICS, 0) for name, cost in costs.items()]
