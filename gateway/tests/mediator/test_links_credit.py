"""The broker's queue for the live link: publishers wait before it runs over, and a gap is seen."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from links_scene import Peer, Scripted, played, real_amqtt, real_mosquitto, running, so
from sealmq.mediator.links import BrokerAddress, Credit, LiveLink, PublishLink
from sealmq.mediator.links import credit as module
from sealmq.mediator.links.publish import Item
from sealmq.mqtt import Connect, Packet, Publish, Subscribe, build


class Both:
    """A publish link and a live link that share a credit."""

    def __init__(self, address: BrokerAddress, counts: bool = True) -> None:
        self.came: list[Publish] = []
        self.lost: list[str] = []
        self.accepted: list[Any] = []
        self.pressed = True
        self.credit = Credit(address, "sealmq/worker")
        credit = self.credit if counts else None
        self.live = LiveLink(
            address, "sealmq/live", self.came.append, self.lost.append, credit=credit
        )
        self.publish = PublishLink(
            address,
            "sealmq/publish",
            self._alone,
            self.accepted.append,
            lambda sent, why: None,
            self._press,
            credit=credit,
        )

    async def _alone(self, item: Item) -> None:
        raise AssertionError("no link falls here but the live one")

    def _press(self, on: bool) -> None:
        self.pressed = on

    def send(self, number: int, qos: int = 1, size: int = 0) -> None:
        """A message on `t`."""
        self.publish.publish(number, b"t", b"%d" % number + bytes(size), qos, False, number % 5)


@contextlib.asynccontextmanager
async def linked(address: BrokerAddress, counts: bool = True) -> AsyncIterator[Both]:
    """Both are up, and the live link has `t`."""
    both = Both(address, counts)
    async with running(both.live.run(), both.publish.run()):
        await so(lambda: both.live.away is None and both.publish.away is None)
        await both.live.subscribe("reader", ["t"])
        yield both


async def flood(both: Both, count: int, qos: int) -> None:
    """As much in each turn of the loop as clients might send, who stop when they are told."""
    number = 0
    while number < count:
        await asyncio.sleep(0)
        if not both.pressed:
            for _ in range(min(200, count - number)):
                both.send(number, qos)
                number += 1


@pytest.mark.parametrize("qos", [1, 2])
def test_no_flood_makes_a_mosquitto_with_stock_limits_drop_what_readers_get(
    qos: int, tmp_path: Path
) -> None:
    async def story(address: BrokerAddress) -> None:
        async with linked(address) as both:
            await flood(both, 20_000, qos)
            await so(lambda: len(both.accepted) == 20_000 and len(both.came) == 20_000)
            assert [int(packet.payload) for packet in both.came] == [*range(20_000)]
            assert not both.lost

    with real_mosquitto(
        tmp_path, "max_inflight_messages 20", "max_queued_messages 1000"
    ) as address:
        played(story(replace(address, inflight=20, queue=1000)))


def test_marks_are_neither_delivered_nor_told(tmp_path: Path) -> None:
    """Though a reader has all topics."""

    async def story(address: BrokerAddress) -> None:
        async with linked(address) as both:
            await both.live.subscribe("all", ["#"])
            await flood(both, 5_000, 1)
            await so(lambda: len(both.accepted) == 5_000)
            await so(lambda: len({packet.payload for packet in both.came}) == 5_000)
            assert {packet.topic for packet in both.came} == {"t"}
            assert None not in both.accepted

    with real_amqtt() as address:
        played(story(replace(address, queue=1000)))


class Passing:
    """A broker that hands on what is published, but marks as `marks` says."""

    def __init__(self) -> None:
        self.live: Peer | None = None
        self.marks = "come"
        self.held: list[bytes] = []
        self.published = 0

    def __call__(self, packet: Packet, peer: Peer) -> bool:
        if isinstance(packet, Connect) and packet.client_id == "sealmq/live":
            self.live = peer
        if not isinstance(packet, Publish) or self.live is None:
            return False
        again = build.publish(packet.topic, packet.payload, packet.qos, packet_id=packet.packet_id)
        if packet.topic == "t":
            self.published += 1
        elif self.marks == "are late":
            self.held.append(again)
            return False
        elif self.marks == "are lost":
            self.marks = "come"
            return False
        self.live.send(again)
        return False


def test_publishers_wait_while_half_of_the_queue_may_be_out(tmp_path: Path) -> None:
    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            broker.does = passing = Passing()
            passing.marks = "are late"
            address = replace(broker.address, queue=100)
            async with linked(address) as both:
                for number in range(500):
                    both.send(number, number % 2)
                assert both.pressed
                await so(lambda: passing.published > 0)
                await asyncio.sleep(0.05)
                assert 40 <= passing.published <= 70
                # Marks come back: all goes on, and in its order.
                passing.marks = "come"
                live = passing.live
                assert live is not None
                for mark in passing.held:
                    live.send(mark)
                await so(lambda: len(both.came) == 500 and not both.pressed)
                for client in range(5):
                    mine = [int(p.payload) for p in both.came if int(p.payload) % 5 == client]
                    assert mine == sorted(mine)
                assert not both.lost

    played(story())


def test_large_messages_count_by_their_size(tmp_path: Path) -> None:
    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            broker.does = passing = Passing()
            passing.marks = "are late"
            async with linked(replace(broker.address, queue=1000)) as both:
                for number in range(50):
                    both.send(number, 1, 50_000)
                await asyncio.sleep(0.05)
                assert both.pressed
                assert passing.published < 10

    played(story())


def test_a_mark_that_is_dropped_ends_the_live_link(tmp_path: Path) -> None:
    """Others' messages may have been dropped with it."""

    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            broker.does = passing = Passing()
            async with linked(replace(broker.address, queue=100)) as both:
                passing.marks = "are lost"
                for number in range(100):
                    both.send(number)
                    await asyncio.sleep(0)
                await so(lambda: bool(both.lost))
                assert "dropped" in both.lost[0]
                await so(lambda: both.live.away is None and not both.pressed)
                await so(lambda: len(both.accepted) == 100)

    played(story())


def test_a_mark_that_does_not_come_for_long_ends_the_live_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OVERDUE_S", 0.5)

    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            broker.does = passing = Passing()
            passing.marks = "are late"
            async with linked(replace(broker.address, queue=100)) as both:
                for number in range(200):
                    both.send(number)
                await so(lambda: bool(both.lost))
                passing.marks = "come"
                await so(lambda: both.live.away is None and not both.pressed)
                await so(lambda: len(both.accepted) == 200)

    played(story())


@pytest.mark.parametrize("why", ["the live link is away", "marks are refused", "QoS 0 alone"])
def test_nobody_waits_for_marks_that_cannot_come(why: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            address = replace(broker.address, queue=100, qos=0 if why == "QoS 0 alone" else 2)

            def refuses(packet: Packet, peer: Peer) -> bool:
                if isinstance(packet, Subscribe) and packet.filters[0][0].startswith("@"):
                    peer.send(build.suback(packet.packet_id, [0x80]))
                    return True
                return False

            if why == "marks are refused":
                broker.does = refuses
            both = Both(address)
            works = [both.publish.run()]
            if why != "the live link is away":
                works.append(both.live.run())
            async with running(*works):
                await so(lambda: both.publish.away is None)
                if len(works) > 1:
                    await so(lambda: both.live.away is None)
                qos = min(1, address.qos)
                for number in range(500):
                    both.send(number, qos)
                await so(lambda: len(broker.published()) == 500)
                assert not both.pressed

    played(story())


@pytest.mark.parametrize("which", ["sealmq/live", "sealmq/publish"])
def test_whichever_link_falls_nobody_waits_for_marks_of_before(which: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            broker.does = passing = Passing()
            passing.marks = "are late"
            address = replace(broker.address, queue=100)
            tried: list[Item] = []
            async with linked(address) as both:

                async def alone(item: Item) -> None:
                    tried.append(item)

                both.publish._alone = alone
                for number in range(500):
                    both.send(number)
                await so(lambda: bool(passing.held))
                passing.marks = "come"
                broker.of(which)[0].kill()
                await so(lambda: len(both.accepted) == 500 and not both.pressed)
                assert all(item.topic == b"t" for item in tried)
                if which == "sealmq/publish":
                    assert not both.lost

    played(story())
