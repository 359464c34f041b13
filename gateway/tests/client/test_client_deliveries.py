"""What is sealed to this client's link or to a grant, and items of TLV both ways."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from typing import Any

import pytest

from client_peer import LABEL, OTHER, QUICK, Peer, client_of, now_ms, play, until
from sealmq.client import Options
from sealmq_spec.const import UNTIMED, WILL
from sealmq_spec.errors import Malformed, TooLarge
from sealmq_spec.tlv import pack

G = os.urandom(32)
LASTING = dataclasses.replace(QUICK, reconnect=True)


@pytest.mark.parametrize("suite", [1, 2])
def test_a_message_to_this_clients_link_is_opened(suite: int) -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            link = peer.link
            link.record()
            link.deliver("a/b", link.to_link("a/b", b"for you"), qos=1, pid=3)
            got = await client.receive()
            assert (got.payload, got.label, got.sender) == (b"for you", "low", "writer")
            link.deliver("a/b", link.to_link("a/b", b"own label", LABEL))
            assert (await client.receive()).label == "top"
            await until(lambda: link.acked == [3])
            assert not client.refused

    play(story, suite)


def test_a_message_to_the_link_waits_for_the_record_that_opens_it() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            link = peer.link
            link.deliver("a/b", link.to_link("a/b", b"asked for"))
            assert (await client.receive()).payload == b"asked for"
            assert link.fetched == [OTHER]
            assert not client.refused

    play(story)


def test_new_roots_in_a_session_leave_the_links_key_alone() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            peer.site.rotate()
            peer.link.epoch()
            await until(lambda: client.identity.own.epoch == 2)
            peer.link.deliver("a/b", peer.link.to_link("a/b", b"same link", LABEL))
            assert (await client.receive()).payload == b"same link"
            assert len(peer.links) == 2  # quarantine and this one

    play(story)


def test_a_message_to_a_grant_is_opened_by_who_was_given_it_in_this_connection() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer, options=LASTING) as client:
            link = peer.link
            link.record()
            link.deliver("a/b", peer.to_grant(5, 1, G, "a/b", b"no grant yet"))
            link.grant(5, 1, G)
            link.deliver("a/b", peer.to_grant(5, 1, G, "a/b", b"granted"))
            assert (await client.receive()).payload == b"granted"
            link.cut()
            await until(lambda: peer.link is not link and client.connected)
            peer.link.deliver("a/b", peer.to_grant(5, 1, G, "a/b", b"of the connection before"))
            peer.link.grant(5, 1, G)
            peer.link.deliver("a/b", peer.to_grant(5, 1, G, "a/b", b"granted anew"))
            assert (await client.receive()).payload == b"granted anew"
            assert client.refused == {"NoKey": 2}
            # Of the connection before nothing is left, not even the ciphers.
            reader: Any = client._boots.reader
            made = [key for key in reader._outer if isinstance(key[0], bytes)]
            assert len(made) == len(reader._deliveries._grants) == 1
            # No record opens a grant.
            assert not link.fetched
            assert not peer.link.fetched

    play(story)


def test_a_grant_that_has_ended_or_was_replaced_opens_nothing() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            link = peer.link
            link.record()
            link.grant(5, 1, G, now_ms() // 1000 - 1)
            link.deliver("a/b", peer.to_grant(5, 1, G, "a/b", b"too late"))
            link.grant(5, 2, bytes(32))
            link.deliver("a/b", peer.to_grant(5, 1, G, "a/b", b"old epoch"))
            link.grant(5, 1, G)
            link.deliver("a/b", peer.to_grant(5, 2, bytes(32), "a/b", b"the newest"))
            assert (await client.receive()).payload == b"the newest"
            assert client.refused == {"Stale": 1, "WrongEpoch": 2}

    play(story)


def test_at_most_64_grants_are_held_and_the_one_that_came_first_goes() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            link = peer.link
            link.record()
            for n in range(1, 65):
                link.grant(n, 1, bytes((n,)) * 32)
            link.grant(1, 1, b"\x01" * 32)  # again: now it is the last one that came
            link.grant(65, 1, G)
            for n in (2, 1, 65):
                g = G if n == 65 else bytes((n,)) * 32
                link.deliver("a/b", peer.to_grant(n, 1, g, "a/b", b"%d" % n))
            got = [(await client.receive()).payload for _ in range(2)]
            assert got == [b"1", b"65"]
            assert client.refused == {"NoKey": 1}

    play(story)


def test_a_clients_items_reach_the_gateway_and_are_sent_again_with_the_message() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer, options=LASTING) as client:
            peer.knobs.acks = False
            items = {40: b"note", 0x80 | 41: b"", 42: bytes(255)}
            link = peer.link
            sent = asyncio.create_task(client.publish("a", b"x", qos=1, tlv=items))
            await until(lambda: len(peer.published) == 1)
            peer.knobs.acks = True
            link.cut()
            await sent
            await client.clear("a", tlv={40: b"clear"}, confirm=5)
            assert [p.tlv for p in peer.published] == [items, items, {40: b"clear"}]
            assert [p.payload for p in peer.published] == [b"x", b"x", b""]

    play(story)


@pytest.mark.parametrize(
    ("tlv", "error"),
    [
        ({31: b""}, Malformed),
        ({0x9F: b""}, Malformed),
        ({256 + 40: b""}, Malformed),
        ({-1: b""}, Malformed),
        ({40: b"", 0x80 | 40: b""}, Malformed),
        ({40: bytes(256)}, TooLarge),
        ({n: bytes(255) for n in range(32, 97)}, TooLarge),
    ],
)
def test_items_that_no_publisher_may_send_are_refused_before_a_counter_is_used(
    tlv: dict[int, bytes], error: type[Exception]
) -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            with pytest.raises(error):
                await client.publish("a", b"x", tlv=tlv)
            await client.publish("a", b"x", confirm=5)
            assert [p.ctr for p in peer.published] == [1]

    play(story)


def test_items_of_families_come_with_a_message_and_the_documents_own_do_not() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            peer.link.record()
            own = (5, b"of a later document")
            block = pack([own, (40, b"rated")])
            peer.link.deliver("a/b", peer.m3("a/b", b"1", tlv=block))
            peer.link.deliver("a/b", peer.link.to_link("a/b", b"2", items=[own, (40, b"rated")]))
            peer.link.deliver("a/b", peer.m3("a/b", b"3", kind=WILL | UNTIMED, how=WILL, t_pub=0))
            got = [await client.receive() for _ in range(3)]
            assert [m.tlv for m in got] == [{40: b"rated"}, {40: b"rated"}, {}]

    play(story)


def test_a_critical_item_is_refused_unless_the_application_knows_its_type() -> None:
    async def story(peer: Peer) -> None:
        block = pack([(0x80 | 40, b"must")])
        knowing = dataclasses.replace(QUICK, known_tlv=(40,))
        for options, refused in ((QUICK, {"Unsupported": 1}), (knowing, {})):
            async with client_of(peer, options=options) as client:
                peer.link.record()
                peer.link.deliver("a/b", peer.m3("a/b", b"1", tlv=block))
                peer.link.deliver("a/b", peer.m3("a/b", b"2"))
                got = await client.receive()
                assert client.refused == refused
                assert got.tlv == ({} if refused else {0x80 | 40: b"must"})

    play(story)


def test_an_application_can_know_types_of_families_alone() -> None:
    for kind in (3, 31, 128, 0x80 | 40):
        with pytest.raises(Malformed):
            Options(known_tlv=(kind,))
