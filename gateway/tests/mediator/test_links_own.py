"""A session's own link: nothing before it is wanted, and the broker's packet ids as they are."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from links_scene import Peer, Scripted, played, real_mosquitto, so
from sealmq.mediator.core.limits import HELD_PACKETS
from sealmq.mediator.links import BrokerAddress, BrokerAway, BrokerLink, OwnLink
from sealmq.mqtt import Packet, Puback, Publish, Subscribe, build


class Own:
    """An own link and what it has told."""

    def __init__(self) -> None:
        self.came: list[Packet] = []
        self.lost: list[str] = []
        self.link = OwnLink(self.came.append, self.lost.append)


def test_what_waits_for_a_kept_session_comes_after_it_is_wanted_with_the_broker_s_ids(
    tmp_path: Path,
) -> None:
    async def story(address: BrokerAddress) -> None:
        own = Own()
        assert await own.link.open(address, "kept", clean=False) is False
        assert await own.link.subscribe([("a", 2), ("b", 1)]) == [2, 1]
        own.link.close()
        other = BrokerLink(lambda packet: None, lambda reason: None)
        await other.open(address, "other")
        for n in range(1, 6):
            other.send(build.publish("a", b"%d" % n, 1, packet_id=n))
        await other.ping()
        own = Own()
        assert await own.link.open(address, "kept", clean=False) is True
        # SUBACK comes through; what waited stays here.
        assert await own.link.subscribe([("c", 0)]) == [0]
        assert own.came == []
        own.link.pause(False)
        await so(lambda: len(own.came) == 5)
        ids = [packet.packet_id for packet in own.came if isinstance(packet, Publish)]
        assert len(ids) == 5
        for packet_id in ids[:3]:
            own.link.send(build.puback(packet_id))
        await own.link.unsubscribe(["c"])
        own.link.close()
        own = Own()
        await own.link.open(address, "kept", clean=False)
        own.link.pause(False)
        await so(lambda: len(own.came) == 2)
        assert [p.packet_id for p in own.came if isinstance(p, Publish) and p.dup] == ids[3:]
        own.link.close()
        other.close()

    with real_mosquitto(tmp_path) as address:
        played(story(address))


def test_a_paused_link_holds_a_bounded_number_and_goes_on_in_order(tmp_path: Path) -> None:
    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            own = Own()
            await own.link.open(broker.address, "own", clean=False)
            [peer] = broker.peers
            most = 200_000
            peer.send(b"".join(build.publish("t", b"%d" % n) for n in range(most)))
            await asyncio.sleep(0.2)
            assert own.came == []
            assert peer.writer.transport.get_write_buffer_size() > 0, "the rest waits at the broker"
            own.link.pause(False)
            await so(lambda: len(own.came) > HELD_PACKETS)
            own.link.pause(True)
            held = len(own.came)
            await asyncio.sleep(0.05)
            assert len(own.came) == held
            own.link.pause(False)
            await so(lambda: len(own.came) == most)
            assert [int(p.payload) for p in own.came if isinstance(p, Publish)] == [*range(most)]
            own.link.close()

    played(story(), 60)


def test_a_callback_that_pauses_gets_nothing_more_of_what_came_with_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            came: list[Packet] = []

            def one(packet: Packet) -> None:
                came.append(packet)
                link.pause(True)

            link = OwnLink(one, lambda reason: None)
            await link.open(broker.address, "own", clean=False)
            link.pause(False)
            broker.peers[0].send(b"".join(build.publish("t", b"%d" % n) for n in range(5)))
            for n in range(1, 6):
                await so(lambda n=n: len(came) == n)  # type: ignore[misc]
                await asyncio.sleep(0.01)
                assert len(came) == n
                link.pause(False)
            link.close()

    played(story())


def test_a_loss_is_told_once_and_ends_what_was_asked(tmp_path: Path) -> None:
    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            own = Own()
            await own.link.open(broker.address, "own", clean=False)

            def hangs_up(packet: Packet, peer: Peer) -> bool:
                if isinstance(packet, Subscribe):
                    peer.send(build.publish("t", b"held", 1, packet_id=3))
                    peer.writer.close()
                return isinstance(packet, Subscribe)

            broker.does = hangs_up
            with pytest.raises(BrokerAway):
                await own.link.subscribe([("f", 1)])
            assert len(own.lost) == 1
            assert not own.link.up
            with pytest.raises(BrokerAway):
                await own.link.unsubscribe(["f"])
            own.link.send(build.puback(3))
            own.link.pause(False)
            assert own.came == []
            own.link.close()
            assert len(own.lost) == 1

    played(story())


def test_closing_it_sends_what_was_acknowledged_and_tells_nobody(tmp_path: Path) -> None:
    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            own = Own()
            await own.link.open(broker.address, "own", clean=False)
            own.link.send(build.puback(7))
            own.link.close()
            await so(lambda: Puback(7) in broker.peers[0].came)
            await so(lambda: broker.peers[0].gone)
            assert own.lost == []

    played(story())


@pytest.mark.parametrize(
    "does", ["refuses", "says nothing", "hangs up", "is away", "speaks wrongly"]
)
def test_a_broker_that_does_not_let_the_session_in_is_away(
    does: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sealmq.mediator.links.broker.OPENING_S", 0.2)

    async def story() -> None:
        async with Scripted(tmp_path) as broker:

            def bad(packet: Packet, peer: Peer) -> bool:
                if does == "refuses":
                    peer.send(build.connack(False, 5))
                elif does == "hangs up":
                    peer.kill()
                elif does == "speaks wrongly":
                    peer.send(b"\xff\xff")
                return True

            broker.does = bad
            if does == "is away":
                broker.stop()
            own = Own()
            with pytest.raises(BrokerAway):
                await own.link.open(broker.address, "own", clean=False)
            assert own.lost == []
            own.link.close()
            await so(lambda: all(peer.gone for peer in broker.peers) or does == "says nothing")

    played(story())
