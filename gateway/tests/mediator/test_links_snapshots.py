"""Snapshots of what is retained: whole, each message once, or told that they are not."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from links_scene import Peer, Scripted, played, real_amqtt, real_mosquitto, running, so
from sealmq.mediator.control_link import ControlLink
from sealmq.mediator.links import (
    BrokerAddress,
    BrokerAway,
    BrokerLink,
    Snapshot,
    SnapshotCut,
    Snapshots,
)
from sealmq.mediator.links import snapshots as module
from sealmq.mqtt import Packet, Puback, Pubcomp, Publish, Pubrec, Subscribe, Unsubscribe, build

END = "@sealmq/site/end"


async def whole(snapshot: Snapshot, into: list[Publish] | None = None) -> list[Publish]:
    """All of it, in its chunks; `into`: also what came of one that fails."""
    found: list[Publish] = [] if into is None else into
    more = True
    while more:
        some, more = await snapshot.more()
        assert len(some) <= module.CHUNK
        found += some
    return found


def with_broker(
    kind: str, folder: Path, story: Callable[[BrokerAddress], Coroutine[Any, Any, None]]
) -> None:
    """The story with a real broker on which the sentinel stands."""

    async def run(address: BrokerAddress) -> None:
        async def back() -> None:
            pass

        control = ControlLink(address, "sealmq/control", END, list, lambda reason: None, back)
        async with running(control.run()):
            await control.ready.wait()
            await story(address)

    with real_mosquitto(folder) if kind == "mosquitto" else real_amqtt() as address:
        played(run(address))


async def retain(address: BrokerAddress, rows: dict[str, int]) -> BrokerLink:
    """Retains (topic, QoS), and gives the link that did."""

    def came(packet: Packet) -> None:
        if isinstance(packet, Pubrec):
            link.send(build.pubrel(packet.packet_id))

    link = BrokerLink(came, lambda reason: None)
    await link.open(address, "sealmq/retaining")
    for n, (topic, qos) in enumerate(rows.items(), 1):
        link.send(build.publish(topic, b"kept", qos, True, packet_id=n if qos else 0))
        if n % 50 == 0:
            await link.answers()
            await link.answers()
    await link.answers()
    await link.answers()
    return link


@pytest.mark.parametrize("kind", ["mosquitto", "amqtt"])
def test_all_that_is_retained_comes_once_with_its_own_qos_amid_live_traffic(
    kind: str, tmp_path: Path
) -> None:
    chance = random.Random(4)
    rows = {f"r/{n}": chance.randrange(3) for n in range(1500)}

    async def story(address: BrokerAddress) -> None:
        link = await retain(address, rows)
        snapshots = Snapshots(address, "sealmq/scratch", END)
        stop = False

        async def live() -> None:
            while not stop:
                for n in range(20):
                    link.send(build.publish(f"r/live{n}", b"live", 0))
                await asyncio.sleep(0.001)

        beside = asyncio.create_task(live())
        for filt, wanted in [
            ("r/#", rows),
            ("#", rows),
            ("+/#", rows),
            ("r/7", {"r/7": rows["r/7"]}),
            ("none/#", {}),
            ("r/+", rows),
        ]:
            found = await whole(snapshots.of(1, filt))
            assert {p.topic: p.qos for p in found} == wanted, filt
            assert len(found) == len(wanted)
            assert all(p.retain and p.payload == b"kept" for p in found)
        stop = True
        await beside
        snapshots.close()
        link.close()

    with_broker(kind, tmp_path, story)


def test_a_snapshot_that_the_broker_has_no_room_for_says_that_it_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mosquitto with stock limits drops, without a word, what exceeds its queue."""
    monkeypatch.setattr(module, "QUIET_S", 0.2)
    rows = {f"r/{n}": 1 for n in range(500)}

    async def story(address: BrokerAddress) -> None:
        link = await retain(address, rows | {END: 2})
        found = []
        snapshots = Snapshots(address, "scratch", END)
        snapshot = snapshots.of(1, "r/#")
        cut = False
        while not cut:
            try:
                some, more = await snapshot.more()
            except SnapshotCut:
                cut = True
            else:
                assert more
                found += some
        assert 0 < len(found) < 500
        assert await whole(snapshots.of(1, "r/1")), "the next one is not hurt by it"
        link.close()

    with real_mosquitto(tmp_path, "max_inflight_messages 20", "max_queued_messages 100") as address:
        played(story(address))


class Retaining:
    """A broker with retained messages, which sends 20 of QoS above 0 at a time."""

    def __init__(self, rows: int) -> None:
        self.rows = {f"r/{n:03}": 1 + n % 2 for n in range(rows)}
        self.waiting: dict[int, list[tuple[str, int]]] = {}
        self.subscribes = 0

    def __call__(self, packet: Packet, peer: Peer) -> bool:
        if isinstance(packet, Subscribe):
            self.subscribes += 1
            filters = [filt for filt, _ in packet.filters]
            peer.send(build.suback(packet.packet_id, [0x80 if f == "no" else 2 for f in filters]))
            rows = list(self.rows.items()) if filters[0] == "r/#" else []
            self.waiting[peer.number] = [*rows, (END, 2)]
            self.fill(peer, 20)
        elif isinstance(packet, Puback | Pubcomp):
            self.fill(peer, 1)
        else:
            return False
        return True

    def fill(self, peer: Peer, room: int) -> None:
        """Sends what there is room for."""
        waiting = self.waiting.get(peer.number, [])
        for _ in range(min(room, len(waiting))):
            topic, qos = waiting.pop(0)
            at = len(waiting) + 1
            peer.send(build.publish(topic, b"kept", qos, True, packet_id=at))
            peer.send(build.publish(topic, b"live", 0))


@pytest.mark.parametrize("falls", [1, 2])
@pytest.mark.parametrize("at", [2, 3, 4, 15, 60, 100])
def test_a_link_that_falls_is_opened_again_once_and_nothing_comes_twice(
    at: int, falls: int, tmp_path: Path
) -> None:
    """`at`: packets of the link until then; CONNECT is the first."""

    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            retaining = Retaining(100)
            fell: list[Peer] = []

            def does(packet: Packet, peer: Peer) -> bool:
                if len(peer.came) == at and len(fell) < falls:
                    fell.append(peer)
                    peer.kill()
                    return True
                return retaining(packet, peer)

            broker.does = does
            found: list[Publish] = []
            snapshot = Snapshots(broker.address, "scratch", END).of(1, "r/#")
            try:
                more = True
                while more:
                    some, more = await snapshot.more()
                    found += some
            except BrokerAway:
                assert falls == 2
            else:
                assert sorted(p.topic for p in found) == sorted(retaining.rows)
            assert len(fell) == falls
            assert len({p.topic for p in found}) == len(found)

    played(story())


def test_a_filter_that_the_broker_refuses_has_no_retained_messages(tmp_path: Path) -> None:
    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            broker.does = Retaining(5)
            snapshots = Snapshots(broker.address, "scratch", END)
            assert await whole(snapshots.of(1, "no")) == []
            assert len(await whole(snapshots.of(1, "r/#"))) == 5

    played(story())


def test_a_broker_that_retains_nothing_is_not_asked(tmp_path: Path) -> None:
    async def story() -> None:
        address = BrokerAddress("127.0.0.1", 1, unix=tmp_path / "none", retained=False)
        assert await whole(Snapshots(address, "scratch", END).of(1, "r/#")) == []

    played(story())


def test_links_are_used_again_for_a_short_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LINGER_S", 0.1)

    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            broker.does = Retaining(100)
            snapshots = Snapshots(broker.address, "scratch", END)
            for _ in range(5):
                assert len(await whole(snapshots.of(1, "r/#"))) == 100
            assert len(broker.peers) == 1
            unsubscribed = [p for _, p in broker.came if isinstance(p, Unsubscribe)]
            assert unsubscribed[0].filters == ("r/#", END)
            await so(lambda: broker.peers[0].gone)
            assert len(await whole(snapshots.of(1, "r/#"))) == 100

    played(story())


def test_a_client_has_one_place_and_who_does_not_read_gives_it_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PLACES", 2)
    monkeypatch.setattr(module, "STALL_S", 0.1)

    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            broker.does = retaining = Retaining(100)
            snapshots = Snapshots(broker.address, "scratch", END)
            slow = [snapshots.of(1, "r/#") for _ in range(3)]
            firsts = [await slow[0].more()]
            second = asyncio.create_task(slow[1].more())
            assert len(await whole(snapshots.of(2, "r/#"))) == 100, "another client has a place"
            firsts.append(await second)
            firsts.append(await slow[2].more())
            many = [whole(snapshots.of(client, "r/#")) for client in range(5, 25)]
            assert [len(found) for found in await asyncio.gather(*many)] == [100] * 20
            before = retaining.subscribes
            for (some, more), snapshot in zip(firsts, slow, strict=True):
                assert more
                rest = await whole(snapshot)
                assert sorted(p.topic for p in [*some, *rest]) == sorted(retaining.rows)
            assert retaining.subscribes > before, "it began anew"

    played(story())


def test_one_that_is_dropped_or_cancelled_frees_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PLACES", 1)

    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            broker.does = Retaining(100)
            snapshots = Snapshots(broker.address, "scratch", END)
            dropped = snapshots.of(1, "r/#")
            await dropped.more()
            dropped.close()
            assert await dropped.more() == ([], False)
            for moment in range(12):
                task = asyncio.create_task(whole(snapshots.of(1, "r/#")))
                waits = asyncio.create_task(whole(snapshots.of(1, "r/#")))
                for _ in range(moment):
                    await asyncio.sleep(0)
                task.cancel()
                waits.cancel()
                await asyncio.gather(task, waits, return_exceptions=True)
            assert len(await whole(snapshots.of(1, "r/#"))) == 100
            snapshots.close()

    played(story())


def test_what_waits_for_a_slow_reader_is_bounded(tmp_path: Path) -> None:
    """The rest waits at the broker."""

    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            sent = [0]

            def floods(packet: Packet, peer: Peer) -> bool:
                if isinstance(packet, Subscribe):
                    peer.send(build.suback(packet.packet_id, [2, 2]))
                    for n in range(300):
                        peer.send(build.publish(f"r/{n}", bytes(100_000), 0, True))
                        sent[0] += 100_000
                    peer.send(build.publish(END, b"", 1, True, packet_id=1))
                return isinstance(packet, Subscribe)

            broker.does = floods
            snapshot = Snapshots(broker.address, "scratch", END).of(1, "r/#")
            some, _ = await snapshot.more()
            await asyncio.sleep(0.2)
            [peer] = broker.peers
            assert peer.writer.transport.get_write_buffer_size() > sent[0] // 2
            assert len(some) + len(await whole(snapshot)) == 300

    played(story())


def test_more_than_a_snapshot_may_bring_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MESSAGES", 70)

    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            broker.does = Retaining(100)
            snapshots = Snapshots(broker.address, "scratch", END)
            with pytest.raises(SnapshotCut, match="more is retained"):
                await whole(snapshots.of(1, "r/#"))
            assert await whole(snapshots.of(1, "none")) == []

    played(story())


@pytest.mark.parametrize("topics", [1, 3])
@pytest.mark.parametrize("pause_s", [0.001, 0.05])
def test_a_broker_that_repeats_what_it_has_sent_holds_no_place(
    topics: int, pause_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its snapshot is cut, though something comes all the time, and each topic came once."""
    monkeypatch.setattr(module, "QUIET_S", 0.1)
    monkeypatch.setattr(module, "PLACES", 1)

    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            asked: set[int] = set()

            async def repeats(peer: Peer) -> None:
                n = 0
                while not peer.gone:
                    peer.send(build.publish(f"r/{n % topics}", b"kept", 0, True))
                    n += 1
                    await asyncio.sleep(pause_s)

            def does(packet: Packet, peer: Peer) -> bool:
                if isinstance(packet, Subscribe) and packet.filters[0][0] == "r/#":
                    peer.send(build.suback(packet.packet_id, [2, 2]))
                    asked.add(peer.number)
                    tasks.append(asyncio.create_task(repeats(peer)))
                    return True
                return isinstance(packet, Subscribe) and Retaining(5)(packet, peer)

            tasks: list[asyncio.Task[None]] = []
            broker.does = does
            snapshots = Snapshots(broker.address, "scratch", END)
            found: list[Publish] = []
            snapshot = snapshots.of(1, "r/#")
            with pytest.raises(SnapshotCut):
                await whole(snapshot, found)
            assert sorted(packet.topic for packet in found) == [f"r/{n}" for n in range(topics)]
            assert await whole(snapshots.of(2, "none")) == [], "the place is free"
            assert len(asked) == 1
            await asyncio.gather(*tasks)

    played(story())
