"""What `sealmq up` tries of a broker for the links that readers share. Each model here breaks one
promise: that is found, the broker is refused or a limit lowered, and the operator is told why.
"""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from links_scene import OwnTime, Peer, Scripted, played
from sealmq.broker import asking
from sealmq.broker.asking import ask
from sealmq.broker.promises import Promises
from sealmq.broker.target import Target
from sealmq.mqtt import Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel, Subscribe, build
from sealmq_spec.topics import matches

ANSWER_S = 1.0
ALL = Promises(keeps_sessions=False, shared=False)


class Routing:
    """A broker without sessions and groups; `fault`: what it breaks.
    Towards a reader it has `inflight` unacknowledged messages and `queue` that wait.
    """

    def __init__(self, fault: str = "", inflight: int = 20, queue: int = 1000) -> None:
        self.fault, self.inflight, self.most = fault, inflight, queue
        self.subs: dict[Peer, dict[str, int]] = {}
        self.kept: dict[str, Publish] = {}
        self.unreleased: dict[tuple[int, int], Publish] = {}
        self.waiting: dict[Peer, deque[Publish]] = {}
        self.out: dict[Peer, set[int]] = {}
        self.ids = 0

    def __call__(self, packet: Packet, peer: Peer) -> bool:
        match packet:
            case Subscribe():
                self.subscribe(packet, peer)
            case Publish():
                self.publish(packet, peer)
            case Pubrel():
                released = self.unreleased.pop((peer.number, packet.packet_id), None)
                if released is not None:
                    self.route(released)
                peer.send(build.pubcomp(packet.packet_id))
            case Puback() | Pubcomp():
                self.out.get(peer, set()).discard(packet.packet_id)
                self.go_on(peer)
            case Pubrec():
                peer.send(build.pubrel(packet.packet_id))
            case _:
                return False
        return True

    def subscribe(self, packet: Subscribe, peer: Peer) -> None:
        filters = packet.filters
        if self.fault == "8 filters" and len(filters) > 8:
            peer.kill()
            return
        codes = [0x80 if filt.startswith("$share") else qos for filt, qos in filters]
        peer.send(build.suback(packet.packet_id, codes))
        held = self.subs.setdefault(peer, {})
        if self.fault == "late":
            asyncio.get_running_loop().call_later(0.05, held.update, dict(filters))
        else:
            held.update(dict(filters))
        rows = [kept for filt, _ in filters for kept in self.kept.values()
                if matches(filt, kept.topic)]  # fmt: skip
        if self.fault == "end first":
            rows.reverse()
        if self.fault == "no end":
            rows = [row for row in rows if not row.topic.endswith("/end/of")]
        if self.fault == "cut":
            rows = rows[1:]
        for row in rows:
            qos = 0 if self.fault == "retained at QoS 0" else row.qos
            self.queue(peer, row._replace(qos=qos, retain=True))

    def publish(self, packet: Publish, peer: Peer) -> None:
        if packet.qos == 2:
            if self.fault != "window" or len(self.unreleased) < 10:
                self.unreleased[peer.number, packet.packet_id] = packet
            peer.send(build.pubrec(packet.packet_id))
            return
        if packet.qos:
            peer.send(build.puback(packet.packet_id))
        self.route(packet)

    def route(self, packet: Publish) -> None:
        if packet.retain:
            self.kept.pop(packet.topic, None)
            if packet.payload:
                self.kept[packet.topic] = packet
        for peer, held in self.subs.items():
            found = [qos for filt, qos in held.items() if matches(filt, packet.topic)]
            if not found:
                continue
            qos = min(packet.qos, 1 if self.fault == "lower" and len(found) > 1 else 2)
            marked = packet.retain and self.fault == "marked"
            self.queue(peer, packet._replace(qos=qos, retain=marked))

    def queue(self, peer: Peer, packet: Publish) -> None:
        waiting = self.waiting.setdefault(peer, deque())
        if packet.qos and len(waiting) >= self.most:
            return
        waiting.append(packet)
        self.go_on(peer)

    def go_on(self, peer: Peer) -> None:
        waiting, out = self.waiting.get(peer, deque()), self.out.setdefault(peer, set())
        while waiting and (not waiting[0].qos or len(out) < self.inflight):
            packet = waiting.popleft()
            self.ids = self.ids % 65_000 + 1
            if packet.qos:
                out.add(self.ids)
            number = self.ids if packet.qos else 0
            peer.send(
                build.publish(
                    packet.topic, packet.payload, packet.qos, packet.retain, packet_id=number
                )
            )


def asked(folder: Path, **broken: Any) -> Promises:
    """What is found out about such a broker."""
    found: list[Promises] = []

    async def story() -> None:
        async with Scripted(folder) as broker:
            broker.does = Routing(**broken)
            assert broker.address.unix is not None
            found.append(await ask(Target.at_socket(broker.address.unix), ANSWER_S))
            assert not broker.does.kept, "nothing stays behind"

    played(story(), 60, OwnTime)
    return found[0]


def test_one_that_breaks_nothing_has_no_faults(tmp_path: Path) -> None:
    found = asked(tmp_path)
    assert found == ALL
    assert (found.inflight, found.queue, found.filters, found.faults) == (64, 1000, 100, ())


@pytest.mark.parametrize(
    ("fault", "wanted", "said"),
    [
        ("marked", Promises(False, False, retained=False), "tell new from old"),
        ("end first", Promises(False, False, retained=False), "where that ends"),
        ("no end", Promises(False, False, retained=False), "where that ends"),
        ("cut", Promises(False, False, retained=False), "where that ends"),
        ("retained at QoS 0", Promises(False, False, retained=False), "where that ends"),
        ("lower", Promises(False, False, qos=1), "overlapping filters"),
        ("late", ALL, "readers may miss"),
    ],
)
def test_what_readers_could_lose_or_mistake_is_refused_or_said(
    fault: str, wanted: Promises, said: str, tmp_path: Path
) -> None:
    found = asked(tmp_path, fault=fault)
    assert found == wanted
    [sentence] = found.faults
    assert said in sentence


def test_of_qos_2_no_more_is_under_way_than_it_keeps(tmp_path: Path) -> None:
    """Above its limit this broker acknowledges messages and loses them."""
    assert asked(tmp_path, fault="window").inflight == 10


def test_publishers_wait_by_the_queue_it_has(tmp_path: Path) -> None:
    found = asked(tmp_path, queue=50)
    assert found.queue == 70  # with those that are under way
    [said] = found.faults
    assert "it keeps 70 messages" in said
    assert "max_queued_messages 100000" in said


def test_no_more_filters_are_asked_for_at_a_time_than_it_takes(tmp_path: Path) -> None:
    found = asked(tmp_path, fault="8 filters")
    assert found == ALL
    assert found.filters == 2


def test_what_is_asked_takes_no_longer_than_its_answers(tmp_path: Path) -> None:
    """A broker that does all of it is asked each question once."""
    asks: list[str] = []
    broker = Routing()

    async def story() -> None:
        async with Scripted(tmp_path) as scripted:
            scripted.does = broker
            assert scripted.address.unix is not None
            await ask(Target.at_socket(scripted.address.unix), ANSWER_S)
            asks.extend(peer.client_id for peer in scripted.peers)

    played(story(), 60, OwnTime)
    assert len(asks) < 20
    assert asking.QUEUE == 1000
