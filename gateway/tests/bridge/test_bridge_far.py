"""Keys for a site that is no neighbour: what a site hands on, for whom, and how much of it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bridge.crossing_world import m1
from bridge.test_bridge_parts import own
from sealmq.bridge import crossing, far, neighbour, serving
from sealmq.bridge.crossing import HOPS
from sealmq.bridge.far import Relay
from sealmq.bridge.line import ANSWER, FAR, MESSAGE, RECORD, LineLost
from sealmq.bridge.neighbour import AHEAD, BURST, EACH, INFLIGHT, RATE, Budget, Neighbour
from sealmq.bridge.process import Bridge, _Far
from sealmq.bridge.spool import Message, Spool
from sealmq.bridge.traffic import Handed
from sealmq.families.api import FamilyConfigError
from sealmq.kglink import KgBad, KgUnavailable
from sealmq.site.model import Peer
from sealmq_spec.errors import Malformed, SealError, Unauthentic

B1, B2, B6, OTHER = own(1, "b1"), own(2, "b2"), own(6, "b6"), own(9, "other")


def fingerprint(of: Any) -> bytes:
    return bytes.fromhex(of[1].fingerprint)


def knows(site: str, public: bytes) -> bool:
    return {"b1": B1[1].public, "b6": B6[1].public}.get(site) == public


def relay(at: Any = B2) -> Relay:
    return Relay(fingerprint(at), knows)


def packet(**more: Any) -> bytes:
    said: dict[str, Any] = {
        "own": B1[0],
        "to": fingerprint(B6),
        "number": 7,
        "what": far.KEYS,
        "body": b"sealed",
    }
    return far.pack(**(said | more))


def test_a_packet_goes_on_as_it_is_one_hop_further_and_once() -> None:
    at = relay()
    mine, onward = at.take(packet())
    assert (mine, onward[0], onward[1:]) == (None, 2, packet()[1:])
    assert at.take(packet()) == (None, b""), "by another neighbour"
    assert at.take(onward) == (None, b""), "in a circle"
    got, more = relay(B6).take(onward)
    assert got is not None
    assert (got.shown.fingerprint, got.what, got.body) == (B1[1].fingerprint, far.KEYS, b"sealed")
    assert more == b""


@pytest.mark.parametrize("at", [1, 40, 43, 60, -65, -1])
def test_a_packet_that_was_changed_on_the_way_is_none(at: int) -> None:
    raw = bytearray(packet())
    raw[at] ^= 1
    with pytest.raises(SealError):
        relay(B6).take(bytes(raw))
    got, _ = relay(B6).take(packet())
    assert got is not None


def test_a_packet_by_another_key_is_none() -> None:
    raw = packet()[:-64] + far.pack(B2[0], fingerprint(B6), 7, far.KEYS, b"sealed")[-64:]
    with pytest.raises(Unauthentic):
        relay().take(raw)


def test_nobody_floods_others_in_the_name_of_sites_that_there_are_none_of() -> None:
    assert relay().take(packet(own=OTHER[0])) == (None, b"")
    forged = own(8, "b1")[0]  # it calls itself b1
    assert relay().take(packet(own=forged)) == (None, b"")


def test_a_packet_ends_after_so_many_sites_and_at_home() -> None:
    last = bytes((HOPS,)) + packet()[1:]
    at = relay()
    assert at.take(last) == (None, b"")
    assert at.take(packet())[1], "who counts hops up takes nothing away from other ways"
    for hops in (0, HOPS + 1):
        with pytest.raises(Malformed):
            relay().take(bytes((hops,)) + packet()[1:])
    assert relay(B1).take(packet()) == (None, b"")


# A site starts to number its packets elsewhere in each run, so no two packets are equal.
_BEGUN = itertools.count(1, 1000)


class Behind(Bridge):
    """The part of a bridge that deals with a peer that is no neighbour. What it sends is kept."""

    def __init__(self, mine: Any, peer: Any, imports: tuple[str, ...], takes: bool = True) -> None:
        self.own, self.sent = mine[0], list[bytes]()
        self._number = next(_BEGUN)
        self.one = _Far(Peer("peer", peer[1].fingerprint, far=True, imports=imports))
        self._far = {"peer": self.one}
        self._relay = Relay(fingerprint(mine), lambda site, public: True)
        self._neighbours: Any = {"between": self}
        self.judge: Any = self
        self.spool: Any = self
        self._kg: Any = self
        self.relays, self.takes, self.keys = True, takes, 0
        self._der = peer[0].der

    def certificates(self) -> dict[str, bytes]:
        return {"peer": self._der}

    def pass_on(self, raw: bytes) -> None:
        self.sent.append(raw)

    async def peer_give(self, name: str, der: bytes) -> bytes:
        return b"sealed"

    async def keys_of(self, name: str, der: bytes, packet: bytes) -> None:
        self.keys += 1
        if not self.takes:
            raise KgBad("no")

    def _known(self, name: str, der: bytes) -> None: ...


async def settled(*sites: Behind) -> int:
    """Hand over packets until none is left. Returns how many there were."""
    count = 0
    while any(site.sent for site in sites):
        for here, there in (sites, reversed(sites)):
            while here.sent:
                count += 1
                assert count < 100
                await there.far("between", here.sent.pop(0))
    return count


@pytest.mark.parametrize("b1_imports", [(), ("warmth@b6",)])
def test_who_imports_a_label_later_asks_for_its_keys(b1_imports: tuple[str, ...]) -> None:
    async def scene() -> None:
        b1, b6 = Behind(B1, B6, b1_imports), Behind(B6, B1, ())
        for site in (b1, b6):
            await site._send_far(site.one)
        await settled(b1, b6)
        assert b1.one.said == b6.one.said == "its keys are there"
        before, due = b1.keys, b1.one.due
        b6 = Behind(B6, B1, ("heat@b1",))  # begun anew, as a policy has changed there
        await b6._send_far(b6.one)
        await settled(b1, b6)
        assert (b6.keys, b6.one.asks) == (1, False)
        assert b1.keys > before
        assert b1.one.due >= due, "nothing is left to say"

    asyncio.run(scene())


def test_two_that_ask_and_cannot_take_each_others_keys_come_to_an_end() -> None:
    async def scene() -> None:
        sites = [Behind(*of, ("x@y",), takes=False) for of in ((B1, B6), (B6, B1))]
        for site in sites:
            await site._send_far(site.one)
        assert await settled(*sites) < 10
        assert all(site.one.asks for site in sites), "and it is tried again"

    asyncio.run(scene())


def test_a_budget_lets_so_much_pass_and_more_with_time() -> None:
    budget = Budget(RATE, BURST, 0.0)
    passed = sum(not budget.take(16 << 10, 0.0) for _ in range(1000))
    assert passed == BURST // ((16 << 10) + EACH)
    short = budget.take(16 << 10, 0.0)
    assert 0 < short < 1
    assert budget.take(16 << 10, short) == 0.0


class Line:
    """Gives these frames, and then is silent."""

    peer = b""
    backlog = 0

    def __init__(self, *frames: tuple[int, bytes]) -> None:
        self._frames, self.sent = list(frames), list[tuple[int, bytes]]()

    def send(self, kind: int, *body: bytes) -> None:
        self.sent.append((kind, b"".join(body)))

    async def receive_some(self) -> list[tuple[int, bytes]]:
        if not self._frames:
            raise LineLost("silent")
        some, self._frames = self._frames, []
        return some


class Host:
    """Counts what it is asked."""

    def __init__(self) -> None:
        self.records = self.packets = 0
        self.observed: list[str] = []
        self.judge: Any = self
        self.traffic: Any = self

    def receive(self, name: str, record: bytes, now: int) -> None:
        self.records += 1

    def observe(self, name: str, what: str, now: int) -> None:
        self.observed.append(what)

    async def far(self, name: str, raw: bytes) -> None:
        self.packets += 1
        raise Malformed("none")

    def take(self, name: str, handed: Handed, one: Any, answer: Any) -> None:
        """It never answers."""


def read(*frames: tuple[int, bytes]) -> tuple[Host, str]:
    async def scene() -> tuple[Host, str]:
        host, line = Host(), Line(*frames)
        one = Neighbour(host, Peer("b1", "ab" * 32))  # type: ignore[arg-type]
        one._reads = {kind: Budget(1e-9, 2 * BURST, 0) for kind in (RECORD, FAR)}
        with pytest.raises(LineLost) as lost:
            await one._read(line)  # type: ignore[arg-type]
        return host, str(lost.value)

    return asyncio.run(scene())


def test_a_flood_of_records_is_not_read_and_is_charged() -> None:
    host, _ = read(*[(RECORD, bytes(16 << 10))] * 200)
    assert host.records == 2 * BURST // ((16 << 10) + EACH)
    assert host.observed == ["rate"] * (200 - host.records)


def test_others_have_their_turn_while_a_neighbour_s_records_are_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(neighbour, "TURN_S", 0.0)
    turns: list[int] = []

    async def scene() -> None:
        host, line = Host(), Line(*[(RECORD, b"r")] * 20)
        one = Neighbour(host, Peer("b1", "ab" * 32))  # type: ignore[arg-type]
        one._reads = {RECORD: Budget(RATE, BURST, 0)}
        reading = asyncio.create_task(one._read(line))  # type: ignore[arg-type]
        while not reading.done():
            turns.append(host.records)
            await asyncio.sleep(0)
        with pytest.raises(LineLost):
            await reading

    asyncio.run(scene())
    assert turns == list(range(21))


def test_packets_have_a_budget_of_their_own_and_those_that_are_none_are_charged() -> None:
    host, _ = read(*[(FAR, bytes(16 << 10))] * 200, *[(RECORD, b"r")] * 9)
    assert host.records == 9, "a flood of packets, which may be another site's, takes no records"
    assert host.packets == 2 * BURST // ((16 << 10) + EACH)
    assert host.observed.count("bad-token") == host.packets
    assert host.observed.count("rate") == 200 - host.packets


def test_who_does_not_read_loses_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Line, "backlog", 17 << 20)
    assert "does not read" in read((RECORD, b"r"))[1]


def test_messages_beyond_those_that_are_unanswered_end_the_line() -> None:
    body = bytes(8) + b"\2\1" + bytes(16) + b"\0\1a" + bytes(43)
    _, why = read(*[(MESSAGE, body)] * (INFLIGHT + 1))
    assert f"more than {INFLIGHT}" in why
    assert read(*[(MESSAGE, body)] * INFLIGHT)[1] == "silent"


def test_an_error_in_the_line_of_who_listens_ends_its_run_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Calls:
        """One, and no other ever."""

        def __init__(self, *said: Any) -> None:
            self.lines = [Line()]

        @asynccontextmanager
        async def serving(self) -> AsyncIterator[Calls]:
            yield self

        async def next(self) -> Line:
            return self.lines.pop() if self.lines else await asyncio.Future()

    async def serve(self: Neighbour, line: Line) -> None:
        raise KgUnavailable("it is gone")

    monkeypatch.setattr(neighbour, "Listener", Calls)
    monkeypatch.setattr(Neighbour, "_serve", serve)
    monkeypatch.setattr(Host, "own", None, raising=False)
    monkeypatch.setattr(Host, "say", lambda *said: None, raising=False)
    one = Neighbour(Host(), Peer("b1", "ab" * 32, listen=("127.0.0.1", 1)))  # type: ignore[arg-type]

    async def scene() -> None:
        async with asyncio.timeout(30):
            await one.run()

    with pytest.raises(KgUnavailable):
        asyncio.run(scene())


def test_nothing_that_came_over_a_line_is_judged_later_once_the_line_is_over() -> None:
    host, line = Host(), Line()
    during: list[bool] = []

    def joined(name: str, line: Any) -> None:
        during.append(one._handed.over)
        raise LineLost("gone")

    async def close() -> None: ...

    given: dict[str, Any] = {"joined": joined, "lost": lambda *said: None}
    for name, what in given.items():
        setattr(host, name, what)
    line.close = close  # type: ignore[attr-defined]
    one = Neighbour(host, Peer("b1", "ab" * 32))  # type: ignore[arg-type]
    asyncio.run(one._serve(line))  # type: ignore[arg-type]
    assert (during, one._handed.over) == ([False], True)


def test_what_a_kill_has_left_in_the_spool_twice_goes_out_once_on_a_line(tmp_path: Path) -> None:
    """It was killed between spooling a message and keeping that it had come, and got it again: the
    neighbour would take the second copy for a replay, and block it."""
    host, line = Host(), Line()
    spool = Spool(tmp_path / "s.db", lambda *gone: None)
    twice = Message(B1[1].site, 16, "", 2, bytes(8), "boiler/1", 2, m1())
    for copy in (twice, twice, twice._replace(m1=m1(ctr=4))):
        spool.put(copy, ("b1",))
    spool.write()
    given: dict[str, Any] = {
        "spool": spool,
        "still_goes": lambda *said: True,
        "pending": lambda *said: [],
    }
    for name, what in given.items():
        setattr(host, name, what)

    async def scene() -> None:
        one = Neighbour(host, Peer("b1", "ab" * 32))  # type: ignore[arg-type]
        one._ours.set()
        for waiting in spool.after("b1", 0, 9):
            assert one._one(line, waiting)  # type: ignore[arg-type]

    asyncio.run(scene())
    sent = [crossing.unpack(body).m1 for kind, body in line.sent if kind == MESSAGE]
    assert sent == [m1(), m1(ctr=4)]
    spool.write()
    assert spool.count("b1") == 2


def test_what_a_family_cannot_take_ends_no_bridge(monkeypatch: pytest.MonkeyPatch) -> None:
    class Done(Exception):
        """It has tried again."""

    tries: list[Exception] = [Done(), FamilyConfigError("sign", "0.9 is above 0.5", "lower it")]

    async def once() -> None:
        raise tries.pop()

    said: list[str] = []
    monkeypatch.setattr(serving, "WAIT_S", (0.0, 0.0))
    with pytest.raises(Done):
        asyncio.run(serving._again(once, said.append))
    assert said == ["sign: 0.9 is above 0.5"]


@pytest.mark.parametrize("late", [False, True])
def test_more_than_a_window_goes_out_though_many_may_not(late: bool, tmp_path: Path) -> None:
    """late: the peer answers a window as a whole."""
    host = Host()
    spool = Spool(tmp_path / "s.db", lambda *gone: None)
    gone: list[str] = []
    given: dict[str, Any] = {
        "spool": spool,
        "still_goes": lambda name, one: one.topic == "goes",
        "lost": lambda name, one, why: gone.append(why),
        "pending": lambda name: [],
    }
    for name, what in given.items():
        setattr(host, name, what)
    topics = ["goes"] * 70 + ["stays"] * (2 * AHEAD) + ["goes"] * (2 * AHEAD) + ["stays", "goes"]
    for n, topic in enumerate(topics):
        spool.put(Message(B1[1].site, 16, "", 2, bytes(8), topic, 2, m1(ctr=n + 1)), ("b1",))
    sent: list[bytes] = []

    class Answering(Line):
        def __init__(self) -> None:
            self.answers: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
            self.held: list[tuple[int, bytes]] = []

        def send(self, kind: int, *body: bytes) -> None:
            sent.append(b"".join(body))
            seq = crossing.unpack(sent[-1]).seq
            self.held.append((ANSWER, crossing.answer(seq, crossing.OK)))
            assert len(one._answered) <= AHEAD
            if not late or len(self.held) == AHEAD or len(sent) == topics.count("goes"):
                while self.held:
                    self.answers.put_nowait(self.held.pop(0))

        async def flush(self) -> None:
            await asyncio.sleep(0)

        async def receive_some(self) -> list[tuple[int, bytes]]:
            return [await self.answers.get()]

    one = Neighbour(host, Peer("b1", "ab" * 32))  # type: ignore[arg-type]

    async def scene() -> None:
        one._ours.set()
        line: Any = Answering()
        work = [asyncio.create_task(one._send(line)), asyncio.create_task(one._read(line))]
        async with asyncio.timeout(30):
            while spool.count("b1"):  # noqa: ASYNC110 (all is of this loop)
                await asyncio.sleep(0)
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)

    asyncio.run(scene())
    assert len(sent) == topics.count("goes")
    assert len(gone) == topics.count("stays")
