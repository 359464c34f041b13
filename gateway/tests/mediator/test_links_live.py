"""The live link: one subscription for all who want a filter, whatever races with what."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from links_scene import Peer, Scripted, played, real_amqtt, real_mosquitto, running, so
from sealmq.mediator.control_link import ControlLink
from sealmq.mediator.links import BrokerAddress, BrokerAway, BrokerLink, LiveLink, Snapshots
from sealmq.mediator.links import broker as broker_module
from sealmq.mediator.links import live as module
from sealmq.mqtt import (
    Connect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Subscribe,
    Unsubscribe,
    build,
)

END = "@sealmq/end/1"


class Reader:
    """A live link and what it has told. `tries`: it tries doubtful filters first."""

    def __init__(self, address: BrokerAddress, tries: bool = False) -> None:
        self.came: list[Publish] = []
        self.lost: list[str] = []
        self.snapshots = Snapshots(address, "sealmq/scratch", END) if tries else None
        self.link = LiveLink(
            address,
            "sealmq/live",
            self.came.append,
            self.lost.append,
            snapshots=self.snapshots,
        )

    @property
    def topics(self) -> list[str]:
        return [packet.topic for packet in self.came]


@contextlib.asynccontextmanager
async def reading(address: BrokerAddress, tries: bool = False) -> AsyncIterator[Reader]:
    """One whose link is up."""
    reader = Reader(address, tries)
    async with running(reader.link.run()):
        await so(lambda: reader.link.away is None)
        yield reader


def asked(broker: Scripted) -> list[tuple[str, tuple[str, ...]]]:
    """What the broker was asked for, packet by packet."""
    return [
        ("+", tuple(filt for filt, _ in packet.filters))
        if isinstance(packet, Subscribe)
        else ("-", packet.filters)
        for _, packet in broker.came
        if isinstance(packet, Subscribe | Unsubscribe)
    ]


def no_lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody wants leaves the broker at once."""
    monkeypatch.setattr(module, "LINGERING", 0)


@pytest.mark.parametrize("kind", ["mosquitto", "amqtt"])
def test_one_filter_serves_all_who_want_it_until_the_last_has_left(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_lingering(monkeypatch)

    async def story(address: BrokerAddress) -> None:
        async with reading(address) as reader:
            link = reader.link
            codes = await asyncio.gather(
                link.subscribe("a", ["x/#", "y"]), link.subscribe("b", ["x/#"])
            )
            assert list(codes) == [[2, 2], [2]]
            other = BrokerLink(lambda packet: None, lambda reason: None)
            await other.open(address, "sealmq/other")

            async def publish(*topics: str) -> None:
                reader.came.clear()
                for n, topic in enumerate((*topics, "y")):
                    qos = n % 3
                    other.send(build.publish(topic, b"p", qos, packet_id=n + 1 if qos else 0))
                    if qos == 2:
                        await other.ping()
                        other.send(build.pubrel(n + 1))
                        await other.ping()
                await so(lambda: "y" in reader.topics)

            await publish("x/1", "x/2", "z")
            assert reader.topics == ["x/1", "x/2", "y"]
            link.unsubscribe("a", ["x/#"])
            await publish("x/1")
            assert reader.topics == ["x/1", "y"], "the other one still wants it"
            link.unsubscribe("b", ["x/#", "y"])
            await link.subscribe("b", ["asked after it"])
            await publish("x/1")
            assert reader.topics == ["y"], "and who never held y does not end it"
            other.close()

    with real_mosquitto(tmp_path) if kind == "mosquitto" else real_amqtt() as address:
        played(story(address))


def test_what_a_loop_turn_asks_for_is_one_subscribe_up_to_its_bound(tmp_path: Path) -> None:
    async def story() -> None:
        async with Scripted(tmp_path) as broker, reading(broker.address) as reader:
            works = [reader.link.subscribe(n, [f"f/{n}"]) for n in range(module.FILTERS + 10)]
            assert await asyncio.gather(*works) == [[2]] * (module.FILTERS + 10)
            assert [len(filters) for _, filters in asked(broker)] == [module.FILTERS, 10]
            broker.came.clear()
            long = ["x" * 20_000 + str(n) for n in range(4)]
            assert await reader.link.subscribe(1, long) == [2] * 4
            assert [len(filters) for _, filters in asked(broker)] == [1, 1, 1, 1]

    played(story())


def test_no_more_filters_are_asked_for_at_a_time_than_the_broker_takes(tmp_path: Path) -> None:
    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            async with reading(replace(broker.address, filters=2)) as reader:
                works = [reader.link.subscribe(n, [f"f/{n}"]) for n in range(5)]
                assert await asyncio.gather(*works) == [[2]] * 5
                assert [len(filters) for _, filters in asked(broker)] == [2, 2, 1]

    played(story())


def test_a_filter_that_nobody_holds_lingers_and_is_not_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each SUBSCRIBE makes the broker send all that is retained."""

    async def story() -> None:
        async with Scripted(tmp_path) as broker, reading(broker.address) as reader:
            for _ in range(50):
                await reader.link.subscribe(1, ["a/#"])
                reader.link.unsubscribe(1, ["a/#"])
            assert asked(broker) == [("+", ("a/#",))]
            monkeypatch.setattr(module, "LINGER_S", 0.0)
            await reader.link.subscribe(1, ["b"])
            reader.link.unsubscribe(1, ["b"])
            await so(lambda: ("-", ("a/#", "b")) in asked(broker))

    played(story())


def test_one_who_comes_while_the_last_leaves_is_subscribed_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_lingering(monkeypatch)

    async def story() -> None:
        async with Scripted(tmp_path) as broker, reading(broker.address) as reader:
            link = reader.link
            await link.subscribe("a", ["f"])
            link.unsubscribe("a", ["f"])
            assert await link.subscribe("b", ["f"]) == [2]
            link.unsubscribe("a", ["f"])
            await link.subscribe("c", ["g"])
            assert asked(broker) == [("+", ("f",)), ("-", ("f",)), ("+", ("f",)), ("+", ("g",))]

    played(story())


def test_a_filter_that_the_broker_refuses_is_held_by_nobody_and_asked_for_again(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with Scripted(tmp_path) as broker, reading(broker.address) as reader:

            def refuses(packet: Packet, peer: Peer) -> bool:
                if isinstance(packet, Subscribe):
                    codes = [0x80 if filt == "no" else 2 for filt, _ in packet.filters]
                    peer.send(build.suback(packet.packet_id, codes))
                return isinstance(packet, Subscribe)

            broker.does = refuses
            link = reader.link
            codes = await asyncio.gather(
                link.subscribe(1, ["no", "yes"]), link.subscribe(2, ["no"])
            )
            assert list(codes) == [[0x80, 2], [0x80]]
            broker.does = lambda packet, peer: False
            link.unsubscribe(1, ["no"])
            assert await link.subscribe(2, ["no"]) == [2]
            assert [filters for _, filters in asked(broker)] == [("no", "yes"), ("no",)]

    played(story())


def test_a_suback_with_too_few_codes_grants_nothing_more(tmp_path: Path) -> None:
    async def story() -> None:
        async with Scripted(tmp_path) as broker, reading(broker.address) as reader:

            def few(packet: Packet, peer: Peer) -> bool:
                if isinstance(packet, Subscribe):
                    peer.send(build.suback(packet.packet_id + 1, [2, 2]))
                    peer.send(build.suback(packet.packet_id, [2]))
                return isinstance(packet, Subscribe)

            broker.does = few
            assert await reader.link.subscribe(1, ["a", "b"]) == [2, 0x80]

    played(story())


def test_the_end_of_one_who_waits_for_a_code_is_not_the_end_of_others(tmp_path: Path) -> None:
    async def story() -> None:
        async with Scripted(tmp_path) as broker, reading(broker.address) as reader:
            held: list[Subscribe] = []

            def holds(packet: Packet, peer: Peer) -> bool:
                if isinstance(packet, Subscribe):
                    held.append(packet)
                return isinstance(packet, Subscribe)

            broker.does = holds
            first = asyncio.create_task(reader.link.subscribe(1, ["f"]))
            second = asyncio.create_task(reader.link.subscribe(2, ["f"]))
            await so(lambda: bool(held))
            first.cancel()
            await asyncio.sleep(0)
            reader.link.unsubscribe(1, ["f"])
            broker.peers[0].send(build.suback(held[0].packet_id, [2]))
            assert await second == [2]
            assert asked(broker) == [("+", ("f",))]

    played(story())


def test_after_a_loss_nobody_holds_anything_and_whoever_waits_hears_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with Scripted(tmp_path) as broker, reading(broker.address) as reader:
            await reader.link.subscribe("old", ["f"])
            broker.does = lambda packet, peer: isinstance(packet, Subscribe)
            waits = asyncio.create_task(reader.link.subscribe("old", ["g", "f"]))
            await so(lambda: len(asked(broker)) == 2)
            broker.peers[0].kill()
            with pytest.raises(BrokerAway):
                await waits
            with pytest.raises(BrokerAway):
                await reader.link.subscribe("new", ["f"])
            assert len(reader.lost) == 1
            assert reader.link.away
            broker.does = lambda packet, peer: False
            await so(lambda: reader.link.away is None)
            assert await reader.link.subscribe("new", ["f"]) == [2]
            reader.link.unsubscribe("old", ["f", "g"])
            assert await reader.link.subscribe("other", ["f"]) == [2]
            assert asked(broker)[2:] == [("+", ("f",))]

    played(story())


def test_a_broker_that_answers_no_subscribe_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it answers pings."""
    monkeypatch.setattr(broker_module, "KEEPALIVE_UPSTREAM_S", 1)

    async def story() -> None:
        async with Scripted(tmp_path) as broker, reading(broker.address) as reader:
            broker.does = lambda packet, peer: isinstance(packet, Subscribe)
            with pytest.raises(BrokerAway):
                await reader.link.subscribe(1, ["f"])
            assert reader.lost == ["the broker does not answer SUBSCRIBE or UNSUBSCRIBE"]

    played(story())


def test_a_silent_broker_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "KEEPALIVE_UPSTREAM_S", 1)

    async def story() -> None:
        async with Scripted(tmp_path) as broker, reading(broker.address) as reader:
            broker.does = lambda packet, peer: True
            await so(lambda: bool(reader.lost))
            assert reader.lost == ["the broker was silent for 1 s"]

    played(story())


def test_a_delivery_is_acknowledged_when_the_callback_has_returned(tmp_path: Path) -> None:
    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            seen: list[int] = []

            def takes(packet: Publish) -> None:
                if packet.payload == b"fault":
                    raise RuntimeError("not taken")
                seen.append(packet.packet_id)

            lost: list[str] = []
            link = LiveLink(broker.address, "live", takes, lost.append)
            async with running(link.run()):
                await so(lambda: link.away is None)
                [peer] = broker.peers
                for qos in range(3):
                    peer.send(build.publish("t", b"x", qos, packet_id=qos and 10 + qos))
                await so(lambda: len(peer.came) == 4)
                assert seen == [0, 11, 12]
                assert peer.came[1:] == [Puback(11), Pubrec(12), Pubcomp(12)]
                asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
                peer.send(build.publish("t", b"fault", 1, packet_id=20))
                await so(lambda: bool(lost))
                assert Puback(20) not in peer.came

    played(story())


def test_qos_2_that_comes_again_before_its_pubrel_is_handed_on_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with Scripted(tmp_path) as broker, reading(broker.address) as reader:
            [peer] = broker.peers
            broker.does = lambda packet, peer: isinstance(packet, Pubrec)
            first = build.publish("t", b"1", 2, packet_id=5)
            again = build.publish("t", b"1", 2, dup=True, packet_id=5)
            peer.send(first + again + again)
            await so(lambda: peer.came.count(Pubrec(5)) == 3)
            assert len(reader.came) == 1
            peer.send(build.pubrel(5) + build.pubrel(5))
            await so(lambda: peer.came.count(Pubcomp(5)) == 2)
            peer.send(build.publish("t", b"2", 2, packet_id=5))
            await so(lambda: len(reader.came) == 2)

    played(story())


class Keeping:
    """A broker that answers late, in order, and knows what each connection is subscribed to.

    Below `many/` 400 messages are retained; `dies` and `dies/#` end the connection.
    """

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.subscribed: dict[Peer, set[str]] = {}
        self.refused = {"no", "no/#"}
        self._queues: dict[int, asyncio.Queue[Packet]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def holds(self) -> set[str]:
        """What live lines are subscribed to."""
        mine = [
            filters
            for peer, filters in self.subscribed.items()
            if peer.client_id.startswith("sealmq/live") and not peer.gone
        ]
        return set[str]().union(*mine)

    def __call__(self, packet: Packet, peer: Peer) -> bool:
        if isinstance(packet, Connect):
            self.subscribed[peer] = set()
            queue = self._queues[peer.number] = asyncio.Queue()
            self._tasks.append(asyncio.create_task(self._serve(peer, queue)))
            return False
        if not isinstance(packet, Subscribe | Unsubscribe):
            return False
        self._queues[peer.number].put_nowait(packet)
        return True

    async def _serve(self, peer: Peer, queue: asyncio.Queue[Packet]) -> None:
        while True:
            packet = await queue.get()
            for _ in range(self.chance.randrange(6)):
                await asyncio.sleep(0)
            if isinstance(packet, Subscribe):
                filters = [filt for filt, _ in packet.filters]
                if {"dies", "dies/#"} & set(filters):
                    peer.kill()
                    return
                codes = [0x80 if filt in self.refused else 2 for filt in filters]
                self.subscribed[peer].update(set(filters) - self.refused)
                peer.send(build.suback(packet.packet_id, codes))
                for n in range(400 if "many/#" in filters else 0):
                    peer.send(build.publish(f"many/{n}", b"kept", 0, True))
                if END in filters:
                    peer.send(build.publish(END, b"", 0, True))
            elif isinstance(packet, Unsubscribe):
                self.subscribed[peer].difference_update(packet.filters)
                peer.send(build.unsuback(packet.packet_id))


@pytest.mark.parametrize("lingering", [0, 1024])
@pytest.mark.parametrize("tries", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_whatever_comes_and_goes_each_holder_has_what_it_was_granted(
    seed: int, tries: bool, lingering: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LINGERING", lingering)

    async def story() -> None:
        chance = random.Random(seed)
        async with Scripted(tmp_path) as broker:
            keeping = broker.does = Keeping(chance)
            async with reading(broker.address, tries) as reader:
                link = reader.link

                async def session(me: int) -> set[str]:
                    mine: set[str] = set()
                    for _ in range(30):
                        names = ["f", "g/#", "many/#", "no", "no/#"]
                        some = chance.sample(names, chance.randrange(1, 4))
                        if chance.random() < 0.5:
                            codes = await link.subscribe(me, some)
                            granted = {f for f, c in zip(some, codes, strict=True) if c == 2}
                            assert granted == set(some) - keeping.refused
                            mine |= granted
                            assert mine <= keeping.holds(), "granted, so it is there"
                        else:
                            link.unsubscribe(me, some)
                            mine -= set(some)
                        for _ in range(chance.randrange(4)):
                            await asyncio.sleep(0)
                    return mine

                ends = await asyncio.gather(*(session(me) for me in range(8)))
                wanted: set[str] = set[str]().union(*ends)
                assert await link.subscribe("end", ["end"]) == [2]
                left = keeping.holds() - {"end"}
                assert wanted <= left
                if not lingering:
                    await so(lambda: wanted == keeping.holds() - {"end"})
                if tries:
                    main = broker.of("sealmq/live")[0]
                    assert "many/#" not in keeping.subscribed[main], "it has a line of its own"

    played(story())


def test_filters_of_one_client_open_so_many_lines_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a connection, which brings each message once more; patterns for the same retained
    messages are as many as one likes.
    """
    monkeypatch.setattr(module, "RETAINED", -1)
    monkeypatch.setattr(module, "LINES", 3)

    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            broker.does = Keeping(random.Random(1))
            snapshots = Snapshots(broker.address, "sealmq/scratch", END)
            link = LiveLink(
                broker.address,
                "sealmq/live",
                lambda packet: None,
                lambda reason: None,
                snapshots=snapshots,
                whose=lambda holder: str(holder)[0],
            )
            async with running(link.run()):
                await so(lambda: link.away is None)
                assert await link.subscribe("a1", ["1/+", "2/+"]) == [2, 2]
                assert sorted(await link.subscribe("a2", ["3/+", "4/+"])) == [2, 0x80]
                assert await link.subscribe("b1", ["5/+"]) == [2], "another client's"
                assert await link.subscribe("a2", ["5/+", "plain"]) == [2, 2], "it is there"
                # One that nobody holds any more makes place.
                link.unsubscribe("a1", ["1/+"])
                assert await link.subscribe("a1", ["6/+"]) == [2]
                assert await link.subscribe("a1", ["7/+"]) == [0x80]
                lines = [peer for peer in broker.peers if "/live/" in peer.client_id]
                await so(lambda: sum(not peer.gone for peer in lines) == 4)

    played(story())


def test_a_filter_is_tried_in_its_holder_s_turn_however_many_another_one_asks_for(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            broker.does = Keeping(random.Random(1))
            async with reading(broker.address, tries=True) as reader:
                link = reader.link
                many = asyncio.create_task(link.subscribe("many", [f"m{n}/+" for n in range(200)]))
                await asyncio.sleep(0)
                assert await link.subscribe("one", ["one/+"]) == [2]
                assert not many.done()
                tried = [
                    packet.filters[0][0]
                    for peer in broker.peers
                    if peer.client_id.startswith("sealmq/scratch")
                    for packet in peer.came
                    if isinstance(packet, Subscribe)
                ]
                assert len(tried) < 40
                assert await many == [2] * 200

    played(story())


def test_of_each_client_so_many_filters_are_tried_at_a_time_whatever_others_ask_for(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            broker.does = lambda packet, peer: (
                "scratch" in peer.client_id and isinstance(packet, Subscribe)
            )
            async with reading(broker.address, tries=True) as reader:
                most = module.TRIED_AT_ONCE
                asks = [
                    asyncio.create_task(reader.link.subscribe(who, [f"{who}{n}/{m}/+"]))
                    for n in range(most)
                    for who, times in (("one", 1), ("many", most - 1))
                    for m in range(times)
                ]

                def tried(who: str) -> int:
                    filters = [filters[0] for sign, filters in asked(broker) if sign == "+"]
                    return len({filt for filt in filters if filt.startswith(who)})

                await so(lambda: tried("many") == most)
                await so(lambda: tried("one") == most)
                for ask in asks:
                    ask.cancel()
                await asyncio.gather(*asks, return_exceptions=True)
            assert not reader.link._tried

    played(story())


def test_a_filter_on_which_the_broker_hangs_up_is_refused_and_ends_the_link_at_most_once(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            broker.does = Keeping(random.Random(1))
            async with reading(broker.address, tries=True) as reader:
                link = reader.link
                assert await link.subscribe(1, ["fine", "dies/#"]) == [2, 0x80]
                assert not reader.lost, "one with wildcards is tried before"
                with pytest.raises(BrokerAway):
                    await link.subscribe(1, ["dies"])
                for _ in range(3):
                    await so(lambda: link.away is None)
                    assert await link.subscribe(1, ["other", "dies"]) == [2, 0x80]
                assert len(reader.lost) == 1

    played(story())


def test_what_is_retained_for_one_filter_takes_no_room_from_what_others_get(
    tmp_path: Path,
) -> None:
    """Of a Mosquitto with stock limits, whose queue for one connection it would fill."""

    async def story(address: BrokerAddress) -> None:
        async def back() -> None:
            pass

        acked: list[Packet] = []
        control = ControlLink(address, "control", END, list, lambda reason: None, back)
        other = BrokerLink(acked.append, lambda reason: None)
        async with running(control.run()), reading(address, tries=True) as reader:
            await control.ready.wait()
            await other.open(address, "other")
            for n in range(1, 3001):
                other.send(build.publish(f"r/{n}", b"kept", 1, True, packet_id=n))
                if n % 50 == 0:
                    await so(lambda n=n: len(acked) == n)  # type: ignore[misc]
            assert await reader.link.subscribe("first", ["t"]) == [2]
            acked.clear()
            codes = asyncio.create_task(reader.link.subscribe("second", ["r/#"]))
            sent = after = 0
            while after < 100:
                sent, after = sent + 1, after + codes.done()
                other.send(build.publish("t", b"%d" % sent, 1, packet_id=sent % 60_000 + 1))
                await so(lambda sent=sent: len(acked) > sent - 50)  # type: ignore[misc]
            assert await codes == [2]
            await so(lambda: len(acked) == sent)
            other.send(build.publish("r/1", b"live", 1, packet_id=60_001))
            await so(lambda: any(packet.payload == b"live" for packet in reader.came))
            live = [packet for packet in reader.came if not packet.retain]
            assert [packet.payload for packet in live if packet.topic == "t"] == [
                b"%d" % n for n in range(1, sent + 1)
            ]
            assert not reader.lost

    with real_mosquitto(
        tmp_path, "max_inflight_messages 20", "max_queued_messages 1000"
    ) as address:
        played(story(address))


def test_when_a_filter_s_own_line_falls_the_live_link_has_fallen(tmp_path: Path) -> None:
    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            broker.does = Keeping(random.Random(1))
            async with reading(broker.address, tries=True) as reader:
                assert await reader.link.subscribe(1, ["many/#", "f"]) == [2, 2]
                [own] = broker.of("sealmq/live/1")
                own.kill()
                await so(lambda: bool(reader.lost))
                await so(lambda: broker.of("sealmq/live")[0].gone)
                await so(lambda: reader.link.away is None)
                assert await reader.link.subscribe(1, ["many/#", "f"]) == [2, 2]

    played(story())
