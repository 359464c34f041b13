"""What the mediator costs a message: microseconds of CPU, best of several runs; a JSON line.

Run: python gateway/bench/mediator.py. "publish": from the decoded PUBLISH (64 B, QoS 1) to the
bytes for the broker, policy cached, audit counted; "deliver": from the broker's PUBLISH to the
bytes for a reader; "crypto": the open of m2 and the seal of m3 alone, for comparison.
"""

from __future__ import annotations

import json
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mediator_world import LOW, NOW_MS, PANEL, SENSOR, World, sealed

from sealmq.audit import Audit
from sealmq.families.engine import Engine
from sealmq.families.labels import Labels
from sealmq.families.records import TopicLabel
from sealmq.mediator.delivering import Delivering
from sealmq.mediator.publishing import Publishing
from sealmq.mediator.wrap import open_m2, seal_m3
from sealmq.mqtt import Publish
from sealmq.order import Order
from sealmq.site.config import loads

MESSAGES = 5_000
RUNS = 5
TOPIC = "machine/1/temperature"
CONFIG = """
[site]
name = "bench"
id = "00000001"
[labels]
low = []
high = ["low"]
[clients]
sensor = { label = "low" }
panel = { label = "high" }
"""


class Bench:
    """A mediator's parts around a publisher and a reader, without sockets."""

    def __init__(self, folder: Path) -> None:
        self.world = World()
        config = loads(CONFIG)
        engine = Engine([Labels()])
        engine.load(config, [TopicLabel(TOPIC, "low", "sensor", 0)])
        self.audit = Audit(folder, "mediator", 1, "00000001")
        self.hub = SimpleNamespace(
            ring=self.world.ring,
            order=Order(9),
            audit=self.audit,
            known_tlv=(),
            keep_order=lambda topic, ms, seq: None,
            engine_opens=False,
            now_ms=lambda: NOW_MS,
            config=config,
        )
        self.sent: list[bytes] = []
        self.publisher = self._connection(engine, SENSOR, "sensor")
        self.reader = self._connection(engine, PANEL, "panel")

    def _connection(self, engine: Engine, number: int, name: str) -> Any:
        session = self.world.session(number)
        return SimpleNamespace(
            hub=self.hub,
            state="open",
            client=self.world.ring.clients[number],
            link=self.world.link(session),
            session=session,
            low=1,
            token_low=0,
            policy=engine.connection(engine.who(name, number)),
            upstream=SimpleNamespace(send=self.sent.append),
            send=self.sent.append,
            down=lambda body: None,
            show_records=lambda label: None,
        )

    def messages(self) -> list[Publish]:
        """Fresh messages of the publisher."""
        raw = TOPIC.encode()
        made = [sealed(self.publisher.session, TOPIC, b"x" * 64) for _ in range(MESSAGES)]
        return [
            Publish(TOPIC, raw, m2, 1, False, False, n % 60000 + 1) for n, m2 in enumerate(made)
        ]

    def publish(self) -> float:
        publishing, messages = Publishing(self.publisher), self.messages()
        return timed(publishing.publish, messages)

    def deliver(self) -> float:
        label = self.world.ring.labels[LOW]
        raw = TOPIC.encode()
        m2 = self.messages()[0].payload
        client = self.world.ring.clients[SENSOR]
        body = open_m2(
            self.publisher.link, self.world.ring, client, raw, m2, 2, NOW_MS // 1000
        ).body
        m3 = seal_m3(self.world.ring, label, self.hub.order, 0, raw, body, NOW_MS)
        delivering = Delivering(self.reader)
        delivering.begin()
        return timed(delivering.packet, [Publish(TOPIC, raw, m3)] * MESSAGES)

    def crypto(self) -> float:
        opener, sealer = (
            self.publisher.link.publish,
            self.world.ring.sealer(self.world.ring.labels[LOW]),
        )
        nonce, aad = bytes(12), bytes(60)
        data = opener.seal(nonce, bytes(108), aad)

        def both(payload: bytes) -> None:
            body = opener.open(nonce, payload, aad)
            sealer.seal(nonce, body or b"", aad)

        return timed(both, [data] * MESSAGES)


def timed(act: Callable[[Any], object], items: list[Any]) -> float:
    """Microseconds of CPU an item."""
    start = time.process_time()
    for item in items:
        act(item)
    return (time.process_time() - start) / len(items) * 1e6


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        figures = {
            name: round(min(getattr(bench, name)() for _ in range(RUNS)), 2)
            for name in ("publish", "deliver", "crypto")
        }
        bench.audit.close()
    where = {"python": platform.python_version(), "machine": platform.machine()}
    print(json.dumps({"unit": "us/message", **figures, **where}))


if __name__ == "__main__":
    main()
