"""The broker's queue for the live link: publishers wait before it runs over, and a gap is seen."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from links_scene import (
    OwnTime,
    Peer,
    Scripted,
    played,
    real_amqtt,
    real_mosquitto,
    running,
    so,
)
from sealmq.mediator.links import (
    BrokerAddress,
    BrokerAway,
    BrokerLink,
    Credit,
    LiveLink,
    PublishLink,
    Snapshots,
)
from sealmq.mediator.links import credit as module
from sealmq.mediator.links import live as live_module
from sealmq.mediator.links.credit import Lines
from sealmq.mediator.links.publish import Item
from sealmq.mqtt import Connect, Packet, Publish, Subscribe, build

# Thousands of messages may take long on a machine that is busy with other things.
FLOOD_S = 60.0


class Both:
    """A publish link and a live link that share a credit: of one worker, or of that of several."""

    def __init__(
        self,
        address: BrokerAddress,
        counts: bool = True,
        worker: int = 0,
        others: Sequence[Both] = (),
        workers: int = 1,
        snapshots: Snapshots | None = None,
    ) -> None:
        self.worker, self.others = worker, list(others)
        for other in others:
            other.others.append(self)
        self.came: list[Publish] = []
        self.lost: list[str] = []
        self.accepted: list[Any] = []
        self.pressed = True
        self.credit = Credit(
            address, "sealmq/all", worker, workers, 7, self._marked, self._is_there
        )
        name = f"sealmq/{worker}" if worker else "sealmq"
        credit = self.credit if counts else None
        self.live = LiveLink(
            address,
            f"{name}/live",
            self.came.append,
            self.lost.append,
            snapshots=snapshots,
            credit=credit,
        )
        self.publish = PublishLink(
            address,
            f"{name}/publish",
            self._alone,
            self.accepted.append,
            lambda sent, why: None,
            self._press,
            credit=credit,
        )

    # As the owner tells other workers.
    def _marked(self, worker: int, number: int) -> None:
        for other in self.others:
            if other.worker == worker:
                other.credit.marked(self.worker, number)

    def _is_there(self, there: bool) -> None:
        for other in self.others:
            other.credit.live(self.worker, there)

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


END = "@sealmq/end/1"


@contextlib.asynccontextmanager
async def apart(address: BrokerAddress, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Both]:
    """As `linked`, but so much is retained for the reader's filter that this has a line of its own,
    and nothing else comes over the line that all share.
    """
    monkeypatch.setattr(live_module, "RETAINED", -1)
    snapshots = Snapshots(address, "sealmq/scratch", END)
    acked: list[Packet] = []
    other = BrokerLink(acked.append, lambda reason: None)
    await other.open(address, "other")
    other.send(build.publish(END, b"end", 1, True, packet_id=1))
    await so(lambda: bool(acked))
    other.close()
    both = Both(address, snapshots=snapshots)
    async with running(both.live.run(), both.publish.run()):
        await so(lambda: both.live.away is None and both.publish.away is None)
        await both.live.subscribe("reader", ["+"])
        yield both
    snapshots.close()


def flawed(both: Both, count: int, qos: int) -> list[str]:
    """What is wrong with what came of a flood: all of it must, once, and what one client sent at
    QoS 1 in its order; others' may overtake it. At QoS 2 a Mosquitto whose max_inflight_messages
    is neither 0 nor 1 lets one overtake some that it has queued, though it got PUBREL in order.
    """
    came = [int(packet.payload) for packet in both.came]
    flaws = [f"{n} did not come" for n in sorted({*range(count)} - {*came})]
    if qos == 2:
        return flaws + [f"{len(came)} came"] * (len(came) != count)
    newest = dict.fromkeys(range(5), -1)
    for at, n in enumerate(came):
        if n <= newest[n % 5]:
            flaws.append(f"{n} came after {newest[n % 5]}: {came[max(0, at - 12) : at + 3]}")
        newest[n % 5] = max(newest[n % 5], n)
    return flaws


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
            assert flawed(both, 20_000, qos) == []
            assert not both.lost

    with real_mosquitto(
        tmp_path, "max_inflight_messages 20", "max_queued_messages 1000"
    ) as address:
        played(story(replace(address, inflight=20, queue=1000)), FLOOD_S)


def test_a_flood_over_a_filter_s_own_line_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Marks came back over the other line at once, however much waited for this one."""

    async def story(address: BrokerAddress) -> None:
        async with apart(address, monkeypatch) as both:
            await flood(both, 20_000, 1)
            await so(lambda: len(both.accepted) == 20_000)
            await so(lambda: not both.publish._underway and not both.credit._marks)
            # What came to the broker after the last mark may be on its way to us still.
            await so(lambda: len(both.came) >= 20_000)
            assert flawed(both, 20_000, 1) == []
            assert not both.lost

    with real_mosquitto(
        tmp_path, "max_inflight_messages 20", "max_queued_messages 1000"
    ) as address:
        played(story(replace(address, inflight=20, queue=1000)), FLOOD_S)


def lines() -> tuple[Lines, Credit, list[tuple[int, int]]]:
    """Those of worker 0, of which "main" is the first; and which marks of others have come."""
    told: list[tuple[int, int]] = []
    address = BrokerAddress("127.0.0.1", 1)
    credit = Credit(address, "x", told=lambda worker, number: told.append((worker, number)))
    credit.live(0, True)
    return Lines(credit, "main"), credit, told


def test_a_mark_has_come_when_each_line_that_brings_marks_has_brought_it() -> None:
    of, credit, told = lines()
    own = [credit.mark(100) for _ in range(4)]

    def passed() -> int:
        return 4 - len(credit._marks)

    assert of.came("main", own[0]) is None
    assert passed() == 1, "no other line has brought any"
    assert of.came("late", own[1]) is None
    assert passed() == 1, "the first line has not"
    assert of.came("main", own[1]) is of.came("main", own[2]) is of.came("main", own[2]) is None
    assert passed() == 2, "the other one has not brought the third"
    assert of.came("late", own[2]) is None
    assert passed() == 3
    for line, number in ("late", 8), ("main", 7), ("main", 8), ("main", 9):
        assert of.came(line, b"1 %d" % number) is None
    assert told == [(1, 7), (1, 8)]
    assert of.came("main", own[3]) is None
    assert of.over("late") is None
    assert passed() == 4
    assert told == [(1, 7), (1, 8), (1, 9)]
    assert of.over("never there") is None
    assert of.came("main", b"no mark") is of.came("main", b"1 " + b"9" * 40) is None


@pytest.mark.parametrize("worker", [0, 1])
def test_a_mark_that_is_missing_on_any_line_was_dropped(worker: int) -> None:
    of, credit, _ = lines()
    for _ in range(3):
        credit.mark(1)
    for number in (1, 2, 3):
        assert of.came("main", b"%d %d" % (worker, number)) is None
    assert of.came("other", b"%d 1" % worker) is None
    assert "dropped" in str(of.came("other", b"%d 3" % worker))


def test_a_line_is_empty_once_what_it_has_asked_itself_comes_back(tmp_path: Path) -> None:
    """The broker drops that too while its queue for the line is full."""

    async def story() -> None:
        asked: list[Publish] = []

        def does(packet: Packet, peer: Peer) -> bool:
            if isinstance(packet, Publish):
                asked.append(packet)
                if len(asked) == 3:
                    peer.send(build.publish(packet.topic, packet.payload, 1, packet_id=7))
            return False

        async with Scripted(tmp_path) as broker:
            broker.does = does
            came: list[Publish] = []
            line = live_module._Line(came.append, lambda reason: None, "", lambda line, mark: None)
            await line.link.open(broker.address, "line")
            await line.empty("@line")
            assert len(asked) == 3
            assert came == []
            with pytest.raises(BrokerAway, match="does not pass"):
                await line.empty("@line")
            assert len(asked) == 3 + live_module.ASKED
            line.close()
            with pytest.raises(BrokerAway, match="line was lost"):
                await line.empty("@line")

    played(story(), 3 * live_module.ASKED, loop=OwnTime)


def test_a_line_is_waited_for_while_what_is_retained_still_comes(tmp_path: Path) -> None:
    """However long that takes: a filter would be refused at each try for which much is retained."""
    most = 3 * live_module.ASKED

    async def story() -> None:
        asked: list[Publish] = []

        def does(packet: Packet, peer: Peer) -> bool:
            if isinstance(packet, Publish):
                asked.append(packet)
                if len(asked) == most:
                    peer.send(build.publish(packet.topic, packet.payload, 1, packet_id=7))
                elif len(asked) % 2:
                    peer.send(build.publish("t", b"kept", 0, True))
            return False

        async with Scripted(tmp_path) as broker:
            broker.does = does
            came: list[Publish] = []
            line = live_module._Line(came.append, lambda reason: None, "", lambda line, mark: None)
            await line.link.open(broker.address, "line")
            await line.empty("@line")
            assert len(asked) == most
            line.close()

    played(story(), 3 * most, loop=OwnTime)


@pytest.mark.parametrize("code", [0, 0x80])
def test_a_broker_that_lets_a_line_ask_itself_nothing_holds_up_no_filter(
    code: int, tmp_path: Path
) -> None:
    """Such as one with an access list of its own. The line brings no marks then."""

    async def story() -> None:
        def does(packet: Packet, peer: Peer) -> bool:
            if isinstance(packet, Subscribe):
                peer.send(build.suback(packet.packet_id, [code]))
            return isinstance(packet, Subscribe)

        async with Scripted(tmp_path) as broker:
            broker.does = does
            came: list[Publish] = []
            line = live_module._Line(came.append, lambda reason: None, "", lambda line, mark: None)
            await line.link.open(broker.address, "sealmq/line")
            assert not await line.empty("@sealmq/line")
            [peer] = broker.of("sealmq/line")
            assert not any(isinstance(packet, Publish) for packet in peer.came)
            line.close()

    played(story(), 3 * live_module.ASKED, loop=OwnTime)


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


# --- several workers ---


@contextlib.asynccontextmanager
async def two_workers(address: BrokerAddress) -> AsyncIterator[tuple[Both, Both]]:
    """The readers are the second one's."""
    one = Both(address, worker=0, workers=2)
    two = Both(address, worker=1, others=[one], workers=2)
    works = [link.run() for both in (one, two) for link in (both.live, both.publish)]
    async with running(*works):
        await so(lambda: all(b.live.away is None and b.publish.away is None for b in (one, two)))
        await two.live.subscribe("reader", ["t"])
        yield one, two


def stalled(both: Both, on: bool) -> None:
    """Its live link reads nothing for now."""
    line = both.live._line
    assert line is not None
    line.link.pause(on)


@pytest.mark.parametrize("qos", [1, 2])
def test_publishers_of_one_worker_wait_for_the_live_link_of_another(
    qos: int, tmp_path: Path
) -> None:
    """Its readers would else lose what a Mosquitto with stock limits drops, and hear nothing."""

    async def story(address: BrokerAddress) -> None:
        async with two_workers(address) as (one, two):
            stalled(two, True)
            flooding = asyncio.create_task(flood(one, 8000, qos))
            await so(lambda: one.pressed)
            await asyncio.sleep(0.3)
            assert len(one.accepted) < 1000
            stalled(two, False)
            await flooding
            await so(lambda: len(one.accepted) == 8000 and len(two.came) == 8000)
            assert flawed(two, 8000, qos) == []
            assert not one.lost
            assert not two.lost

    with real_mosquitto(
        tmp_path, "max_inflight_messages 20", "max_queued_messages 1000"
    ) as address:
        played(story(replace(address, inflight=20, queue=1000)), FLOOD_S)


def test_the_parts_of_all_workers_make_half_of_the_queue() -> None:
    address = BrokerAddress("127.0.0.1", 1, queue=10_000)
    alone = Credit(address, "x").most
    assert sum(Credit(address, "x", n, 4).most for n in range(4)) == alone


@pytest.mark.parametrize("how", ["its link falls", "its worker is ended", "it hangs"])
def test_nobody_waits_for_a_live_link_that_is_gone(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(address: BrokerAddress) -> None:
        async with two_workers(address) as (one, two):
            stalled(two, True)
            flooding = asyncio.create_task(flood(one, 400, 1))
            await so(lambda: one.pressed)
            if how == "its link falls":
                two.live._give_up("it fell")
            elif how == "its worker is ended":
                one.credit.live(1, False)
            else:
                monkeypatch.setattr(module, "OVERDUE_S", 0.3)
            await flooding
            await so(lambda: len(one.accepted) == 400 and not one.pressed)
            assert not one.lost

    with real_mosquitto(tmp_path) as address:
        played(story(replace(address, queue=200)))


def test_a_worker_sees_by_another_ones_marks_what_was_dropped_for_it(tmp_path: Path) -> None:
    """Though it publishes nothing itself."""

    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            lose: list[int] = []

            def does(packet: Packet, peer: Peer) -> bool:
                if not isinstance(packet, Publish) or packet.topic == "t":
                    return False
                again = build.publish(packet.topic, packet.payload, 1, packet_id=packet.packet_id)
                for live in broker.of("sealmq/live"):
                    live.send(again)
                if not lose:
                    for live in broker.of("sealmq/1/live"):
                        live.send(again)
                elif lose.pop():
                    lose.clear()
                return False

            broker.does = does
            async with two_workers(replace(broker.address, queue=100)) as (one, two):
                for number in range(100):
                    one.send(number)
                    await asyncio.sleep(0)
                await so(lambda: len(one.accepted) == 100)
                assert not two.lost
                lose.append(1)
                for number in range(100):
                    one.send(number)
                    await asyncio.sleep(0.001)
                await so(lambda: bool(two.lost))
                assert "dropped" in two.lost[0]
                assert not one.lost

    played(story())


def test_a_publish_link_that_falls_ends_no_live_link_of_another_worker(tmp_path: Path) -> None:
    """Marks that were out with it never come; none of a message was dropped."""

    async def story(address: BrokerAddress) -> None:
        async with two_workers(address) as (one, two):

            async def alone(item: Item) -> None:
                return

            one.publish._alone = alone
            for _ in range(3):
                for number in range(300):
                    one.send(number)
                link = one.publish._link
                assert link is not None
                link.give_up("it fell")
                await so(lambda: one.publish.away is None and not one.pressed)
            await flood(one, 1000, 1)
            await so(lambda: len(one.accepted) == 1900)
            assert not two.lost
            assert not one.lost

    with real_mosquitto(tmp_path) as address:
        played(story(replace(address, queue=1000)))
