"""The publish link: all is accepted once, and what ends the link is found, named and set aside."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from links_scene import Peer, Scripted, played, real_amqtt, real_mosquitto, running, so
from sealmq.broker.promises import BrokerTakes
from sealmq.mediator import messages as messages_module
from sealmq.mediator.links import BrokerAddress, BrokerLink, LiveLink, PublishLink
from sealmq.mediator.links import broker as broker_module
from sealmq.mediator.links import publish as module
from sealmq.mediator.links.credit import EACH
from sealmq.mediator.links.publish import Item, _at_once
from sealmq.mediator.messages import MessageConnection
from sealmq.mqtt import Packet, Pingreq, Puback, Pubcomp, Publish, Pubrel, build


class Publisher:
    """A publish link with its scratch connection, and what it has told."""

    def __init__(
        self, address: BrokerAddress, ready: Callable[[], Awaitable[None]] = _at_once
    ) -> None:
        self.life = 0
        self.accepted: list[Any] = []
        self.named: list[Any] = []
        self.pressure: list[bool] = []
        takes = BrokerTakes()
        self.messages = MessageConnection(address, "scratch", lambda: takes, self._life)
        self.link = PublishLink(
            address,
            "publish",
            self._alone,
            self.accepted.append,
            lambda sent, why: self.named.append(sent),
            self.pressure.append,
            ready=ready,
        )

    async def _life(self) -> int:
        return self.life

    async def _alone(self, item: Item) -> None:
        await self.messages.publish(item.topic, item.payload, item.qos, item.retain)

    def publish(self, number: int, qos: int, client: int = 1) -> None:
        """Its payload is its number."""
        self.link.publish(number, b"t", b"%d" % number, qos, False, client)


@contextlib.asynccontextmanager
async def publishing(address: BrokerAddress) -> AsyncIterator[Publisher]:
    """One whose link is up."""
    publisher = Publisher(address)
    try:
        async with running(publisher.link.run()):
            await so(lambda: publisher.link.away is None)
            yield publisher
    finally:
        publisher.messages.close()


def numbers(broker: Scripted) -> list[int]:
    """What came, each once, in the order in which it came first."""
    return list(dict.fromkeys(int(packet.payload) for packet in broker.published()))


@pytest.mark.parametrize("kind", ["mosquitto", "amqtt"])
def test_a_real_broker_gets_all_and_a_live_link_all_of_it(kind: str, tmp_path: Path) -> None:
    """A mixture of all QoS at one go; each QoS keeps its order."""

    async def story(address: BrokerAddress) -> None:
        came: list[Publish] = []
        live = LiveLink(address, "sealmq/live", came.append, lambda reason: None)
        publisher = Publisher(address)
        publisher.link = PublishLink(
            address,
            "sealmq/publish",
            publisher._alone,
            publisher.accepted.append,
            lambda sent, why: publisher.named.append(sent),
            publisher.pressure.append,
        )
        async with running(live.run(), publisher.link.run()):
            await so(lambda: live.away is None and publisher.link.away is None)
            assert await live.subscribe(1, ["t"]) == [2]
            for number in range(3000):
                publisher.publish(number, number % 3)
            await so(lambda: len(came) == 3000 and len(publisher.accepted) == 2000)
        for qos in range(3):
            mine = [int(packet.payload) for packet in came if packet.qos == qos]
            assert mine == [n for n in range(3000) if n % 3 == qos]
        assert sorted(publisher.accepted) == [n for n in range(3000) if n % 3]
        assert not publisher.named

    with real_mosquitto(tmp_path) if kind == "mosquitto" else real_amqtt() as address:
        played(story(address))


# Each packet of the exchange, before and after the broker's answer.
@pytest.mark.parametrize("answers", [False, True])
@pytest.mark.parametrize("at", range(13))
def test_whenever_the_link_falls_all_is_accepted_once(
    at: int, answers: bool, tmp_path: Path
) -> None:
    async def story() -> None:
        async with Scripted(tmp_path) as broker, publishing(broker.address) as publisher:
            [first] = broker.of("publish")

            def falls(packet: Packet, peer: Peer) -> bool:
                # CONNECT is one of those that came.
                if peer is first and len(peer.came) == at + 2:
                    if answers:
                        peer.answer(packet)
                        peer.writer.close()
                    else:
                        peer.kill()
                    return True
                return peer.gone

            broker.does = falls
            for number in range(9):
                publisher.publish(number, number % 3)
            await so(lambda: len(publisher.accepted) == 6)
            publisher.publish(100, 1)
            await so(lambda: len(publisher.accepted) == 7)
            assert sorted(publisher.accepted) == [1, 2, 4, 5, 7, 8, 100]
            assert not publisher.named
            got = {int(packet.payload) for packet in broker.published()}
            assert {1, 2, 4, 5, 7, 8} <= got, "QoS 0 may be lost with the broker's last answer"

    played(story())


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_that_ends_the_link_is_named_and_all_others_are_accepted(
    qos: int, tmp_path: Path
) -> None:
    async def story() -> None:
        async with Scripted(tmp_path) as broker, publishing(broker.address) as publisher:

            def hates(packet: Packet, peer: Peer) -> bool:
                if isinstance(packet, Publish) and packet.payload == b"20":
                    peer.kill()
                return peer.gone

            broker.does = hates
            for number in range(60):
                publisher.publish(number, qos if number == 20 else 1)
            await so(lambda: len(publisher.accepted) == 59 and publisher.named == [20])
            await so(lambda: publisher.link.away is None)
            publisher.publish(100, 1)
            await so(lambda: 100 in publisher.accepted)
            assert [n for n in publisher.accepted if n != 100] == [
                n for n in range(60) if n != 20
            ], "in their order"
            assert publisher.pressure[-1] is False

    played(story())


def test_qos_0_that_the_broker_has_answered_for_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ASK_BYTES", 10 * EACH)

    async def story() -> None:
        async with Scripted(tmp_path) as broker, publishing(broker.address) as publisher:
            for number in range(500):
                publisher.publish(number, 0)
                if number % 10 == 0:
                    await asyncio.sleep(0)
            await so(lambda: len(broker.published()) == 500)
            publisher.publish(500, 1)
            await so(lambda: publisher.accepted == [500])
            monkeypatch.setattr(module, "ASK_BYTES", 1 << 20)
            for number in range(501, 504):
                publisher.publish(number, 0)
            await so(lambda: len(broker.published()) == 504)
            broker.of("publish")[0].kill()
            await so(lambda: len(broker.of("publish")) == 2)
            again = [int(packet.payload) for packet in broker.published()[504:]]
            assert again == [501, 502, 503]

    played(story())


def test_qos_0_that_is_remembered_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that answers nothing."""
    monkeypatch.setattr(module, "ASK_BYTES", 10 * EACH)

    async def story() -> None:
        async with Scripted(tmp_path) as broker, publishing(broker.address) as publisher:
            broker.does = lambda packet, peer: isinstance(packet, Pingreq)
            for number in range(1000):
                publisher.publish(number, 0)
            await so(lambda: len(broker.published()) == 1000)
            broker.does = lambda packet, peer: False
            broker.of("publish")[0].kill()
            await so(lambda: len(broker.of("publish")) == 2)
            again = [int(packet.payload) for packet in broker.published()[1000:]]
            assert again == list(range(1000 - len(again), 1000)), "the newest"
            assert len(again) < 60

    played(story())


def test_when_all_packet_ids_are_in_use_what_comes_waits_in_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PACKET_IDS", 10)

    async def story() -> None:
        async with Scripted(tmp_path) as broker, publishing(broker.address) as publisher:
            unanswered: list[Publish] = []

            def holds(packet: Packet, peer: Peer) -> bool:
                if isinstance(packet, Publish) and packet.qos:
                    unanswered.append(packet)
                    return True
                return False

            broker.does = holds
            for number in range(30):
                publisher.publish(number, 0 if number == 15 else 1)
            publisher.publish(77, 0, client=2)
            await so(lambda: len(broker.published()) == 11)
            assert numbers(broker) == [*range(10), 77], "another client's QoS 0 waits for nothing"
            [peer] = broker.of("publish")
            for _ in range(29):
                await so(lambda: bool(unanswered))
                peer.send(build.puback(unanswered.pop(0).packet_id))
                await asyncio.sleep(0)
            await so(lambda: len(broker.published()) == 31 and len(publisher.accepted) == 29)
            assert numbers(broker) == [*range(10), 77, *range(10, 30)]
            assert {packet.packet_id for packet in broker.published()} == set(range(11))

    played(story())


def test_of_qos_2_no_more_is_under_way_than_the_broker_keeps(tmp_path: Path) -> None:
    """Of more, Mosquitto acknowledges some and loses them."""

    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            address = replace(broker.address, inflight=10)
            most = [0]
            underway: set[int] = set()

            def counts(packet: Packet, peer: Peer) -> bool:
                if isinstance(packet, Publish) and packet.qos == 2:
                    underway.add(packet.packet_id)
                    most[0] = max(most[0], len(underway))
                elif isinstance(packet, Pubrel):
                    underway.discard(packet.packet_id)
                return False

            broker.does = counts
            async with publishing(address) as publisher:
                for number in range(40):
                    publisher.publish(number, 2)
                publisher.publish(40, 1)
                publisher.publish(41, 1, client=2)
                await so(lambda: len(publisher.accepted) == 42)
            assert most == [8]
            order = numbers(broker)
            assert order.index(41) < 10, "another client does not wait for it"
            assert order.index(40) == 41, "the same client's messages keep their order"

    played(story())


def test_a_real_mosquitto_with_stock_limits_loses_no_qos_2(tmp_path: Path) -> None:
    async def story(address: BrokerAddress) -> None:
        came: list[Publish] = []
        live = LiveLink(address, "live", came.append, lambda reason: None)
        async with running(live.run()), publishing(address) as publisher:
            await so(lambda: live.away is None)
            await live.subscribe(1, ["t"])
            for number in range(500):
                publisher.publish(number, 2)
            await so(lambda: len(publisher.accepted) == 500 and len(came) == 500)

    with real_mosquitto(tmp_path, "max_inflight_messages 20", "max_queued_messages 100") as address:
        played(story(replace(address, inflight=20)))


def test_a_broker_that_was_lost_gets_all_that_it_had_not_acknowledged_when_it_is_back(
    tmp_path: Path,
) -> None:
    """Nothing is named for it, however often the broker is lost."""

    async def story() -> None:
        async with Scripted(tmp_path) as broker, publishing(broker.address) as publisher:
            broker.does = lambda packet, peer: isinstance(packet, Publish)
            for number in range(9):
                publisher.publish(number, number % 3)
            for life in range(1, 4):
                await so(lambda: bool(broker.published()))
                publisher.life = life
                broker.stop()
                publisher.messages.close()
                await asyncio.sleep(0.05)
                broker.came.clear()
                if life == 3:
                    broker.does = lambda packet, peer: False
                await broker.start()
            await so(lambda: len(publisher.accepted) == 6)
            assert [n for n in publisher.accepted if n % 3 == 1] == [1, 4, 7]
            assert [n for n in publisher.accepted if n % 3 == 2] == [2, 5, 8]
            assert not publisher.named
            await so(lambda: publisher.link.away is None)
            publisher.publish(9, 2)
            await so(lambda: publisher.accepted[-1] == 9)

    played(story())


def test_what_waits_for_the_link_goes_out_after_a_lost_broker_has_back_what_it_lost(
    tmp_path: Path,
) -> None:
    """Before, it would move readers' windows beyond what the journal brings."""

    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            back = asyncio.Event()

            async def ready() -> None:
                await back.wait()

            publisher = Publisher(broker.address, ready)
            async with running(publisher.link.run()):
                back.set()
                await so(lambda: publisher.link.away is None)
                back.clear()
                broker.stop()
                await so(lambda: publisher.link.away is not None)
                # As what the broker had acknowledged when it was lost, and the disk had not.
                publisher.publish(1, 1)
                await broker.start()
                await so(lambda: len(broker.of("publish")) == 2)
                await asyncio.sleep(0.1)
                assert broker.published() == []
                assert publisher.pressure[-1], "others wait as well"
                back.set()
                await so(lambda: publisher.accepted == [1])
                assert not publisher.pressure[-1]

    played(story())


def test_a_message_that_is_never_acknowledged_is_found_while_pings_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_module, "KEEPALIVE_UPSTREAM_S", 1)
    monkeypatch.setattr(messages_module, "OPENING_S", 0.3)

    async def story() -> None:
        async with Scripted(tmp_path) as broker, publishing(broker.address) as publisher:
            broker.does = lambda packet, peer: (
                isinstance(packet, Publish) and packet.payload == b"3"
            )
            for number in range(6):
                publisher.publish(number, 1)
            await so(lambda: publisher.named == [3] and len(publisher.accepted) == 5)
            await so(lambda: publisher.link.away is None)

    played(story())


def test_pressure_is_told_while_too_much_is_under_way_and_while_the_link_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 20 * EACH)

    async def story() -> None:
        async with Scripted(tmp_path) as broker, publishing(broker.address) as publisher:
            assert publisher.pressure == [False], "it was away, and is there"
            held: list[Publish] = []

            def holds(packet: Packet, peer: Peer) -> bool:
                if isinstance(packet, Publish):
                    held.append(packet)
                return isinstance(packet, Publish)

            broker.does = holds
            for number in range(30):
                publisher.publish(number, 1)
            assert publisher.pressure == [False, True]
            await so(lambda: len(held) == 30)
            [peer] = broker.of("publish")
            for packet in held:
                peer.send(build.puback(packet.packet_id))
            await so(lambda: len(publisher.accepted) == 30)
            assert publisher.pressure == [False, True, False]
            broker.does = lambda packet, peer: False
            peer.kill()
            await so(lambda: len(broker.of("publish")) == 2 and publisher.link.away is None)
            assert publisher.pressure == [False, True, False, True, False]

    played(story())


def test_what_is_published_in_one_turn_of_the_loop_is_one_write(tmp_path: Path) -> None:
    async def story() -> None:
        async with Scripted(tmp_path) as broker, publishing(broker.address) as publisher:
            broker.reads.clear()
            for number in range(200):
                publisher.publish(number, number % 2)
            await so(lambda: len(broker.published()) == 200)
            assert len(broker.reads) == 1

    played(story())


@pytest.mark.parametrize("wrong", [Puback, Pubcomp])
def test_an_answer_of_the_wrong_kind_or_for_nothing_is_no_acceptance(
    wrong: type, tmp_path: Path
) -> None:
    async def story() -> None:
        async with Scripted(tmp_path) as broker, publishing(broker.address) as publisher:
            broker.does = lambda packet, peer: isinstance(packet, Publish | Pubrel)
            publisher.publish(1, 1 if wrong is Pubcomp else 2)
            await so(lambda: len(broker.published()) == 1)
            [peer] = broker.of("publish")
            encode = build.pubcomp if wrong is Pubcomp else build.puback
            for packet_id in (1, 7):
                peer.send(encode(packet_id))
            peer.send(build.pubrec(1) + build.pingresp() + build.pubrec(9))
            await so(lambda: sum(isinstance(p, Pubrel) for p in peer.came) == 2)
            assert publisher.accepted == []

    played(story())


def test_a_fault_of_ours_amid_what_a_read_has_brought_ends_the_link(tmp_path: Path) -> None:
    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            lost: list[str] = []
            faults: list[str] = []

            def fails(packet: Packet) -> None:
                raise RuntimeError("a fault")

            # As Events.run, which logs faults.
            def as_event(call: Callable[..., object], *words: Any) -> None:
                try:
                    call(*words)
                except RuntimeError as error:
                    faults.append(str(error))

            link = BrokerLink(fails, lost.append, as_event=as_event)
            await link.open(broker.address, "publish")
            broker.peers[0].send(build.puback(1) + build.puback(2))
            await so(lambda: len(lost) == 1)
            assert (lost, faults, link.up) == (["internal error"], ["a fault"], False)

    played(story())
