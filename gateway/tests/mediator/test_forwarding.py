"""What clients publish goes to no broker that does not have back what it lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from links_scene import Peer, Scripted, played, running, so
from mediator_world import SENSOR
from sealmq.mediator.control_link import ControlLink
from sealmq.mediator.forwarding import Forwarding
from sealmq.mqtt import Packet, Pingreq


class Scene:
    """A control link, whose broker has back what it lost once `back` is set, and a publish link."""

    def __init__(self, broker: Scripted) -> None:
        self.broker = broker
        self.back = asyncio.Event()
        self.control = ControlLink(
            broker.address, "control", "@end", lambda: (), lambda reason: None, self._back
        )
        site: Any = SimpleNamespace(ring=SimpleNamespace(goes_on=lambda *words: True))
        events: Any = SimpleNamespace(run=lambda event, *words: event(*words))
        unused: Any = None
        self.forwarding = Forwarding(
            broker.address, "mediator", site, events, unused, unused, self.control, unused, unused,
            unused, lambda: None,
        )  # fmt: skip

    async def _back(self) -> None:
        await self.back.wait()

    def publish(self) -> None:
        """A client's clear, of QoS 0."""
        self.forwarding.link.publish(None, b"t", b"", 0, True, SENSOR)

    def came(self) -> bool:
        """Whether it has come to the broker."""
        return any(packet.topic == "t" for packet in self.broker.published())

    async def opened(self, count: int) -> None:
        """The publish link has connected so often, and had some time since."""
        await so(lambda: len(self.broker.of("mediator/publish")) == count)
        await asyncio.sleep(0.1)


def test_a_client_s_message_waits_until_the_broker_has_back_what_it_lost(tmp_path: Path) -> None:
    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            scene = Scene(broker)
            async with running(scene.control.run(), scene.forwarding.link.run()):
                scene.publish()
                await scene.opened(1)
                assert not scene.came()
                scene.back.set()
                await so(scene.came)

    played(story())


def test_it_waits_too_while_the_control_link_has_not_heard_yet_that_the_broker_was_lost(
    tmp_path: Path,
) -> None:
    """The publish link is in the broker's new life; the control link counts as up, from the old."""

    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            scene = Scene(broker)
            scene.back.set()
            async with running(scene.control.run(), scene.forwarding.link.run()):
                await so(lambda: scene.forwarding.link.away is None)
                [old] = broker.of("control")

                def silent(packet: Packet, peer: Peer) -> bool:
                    return peer is old and isinstance(packet, Pingreq)

                broker.does = silent
                scene.back.clear()
                broker.of("mediator/publish")[0].kill()
                await so(lambda: scene.forwarding.link.away is not None)
                scene.publish()
                await scene.opened(2)
                assert scene.control.ready.is_set()
                assert not scene.came()
                old.kill()
                await so(lambda: len(broker.of("control")) == 2)
                await asyncio.sleep(0.1)
                assert not scene.came()
                scene.back.set()
                await so(scene.came)

    played(story())
