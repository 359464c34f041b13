"""What a message costs the host client, in calls of Python functions: it is not to grow again."""

from __future__ import annotations

import asyncio

from calls import counted
from client_peer import Peer, client_of, play
from sealmq.client import Options

MANY = 60


def test_a_message_that_comes_costs_few_calls() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer, options=Options(settle=True)) as client:
            await client.subscribe("a", qos=1)
            for n in range(4):  # the first ones ask for names, and have everything worked out
                peer.link.deliver("a", peer.m3("a", b"first"), 1, pid=n + 1)
                client.settle(await client.receive(within=20))
            with counted("client") as calls:
                for n in range(MANY):
                    peer.link.deliver("a", peer.m3("a", b"x"), 1, pid=n + 10)
                got = 0
                while got < MANY:
                    some = await client.receive_some(MANY)
                    got += len(some)
                    assert all(client.settle(message) for message in some)
            assert not client.refused
        assert calls.total() < 7 * MANY, calls.most_common(12)

    play(story)


def test_a_message_that_goes_costs_few_calls() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer, options=Options(inflight=MANY)) as client:
            over: list[Exception | None] = []
            await client.publish("a", b"first", qos=1)
            with counted("client") as calls:
                for _ in range(MANY):
                    assert client.publish_nowait("a", b"x", qos=1, over=over.append)
                async with asyncio.timeout(20):
                    while len(over) < MANY:  # noqa: ASYNC110 (the peer answers in this loop)
                        await asyncio.sleep(0)
            assert set(over) == {None}
        assert calls.total() < 14.5 * MANY, calls.most_common(20)

    play(story)
