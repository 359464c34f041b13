"""What a mediator holds back, tells and lets in while epochs change: its parts, without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sealmq.kglink import KgUnavailable
from sealmq.mediator import asking
from sealmq.mediator.asking import Asking
from sealmq.mediator.core.keyring import Client, Label
from sealmq.mediator.core.limits import (
    CONNECTIONS_A_CLIENT,
    HELD_ALL,
    HELD_BYTES,
    HELD_PACKETS,
    HOLD_S,
)
from sealmq.mediator.holding import Holding
from sealmq.mediator.rooms import Rooms
from sealmq.mediator.telling import Telling
from sealmq.mqtt import Puback, Publish

LABEL, CLIENT = 16, 5


class Ring:
    """A keyring with one label and one client."""

    def __init__(self, epoch: int, epochs: dict[int, int], records: tuple[bytes, ...] = ()) -> None:
        self.kseq = epoch
        self.labels = {LABEL: Label(LABEL, "low", 1, epoch)}
        links = dict.fromkeys(epochs, bytes(32))
        self.clients = {CLIENT: Client(CLIENT, "c", LABEL, "app", 1, False, links, epochs=epochs)}
        self.records = list(records)

    def lacks(self, client: Client, epoch: int) -> int:
        now = self.labels[client.label].epoch
        return now if epoch < now else 0

    def records_for(self, reader: int, label: int, epoch: int) -> list[bytes]:
        return [*self.records, b"link to %d" % epoch] if epoch else self.records


class Conn:
    """A connection under gen 1 with an upstream that remembers why it is paused."""

    def __init__(self, ring: Ring) -> None:
        self.delivered: list[Any] = []
        self.told: list[bytes] = []
        self.audited: list[str] = []
        self.paused: set[str] = set()
        self.hub = SimpleNamespace(
            ring=ring,
            held=0,
            kg=object(),
            audit=SimpleNamespace(write=lambda event, **_: self.audited.append(event)),
        )
        self.client, self.link = ring.clients[CLIENT], SimpleNamespace(gen=1)
        self.delivering = SimpleNamespace(packet=self.delivered.append, hold=lambda on: None)
        self.upstream = SimpleNamespace(on_packet=self.delivered.append, pause=self._pause)
        self.down = self.told.append

    def _pause(self, full: bool, why: str = "slow") -> None:
        (self.paused.add if full else self.paused.discard)(why)

    def comes(self, payload: bytes = b"x") -> None:
        self.upstream.on_packet(Publish("a", b"a", payload))


def run(story: Callable[[], None]) -> None:
    """Runs a story that needs a loop's clock."""

    async def whole() -> None:
        story()

    asyncio.run(whole())


def held(epoch: int = 2, epochs: dict[int, int] | None = None) -> tuple[Conn, Holding]:
    conn = Conn(Ring(epoch, epochs or {1: 1}))
    made = Holding(conn)  # type: ignore[arg-type]
    made.begin()
    return conn, made


def test_who_holds_the_current_epoch_is_not_touched() -> None:
    def story() -> None:
        for epochs in ({1: 2}, {1: 0}):
            conn, made = held(2, epochs)
            before = conn.upstream.on_packet
            made.look()
            assert not made.on
            assert conn.upstream.on_packet is before

    run(story)


def test_messages_wait_for_the_answer_and_keep_their_order() -> None:
    def story() -> None:
        conn, made = held()
        for n in range(3):
            conn.comes(b"%d" % n)
        conn.upstream.on_packet(Puback(7))
        assert [type(p) for p in conn.delivered] == [Puback]
        made.answered(2)
        conn.comes(b"3")
        assert [p.payload for p in conn.delivered[1:]] == [b"0", b"1", b"2", b"3"]
        assert conn.hub.held == 0

    run(story)


def test_an_answer_that_is_overtaken_lets_nothing_go() -> None:
    def story() -> None:
        conn, made = held()
        conn.comes()
        conn.hub.ring = Ring(3, {1: 1, 2: 2})
        made.look()
        made.answered(2)
        assert made.on
        assert not conn.delivered
        made.answered(3)
        assert len(conn.delivered) == 1

    run(story)


def test_what_waits_is_bounded() -> None:
    def story() -> None:
        for size, count in ((0, HELD_PACKETS), (HELD_BYTES // 4, 5)):
            conn, made = held()
            for _ in range(count - 1):
                conn.comes(bytes(size))
            assert not conn.paused
            conn.comes(bytes(size))
            assert conn.paused == {"hold"}
            made.answered(2)
            assert not conn.paused
        conn, made = held()
        conn.hub.held = HELD_ALL
        conn.comes(b"one too many")
        assert conn.paused == {"hold"}
        made.drop()
        assert conn.hub.held == HELD_ALL
        assert not conn.delivered

    run(story)


def test_after_a_minute_it_goes_on_and_is_told() -> None:
    def story() -> None:
        conn, made = held()
        conn.comes()
        now = asyncio.get_running_loop().time()
        made.beat(now + HOLD_S - 1)
        assert not conn.delivered
        # Nobody can get new roots while the key generator is away.
        there, conn.hub.kg = conn.hub.kg, None
        made.beat(now + HOLD_S + 1)
        assert not conn.delivered
        conn.hub.kg = there
        made.beat(now + HOLD_S + 20)
        assert len(conn.delivered) == 1
        assert conn.audited == ["handover-missed"]
        # The same epoch is not waited for a second time, the next one is.
        made.look()
        assert not made.on
        conn.hub.ring = Ring(3, {1: 1})
        made.look()
        assert made.on

    run(story)


def test_records_are_told_once_and_again_behind_new_roots() -> None:
    ring = Ring(1, {1: 1}, (b"path", b"back"))
    conn = Conn(ring)
    telling = Telling(conn)  # type: ignore[arg-type]
    for _ in range(2):
        telling.records(20)
    assert conn.told == [b"\x05path", b"\x05back"]
    conn.hub.ring = Ring(2, {1: 1}, (b"new path", b"back"))
    telling.records(20)
    assert conn.told[2:] == [b"\x05new path"]
    telling.forget()
    telling.records(20)
    assert conn.told[3:] == [b"\x05new path", b"\x05back"]
    # An old m1 needs one more, once.
    for _ in range(2):
        telling.records(20, 7)
    assert conn.told[5:] == [b"\x05link to 7"]


def test_rooms_end_the_same_session_and_the_oldest() -> None:
    rooms = Rooms()
    ended: list[str] = []

    def enter(client_id: str) -> None:
        one: Any = SimpleNamespace(client=SimpleNamespace(number=CLIENT), client_id=client_id)

        def close(reason: str) -> None:
            ended.append(client_id)
            rooms.leave(one)

        one.close = close
        rooms.enter(one)

    for n in range(CONNECTIONS_A_CLIENT):
        enter(f"{n}")
    assert not ended
    enter("7")
    assert ended == ["7"]
    enter("one more")
    assert ended == ["7", "0"]


def test_an_answer_waits_until_its_epoch_is_known_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "PROVISION_S", 0.05)
    hub: Any = SimpleNamespace(ring=Ring(1, {1: 1}), kg=None)
    ask = hub.asking = Asking(hub)
    answer = SimpleNamespace(client=CLIENT, gen=2, links=[], packet=b"")

    class Kg:
        lost = False

        async def answer(self, packet: bytes) -> Any:
            return answer

    def links_came(client: int, links: object) -> None:
        hub.ring = Ring(hub.ring.labels[LABEL].epoch, {1: 1, 2: 2})

    hub.links_came = links_came

    async def story() -> None:
        with pytest.raises(KgUnavailable):
            await ask.provision(b"", "here")  # no key generator
        hub.kg = Kg()
        with pytest.raises(KgUnavailable):
            await ask.provision(b"", "here")  # its epoch 2 is not known here
        monkeypatch.setattr(asking, "PROVISION_S", 30)
        waiting = asyncio.ensure_future(ask.provision(b"", "here"))
        await asyncio.sleep(0)
        assert not waiting.done()
        hub.ring = Ring(2, {1: 1, 2: 2})
        ask.news()
        assert (await waiting).gen == 2

    asyncio.run(story())


def test_a_later_generation_ends_no_connection() -> None:
    def client(ended: int) -> Client:
        return Client(CLIENT, "c", LABEL, "app", 1, False, {4: bytes(32)}, ended=ended)

    assert client(0).goes_on(3)
    assert client(3).goes_on(4)
    assert not client(3).goes_on(3)
