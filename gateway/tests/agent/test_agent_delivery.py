"""QoS 2 on its way to a local client: nothing stalls, nothing comes twice, nothing stays."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from client_peer import Peer, client_of, play, until
from sealmq.agent.delivery import Delivery, Out
from sealmq.agent.sessions import Session, Sessions
from sealmq.agent.spool import Spool
from sealmq.agent.wire import Ack, Three
from sealmq.client import How, Message, Options
from sealmq.client.values import Came
from sealmq.mqtt import Decoder, Publish, Pubrel


def runs(work: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(work)
    def sync(*args: Any, **more: Any) -> None:
        asyncio.run(work(*args, **more))

    return sync


class Account:
    """Withholds nothing."""

    def __init__(self, spool: Any = None) -> None:
        self.user = SimpleNamespace(discovery=SimpleNamespace(judge=lambda *_: None))
        self.sessions = Sessions("u", spool)
        self.work: set[asyncio.Task[None]] = set()

    def is_own(self, _: Message) -> bool:
        return False

    def later(self, work: Coroutine[Any, Any, None], _: str) -> None:
        self.work.add(asyncio.ensure_future(work))


class Seat:
    """A reader's connection to the site. there: it is the one in which the messages came."""

    error = None

    def __init__(self, *messages: Message) -> None:
        self._messages = list(messages)
        self.paused, self.there = False, True
        self.settled: list[int] = []
        self.completed: list[int] = []

    async def receive_some(self, most: int) -> list[Message]:
        some, self._messages = self._messages[:most], self._messages[most:]
        return some or await asyncio.Future()

    async def ended(self) -> None:
        await asyncio.Future()

    def settle(self, message: Message) -> bool:
        assert message.came is not None
        self.settled.append(message.came.packet_id)
        return self.there

    def complete(self, packet_id: int) -> None:
        self.completed.append(packet_id)


def two(packet_id: int, dup: bool = False) -> Message:
    payload = b"%d" % packet_id
    came = Came(packet_id, dup, b"", None)
    return Message("a", payload, "l", "plc", 0, How.LIVE, 2, came=came)


class Story:
    """A delivery to one client, and what it has been sent."""

    def __init__(
        self, seat: Seat, kept: bool, account: Any = None, session: Any = None, window: int = 2
    ) -> None:
        self.account, self.session = account or Account(), session or Session("c", {})
        self.out, self._decoder = Out(), Decoder(100_000, "client")
        self.made = Delivery(self.account, "c", Three(), window, self.out)  # type: ignore[arg-type]
        self.made.begin(seat, kept)  # type: ignore[arg-type]
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            await self.made.run(self.session, group)

    def said(self) -> list[tuple[str, int]]:
        data = bytes(self.out.data)
        self.out.data.clear()
        return [(type(p).__name__, getattr(p, "packet_id", 0)) for p in self._decoder.feed(data)]

    async def until(self, what: Callable[[], object]) -> None:
        async with asyncio.timeout(30):
            while not what():  # noqa: ASYNC110 - whatever is looked at
                await asyncio.sleep(0.01)

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, *self.account.work, return_exceptions=True)


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("window", [1, 20])
def test_a_reader_of_qos_2_that_is_busy_for_a_moment_gets_all(
    tmp_path: Path, window: int, kept: bool
) -> None:
    """The site's PUBREL stands after what is not read while the inbox is full."""

    async def story(peer: Peer) -> None:
        spool = Spool(tmp_path / "s.db", ["u"])
        account = Account(spool)
        session = account.sessions.enter("c", kept)
        options = Options(settle=True, inbox_messages=8, reconnect=False)
        out = Out()
        delivery = Delivery(account, "c", Three(), window, out)  # type: ignore[arg-type]
        async with client_of(peer, options=options) as client:
            client._desk.on_release = delivery.released
            await client.subscribe("a", qos=2)
            delivery.begin(client, kept)
            got: list[bytes] = []
            busy = asyncio.Event()

            async def deliver() -> None:
                async with asyncio.TaskGroup() as group:
                    await delivery.run(session, group)

            async def local() -> None:
                decoder = Decoder(3_000_000, "client")
                while True:
                    data = await out.next()
                    await busy.wait()
                    for packet in decoder.feed(bytes(data)):
                        if isinstance(packet, Publish):
                            got.append(packet.payload)
                            if packet.qos == 2:
                                delivery.acked(Ack("PUBREC", packet.packet_id))
                        elif isinstance(packet, Pubrel):
                            delivery.acked(Ack("PUBCOMP", packet.packet_id))

            tasks = [asyncio.create_task(deliver()), asyncio.create_task(local())]
            said = [b"two %d" % n for n in range(window + 1)]
            said += [b"none %d" % n for n in range(100)]
            for n, payload in enumerate(said):
                qos = 2 if n <= window else 0
                peer.link.deliver("a", peer.m3("a", payload), qos, pid=n + 1 if qos else 0)
            await until(lambda: client.paused)
            busy.set()
            try:
                await until(lambda: len(got) == len(said))
                await until(lambda: not session.freed and not delivery._flights)
            finally:
                assert got == said
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, *account.work, return_exceptions=True)
                spool.close()

    play(story)


@runs
async def test_a_kept_session_s_client_has_no_pubrel_before_the_site_s() -> None:
    """The site would send the message again, and the client take it for another one."""
    seat = Seat(two(7))
    story = Story(seat, kept=True)
    await story.until(lambda: story.out.data)
    seat.there = False
    story.made.acked(Ack("PUBREC", 7))
    assert story.said() == [("Publish", 7)], "released, and perhaps the site had no PUBREC"
    story.made.released(7)
    assert story.said() == [("Pubrel", 7)]
    story.made.acked(Ack("PUBCOMP", 7))
    assert seat.completed == [7]
    await story.end()


@runs
async def test_what_a_client_was_freed_of_early_comes_to_it_once_over_a_killed_agent(
    tmp_path: Path,
) -> None:
    spool = Spool(tmp_path / "s.db", ["u"])
    account = Account(spool)
    session = account.sessions.enter("c", kept=True)
    seat = Seat(two(1), two(2), two(3))
    seat.paused = True
    story = Story(seat, True, account, session)
    await story.until(lambda: len(story.made._flights) == 2)
    assert story.said() == [("Publish", 1), ("Publish", 2)]
    story.made.acked(Ack("PUBREC", 1))
    story.made.acked(Ack("PUBREC", 2))
    await story.until(lambda: story.out.data)
    [(_, text)] = await spool.sessions("u")
    assert text.endswith("[1, 2]]"), "a PUBREL left before it was on disk"
    assert story.said() == [("Pubrel", 1), ("Pubrel", 2)]
    story.made.acked(Ack("PUBCOMP", 1))
    await story.until(lambda: story.out.data)
    assert story.said() == [("Publish", 3)]
    assert seat.completed == [], "before the site's PUBREL"
    # Killed: 2's PUBCOMP, and both PUBRECs, are lost. Another agent finds what was on disk.
    await story.end()
    account = Account(spool)
    await account.sessions.load()
    session = account.sessions.enter("c", kept=True, present=True)
    seat = Seat(two(1, dup=True), two(2, dup=True), two(3, dup=True))
    story = Story(seat, True, account, session)
    await story.until(lambda: story.out.data)
    assert story.said() == [("Publish", 3)], "a message of QoS 2 came twice"
    assert seat.settled == [1, 2]
    # The client may wait for PUBREL still. What is complete is off the disk before the site hears.
    for packet_id in (1, 2):
        story.made.released(packet_id)
        assert story.said() == [("Pubrel", packet_id)]
        story.made.acked(Ack("PUBCOMP", packet_id))
    await story.until(lambda: seat.completed == [1, 2])
    [(_, text)] = await spool.sessions("u")
    assert text.endswith(", {}]")
    await story.end()
    spool.close()


@runs
async def test_a_session_that_begins_anew_knows_nothing_of_the_last_one_s_packet_ids(
    tmp_path: Path,
) -> None:
    spool = Spool(tmp_path / "s.db", ["u"])
    sessions = Sessions("u", spool)
    session = sessions.enter("c", kept=True)
    session.freed.add(1)
    await sessions.save(session)
    assert sessions.stored("c")
    assert not sessions.enter("c", kept=True, present=False).freed
    spool.close()


@pytest.mark.parametrize("kept", [False, True])
@runs
async def test_a_message_of_qos_2_that_its_client_refuses_leaves_no_packet_id(kept: bool) -> None:
    seat = Seat(two(7))
    story = Story(seat, kept)
    await story.until(lambda: story.out.data)
    [(_, mine)] = story.said()
    story.made.acked(Ack("PUBREC", mine, 0x80))
    assert not story.made._local
    assert not story.made._flights
    story.made.released(7)
    assert seat.completed == [7]
    assert story.said() == [], "PUBREL for what the client has refused"
    assert not story.made._ahead
    await story.end()


@runs
async def test_a_client_that_is_done_before_the_site_s_pubrel_completes_it_then() -> None:
    seat = Seat(two(7), two(8))
    story = Story(seat, kept=False)
    await story.until(lambda: len(story.made._flights) == 2)
    story.said()
    story.made.acked(Ack("PUBREC", 1))
    assert story.said() == [("Pubrel", 1)]
    story.made.acked(Ack("PUBCOMP", 1))
    assert seat.completed == []
    story.made.released(7)
    assert seat.completed == [7]
    # Another connection, in which the site may use the number again.
    story.made.acked(Ack("PUBREC", 2))
    story.made.acked(Ack("PUBCOMP", 2))
    story.made.again()
    assert not story.made._ahead
    assert not story.made._local
    await story.end()
