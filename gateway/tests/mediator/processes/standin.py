"""A worker process whose mediator is a stand-in: lines in, lines out, after the CONNECT."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from typing import Any

from sealmq.families.attributes import Attribute
from sealmq.families.records import FamilyRecord, Record, TopicLabel
from sealmq.mediator.shared import Begin, Shared
from sealmq.mediator.worker import main
from sealmq.site.config import Config
from sealmq.site.errors import SiteError


class StandIn:
    """Says what it was told: a line is a command, its answer one line."""

    def __init__(self, begin: Begin, shared: Shared) -> None:
        self.begin, self.shared = begin, shared
        self.rows: dict[str, str] = {}
        self.heard: list[str] = []
        self.flooded = False
        self.slow_s = 0.0
        self.collected = gc.isenabled()
        self.apply(shared.store.records())
        self.connections: set[Line] = set()

    async def run(self) -> None:
        self.shared.tell({"away": None, "pid": os.getpid()})
        await asyncio.Event().wait()

    async def stop(self) -> None:
        for connection in list(self.connections):
            connection.say("stopped")

    async def close(self) -> None:
        return

    def connection(self, early: bytes) -> asyncio.Protocol:
        return Line(self, early)

    def apply(self, records: list[Record], part: str = "") -> None:
        if part:
            self.heard.append(f"part {part}")
        for record in records:
            if isinstance(record, TopicLabel):
                self.rows[record.topic] = record.label
            elif isinstance(record, FamilyRecord):
                self.rows[record.key] = (record.value or b"").decode()

    def take_attributes(self, rows: list[Attribute]) -> None:
        self.heard.append(f"attributes {[tuple(row) for row in rows]}".replace(" ", ""))

    def take_ring(self, ring: Any) -> None:
        self.heard.append(f"kseq {ring.kseq} inst {ring.inst}")

    async def written(self) -> bool:
        return not os.environ.get("SEALMQ_TEST_UNWRITTEN")

    async def ended(self) -> None:
        return

    async def reopened(self) -> None:
        self.heard.append("reopened")

    async def reload(self, config: Config) -> None:
        take(self.begin.number, config)
        time.sleep(self.slow_s)  # noqa: ASYNC251 (as a large configuration holds the loop)
        self.heard.append(f"enforce {config.policy.enforce}")

    def set_kg(self, there: bool) -> None:
        self.heard.append(f"kg {there}")

    def links_came(self, client: int, links: list[dict[str, Any]]) -> None:
        self.heard.append(f"links {client}")

    def passed(self, topic: str, ms: int, seq: int, origin: Any) -> None:
        self.heard.append(f"passed {topic} {ms} {seq} {origin}")

    def took(self, topic: str, client: int, size: int) -> None:
        self.heard.append(f"took {topic} {client} {size}")

    def live(self, worker: int, there: bool) -> None:
        self.heard.append(f"live {worker} {there}")

    def marked(self, worker: int, number: int) -> None:
        self.heard.append(f"marked {worker} {number}")

    def inform(self, client: int, family: str, said: bytes) -> None:
        self.heard.append(f"inform {client} {family} {said.decode()}")

    async def do(self, verb: str, *words: str) -> str:
        store = self.shared.store
        if verb == "slow":
            self.slow_s = float(words[0])
            return "done"
        if verb == "flooded":
            return str(self.flooded)
        if verb == "pid":
            return str(os.getpid())
        if verb == "number":
            return str(self.begin.number)
        if verb == "begun":
            return f"{self.begin.ring.kseq} {self.begin.config.policy.enforce}"
        if verb == "order":
            return " ".join(self.begin.config.policy.order)
        if verb == "inst":
            return str(self.begin.ring.inst)
        if verb == "row":
            return self.rows.get(words[0], "-")
        if verb == "heard":
            return ",".join(self.heard)
        if verb == "garbage":
            later = gc.isenabled(), gc.get_freeze_count() > 0, gc.get_threshold()
            return f"{self.collected} {later}"
        if verb == "fds":
            return str(len(os.listdir("/proc/self/fd")))
        if verb == "blind":
            return str(self.begin.blind_ms)
        if verb == "derived":
            room = Attribute("room", words[0], words[1], int(words[2]))
            now = await self.shared.derived([room])
            return f"{[tuple(row) for row in now]}".replace(" ", "")
        if verb == "count":
            row = FamilyRecord("engine.counts", words[0], b"[[1,1]]")
            await store.commit([row])
            return "done"
        if verb == "label":
            held = await store.commit([TopicLabel(words[0], words[1], "c", 1)])
            self.apply([h.record for h in held])  # type: ignore[misc]
            return f"{held[0].record.label} {held[0].fresh}"  # type: ignore[union-attr]
        if verb == "command":
            row = FamilyRecord("purposes", words[0], words[1].encode())
            held = await store.commit([row], part=words[0])
            self.apply([h.record for h in held])  # type: ignore[misc]
            return "done"
        if verb == "lock":
            return str(await self.shared.locks.take(frozenset({("purposes", words[0])})))
        if verb == "free":
            self.shared.locks.free({("purposes", words[0])})
            return "done"
        if verb == "passed":
            self.shared.passed(words[0], 5, 6, (3, 4))
            self.shared.took(words[0], 7, 8)
            return "done"
        if verb == "live":
            self.shared.live(words[0] == "True")
            return "done"
        if verb == "marked":
            self.shared.marked(int(words[0]), int(words[1]))
            return "done"
        if verb == "renew":
            ring = await self.shared.renew()
            return "none" if ring is None else str(ring.inst)
        return "?"


class Line(asyncio.Protocol):
    def __init__(self, mediator: StandIn, early: bytes) -> None:
        self._mediator, self._early = mediator, early
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._mediator.connections.add(self)
        # Of a CONNECT all that counts here is its length.
        size = 2 + self._early[1]
        self.data_received(self._early[size:])

    def connection_lost(self, exc: Exception | None) -> None:
        self._mediator.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        *lines, self._data = (self._data + data).split(b"\n")
        for line in lines:
            if line == b"flood":
                self._transport.write(bytes(16 << 20))
                self._mediator.flooded = True
                continue
            task = asyncio.ensure_future(self._mediator.do(*line.decode().split()))
            task.add_done_callback(lambda done: self.say(done.result()))

    def say(self, text: str) -> None:
        self._transport.write(text.encode() + b"\n")


def take(number: int, config: Config) -> None:
    """As a family of one worker that takes nothing but what is enforced."""
    if os.environ.get("STANDIN_REFUSES") == str(number) and not config.policy.enforce:
        raise SiteError("a policy family does not take it")


async def build(begin: Begin, shared: Shared) -> StandIn:
    take(begin.number, begin.config)
    if os.environ.get("STANDIN_FAILS") == str(begin.number):
        raise ValueError("it cannot begin")
    return StandIn(begin, shared)


if __name__ == "__main__":
    sys.exit(main(build=build))
