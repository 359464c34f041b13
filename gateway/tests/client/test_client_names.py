"""Messages carry names of label and sender: asked for once, told by the mediator, else numbers."""

from __future__ import annotations

import asyncio

import pytest

from client_peer import LABEL, OTHER, WRITER, Peer, client_of, play
from sealmq.client import TimedOut
from sealmq.client.names import MOST, Names
from sealmq_spec.errors import Malformed


def test_each_sender_is_asked_for_once_and_those_that_wait_together() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            await client.subscribe("a")
            for sender in (WRITER, 6, WRITER, 6):
                peer.link.deliver("a", peer.m3("a", b"x", sender=sender))
            got = [await client.receive(within=20) for _ in range(4)]
            assert [m.sender for m in got] == ["writer", "#6", "writer", "#6"]
            assert {m.label for m in got} == {"low"}
            assert [m.sender_number for m in got] == [WRITER, 6, WRITER, 6]
            asked = [pair for question in peer.asked_names for pair in question]
            assert sorted(asked) == [(OTHER, 6), (OTHER, WRITER)]

    play(story)


def test_a_mediator_that_does_not_tell_them_delays_and_loses_nothing() -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.names = None
        async with client_of(peer) as client:
            await client.subscribe("a")
            for payload in (b"1", b"2"):
                peer.link.deliver("a", peer.m3("a", payload))
            got = [await client.receive(within=20) for _ in range(2)]
            assert [(m.payload, m.sender) for m in got] == [(b"1", "#9"), (b"2", "#9")]
            assert len(peer.asked_names) == 1
            assert client.notices == []

    play(story)


def test_a_receive_that_is_given_up_while_names_are_asked_for_loses_no_message() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            await client.subscribe("a")
            peer.link.deliver("a", peer.m3("a", b"1"))
            asking = asyncio.create_task(client.receive())
            while not peer.asked_names:  # noqa: ASYNC110 (the peer has no events to wait for)
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait([asking])
            assert (await client.receive(within=20)).payload == b"1"
            with pytest.raises(TimedOut):
                await client.receive(within=0.05)

    play(story)


FORMS = [b"", b"\3low", b"\3low\6writer\1x", b"\3low\7writer", b"\1\xff\0"]


@pytest.mark.parametrize("data", FORMS)
def test_an_answer_of_another_form_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        Names().answer([(LABEL, WRITER)], data)


def test_a_question_has_at_most_32_pairs() -> None:
    assert len(Names.question([(1, n) for n in range(MOST)])) == 1 + 6 * 32
