"""A broker that was lost: when it counts as that, and in which order it gets all again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sealmq.mediator import house as module
from sealmq.mediator.house import HouseConnection
from sealmq.mediator.journal_file import Entry
from sealmq.mediator.replay import Replay
from sealmq.mediator.upstream import BrokerAddress, BrokerAway


def test_a_broker_that_is_given_up_on_counts_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says CONNACK, and acknowledges nothing."""
    monkeypatch.setattr(module, "OPENING_S", 0.1)
    seen: list[str | None] = []
    lost = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1024)
        writer.write(b"\x20\x02\x00\x00")
        await reader.read()
        writer.close()

    def tell(reason: str | None) -> None:
        seen.append(reason)
        if reason is not None:
            lost.set()

    async def back() -> None:
        pass

    async def story() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        address = BrokerAddress("127.0.0.1", port)
        house = HouseConnection(address, "house", lambda: [("@sm1/x", b"x")], tell, back)
        running = asyncio.create_task(house.run())
        try:
            async with asyncio.timeout(30):
                await lost.wait()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            server.close()

    asyncio.run(story())
    assert seen[:2] == [None, "the broker did not acknowledge"]


def test_a_broker_lost_behind_the_last_acknowledgement_is_lost() -> None:
    done: list[object] = []
    house = SimpleNamespace(losses=0)

    def entries(segments: object) -> list[object]:
        house.losses = 1  # the connection ends while the last answers are taken
        return []

    journal = SimpleNamespace(lost=lambda: ["old"], entries=entries, broker_back=done.append)
    retained = SimpleNamespace(newer=lambda topic, ms, seq: False)
    hub: Any = SimpleNamespace(journal=journal, house=house, retained=retained)

    async def publish(topic: bytes, payload: bytes, qos: int, retain: bool) -> None:
        raise AssertionError("there is nothing to publish")

    with pytest.raises(BrokerAway):
        asyncio.run(Replay(hub, publish).run())
    assert not done, "what is to be published again still is"


def test_nothing_overtakes_qos_2_when_it_is_published_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker hands it on at the end of its handshake only."""
    order: list[int] = []

    async def one(self: Replay, entry: Entry, last: bool) -> None:
        for _ in range(3 if entry.qos == 2 else 0):
            await asyncio.sleep(0)
        order.append(entry.ms)

    monkeypatch.setattr(Replay, "_one", one)
    rows = [Entry(n, b"t", b"x", qos, False) for n, qos in enumerate((1, 2, 2, 1, 1, 2, 0, 2))]
    journal = SimpleNamespace(
        lost=lambda: ["old"], entries=lambda segments: rows, broker_back=lambda done: None
    )
    retained = SimpleNamespace(newer=lambda topic, ms, seq: False)
    house = SimpleNamespace(losses=0)
    hub: Any = SimpleNamespace(journal=journal, house=house, retained=retained)

    async def publish(topic: bytes, payload: bytes, qos: int, retain: bool) -> None:
        pass

    asyncio.run(Replay(hub, publish).run())
    assert order == sorted(order)
    assert len(order) == len(rows)
