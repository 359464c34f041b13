"""Subscribing and receiving: what verifies under both layers arrives once; nothing piles up."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from client_peer import LABEL, OTHER, QUICK, WRITER, Link, Peer, client_of, now_ms, play, until
from sealmq.aead import make
from sealmq.client import (
    Client,
    Closed,
    ConnectionLost,
    How,
    Message,
    Options,
    PeerFault,
    Refused,
    TimedOut,
    backoff,
)
from sealmq.client.life import FILTERS
from sealmq.client.randomness import mono_ms
from sealmq.mqtt import Subscribe, build
from sealmq_spec.errors import Denied, Malformed, RateLimited, Unavailable
from sealmq_spec.records import make_manifest


async def next_message(client: Client) -> Message:
    async with asyncio.timeout(5):
        return await client.receive()


@pytest.mark.parametrize("qos", [1, 2])
def test_what_the_application_settles_is_acknowledged_then_and_completed_by_itself(
    qos: int,
) -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer, options=Options(settle=True)) as client:
            await client.subscribe("a", qos=qos)
            for pid in (7, 8):
                peer.link.deliver("a", peer.m3("a", b"x"), qos, pid=pid)
            assert client.settle(await next_message(client))
            await until(lambda: len(peer.link.acked) == qos)
            assert peer.link.acked == [7] * qos

    play(story)


@pytest.mark.parametrize("suite", [1, 2])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("size", [0, 5, 1_048_576])
def test_a_message_of_a_lower_label_is_opened_with_its_record(
    size: int, qos: int, suite: int
) -> None:
    async def story(peer: Peer) -> None:
        payload = os.urandom(size)
        begun = now_ms() // 1000
        async with client_of(peer) as client:
            assert await client.subscribe("m/+/t", qos=qos) == [qos]
            link = peer.link
            link.deliver("m/1/t", peer.m3("m/1/t", payload), qos, pid=7 if qos else 0)
            message = await next_message(client)
            assert message.payload == payload
            assert (message.topic, message.label, message.sender) == ("m/1/t", "low", "writer")
            assert (message.label_number, message.sender_number) == (OTHER, WRITER)
            assert (message.how, message.qos, message.retain) == (How.LIVE, qos, False)
            # The client's clock differs from the peer's by a round trip at most.
            assert -1 <= message.age <= now_ms() // 1000 - begun + 1
            assert not client.refused
            await until(lambda: len(link.acked) == qos)
            assert link.acked == [7] * qos

    play(story, suite)


def test_own_messages_come_back() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            await client.subscribe("a/#")
            await client.publish("a/b", b"me", qos=1)
            message = await next_message(client)
            assert (message.payload, message.label_number) == (b"me", LABEL)

    play(story)


def test_retained_wills_and_queued_messages_say_what_they_are() -> None:
    async def story(peer: Peer) -> None:
        old = now_ms() // 1000 - 5000
        async with client_of(peer) as client:
            await client.subscribe("a")
            link = peer.link
            for how, kind, life, t in (
                (How.RETAINED, 1, 255, old),
                (How.QUEUED, 0, 13, old),
                (How.WILL, 2 | 8, 0, 0),
            ):
                m3 = peer.m3("a", b"x", how=how, kind=kind, life=life, t_pub=t)
                link.deliver("a", m3, retain=how == How.RETAINED)
                message = await next_message(client)
                assert message.how == how
                assert message.retain == (how == How.RETAINED)
                assert (message.age >= 5000) == (t == old)

    play(story)


def test_what_does_not_verify_is_counted_and_never_delivered() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            await client.subscribe("a")
            link = peer.link
            good = peer.m3("a", b"x", ctr=1)
            flipped = bytearray(good)
            flipped[-1] ^= 1
            inner = bytearray(good)
            inner[25] ^= 1
            now = now_ms()
            for m3 in (
                good,
                good,  # Replay: the same packet again
                peer.m3("a", b"x", ctr=1),  # Replay: m1 wrapped again
                bytes(flipped),
                bytes(inner),
                peer.m3("b", b"x"),  # Unauthentic: sealed for another topic
                peer.m3("a", b"x", s2=now - 61_500),
                peer.m3("a", b"x", t_pub=now // 1000 - 62),
                peer.m3("a", b"x", kind=3),  # class clear is never delivered
                peer.m3("a", b"x", how=1),  # a live m1 that says it is retained
                b"",
                b"plaintext that somebody put on the broker",
                b"\x13" + os.urandom(200),
                good[:70],
            ):
                link.deliver("a", m3)
            link.deliver("a", peer.m3("a", b"end", ctr=60))
            assert (await next_message(client)).payload == b"x"
            assert (await next_message(client)).payload == b"end"
            # One of an unknown label waits until the mediator has said that no record leads there.
            await until(lambda: sum(client.refused.values()) == 13)
            refused = client.refused
            assert refused["Replay"] == 2
            assert refused["Unauthentic"] == 3
            assert refused["Stale"] == 2
            assert sum(refused.values()) == 13

    play(story)


def test_without_a_record_messages_wait_until_it_comes() -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.records = peer.knobs.fetches = False
        async with client_of(peer) as client:
            await client.subscribe("a")
            link = peer.link
            link.deliver("a", peer.m3("a", b"1"))
            spoilt = bytearray(peer.site.record())
            spoilt[40] ^= 1
            link.record(bytes(spoilt))
            link.deliver("a", peer.m3("a", b"2"))
            link.record()
            link.deliver("a", peer.m3("a", b"3"))
            assert [(await next_message(client)).payload for _ in range(3)] == [b"1", b"2", b"3"]
            assert client.refused == {"Unauthentic": 1}

    play(story)


def test_a_record_may_come_by_its_public_topic_too() -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.records = False
        async with client_of(peer) as client:
            await client.subscribe("a", "@sm1/z/#")
            record = peer.site.record()
            peer.link.deliver(f"@sm1/z/{LABEL}/{OTHER}", record, retain=True)
            peer.link.deliver(f"@sm1/z/{LABEL}/{OTHER}", record[:-1], retain=True)
            peer.link.deliver("a", peer.m3("a", b"1"))
            assert (await next_message(client)).payload == b"1"
            assert client.refused == {"Malformed": 1}

    play(story)


def test_a_repeated_delivery_of_qos_2_arrives_once_and_refused_ones_are_acknowledged() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            await client.subscribe("a", qos=2)
            link = peer.link
            m3 = peer.m3("a", b"1")
            for _ in range(2):
                link.send(build.publish("a", m3, 2, packet_id=3, dup=_ == 1))
            link.deliver("a", b"\x13" + bytes(100), 1, pid=4)
            link.deliver("a", peer.m3("a", b"end"))
            assert (await next_message(client)).payload == b"1"
            assert (await next_message(client)).payload == b"end"
            # PUBREC twice and PUBCOMP twice for 3, PUBACK for 4.
            await until(lambda: len(link.acked) == 5)
            assert sorted(link.acked) == [3, 3, 3, 3, 4]
            assert client.refused == {"NoKey": 1}

    play(story)


def test_an_id_of_qos_2_means_nothing_in_a_new_session() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer, options=Options(reconnect=True, timeout=5)) as client:
            await client.subscribe("a", qos=2)
            first = peer.link
            first.send(build.publish("a", peer.m3("a", b"1"), 2, packet_id=3))
            assert (await next_message(client)).payload == b"1"
            core = client._life.core
            assert core is not None
            core._received.accept(3)  # as if PUBREL had not come before the connection broke
            first.cut()
            await until(lambda: peer.link is not first and bool(peer.link.filters))
            peer.link.send(build.publish("a", peer.m3("a", b"2"), 2, packet_id=3))
            assert (await next_message(client)).payload == b"2"

    play(story)


def test_an_id_of_qos_2_is_anew_where_the_broker_lost_its_memory() -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.present = True
        options = Options(reconnect=True, clean=False, client_id="r", timeout=5)
        async with client_of(peer, options=options) as client:
            await client.subscribe("a", qos=2)
            first = peer.link
            core = client._life.core
            assert core is not None
            core._received.accept(3)  # as if the broker was killed before its PUBREL went out
            first.cut()
            await until(lambda: peer.link is not first and bool(peer.link.filters))
            # It counts its ids on from its last save: 3 is another message, and no repetition.
            peer.link.send(build.publish("a", peer.m3("a", b"2"), 2, packet_id=3))
            assert (await next_message(client)).payload == b"2"

    play(story)


def test_a_refused_subscription_is_raised_with_rule_and_reason() -> None:
    for late in (False, True):

        async def story(peer: Peer, late: bool = late) -> None:
            peer.knobs.refuse["secret/#"] = (5, "labels", "bottom only")
            peer.knobs.late_notice = late
            async with client_of(peer) as client:
                with pytest.raises(Denied, match="labels: bottom only") as caught:
                    await client.subscribe("secret/#")
                assert isinstance(caught.value, Refused)
                assert caught.value.subject == "secret/#"
                answers = await client.subscribe_each("a", "secret/#", "b", qos=1)
                assert (answers[0], answers[2]) == (1, 1)
                assert isinstance(answers[1], Refused)
                assert peer.link.filters == {"a": 1, "b": 1}

        play(story)


def test_a_refusal_without_a_notice_is_a_refusal_all_the_same() -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.acks = False
        async with client_of(peer) as client:
            asking = asyncio.ensure_future(client.subscribe("a"))
            link = peer.link
            await until(lambda: not (not any(isinstance(p, Subscribe) for p in link.packets)))
            pid = next(p for p in link.packets if isinstance(p, Subscribe)).packet_id
            link.send(build.suback(pid, [0x80]))
            with pytest.raises(Denied, match="without a notice"):
                await asking

    play(story)


@pytest.mark.parametrize("codes", [[0, 0], [0x80, 0, 0]])
def test_a_suback_of_the_wrong_length_ends_the_connection(codes: list[int]) -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.acks = False
        async with client_of(peer) as client:
            asking = asyncio.ensure_future(client.subscribe("a"))
            link = peer.link
            await until(lambda: not (not any(isinstance(p, Subscribe) for p in link.packets)))
            pid = next(p for p in link.packets if isinstance(p, Subscribe)).packet_id
            link.send(build.suback(pid, codes))
            with pytest.raises(PeerFault, match="SUBACK"):
                await asking

    play(story)


def test_no_suback_is_a_typed_error() -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.acks = False
        async with client_of(peer) as client:
            with pytest.raises(TimedOut, match="subscribe to a"):
                await client.subscribe("a", within=0.1)

    play(story)


@pytest.mark.parametrize("filt", ["", "a/#/b", "a+", "x" * 1025, "a\0", "\udc80"])
def test_filters_that_cannot_be(filt: str) -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            with pytest.raises(Malformed):
                await client.subscribe(filt)
            with pytest.raises(Malformed):
                await client.unsubscribe(filt)
            with pytest.raises(Malformed):
                await client.subscribe("a", qos=3)
            await client.subscribe("x" * 1024)

    play(story)


def test_many_filters_and_unsubscribing() -> None:
    async def story(peer: Peer) -> None:
        names = [f"f/{i}/" + "x" * 900 for i in range(120)]
        async with client_of(peer) as client:
            assert await client.subscribe(*names, qos=1) == [1] * 120
            assert list(peer.link.filters) == names
            await client.unsubscribe(*names[:100])
            assert list(peer.link.filters) == names[100:]

    play(story)


def test_subscriptions_are_made_again_after_a_loss() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer, options=Options(reconnect=True, timeout=5)) as client:
            await client.subscribe("a", "b", qos=1)
            await client.unsubscribe("b")
            peer.link.cut()
            await until(lambda: not (len(peer.links) < 3 or peer.link.filters != {"a": 1}))
            peer.link.deliver("a", peer.m3("a", b"again"))
            assert (await next_message(client)).payload == b"again"

    play(story)


@pytest.mark.parametrize("code", [Unavailable.code, RateLimited.code, 0])
def test_a_subscription_that_a_new_connection_refuses_for_the_moment_is_made_later(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """0: SUBACK refuses it without a word."""
    monkeypatch.setattr(backoff, "draw", lambda: 0.001)
    if not code:
        monkeypatch.setattr(Link, "notice", lambda *_: None)

    async def story(peer: Peer) -> None:
        async with client_of(peer, options=Options(reconnect=True, timeout=5)) as client:
            await client.subscribe("a", "b", qos=1)
            peer.knobs.refuse = dict.fromkeys("ab", (code, "mediator.full", "not now"))
            old = peer.link
            old.cut()
            await until(lambda: peer.link is not old and client.connected)
            refused = peer.link

            def asked() -> list[int]:
                return [len(p.filters) for p in refused.packets if isinstance(p, Subscribe)]

            await until(lambda: len(asked()) > 1)
            assert not refused.filters
            # What the application does not want any more is not asked for again.
            client._life.filters.pop("b")
            await until(lambda: asked()[-1] == 1)
            peer.knobs.refuse.clear()
            await until(lambda: "a" in refused.filters)
            refused.deliver("a", peer.m3("a", b"again"))
            assert (await next_message(client)).payload == b"again"
            assert list(refused.filters) == ["a"]

    play(story)


def test_filters_of_one_call_are_all_made_again_after_a_loss_within_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Home Assistant subscribes to hundreds at once; they go out in several SUBSCRIBEs."""

    async def story(peer: Peer) -> None:
        filters = [f"f{n}" for n in range(FILTERS + 1)]
        async with client_of(peer, options=Options(reconnect=True, timeout=5)) as client:
            ask = client._operations.ask

            async def after_a_loss(*args: Any) -> list[int | Refused]:
                if peer.link.filters:
                    old = peer.link
                    old.cut()
                    await until(lambda: peer.link is not old and client.connected)
                return await ask(*args)

            monkeypatch.setattr(client._operations, "ask", after_a_loss)
            await client.subscribe(*filters)
            await until(lambda: sorted(peer.link.filters) == sorted(filters))

    play(story)


def test_a_subscription_that_a_new_connection_refuses_for_good_is_told() -> None:
    async def story(peer: Peer) -> None:
        lost: list[Refused] = []
        async with client_of(peer, options=Options(reconnect=True, timeout=5)) as client:
            client._life.on_lost = lost.append
            await client.subscribe("a", "b", qos=1)
            peer.knobs.refuse["a"] = (Denied.code, "labels.subscribe.x", "no")
            old = peer.link
            old.cut()
            await until(lambda: bool(lost))
            assert [(e.subject, e.rule) for e in lost] == [("a", "labels.subscribe.x")]
            assert [n.rule for n in client._desk.notices] == ["labels.subscribe.x"]
            assert list(peer.link.filters) == ["b"]

    play(story)


def test_replay_is_noticed_across_connections() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer, options=Options(reconnect=True, timeout=5)) as client:
            await client.subscribe("a")
            m3 = peer.m3("a", b"once")
            peer.link.deliver("a", m3)
            assert (await next_message(client)).payload == b"once"
            peer.link.cut()
            await until(lambda: not (len(peer.links) < 3 or not peer.link.filters))
            peer.link.deliver("a", m3)
            peer.link.deliver("a", peer.m3("a", b"end"))
            assert (await next_message(client)).payload == b"end"
            assert client.refused == {"Replay": 1}

    play(story)


def test_messages_ends_with_disconnect_and_raises_at_a_loss() -> None:
    async def story(peer: Peer) -> None:
        client = client_of(peer)
        with pytest.raises(Closed):
            await client.receive()
        await client.connect()
        await client.subscribe("a")
        peer.link.deliver("a", peer.m3("a", b"1"))
        got: list[bytes] = []

        async def consume() -> None:
            async for message in client.messages():
                got.append(message.payload)

        consuming = asyncio.ensure_future(consume())
        await until(lambda: not (not got))
        await client.disconnect()
        await consuming
        async with client:
            peer.link.cut()
            with pytest.raises(ConnectionLost):
                await consume()

    play(story)


def test_nobody_waits_for_a_client_whose_task_others_have_cancelled() -> None:
    async def story(peer: Peer) -> None:
        client = client_of(peer)
        await client.connect()
        waiting = asyncio.create_task(client.receive())
        [task] = [task for task in asyncio.all_tasks() if task.get_name() == "sealmq client"]
        task.cancel()
        with pytest.raises(ConnectionLost, match="was cancelled"):
            async with asyncio.timeout(20):
                await waiting
        with pytest.raises(ConnectionLost, match="was cancelled"):
            await client.publish("a", b"1", qos=1)
        await client.disconnect()
        async with client:
            await client.publish("a", b"1", qos=1)

    play(story)


def test_what_arrived_before_a_loss_is_still_delivered() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            await client.subscribe("a")
            peer.link.deliver("a", peer.m3("a", b"1"))
            await until(lambda: not (not client._desk.inbox))
            peer.link.cut()
            await until(lambda: not (client.connected))
            assert (await client.receive()).payload == b"1"
            with pytest.raises(ConnectionLost):
                await client.receive()

    play(story)


def test_a_slow_consumer_pauses_the_socket_and_loses_nothing() -> None:
    async def story(peer: Peer) -> None:
        options = Options(inbox_messages=10, inbox_bytes=100_000, timeout=5)
        async with client_of(peer, options=options) as client:
            await client.subscribe("a")
            payload = bytes(50_000)
            for i in range(400):
                peer.link.deliver("a", peer.m3("a", payload + i.to_bytes(2, "big")))
            transport = peer.link._writer.transport
            waiting = -1
            while transport.get_write_buffer_size() != waiting:
                waiting = transport.get_write_buffer_size()
                await asyncio.sleep(0.05)
            assert waiting > 5_000_000, "the peer could not send everything"
            assert len(client._desk.inbox) <= 10, "so little of 20 MB waits here"
            for i in range(400):
                assert (await next_message(client)).payload[-2:] == i.to_bytes(2, "big")
            assert not client.refused

    play(story)


def test_a_consumer_may_publish_between_two_messages_of_a_flood() -> None:
    async def story(peer: Peer) -> None:
        options = Options(inbox_messages=5, timeout=5)
        async with client_of(peer, options=options) as client:
            await client.subscribe("a")
            for _ in range(30):
                peer.link.deliver("a", peer.m3("a", b"x"))
            await asyncio.sleep(0.05)
            for _ in range(30):
                await next_message(client)
                await client.publish("b", b"y", qos=1, confirm=5)
        assert len(peer.published) == 30

    play(story)


@pytest.mark.parametrize(
    "junk",
    [
        b"\x30\xff\xff\xff\x7f",
        b"\x30\x80\x80\x80\x80\x01",
        b"\x36\x05\x00\x01a\x00\x01",
        b"\x30\x02\x00\x05",
        b"\x30\x03\x00\x01#",
        b"\x20\x02\x00\x00",
        b"\x10\x00",
        b"\x90\x03\x00\x63\x00",
        b"\xb0\x02\x00\x63",
        b"\x00" * 64,
    ],
    ids=lambda junk: junk[:8].hex(),
)
def test_malformed_and_oversized_packets_end_the_connection_at_once(junk: bytes) -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            await client.subscribe("a")
            peer.link.deliver("a", peer.m3("a", b"before"))
            peer.link.send(junk)
            peer.link.deliver("a", peer.m3("a", b"behind"))
            assert (await next_message(client)).payload == b"before"
            with pytest.raises((PeerFault, ConnectionLost)) as caught:
                await next_message(client)
            assert isinstance(caught.value, PeerFault)

    play(story)


def test_every_chunking_gives_the_same_messages() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            await client.subscribe("a")
            stream = b"".join(build.publish("a", peer.m3("a", str(i).encode())) for i in range(5))
            for byte in stream:
                peer.link.send(bytes((byte,)))
                await peer.link._writer.drain()
                if byte % 8 == 0:
                    await asyncio.sleep(0)
            assert [(await next_message(client)).payload for _ in range(5)] == [
                str(i).encode() for i in range(5)
            ]

    play(story)


def test_a_silent_mediator_is_noticed_and_a_busy_one_pinged() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(
            peer, options=Options(keepalive=1, timeout=5, reconnect=False)
        ) as client:
            peer.knobs.pong = peer.knobs.receipts = False
            with pytest.raises(ConnectionLost, match="silent"):
                await client.receive()
        assert any(type(p).__name__ == "Pingreq" for p in peer.link.packets)

    play(story)


def test_a_paused_client_does_not_call_its_mediator_silent() -> None:
    async def story(peer: Peer) -> None:
        options = Options(keepalive=1, inbox_messages=1, timeout=5)
        async with client_of(peer, options=options) as client:
            await client.subscribe("a")
            for payload in (b"1", b"2"):
                peer.link.deliver("a", peer.m3("a", payload))
                await until(lambda: bool(client._desk.inbox))
            begun = client._life._heard
            await until(lambda: mono_ms() - begun > 2500)
            assert client.connected
            for payload in (b"1", b"2"):
                assert (await next_message(client)).payload == payload

    play(story)


def test_time_is_asked_for_again_each_day(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(peer: Peer) -> None:
        monkeypatch.setattr("sealmq.client.life._DAY_MS", 100)
        async with client_of(peer, options=Options(keepalive=1)) as client:
            session = client._boots.session
            assert session is not None
            session.kg_time = False
            await until(lambda: not (client.clock != "kg"))
            assert not client.refused

    play(story)


def test_without_key_generator_the_time_is_the_mediators() -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.kg_time = False
        async with client_of(peer) as client:
            assert client.clock == "mediator"
            assert not client.clock_conflict

    play(story)


def test_behind_a_later_connect_kg_time_is_asked_for_at_once() -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.kg_time = False
        async with client_of(peer, options=Options(reconnect=True, keepalive=1)) as client:
            assert client.clock == "mediator"
            peer.knobs.kg_time = True
            peer.link.cut()
            await until(lambda: client.clock == "kg")
            assert not client.refused

    play(story)


def test_a_familys_command_goes_up_sealed_and_is_replied_to() -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.refuse["strict"] = (5, "strict", "not you")
        async with client_of(peer) as client:
            assert await client.command("toy", b"do it") == b"done: do it"
            assert await client.command("toy", b"and forget it", reply=False) == b""
            with pytest.raises(Denied, match="not you"):
                await client.command("strict", b"x")
            with pytest.raises(TimedOut, match="command for silent"):
                await client.command("silent", b"x", within=0.1)
            with pytest.raises(Malformed):
                await client.command("", b"")
            await client.publish("a", b"", confirm=5)

    play(story)


def test_manifests_come_by_op_5_as_records_do() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            await client.subscribe("a")
            roots = peer.site.roots[OTHER]
            manifest = make_manifest(make, peer.site.id, roots, 99, 0, peer.site.next_order())
            older = make_manifest(make, peer.site.id, roots, 98, 0, peer.site.next_order())
            for packet in (manifest, older, manifest[:-1]):
                peer.link.record(packet)
            peer.link.deliver("a", peer.m3("a", b"end"))
            assert (await next_message(client)).payload == b"end"
            assert client.refused == {"WrongEpoch": 1, "Malformed": 1}

    play(story)


def test_operations_need_a_connection() -> None:
    async def story(peer: Peer) -> None:
        client = Client.from_enrolment(peer.enrolment(), options=QUICK)
        for operation in (
            client.publish("a", b""),
            client.clear("a"),
            client.subscribe("a"),
            client.unsubscribe("a"),
            client.command("toy", b""),
            client.receive(),
        ):
            with pytest.raises(Closed):
                await operation
        assert client.now() is None
        assert client.clock == ""
        await client.disconnect()

    play(story)
