"""Epoch hand-over: a client gets new roots in the connection it has, and loses nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from client_peer import LABEL, QUICK, Peer, client_of, own, play, until
from sealmq.client import Client, ConnectionLost, Options, StateError, life
from sealmq.client.state import StateFile
from sealmq.mqtt import Publish, build
from sealmq_spec.const import ASK
from sealmq_spec.errors import Denied, WrongEpoch
from sealmq_spec.identity import Identity
from sealmq_spec.provision import DISABLED

RECONNECT = Options(reconnect=True, connect_timeout=5, timeout=5)
QUEUED = 3


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has to ask again does it at once."""
    monkeypatch.setattr(life, "_ASK_AGAIN_S", 0.01)


def test_being_told_renews_in_the_same_connection(tmp_path: Path) -> None:
    async def story(peer: Peer) -> None:
        path = tmp_path / "app.state"
        async with client_of(peer, path) as client:
            await client.publish("a", b"0", qos=1)
            peer.site.rotate()
            peer.link.epoch()
            await until(lambda: own(client).epoch == 2)
            await client.publish("a", b"1", qos=1, confirm=5)
            assert client.identity.gen == 2
            # Quarantine, and one session, under the first generation.
            assert [link.quarantine for link in peer.links] == [True, False]
            assert not peer.link.goodbye
            again = Client.from_enrolment(peer.enrolment())._identity
            assert again.load(bytes.fromhex(json.loads(path.read_text())["identity"]))
            assert (again.gen, again.own.epoch) == (2, 2)
        assert [(p.payload, p.boot, p.ctr) for p in peer.published] == [(b"0", 1, 1), (b"1", 1, 2)]

    play(story)


def test_what_is_refused_for_its_epoch_is_published_anew_once() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            peer.site.rotate()
            # Nobody has told the client; three are under way when it learns.
            await asyncio.gather(
                *(client.publish("a", b"%d" % i, qos=i % 3, confirm=5) for i in range(3))
            )
            assert own(client).epoch == 2
            assert len(peer.links) == 2
        assert sorted(p.payload for p in peer.published) == [b"0", b"1", b"2"]
        assert len(peer.site.asked) == 2

    play(story)


def test_a_second_refusal_for_the_epoch_is_reported() -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.refuse["a"] = (WrongEpoch.code, "epoch", "never")
        async with client_of(peer) as client:
            peer.site.rotate()
            with pytest.raises(WrongEpoch):
                await client.publish("a", b"1", qos=1)
            await client.publish("b", b"2", qos=1)
        assert [p.topic for p in peer.published] == ["b"]

    play(story)


def test_what_comes_in_one_piece_with_the_answer_is_read() -> None:
    async def story(peer: Peer) -> None:
        def behind() -> bytes:
            first = peer.m3("a/b", b"new epoch", label=LABEL)
            second = peer.m3("a/b", b"old inside", label=LABEL, inner=old, how=QUEUED, life=10)
            return build.publish(b"a/b", first) + build.publish(b"a/b", second)

        async with client_of(peer) as client:
            old = peer.site.roots[LABEL]
            peer.site.rotate()
            peer.knobs.behind_answer = behind
            peer.link.epoch()
            got = [(await client.receive()).payload for _ in range(2)]
            assert got == [b"new epoch", b"old inside"]
            assert not client.refused

    play(story)


@pytest.mark.usefixtures("soon")
def test_a_request_that_is_refused_or_not_yet_answered_is_made_again() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            peer.knobs.no_answers = [(7, "kg", "away"), (9, "rate", "too many")]
            peer.link.epoch()  # nothing new: not asked
            peer.site.rotate()
            peer.link.epoch()
            await until(lambda: own(client).epoch == 2)
            assert len(peer.site.asked) == 4
            assert not peer.knobs.no_answers
            await client.publish("a", b"1", qos=1)

    play(story)


class FullDisk(StateFile):
    """Its disk takes nothing while `full`."""

    full = False
    refused = 0

    def save(self, identity: Identity, boot: int, kg_nonce: bytes) -> None:
        if self.full:
            self.refused += 1
            raise StateError("app.state: no space left on device")
        super().save(identity, boot, kg_nonce)


@pytest.mark.usefixtures("soon")
def test_a_disk_that_is_full_for_a_while_ends_no_client_that_has_a_connection(
    tmp_path: Path,
) -> None:
    async def story(peer: Peer) -> None:
        state = FullDisk(tmp_path / "app.state")
        identity = Identity.from_enrolment(peer.enrolment())
        async with Client(identity, "127.0.0.1", peer.port, state=state, options=QUICK) as client:
            state.full = True
            peer.site.rotate()
            peer.link.epoch()
            await until(lambda: state.refused > 1)
            assert client.connected
            assert own(client).epoch == 1
            state.full = False
            await until(lambda: own(client).epoch == 2)
            await client.publish("a", b"1", qos=1)

    play(story)


def test_answers_that_are_not_ours_change_nothing() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            old = peer.site.answer(peer.site.asked[0])
            peer.link.deliver("!c1", old)  # nobody has asked
            # Before the true one: cut off, changed, and the answer to another question.
            forged = old[:-1], old[:-1] + bytes((old[-1] ^ 1,)), old
            peer.knobs.before_answer = lambda: b"".join(build.publish(b"!c1", f) for f in forged)
            peer.site.rotate()
            await client.publish("a", b"1", qos=1)
            assert own(client).epoch == 2
            assert sum(client.refused.values()) == 4

    play(story)


def test_the_next_connection_is_the_new_generations() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer, options=RECONNECT) as client:
            await client.publish("a", b"0", qos=1)
            peer.site.rotate()
            await client.publish("a", b"1", qos=1)
            peer.link.cut()
            await client.publish("a", b"2", qos=1)
            assert sorted(gen for gen, _, _ in peer.boots) == [1, 2]
        # Counters go on: the same boot and salt under another link.
        assert [(p.payload, p.boot, p.ctr) for p in peer.published] == [
            (b"0", 1, 1),
            (b"1", 1, 3),
            (b"2", 1, 4),
        ]
        assert len({salt for _, _, salt in peer.boots}) == 1

    play(story)


def test_what_is_under_way_goes_on_under_the_new_link() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer, options=RECONNECT) as client:
            peer.site.rotate()
            await client.publish("a", b"0", qos=1)
            peer.knobs.acks = False
            sending = [asyncio.ensure_future(client.publish("a", b"1", qos=q)) for q in (1, 2)]
            await until(lambda: len(peer.published) == 3)
            peer.knobs.acks = True
            peer.link.cut()
            await asyncio.gather(*sending)
            await client.publish("a", b"2", qos=1, confirm=5)
        assert sorted(gen for gen, _, _ in peer.boots) == [1, 2]
        first, again = peer.published[1:3], peer.published[3:5]
        # The same m1: readers drop what comes twice.
        assert [p.raw for p in first] == [p.raw for p in again]
        assert all(p.dup for p in again)

    play(story)


def test_what_was_sent_twice_and_then_refused_is_in_doubt() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer, options=RECONNECT) as client:
            peer.knobs.acks = False
            sending = asyncio.ensure_future(client.publish("a", b"1", qos=1))
            await until(lambda: bool(peer.published))
            peer.knobs.acks = True
            # The mediator is restarted: it has forgotten what it saw.
            peer.boots.clear()
            peer.site.rotate()
            peer.link.cut()
            with pytest.raises(ConnectionLost, match="unknown"):
                await sending
            await client.publish("a", b"2", qos=1)
        assert [p.payload for p in peer.published] == [b"1", b"2"]

    play(story)


def test_a_client_that_is_disabled_learns_it_with_the_next_epoch() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer, options=RECONNECT) as client:
            peer.site.rotate()
            peer.site.status = DISABLED
            peer.link.epoch()
            with pytest.raises(Denied, match="disabled"):
                await client.receive()
            assert len(peer.links) == 2

    play(story)


def test_an_epoch_that_the_key_generator_does_not_have_yet_is_waited_for() -> None:
    async def story(peer: Peer) -> None:
        peer.knobs.own_epoch = 2
        async with client_of(peer) as client:
            await until(lambda: len(peer.site.asked) == 2)
            await client.publish("a", b"1", qos=1, confirm=5)
            assert len(peer.links) == 2
            assert len(peer.site.asked) == 2

    play(story)


def test_a_lent_identity_without_renewal_reports_the_old_epoch() -> None:
    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            lent = client.identity
        peer.site.rotate()
        async with Client(lent, "127.0.0.1", peer.port, options=QUICK) as again:
            with pytest.raises(WrongEpoch, match="provision again"):
                await again.publish("a", b"1", qos=1)

    play(story)


def test_a_lent_identity_asks_in_its_connection_too() -> None:
    """So that the mediator knows what it can read."""

    async def story(peer: Peer) -> None:
        async with client_of(peer) as client:
            lent = client.identity

        async def renew() -> object:
            raise AssertionError("there was a connection to ask in")

        app = Client(
            lent,
            "127.0.0.1",
            peer.port,
            options=QUICK,
            renew=renew,  # type: ignore[arg-type]
        )
        async with app:
            peer.site.rotate()
            await app.publish("a", b"1", qos=1)
            asked = [p for p in peer.link.packets if isinstance(p, Publish)]
            assert any(p.payload[:1] == bytes((ASK,)) for p in asked)
        assert peer.published[-1].payload == b"1"

    play(story)
