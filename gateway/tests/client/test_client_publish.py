"""Publishing: what leaves is sealed twice, what returns is the truth about its acceptance."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import pytest

from client_peer import LABEL, QUICK, SKEW_MS, Peer, client_of, own, play, until
from sealmq.client import (
    Client,
    ConnectionLost,
    NotAuthorised,
    Notice,
    Options,
    PeerFault,
    Refused,
    TimedOut,
    Unconfirmed,
)
from sealmq.client.randomness import mono_ms
from sealmq.mqtt import Publish, Pubrel
from sealmq_spec.const import U24
from sealmq_spec.envelope import get_m2
from sealmq_spec.errors import (
    Denied,
    Malformed,
    Misuse,
    RateLimited,
    Replay,
    Stale,
    TooLarge,
    Unauthentic,
    Unavailable,
    Unsupported,
)
from sealmq_spec.provision import DISABLED


@pytest.mark.parametrize("suite", [1, 2])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("size", [0, 1, 200, 70_000, 1_048_576])
def test_every_qos_and_size(qos: int, size: int, suite: int) -> None:
    async def story(peer: Peer) -> None:
        payload = os.urandom(size)
        async with client_of(peer) as client:
            await client.publish("a/b", payload, qos=qos, life=5, confirm=5)
            [seen] = peer.published
            assert (seen.topic, seen.qos, seen.retain) == ("a/b", qos, False)
            assert (seen.kind, seen.life) == (0, 5)
            assert seen.payload == payload
        wire = b"".join(p.payload for p in peer.link.packets if isinstance(p, Publish))
        assert size < 16 or payload[:16] not in wire

    play(story, suite)


def test_retain_and_clear_have_their_own_classes() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            await client.publish("a", b"keep", qos=1, retain=True)
            await client.publish("a", b"", qos=1, retain=True)
            await client.clear("a", qos=1)
        assert [(p.kind, p.retain, p.payload) for p in peer.published] == [
            (1, True, b"keep"),
            (1, True, b""),
            (3, True, b""),
        ]

    play(story)


def test_text_and_other_bytes_like_payloads() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            for payload in ("grün", bytearray(b"ab"), memoryview(b"cd")):
                await client.publish("a", payload, qos=1)
        assert [p.payload for p in peer.published] == ["grün".encode(), b"ab", b"cd"]

    play(story)


@pytest.mark.parametrize("topic", ["", "a/#", "+", "a\0b", "x" * 1025, "\udc80"])
def test_topics_that_cannot_be(topic: str) -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            with pytest.raises(Malformed):
                await client.publish(topic, b"x", qos=1)
            with pytest.raises(Malformed):
                await client.clear(topic)
            await client.publish("x" * 1024, b"x", qos=1)
        assert len(peer.published) == 1

    play(story)


@pytest.mark.parametrize(
    ("payload", "error"),
    [(21, Misuse), (21.5, Misuse), (True, Misuse), (None, Misuse), ([1], Misuse),
     ("\udcff", Malformed)],
)  # fmt: skip
def test_what_is_neither_bytes_nor_a_text_is_no_payload(
    payload: Any, error: type[Exception]
) -> None:
    """bytes(21) has 21 zeros; paho makes a text of it."""

    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            with pytest.raises(error):
                await client.publish("a", payload)
            await client.publish("a", b"x", qos=1)
        assert [p.payload for p in peer.published] == [b"x"]

    play(story)


def test_arguments_that_cannot_be() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            with pytest.raises(TooLarge):
                await client.publish("a", bytes(1_048_577), qos=1)
            with pytest.raises(Malformed):
                await client.publish("a", b"x", qos=3)
            for life in (-1, 32, 254, 256):
                with pytest.raises(Malformed):
                    await client.publish("a", b"x", life=life)
        assert not peer.published

    play(story)


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(
    ("code", "error"),
    [
        (1, Malformed),
        (2, Unauthentic),
        (3, Stale),
        (4, Replay),
        (5, Denied),
        (7, Unavailable),
        (8, TooLarge),
        (9, RateLimited),
        (10, Unsupported),
        (77, Refused),
    ],
)
def test_a_refusal_is_raised_with_rule_and_reason(
    qos: int, code: int, error: type[Exception]
) -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.refuse["secret"] = (code, "labels", "it is not yours")
        async with client_of(peer) as client:
            with pytest.raises(error) as caught:
                await client.publish("secret", b"x", qos=qos, confirm=5)
            assert isinstance(caught.value, Refused)
            assert (caught.value.rule, caught.value.reason) == ("labels", "it is not yours")
            assert str(caught.value) == "publish to secret refused by rule labels: it is not yours"
            assert (caught.value.what, caught.value.subject) == ("publish", "secret")
            await client.publish("open", b"y", qos=qos, confirm=5)
            assert [p.topic for p in peer.published] == ["open"]
            assert not client.notices

    play(story)


def test_a_refusal_of_qos_0_is_a_notice_where_nobody_waits() -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.refuse["secret"] = (5, "labels", "no")
        told: list[Notice] = []
        app = Client.from_enrolment(peer.enrolment(), options=QUICK, on_notice=told.append)
        async with app as client:
            await client.publish("secret", b"x")
            await client.publish("open", b"x", confirm=5)
            assert told == client.notices
            [notice] = told
            assert (notice.what, notice.code, notice.rule, notice.reason) == (
                "publish",
                5,
                "labels",
                "no",
            )

    play(story)


def test_without_receipt_nothing_is_confirmed() -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.receipts = False
        async with client_of(peer) as client:
            for qos in (0, 1):
                with pytest.raises(Unconfirmed):
                    await client.publish("a", b"x", qos=qos, confirm=0.2)
        assert len(peer.published) == 2

    play(story)


def test_a_forged_receipt_confirms_nothing() -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.receipts = False
        async with client_of(peer) as client:
            sending = asyncio.ensure_future(client.publish("a", b"x", confirm=0.3))
            await until(lambda: bool(peer.published))
            forged = bytearray(peer.link.sealed(b"\x02" + bytes(2) + b"\x01" + bytes(7) + b"\x01"))
            forged[-1] ^= 1
            other = peer.link.sealed(bytes(forged[14:26]), conn=9)
            for packet in (bytes(forged), other, bytes(forged)[:20], b"\x15", b"\x99x", b""):
                peer.link.deliver("!c1", packet)
            peer.link.deliver("!c1", peer.link.sealed(b"\x02" + bytes(11)), qos=1, pid=4)
            with pytest.raises(Unconfirmed):
                await sending
            assert client.refused == {"Unauthentic": 2, "Malformed": 5}

    play(story)


def test_a_replayed_receipt_is_refused() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            body = b"\x02" + bytes(11)
            packet = peer.link.sealed(body)
            for _ in range(3):
                peer.link.deliver("!c1", packet)
            await client.publish("a", b"x", confirm=5)
            assert client.refused == {"Replay": 2}

    play(story)


def test_acknowledgements_that_belong_to_nothing_change_nothing() -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.acks = False
        async with client_of(peer) as client:
            sending = asyncio.ensure_future(client.publish("a", b"x", qos=2))
            await until(lambda: bool(peer.published))
            pid = next(p for p in peer.link.packets if isinstance(p, Publish)).packet_id
            # PUBACK and PUBCOMP for a message that awaits PUBREC; answers to unknown ids.
            for packet in (b"\x40", b"\x70"):
                for number in (pid, 999):
                    peer.link.send(packet + b"\x02" + number.to_bytes(2, "big"))
            peer.link.send(b"\x50\x02" + (999).to_bytes(2, "big"))
            await client.publish("b", b"x", confirm=5)
            assert not sending.done()
            assert client.refused == {"UnexpectedAck": 4}
            peer.link.send(b"\x50\x02" + pid.to_bytes(2, "big"))
            await sending
        assert sum(isinstance(p, Pubrel) and p.packet_id == pid for p in peer.link.packets) == 1

    play(story)


def test_counters_leave_in_the_order_of_calls_and_stay_in_the_window() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer, options=Options(inflight=60, timeout=5)) as client:
            await asyncio.gather(
                *(client.publish(f"t/{i}", b"x", qos=i % 3, confirm=5) for i in range(300))
            )
        assert [p.topic for p in peer.published] == [f"t/{i}" for i in range(300)]
        ctrs = [p.ctr for p in peer.published]
        assert ctrs == sorted(set(ctrs))

    play(story)


def test_qos_0_waits_while_an_unacknowledged_message_would_fall_out_of_the_window() -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.acks = False
        async with client_of(peer, options=Options(timeout=1)) as client:
            first = asyncio.ensure_future(client.publish("first", b"x", qos=1, within=5))
            await until(lambda: bool(peer.published))
            for i in range(63):
                await client.publish(f"t/{i}", b"x")
            with pytest.raises(TimedOut):
                await client.publish("one too many", b"x", within=0.1)
            pid = next(p for p in peer.link.packets if isinstance(p, Publish)).packet_id
            peer.link.send(b"\x40\x02" + pid.to_bytes(2, "big"))
            await first
            await client.publish("now", b"x", confirm=5)
        assert peer.published[-1].topic == "now"
        assert len(peer.published) == 65

    play(story)


def test_too_many_in_flight_wait() -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.acks = False
        async with client_of(peer, options=Options(inflight=3, timeout=0.3)) as client:
            done = await asyncio.gather(
                *(client.publish(f"t/{i}", b"x", qos=1) for i in range(5)), return_exceptions=True
            )
            assert all(isinstance(error, TimedOut) for error in done)
        assert len(peer.published) == 3

    play(story)


def test_loss_fails_what_waits_and_everything_after() -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.acks = False
        async with client_of(peer) as client:
            sending = asyncio.ensure_future(client.publish("a", b"x", qos=1))
            reading = asyncio.ensure_future(client.receive())
            await until(lambda: bool(peer.published))
            peer.link.cut()
            for waiting in (sending, reading):
                with pytest.raises(ConnectionLost):
                    await waiting
            with pytest.raises(ConnectionLost):
                await client.publish("b", b"x")
            assert not client.connected

    play(story)


def test_a_fault_of_the_peer_ends_the_connection() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            peer.link.send(b"\xf0\x00")
            with pytest.raises(PeerFault, match="reserved"):
                await client.receive()

    play(story)


def test_reconnecting_sends_the_stored_bytes_again() -> None:
    async def story(peer: Peer) -> None:
        options = Options(reconnect=True, timeout=5)
        async with client_of(peer, options=options) as client:
            await client.publish("before", b"0", qos=1)
            peer.knobs.acks = False
            first = asyncio.ensure_future(client.publish("a", b"1", qos=1))
            second = asyncio.ensure_future(client.publish("b", b"2", qos=2))
            await until(lambda: not (len(peer.published) < 3))
            peer.knobs.acks = True
            peer.link.cut()
            await asyncio.gather(first, second)
            await client.publish("after", b"3", qos=1)
        again = [p for p in peer.published if not p.first]
        assert [(p.topic, p.payload, p.dup) for p in again] == [
            ("a", b"1", True),
            ("b", b"2", True),
        ]
        assert len(peer.boots) == 1, "the boot session outlives a connection"
        assert peer.link.conn == 2
        assert peer.link.low == again[0].ctr

    play(story)


def test_what_is_sent_again_goes_before_what_is_new() -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.acks = False
        async with client_of(peer, options=Options(reconnect=True, timeout=5)) as client:
            first = asyncio.ensure_future(client.publish("old", b"1", qos=1))
            await until(lambda: bool(peer.published))
            peer.knobs.acks = True
            links = len(peer.links)
            peer.link.cut()
            # It may be back before we look.
            await until(lambda: not client.connected or len(peer.links) > links)
            await client.publish("new", b"2", qos=1)
            await first
        assert [p.topic for p in peer.published] == ["old", "old", "new"]

    play(story)


def test_a_refused_message_is_not_sent_again() -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.acks = False
        peer.knobs.refuse["secret"] = (5, "labels", "no")
        async with client_of(peer, options=Options(reconnect=True, timeout=5)) as client:
            with pytest.raises(Denied):
                await client.publish("secret", b"1", qos=1)
            links = len(peer.links)
            peer.knobs.acks = True
            peer.link.cut()
            await until(lambda: not client.connected or len(peer.links) > links)
            await client.publish("open", b"2", qos=1)
        sent = [p.topic for p in peer.link.packets if isinstance(p, Publish)]
        assert sent == ["open"]

    play(story)


def test_a_client_that_is_disabled_meanwhile_stops_trying() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer, options=Options(reconnect=True, timeout=5)) as client:
            peer.knobs.connack = 5
            peer.site.status = DISABLED
            peer.link.cut()
            # CONNACK 5 may mean roots of an ended generation; but quarantine is refused as well.
            with pytest.raises(NotAuthorised):
                await client.receive()
            assert isinstance(client.error, NotAuthorised)

    play(story)


def test_qos_2_after_pubrec_is_resumed_or_given_up() -> None:
    for present in (True, False):

        async def story(peer: Peer, present: bool = present) -> None:
            peer.knobs.present = present
            async with client_of(peer, options=Options(reconnect=True, timeout=5)) as client:
                peer.knobs.acks = False
                sending = asyncio.ensure_future(client.publish("a", b"1", qos=2))
                await until(lambda: bool(peer.published))
                pid = next(p for p in peer.link.packets if isinstance(p, Publish)).packet_id
                core = client._life.core
                assert core is not None
                core.outbox.pubrec(pid)  # PUBREC arrived, and then the connection broke
                peer.link.cut()
                if present:
                    await sending
                    assert sum(isinstance(p, Pubrel) for p in peer.link.packets) == 1
                else:
                    with pytest.raises(ConnectionLost, match="QoS 2"):
                        await sending
                assert len(peer.published) == 1

        play(story)


def test_a_receipt_in_the_next_welcome_still_counts() -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.receipts = False
        async with client_of(peer, options=Options(reconnect=True, timeout=5)) as client:
            sending = asyncio.ensure_future(client.publish("a", b"1", confirm=5))
            await until(lambda: bool(peer.published))
            peer.link.cut()
            await sending

    play(story)


def test_a_restarted_gateway_is_found_again_and_waited_for() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer, options=Options(reconnect=True, timeout=8)) as client:
            await peer.down()
            sending = asyncio.ensure_future(client.publish("a", b"1", qos=1))
            await asyncio.sleep(0.1)
            assert not client.connected
            await peer.up()
            await sending
            assert client.connected

    play(story)


def test_another_holder_of_the_identity_makes_a_new_boot_session_necessary() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer, options=Options(reconnect=True, timeout=5)) as client:
            peer.highest = (1, 30, 1)
            peer.knobs.acks = False
            sending = asyncio.ensure_future(client.publish("a", b"1", qos=1))
            await until(lambda: bool(peer.published))
            peer.knobs.acks = True
            peer.link.cut()
            with pytest.raises(ConnectionLost, match="unknown"):
                await sending
            await client.publish("b", b"2", qos=1)
        assert [p.boot for p in peer.published] == [1, 31]

    play(story)


def test_counters_that_run_out_begin_a_new_boot_session() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            await client.publish("a", b"0", qos=1)
            session = client._boots.session
            assert session is not None
            session.ctr = U24 - 4000
            await client.publish("a", b"1", qos=1)
            await until(lambda: not (client._boots.session is session or not client.connected))
            await client.publish("a", b"2", qos=1)
        assert [(p.boot, p.ctr) for p in peer.published] == [(1, 1), (1, U24 - 3999), (2, 1)]

    play(story)


def test_a_disconnected_client_may_connect_again() -> None:
    async def story(peer: Peer) -> None:
        client = client_of(peer)
        for _ in range(2):
            async with client:
                await client.publish("a", b"x", qos=1)
        await client.disconnect()
        assert len(peer.published) == 2
        assert LABEL == own(client).label

    play(story)


@pytest.fixture
def skew() -> Iterator[list[int]]:
    """By how many ms the gateway's time differs from this machine's; a test may step it."""
    SKEW_MS[0] = 0
    yield SKEW_MS
    SKEW_MS[0] = 0


@pytest.mark.parametrize("step_s", [-600, 600])
def test_a_gateway_whose_clock_was_set_is_followed(skew: list[int], step_s: int) -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer, options=Options(reconnect=True, timeout=5)) as client:
            await client.publish("a", b"1", qos=1)
            skew[0] = step_s * 1000
            peer.link.cut()
            await until(lambda: {boot for _, boot, _ in peer.boots} == {1, 2})
            # The peer holds t_pub against its own time.
            await client.publish("a", b"2", qos=1, confirm=5)
            assert client.clock == "kg"
            assert not client.clock_conflict
        assert [(p.payload, p.boot) for p in peer.published] == [(b"1", 1), (b"2", 2)]

    play(story)


def test_a_reader_with_the_mediator_s_time_alone_follows_a_clock_set_back(skew: list[int]) -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.kg_time = False
        async with client_of(peer, options=Options(reconnect=True, timeout=5)) as client:
            await client.subscribe("a")
            skew[0] = -7_600_000
            peer.link.cut()
            await until(lambda: {boot for _, boot, _ in peer.boots} == {1, 2})
            await until(lambda: client.clock == "mediator")
            assert not client.clock_conflict

    play(story)


def test_a_boot_session_is_left_for_its_clock_once_a_minute_and_for_what_is_new(
    skew: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    later = [0]
    monkeypatch.setattr("sealmq.client.boot.mono_ms", lambda: mono_ms() + later[0])

    async def story(peer: Peer) -> None:
        async def again(step_s: int) -> set[int]:
            skew[0] += step_s * 1000
            links = len(peer.links)
            peer.link.cut()
            await until(lambda: len(peer.links) > links and peer.link.boot is not None)
            await until(lambda: client.connected)
            return {boot for _, boot, _ in peer.boots}

        async with client_of(peer, options=Options(reconnect=True, timeout=5)) as client:
            session = client._boots.session
            assert session is not None
            session.clock_conflict = True  # reported already
            assert await again(0) == {1}
            session.clock_conflict = False
            assert await again(600) == {1, 2}
            assert await again(600) == {1, 2}
            later[0] = 61_000
            assert await again(600) == {1, 2}  # reported a minute ago
            session = client._boots.session
            assert session is not None
            session.clock_conflict = False
            assert await again(0) == {1, 2, 3}

    play(story)


def test_a_stale_message_of_ours_makes_us_look_at_the_clock_once() -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.refuse["a"] = (Stale.code, "time", "old")
        async with client_of(peer, options=Options(reconnect=True, timeout=5)) as client:
            with pytest.raises(Stale):
                await client.publish("a", b"1", qos=1)
            await until(lambda: {boot for _, boot, _ in peer.boots} == {1, 2})
            with pytest.raises(Stale):
                await client.publish("a", b"1", qos=1)
            await client.publish("b", b"2", qos=1, confirm=5)
            assert client.connected
        assert {boot for _, boot, _ in peer.boots} == {1, 2}

    play(story)


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("order", ["receipt, notice", "notice, receipt"])
def test_a_receipt_beats_a_notice(qos: int, order: str) -> None:
    """Whichever comes first: what a receipt shows was delivered."""

    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            link = peer.link
            acknowledge = link._acknowledge

            def both(packet: Publish) -> None:
                ctr = get_m2(packet.payload)[1]
                for word in order.split(", "):
                    if word == "receipt":
                        link.receipt()
                    else:
                        link.notice(1, ctr, 4, "mediator.publish.replay", "it came before")
                acknowledge(packet)

            link._acknowledge = both  # type: ignore[method-assign]
            await client.publish("a", b"x", qos=qos, confirm=5)
        assert [p.payload for p in peer.published] == [b"x"]

    play(story)
