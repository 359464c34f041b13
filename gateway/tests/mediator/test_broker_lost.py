"""A broker that was lost: when it counts as that, and in which order it gets all again."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from links_scene import Peer, Scripted, played, running, so
from sealmq.mediator import control_link as module
from sealmq.mediator.control_link import ControlLink
from sealmq.mediator.journal_file import Entry
from sealmq.mediator.links import BrokerAddress, BrokerAway, reconnecting
from sealmq.mediator.links import broker as broker_module
from sealmq.mediator.replay import Replay
from sealmq.mqtt import Packet, Pingreq, Publish

SENTINEL = "@sealmq/site/end"


class Control:
    """A control link and what it has told."""

    def __init__(self, address: BrokerAddress) -> None:
        self.seen: list[str | None] = []
        self.rows = [("@sm1/x", b"x"), ("@sm1/y", b"y")]
        self.works = 0
        self.hold = asyncio.Event()
        self.hold.set()
        self.link = ControlLink(
            address, "control", SENTINEL, lambda: self.rows, self.seen.append, self._back
        )

    async def _back(self) -> None:
        self.works += 1
        await self.hold.wait()


def retained(broker: Scripted) -> list[tuple[str, bytes, int]]:
    """What came to be retained."""
    published = broker.published()
    assert all(packet.retain for packet in published)
    return [(packet.topic, packet.payload, packet.qos) for packet in published]


def test_a_broker_that_is_given_up_on_counts_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says CONNACK, and acknowledges nothing."""
    monkeypatch.setattr(module, "OPENING_S", 0.1)

    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            broker.does = lambda packet, peer: isinstance(packet, Publish)
            control = Control(broker.address)
            async with running(control.link.run()):
                await so(lambda: len(control.seen) > 1)
            assert control.seen[:2] == [None, "the broker did not acknowledge"]
            assert control.link.losses

    played(story())


def test_records_and_the_sentinel_stand_on_the_broker_whenever_it_is_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            control = Control(broker.address)
            async with running(control.link.run()):
                await control.link.ready.wait()
                rows = [(SENTINEL, b"end", 2), ("@sm1/x", b"x", 1), ("@sm1/y", b"y", 1)]
                assert retained(broker) == rows
                assert control.link.away is None
                control.rows.append(("@sm1/z", b"z"))
                control.link.republish()
                await so(lambda: len(broker.published()) == 7)
                broker.came.clear()
                broker.peers[0].kill()
                await so(lambda: len(control.seen) == 2)
                assert not control.link.ready.is_set()
                assert control.link.losses == 1
                await control.link.ready.wait()
                assert retained(broker) == [*rows, ("@sm1/z", b"z", 1)]
                assert [reason is None for reason in control.seen] == [True, False, True]

    played(story())


def test_each_loss_is_the_first_one_for_a_link_that_was_well_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All clients are out until it is back, so none waits for what earlier losses have cost."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(reconnecting, "asyncio", SimpleNamespace(sleep=sleep))

    async def falls(control: Control, broker: Scripted) -> None:
        await control.link.ready.wait()
        before = control.link.losses
        broker.of("control")[-1].kill()
        await so(lambda: control.link.losses > before)

    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            control = Control(broker.address)
            async with running(control.link.run()):
                for _ in range(4):
                    await falls(control, broker)
                await control.link.ready.wait()

    played(story())
    assert pauses == [reconnecting.FIRST_S] * 4


def test_the_broker_counts_as_there_once_it_has_back_what_it_lost(tmp_path: Path) -> None:
    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            control = Control(broker.address)
            control.hold.clear()
            async with running(control.link.run()):
                await so(lambda: control.works == 1)
                assert control.link.connected
                assert control.link.away
                assert await control.link.life() == 0
                broker.peers[0].kill()
                await so(lambda: control.works == 2)
                assert await control.link.life() == 1
                assert broker.published() == []
                control.hold.set()
                await control.link.ready.wait()
                assert control.link.away is None

    played(story())


def test_a_broker_that_is_lost_or_silent_has_no_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_module, "OPENING_S", 0.2)

    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            control = Control(broker.address)
            with pytest.raises(BrokerAway):
                await control.link.life()
            async with running(control.link.run()):
                await control.link.ready.wait()
                broker.does = lambda packet, peer: isinstance(packet, Pingreq)
                with pytest.raises(BrokerAway):
                    await control.link.life()

                def hangs_up(packet: Packet, peer: Peer) -> bool:
                    peer.kill()
                    return True

                broker.does = hangs_up
                with pytest.raises(BrokerAway):
                    await control.link.life()

    played(story())


@pytest.mark.parametrize(
    ("promises", "wanted"), [({"retained": False}, []), ({"qos": 0}, [0, 0, 0])]
)
def test_what_the_broker_does_not_promise_is_not_asked_of_it(
    promises: dict[str, Any], wanted: list[int], tmp_path: Path
) -> None:
    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            control = Control(replace(broker.address, **promises))
            async with running(control.link.run()):
                await control.link.ready.wait()
                await control.link.life()
                assert [packet.qos for packet in broker.published()] == wanted

    played(story())


async def never(topic: bytes, payload: bytes, qos: int, retain: bool, may: Any) -> None:
    raise AssertionError("there is nothing to publish")


def replay(journal: object, control: object) -> Replay:
    """Of a site without families, where nothing is set aside."""
    site: Any = SimpleNamespace(
        engine=SimpleNamespace(tlvs={}),
        retained=SimpleNamespace(newer=lambda topic, ms, seq: False),
    )
    kept: Any = journal
    link: Any = control
    aside: Any = None
    return Replay(site, kept, link, aside, never, aside)


def test_a_broker_lost_after_the_last_acknowledgement_is_lost() -> None:
    done: list[object] = []
    control = SimpleNamespace(losses=0)

    def entries(segments: object) -> list[object]:
        control.losses = 1  # the link falls while the last answers are taken
        return []

    journal = SimpleNamespace(
        lost=lambda: ["old"],
        all=lambda: ["old"],
        entries=entries,
        broker_back=lambda segments, ahead: done.append(segments),
        retained_elsewhere=dict,
    )
    with pytest.raises(BrokerAway):
        asyncio.run(replay(journal, control).run())
    assert not done, "what is to be published again still is"


def test_nothing_overtakes_qos_2_when_it_is_published_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker hands it on at the end of its handshake only."""
    order: list[int] = []

    async def one(self: Replay, segment: Any, entry: Entry, last: bool) -> None:
        for _ in range(3 if entry.qos == 2 else 0):
            await asyncio.sleep(0)
        order.append(entry.ms)

    monkeypatch.setattr(Replay, "_one", one)
    rows = [Entry(n, b"t", b"x", qos, False) for n, qos in enumerate((1, 2, 2, 1, 1, 2, 0, 2))]
    journal = SimpleNamespace(
        lost=lambda: ["old"],
        all=lambda: ["old"],
        entries=lambda segments: rows,
        broker_back=lambda done, ahead: None,
        retained_elsewhere=dict,
    )
    asyncio.run(replay(journal, SimpleNamespace(losses=0)).run())
    assert order == sorted(order)
    assert len(order) == len(rows)
