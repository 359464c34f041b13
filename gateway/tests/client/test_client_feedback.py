"""A message of another site that does not open: the client says so, in few words, and once."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from client_peer import OTHER, WRITER, Peer, client_of, now_ms, play, until
from sealmq import feedback
from sealmq.aead import make
from sealmq.client import Client
from sealmq.client.foreign import Complaints
from sealmq.families.pace import Pace
from sealmq.families.trust.cli import assess
from sealmq.families.trust.family import FEEDBACK, FEEDBACK_MS
from sealmq_spec.const import M1_HEAD
from sealmq_spec.envelope import nonce_m1, put_m1, tail_m1
from sealmq_spec.errors import Denied, Malformed, RateLimited
from sealmq_spec.keys import inner_key
from sealmq_spec.origin import CRITICAL, message_id, put
from sealmq_spec.tlv import EMPTY, pack

AWAY, THERE = b"away", 40
HERE = "@north/boiler/1"


def foreign(peer: Peer, ctr: int, good: bool) -> tuple[bytes, bytes]:
    """(m3, m1): as its site has sealed it, or with another payload under the same tag."""
    roots = peer.site.roots[OTHER]
    head = bytearray(M1_HEAD)
    t = now_ms() // 1000
    put_m1(head, 0, roots.suite, 0, 77, WRITER, 3, b"saltsalt", ctr, t, 0)
    key = inner_key(AWAY, roots.suite, WRITER, 3, b"saltsalt", roots.r_bar)
    aad = bytes(head) + tail_m1(AWAY, THERE, b"boiler/1")
    sealed = make(roots.suite, key).seal(nonce_m1(head, 0), b"21.5", aad)
    m1 = bytes(head) + (sealed if good else os.urandom(4) + sealed[4:])
    items = pack([(CRITICAL, put(AWAY, THERE, roots.epoch))])
    return peer.wrap(HERE, roots, items + m1, 0), m1


async def settled(client: Client, count: int) -> None:
    await until(lambda: client.refused["Unauthentic"] == count)
    await asyncio.sleep(0)


def test_a_message_that_a_site_on_its_way_has_changed_is_complained_of() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            await client.subscribe("#")
            m3, m1 = foreign(peer, 1, good=False)
            peer.link.deliver(HERE, m3)
            await until(lambda: bool(peer.commands))
            ((name, body),) = peer.commands
            assert name == feedback.NAME
            assert feedback.read(body) == (False, message_id(m1), HERE)
            # The site's own messages, and an outer tag that fails, say nothing of other sites.
            own = peer.m1("m/1", b"x", peer.site.roots[OTHER])
            broken = own[:-1] + bytes((own[-1] ^ 1,))
            peer.link.deliver("m/1", peer.wrap("m/1", peer.site.roots[OTHER], EMPTY + broken, 0))
            outer = bytearray(foreign(peer, 2, good=False)[0])
            outer[-1] ^= 1
            peer.link.deliver(HERE, bytes(outer))
            await settled(client, 3)
            assert len(peer.commands) == 1
            # Few, however many there are.
            for ctr in range(3, 40):
                peer.link.deliver(HERE, foreign(peer, ctr, good=False)[0])
            await settled(client, 40)
            await client.command("heard", b"last")
            assert [name for name, _ in peer.commands].count(feedback.NAME) == 5

    play(story)


def test_a_client_complains_no_faster_than_its_site_takes_it_for_long() -> None:
    complaints, pace = Complaints(), Pace(FEEDBACK, FEEDBACK_MS)
    said = 0
    for mono in range(0, 2 * 3_600_000, 1000):
        if complaints.about(HERE, bytes(16), mono):
            said += 1
            assert pace.take("c", mono) == 0
    assert said > 500
    assert not any(pace.take("c", 2 * 3_600_000) for _ in range(20)), "its application has some"


def test_where_a_site_takes_no_feedback_the_client_is_silent_from_then_on() -> None:
    async def story(peer: Peer) -> None:
        told: list[object] = []
        peer.knobs.refuse[feedback.NAME] = (Denied.code, "engine.no-feedback", "none")
        client = client_of(peer)
        client._on_notice = told.append
        async with client:
            await client.subscribe("#")
            peer.link.deliver(HERE, foreign(peer, 1, good=False)[0])
            await until(lambda: bool(peer.commands))
            await client.command("heard", b"?")
            peer.link.deliver(HERE, foreign(peer, 2, good=False)[0])
            await settled(client, 2)
            await client.command("heard", b"?")
            assert [name for name, _ in peer.commands].count(feedback.NAME) == 1
            assert not told, "the application has asked for nothing"

    play(story)


def test_an_application_says_what_a_message_of_another_site_is_worth() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            await client.subscribe("#")
            m3, m1 = foreign(peer, 1, good=True)
            peer.link.deliver(HERE, m3)
            message = await client.receive()
            assert (message.payload, message.topic) == (b"21.5", HERE)
            assert message.id == message_id(m1)
            await client.feedback(message, True)
            assert feedback.read(peer.commands[-1][1]) == (True, message.id, HERE)
            peer.knobs.refuse[feedback.NAME] = (Denied.code, "trust.feedback.label", "no")
            with pytest.raises(Denied):
                await client.feedback(message, False)
            peer.link.deliver("m/1", peer.m3("m/1", b"own"))
            own = await client.receive()
            assert own.id == b""
            with pytest.raises(Malformed):
                await client.feedback(own, False)

    play(story)


def test_an_assessor_says_of_each_value_whether_it_lies_in_the_range(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            await client.subscribe("#")
            for ctr in (1, 2):
                peer.link.deliver(HERE, foreign(peer, ctr, good=True)[0])
            peer.link.deliver("m/1", peer.m3("m/1", b"99"))
            await assess.judge(client, assess.read("-20..21", None), 3, as_json=True)
            rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
            assert [(row["good"], row["said"]) for row in rows] == [
                (False, True), (False, True), (False, False),
            ]  # fmt: skip
            said = [feedback.read(body) for name, body in peer.commands if name == feedback.NAME]
            assert [one.good for one in said] == [False, False], "its own site's it rates not"
            assert len({one.message for one in said}) == 2
            peer.knobs.refuse[feedback.NAME] = (RateLimited.code, "trust.feedback.rate", "many")
            peer.link.deliver(HERE, foreign(peer, 3, good=True)[0])
            await assess.judge(client, assess.read("0..50", None), 1, as_json=False)
            assert "21.5  (not said)" in capsys.readouterr().out

    play(story)
