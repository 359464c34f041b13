"""Disconnecting: what was acknowledged can be received, and what was sent arrives."""

from __future__ import annotations

import asyncio

import pytest

from client_peer import Peer, client_of, play, until
from sealmq.client import Client, Closed, Options, wire
from sealmq.mqtt import Disconnect, build


async def _rest(client: Client) -> list[bytes]:
    return [message.payload async for message in client.messages()]


def test_what_was_acknowledged_is_received_while_the_client_disconnects() -> None:
    async def story(peer: Peer) -> None:
        client = client_of(peer)
        await client.connect()
        await client.subscribe("a", qos=1)
        link = peer.link
        words = [b"%d" % n for n in range(5)]
        for pid, word in enumerate(words, 1):
            link.deliver("a", peer.m3("a", word), 1, pid=pid)
        await until(lambda: len(link.acked) == 5)
        going = asyncio.create_task(client.disconnect())
        await asyncio.sleep(0)
        assert not going.done()
        assert await _rest(client) == words
        await going
        with pytest.raises(Closed):
            await client.receive()

    play(story)


@pytest.mark.parametrize("turns", range(8))
def test_nothing_is_acknowledged_behind_the_goodbye(turns: int) -> None:
    async def story(peer: Peer) -> None:
        client = client_of(peer)
        await client.connect()
        await client.subscribe("a", qos=1)
        link = peer.link
        for pid in (1, 2, 3):
            link.deliver("a", peer.m3("a", b"%d" % pid), 1, pid=pid)
        # The client is told to go while these are on their way to it.
        for _ in range(turns):
            await asyncio.sleep(0)
        await client.disconnect()
        await link.done.wait()
        assert isinstance(link.packets[-1], Disconnect)
        # Whoever starts anew would hear once more what was received and not acknowledged.
        assert [b"%d" % pid for pid in link.acked] == await _rest(client)

    play(story)


def test_what_was_sent_arrives_though_the_peer_still_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wire, "_CLOSE_S", 60)

    async def story(peer: Peer) -> None:
        client = client_of(peer, options=Options(inbox_messages=1))
        await client.connect()
        await client.subscribe("a")
        link = peer.link
        # The client reads no further behind the first, and closes with the rest unread.
        for _ in range(20):
            link.deliver("a", peer.m3("a", bytes(100_000)))
        await client.receive()
        link.busy(True)
        await client.publish("a/b", b"last words")
        going = asyncio.create_task(client.disconnect())
        # A peer that is busy finds its packets refused by a system that has closed already.
        for _ in range(50):
            link.deliver("a", peer.m3("a", b"more"))
            await asyncio.sleep(0)
        await asyncio.wait([going], timeout=1)
        assert not going.done(), "it did not wait for its peer"
        link.busy(False)
        await going
        await link.done.wait()
        assert link.goodbye
        assert [message.payload for message in peer.published] == [b"last words"]

    play(story)


def test_nothing_is_sent_behind_the_goodbye() -> None:
    async def story(peer: Peer) -> None:
        client = client_of(peer)
        await client.connect()
        opened, link = client._life._opened, peer.link
        assert opened is not None
        opened.wire.goodbye(build.disconnect())
        opened.wire.send(build.pingreq())
        await client.disconnect()
        await link.done.wait()
        assert [type(packet) for packet in link.packets[1:]] == [Disconnect]

    play(story)


def test_a_client_that_goes_while_a_boot_session_ends_says_goodbye() -> None:
    async def story(peer: Peer) -> None:
        client = client_of(peer)
        await client.connect()
        peer.knobs.acks = False
        waiting = asyncio.create_task(client.publish("a", b"x", qos=1))
        await until(lambda: bool(peer.published))
        client._life.worn()
        await until(lambda: not client.connected)
        await client.disconnect()
        with pytest.raises(Closed):
            await waiting
        await peer.link.done.wait()
        assert peer.link.goodbye

    play(story)


def test_a_peer_that_does_not_close_keeps_nobody() -> None:
    async def story(peer: Peer) -> None:
        client = client_of(peer)
        await client.connect()
        peer.link.busy(True)
        async with asyncio.timeout(20):
            await client.disconnect()

    play(story)
