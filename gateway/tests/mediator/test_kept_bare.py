"""A session that the broker has without its filters, because what lies between CONNECT and
SUBSCRIBE failed: whoever comes back to it gets what it subscribed to. At a real Mosquitto."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from links_scene import Peer, Scripted, played, real_mosquitto
from mediator_world import PANEL
from reader_scene import Scene
from sealmq.mediator.core.effects import BrokerAway
from sealmq.mediator.kept_sessions import KeptSessions
from sealmq.mediator.links import BrokerAddress, BrokerLink, OwnLink, end_session, open_again
from sealmq.mqtt import Connect, Packet, Publish, Subscribe, build
from sealmq.store import KeptSession, KeptSub, Store, StoreUnavailable

KEY = (PANEL, "tablet")
A = KeptSub(*KEY, "a", 1, "a")


class Tablet:
    """One client's kept session, in a real store and at a broker."""

    def __init__(self, store: Store, reopening: Path, address: BrokerAddress) -> None:
        self.scene, self.store, self.address = Scene(), store, address
        self._reopening = reopening
        self.name = self.scene.site.broker_id(*KEY)
        self.losses = 0
        self.restarted()

    def restarted(self) -> None:
        """The mediator was killed, and is there again."""
        audit: Any = None
        store: Any = self.store
        self.sessions = KeptSessions(
            self.scene.site, store, audit, partial(end_session, self.address), lambda: True,
            lambda: self.losses, partial(open_again, self.address), self._answers, self._reopening,
        )  # fmt: skip

    async def _answers(self) -> None:
        pass

    async def prepared(self) -> bool:
        client = self.scene.site.ring.clients[PANEL]
        return await self.sessions.prepare(client, 1, KEY[1], False)

    async def connect(self) -> tuple[bool, OwnLink, list[Packet]]:
        """As SessionLinks opens it, and as Subscriptions asks for rows that do not stand at the
        broker."""
        known = await self.prepared()
        came: list[Packet] = []
        own = OwnLink(came.append, lambda reason: None)
        present = await own.open(self.address, self.name, False)
        subs = await self.sessions.subscriptions(KEY, 1, known, present)
        own.pause(False)
        if lacking := [(sub.filter, sub.qos) for sub in subs if not sub.at]:
            await own.subscribe(lacking)
        return present, own, came

    async def subscribed(self) -> None:
        """It has subscribed, and left."""
        _, own, _ = await self.connect()
        await own.subscribe([("a", 1)])
        self.sessions.changed(KEY, ["a"])
        await self.store.commit([A])
        own.close()
        await asyncio.sleep(0.05)

    async def forgotten(self) -> None:
        """The broker was killed, and had not saved it."""
        await end_session(self.address, self.name)
        await asyncio.sleep(0.05)

    async def reopens_the_second_time(self, fails: Callable[[Any], Awaitable[None]]) -> None:
        """The first time each commit `fails`; the broker is lost again before the second."""
        commit = self.store.commit

        async def failing(records: Any, urgent: bool = False) -> Any:
            await fails(records)

        self.store.commit = failing  # type: ignore[method-assign]
        with pytest.raises(BrokerAway):
            await self.sessions.reopen()
        self.store.commit = commit  # type: ignore[method-assign]
        await asyncio.sleep(0.05)
        self.losses += 1
        await self.sessions.reopen()
        await asyncio.sleep(0.05)

    async def gets_what_it_was_promised(self) -> None:
        """It comes back. Who is told that its session is there gets what is published."""
        present, own, came = await self.connect()
        other = BrokerLink(lambda packet: None, lambda reason: None)
        await other.open(self.address, "publisher")
        other.send(build.publish("a", b"hello", 1, packet_id=1))
        await other.ping()
        got: list[bytes] = []
        for _ in range(100):
            got = [packet.payload for packet in came if isinstance(packet, Publish)]
            if got:
                break
            await asyncio.sleep(0.02)
        own.close()
        other.close()
        assert not present or got == [b"hello"], "told `session present`, and gets nothing"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "mediator.db", busy_s=0.05)
    yield store
    store.close()


@pytest.fixture
def reopening(tmp_path: Path) -> Path:
    return tmp_path / "reopening"


def test_the_broker_s_answer_to_connect_came_too_late(
    tmp_path: Path, store: Store, reopening: Path
) -> None:
    """The mediator gives up; the broker has begun the session all the same."""

    async def story(address: BrokerAddress) -> None:
        it = Tablet(store, reopening, address)
        await it.subscribed()
        await it.forgotten()
        assert await it.prepared()
        own = OwnLink(lambda packet: None, lambda reason: None)
        await own.open(address, it.name, False)
        it.sessions.doubt(KEY)
        own.close()
        await asyncio.sleep(0.05)
        await it.gets_what_it_was_promised()

    with real_mosquitto(tmp_path) as address:
        played(story(address))


@pytest.mark.parametrize("restarted", [False, True])
def test_the_store_fails_once_while_sessions_are_given_back(
    tmp_path: Path, store: Store, reopening: Path, restarted: bool
) -> None:
    """It is all done once more, and goes well then."""

    async def story(address: BrokerAddress) -> None:
        it = Tablet(store, reopening, address)
        if not restarted:
            await it.sessions.reopen()
        await it.subscribed()
        if restarted:
            it.restarted()
        else:  # the broker had saved its filter, and the session's own row again since
            it.sessions._young = {KEY: {"": 0.0}}
        await it.forgotten()

        async def slow(records: Any) -> None:
            raise StoreUnavailable("4096 commits wait already; the disk is slow")

        await it.reopens_the_second_time(slow)
        await it.gets_what_it_was_promised()

    with real_mosquitto(tmp_path) as address:
        played(story(address))


def test_one_session_that_fails_ends_others_half_way(
    tmp_path: Path, store: Store, reopening: Path
) -> None:
    """Sixteen are opened at a time; the second time nothing is wrong."""

    async def story(address: BrokerAddress) -> None:
        it = Tablet(store, reopening, address)
        await it.subscribed()
        await store.commit([KeptSession(PANEL, "other", 1)])
        it.restarted()
        await it.forgotten()

        async def locked(records: Any) -> None:
            if records[0].client_id != "other":
                await asyncio.sleep(60)
            await asyncio.sleep(0.1)
            raise StoreUnavailable("database is locked")

        await it.reopens_the_second_time(locked)
        await it.gets_what_it_was_promised()

    with real_mosquitto(tmp_path) as address:
        played(story(address))


def test_a_mediator_that_is_killed_while_it_gives_sessions_back(
    tmp_path: Path, store: Store, reopening: Path
) -> None:
    async def story(address: BrokerAddress) -> None:
        it = Tablet(store, reopening, address)
        await it.subscribed()
        await it.forgotten()
        it.restarted()
        commit, begun = store.commit, asyncio.Event()

        async def never(records: Any, urgent: bool = False) -> Any:
            begun.set()
            await asyncio.sleep(60)

        store.commit = never  # type: ignore[method-assign]
        work = asyncio.create_task(it.sessions.reopen())
        await begun.wait()
        work.cancel()  # kill -9
        await asyncio.gather(work, return_exceptions=True)
        store.commit = commit  # type: ignore[method-assign]
        await asyncio.sleep(0.05)
        it.restarted()
        await it.sessions.reopen()
        await asyncio.sleep(0.05)
        await it.gets_what_it_was_promised()

    with real_mosquitto(tmp_path) as address:
        played(story(address))
    assert not reopening.exists()


def test_the_link_falls_between_connack_and_suback_while_a_session_is_given_back(
    tmp_path: Path, store: Store, reopening: Path
) -> None:
    """One that the broker does not take holds up no others, and is not forgotten."""

    async def story() -> None:
        async with Scripted(tmp_path) as broker:
            held: dict[str, set[str]] = {}
            falls = False

            def does(packet: Packet, peer: Peer) -> bool:
                if isinstance(packet, Connect):
                    peer.client_id = packet.client_id
                    was = peer.client_id in held and not packet.clean_session
                    if packet.clean_session:
                        held.pop(peer.client_id, None)
                    else:
                        held.setdefault(peer.client_id, set())
                    peer.send(build.connack(was, 0))
                    return True
                if isinstance(packet, Subscribe):
                    if falls:
                        peer.kill()
                        return True
                    held[peer.client_id].update(at for at, _ in packet.filters)
                return False

            broker.does = does
            it = Tablet(store, reopening, broker.address)
            await it.subscribed()
            assert held[it.name] == {"a"}
            held.clear()
            it.restarted()
            falls = True
            await it.sessions.reopen()
            falls = False
            present, own, _ = await it.connect()
            own.close()
            assert present
            assert held[it.name] == {"a"}

    played(story())
