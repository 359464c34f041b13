"""What the mediator costs a message: microseconds of CPU, best of several runs; JSON rows.

Run: python gateway/bench/mediator.py. "publish": from the decoded PUBLISH (64 B) to the bytes for
the broker, policy cached, audit counted, at QoS 1 to the PUBACK too; "journal": the same with each
message on disk before its PUBACK, 50 under way; "deliver": from the broker's PUBLISH to the bytes
for a reader; "crypto": the open of m2 and the seal of m3 alone, for comparison. All in one run,
in turns.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bench_print import row, show
from mediator_world import LOW, NOW_MS, PANEL, SENSOR, World, sealed

from sealmq.audit import Audit
from sealmq.families.engine import Engine
from sealmq.families.labels import Labels
from sealmq.families.records import TopicLabel
from sealmq.mediator.core.retained import Retained
from sealmq.mediator.core.wrap import open_m2, seal_m3, verify_m2
from sealmq.mediator.delivering import Delivering
from sealmq.mediator.journal import Journal
from sealmq.mediator.publishing import Publishing
from sealmq.mediator.upstream import BrokerAddress
from sealmq.mqtt import Puback, Publish
from sealmq.order import Order
from sealmq.site.config import loads

MESSAGES = 5_000
RUNS = 5
UNDER_WAY = 50
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
            retained=Retained(),
            journal=Journal(None),
            broker=BrokerAddress("", 0),
            engine_opens=False,
            now_ms=lambda: NOW_MS,
            config=config,
        )
        self.sent: list[bytes] = []
        self._folder = folder
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
            show_records=lambda label, epoch: None,
        )

    def messages(self, qos: int = 1) -> list[Publish]:
        """Fresh messages of the publisher."""
        raw = TOPIC.encode()
        session = self.publisher.session
        made = [sealed(session, TOPIC, b"x" * 64, 2 * qos) for _ in range(MESSAGES)]
        return [
            Publish(TOPIC, raw, m2, qos, False, False, qos and n % 60000 + 1)
            for n, m2 in enumerate(made)
        ]

    async def publish_qos0(self) -> float:
        publishing, messages = Publishing(self.publisher), self.messages(0)
        return timed(publishing.publish, messages)

    async def publish_qos1(self) -> float:
        return await self._acknowledged()

    async def publish_qos1_journal(self) -> float:
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            self.hub.journal = Journal(Path(folder) / "journal")
            try:
                return await self._acknowledged()
            finally:
                await self.hub.journal.close()
                self.hub.journal = Journal(None)

    # A client has so many under way; the broker answers at once.
    async def _acknowledged(self) -> float:
        publishing, messages = Publishing(self.publisher), self.messages()
        journal = self.hub.journal
        start = time.process_time()
        for at in range(0, MESSAGES, UNDER_WAY):
            for packet in messages[at : at + UNDER_WAY]:
                publishing.publish(packet)
            for packet in messages[at : at + UNDER_WAY]:
                publishing.underway.answered(Puback(packet.packet_id))
            await journal.safe(journal.seq)
        return (time.process_time() - start) / MESSAGES * 1e6

    async def deliver(self) -> float:
        label = self.world.ring.labels[LOW]
        raw = TOPIC.encode()
        m2 = self.messages()[0].payload
        client = self.world.ring.clients[SENSOR]
        link = self.publisher.link
        verified = verify_m2(link, raw, m2, 2)
        body = open_m2(link, self.world.ring, client, verified, 2, NOW_MS // 1000).body
        m3 = seal_m3(self.world.ring, label, self.hub.order, 0, raw, body, NOW_MS)
        delivering = Delivering(self.reader)
        delivering.begin()
        return timed(delivering.packet, [Publish(TOPIC, raw, m3)] * MESSAGES)

    async def crypto(self) -> float:
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


async def measure() -> dict[str, float]:
    """The best of RUNS of each, in turns."""
    names = ("publish_qos0", "publish_qos1", "publish_qos1_journal", "deliver", "crypto")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        seen: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(RUNS):
            for name in names:
                seen[name].append(await getattr(bench, name)())
        bench.audit.close()
    return {name: round(min(runs), 2) for name, runs in seen.items()}


def main() -> None:
    figures = asyncio.run(measure())
    show(row(name, "mediator", cost, "us of CPU", MESSAGES) for name, cost in figures.items())


if __name__ == "__main__":
    main()
