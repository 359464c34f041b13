"""What an agent keeps of sessions: what subscriptions of MQTT 5 ask for, wills that wait."""

from __future__ import annotations

import asyncio
import functools
import sqlite3
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sealmq.agent.account import SEATS
from sealmq.agent.seat import Delay, Seat
from sealmq.agent.sessions import Asked, Session, Sessions
from sealmq.agent.spool import Spool
from sealmq.agent.subscriptions import Subscriptions
from sealmq.agent.wire import FOREVER, End, LastWill, Refusal, Sub
from sealmq.client import How, Message
from sealmq.mqtt import FilterWishes
from sealmq_spec.const import LIVE, M1_HEAD, RETAINED
from sealmq_spec.envelope import get_m1, put_m1


def runs(work: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine."""

    @functools.wraps(work)
    def test(**fixtures: Any) -> None:
        asyncio.run(work(**fixtures))

    return test


def message(topic: str = "a/b", retain: bool = False, kind: int = LIVE, **more: Any) -> Message:
    head = bytearray(M1_HEAD)
    put_m1(head, 0, 1, kind, 1, 9, 3, bytes(8), 0x010203, 1_800_000_000, more.pop("life", 0))
    how = How.RETAINED if retain else How.LIVE
    return Message(topic, b"x", "l", "boiler", more.pop("age", 0), how, 1, retain, m1=bytes(head))


def asks(session: Session, filt: str, retained: bool = True, **wishes: Any) -> None:
    session.put(filt, Asked(1, FilterWishes(**wishes), retained))


def never(*_: Any) -> Any:
    raise AssertionError


def test_a_message_tells_what_its_publisher_sealed() -> None:
    one = message(kind=RETAINED)
    assert (one.kind, one.number) == (RETAINED, (3, 0x010203))
    assert get_m1(one.m1 + bytes(16), 0, M1_HEAD + 16)[5] == 3
    assert [message(life=n, age=3).left for n in (0, 1, 6, 31, 255)] == [
        None, 0, 61, (1 << 31) - 3, None,
    ]  # fmt: skip
    bare = one._replace(m1=b"")
    assert (bare.kind, bare.number, bare.left) == (LIVE, (0, 0), None)


def test_subscriptions_get_what_they_asked_for() -> None:
    own: dict[tuple[int, int], str] = {}
    session = Session("c", own)
    mine = message()
    own[mine.number] = "c"
    asks(session, "a/+", no_local=True)
    assert session.choosing
    assert session.seen(mine, mine=True) is None
    # Of another client of this user, or of another sender with the same number.
    own[mine.number] = "d"
    assert session.seen(mine, mine=True) == (mine, [])
    own[mine.number] = "c"
    assert session.seen(mine, mine=False) == (mine, [])
    # Another subscription wants it.
    asks(session, "#", identifier=7)
    assert session.seen(mine, mine=True) == (mine, [7])
    session.put("#", None)
    assert session.seen(mine, mine=True) is None
    # One that nobody here knows of, of a session before that.
    assert session.seen(message("z"), mine=True) == (message("z"), ())
    session.put("a/+", None)
    assert not session.choosing


def test_retained_messages_come_as_they_were_asked_for() -> None:
    session = Session("c", {})
    old, new = message(retain=True, kind=RETAINED), message(kind=RETAINED)
    asks(session, "a/b", retained=False)
    assert session.seen(old, mine=False) is None
    seen = session.seen(new, mine=False)
    assert seen is not None
    assert not seen[0].retain, "retain as published was not asked for"
    asks(session, "$share/group/a/#", as_published=True, identifier=3)
    seen = session.seen(new, mine=False)
    assert seen is not None
    assert (seen[0].retain, seen[1]) == (True, [3])
    assert session.seen(old, mine=False) is not None, "the second one brings it"
    seen = session.seen(message(), mine=False)
    assert seen is not None
    assert not seen[0].retain


@runs
async def test_what_a_kept_session_asked_for_outlives_an_agent(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s.db", ["u", "gone"])
    sessions = Sessions("u", spool)
    kept, clean = sessions.enter("kept", kept=True), sessions.enter("clean", kept=False)
    over, gone = sessions.enter("over", kept=True), Sessions("gone", spool).enter("c", kept=True)
    for session in (kept, clean, over):
        session.expiry = 60
        asks(session, "a/#", retained=False, no_local=True, identifier=9)
        sessions.chosen(session)
        await sessions.save(session)
    await Sessions("gone", spool).save(gone)
    assert sessions.no_local.keys() == {"kept", "clean", "over"}
    sessions.leave(clean)
    sessions.forget("over")
    spool.close()
    spool = Spool(tmp_path / "s.db", ["u"])
    assert await spool.sessions("gone") == []
    again = Sessions("u", spool)
    await again.load()
    assert again.no_local.keys() == {"kept"}, "before it has come back: what waits on disk leaves"
    assert again.expiry_of("kept") == 60
    assert again.expiry_of("over") == again.expiry_of("clean") == 0
    found = again.enter("kept", kept=True, present=True)
    assert found.filters == kept.filters
    assert again.no_local.keys() == {"kept"}
    # The site has it no more.
    assert not again.enter("kept", kept=True, present=False).choosing
    assert not again.no_local
    spool.close()


@runs
async def test_what_the_site_has_granted_is_not_believed_of_an_agent_that_was_killed(
    tmp_path: Path,
) -> None:
    """It was killed after the site had taken a filter away, and before its row said so."""
    spool = Spool(tmp_path / "s.db", ["u"])
    sessions = Sessions("u", spool)
    session = sessions.enter("c", kept=True)
    session.put("a", Asked(1, FilterWishes(retained=1), granted=1))
    await sessions.save(session)
    spool.close()
    spool = Spool(tmp_path / "s.db", ["u"])
    again = Sessions("u", spool)
    await again.load()
    session = again.enter("c", kept=True, present=True)
    asked: list[tuple[str, ...]] = []

    async def settled(_seat: Any, _asked: Sub, _qos: int, filters: list[str], _said: Any) -> Any:
        asked.append(tuple(filters))
        return [1]

    account: Any = SimpleNamespace(
        sayable=frozenset(), user=SimpleNamespace(say={}), sessions=again
    )
    any_: Any = None
    seat: Any = SimpleNamespace(client=object())
    of: Any = Subscriptions(account, any_, session, seat, any_, any_)
    of._settled = settled
    wanted = Sub(True, 2, (("a", 1),), wishes=(FilterWishes(retained=1),))
    assert await of._answers(wanted, any_) == [1]
    assert asked == [("a",)]
    assert await of._answers(wanted, any_) == [1]
    assert asked == [("a",)], "what this agent has heard counts"
    spool.close()


@runs
async def test_a_client_that_took_anothers_place_does_not_get_its_own_messages(
    tmp_path: Path,
) -> None:
    spool = Spool(tmp_path / "s.db", ["u"])
    sessions = Sessions("u", spool)
    old, new = sessions.enter("c", kept=False), sessions.enter("c", kept=False)
    for session in (old, new):
        asks(session, "a/#", no_local=True)
        sessions.chosen(session)
    sessions.leave(old)
    assert "c" in sessions.no_local
    sessions.leave(new)
    assert "c" not in sessions.no_local
    spool.close()


@runs
async def test_what_is_late_of_a_connection_that_was_taken_over_changes_nothing(
    tmp_path: Path,
) -> None:
    spool = Spool(tmp_path / "s.db", ["u"])
    sessions = Sessions("u", spool)
    for kept in (False, True):
        old = sessions.enter("c", kept=kept)
        new = sessions.enter("c", kept=kept, present=False)
        asks(new, "a/#", no_local=True)
        asks(old, "old", no_local=True)
        for session in (new, old):
            sessions.chosen(session)
            await sessions.save(session)
        assert sessions.no_local == {"c": new}
        sessions.leave(old)
        assert sessions.no_local == {"c": new}, "it gets its own messages"
        asks(old, "old")
        sessions.chosen(old)
        assert sessions.no_local == {"c": new}
        sessions.leave(new)
    assert not sessions._here
    [(_, text)] = await spool.sessions("u")
    assert "old" not in text
    spool.close()


@runs
async def test_a_session_that_the_disk_did_not_take_is_written_with_the_next_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool = Spool(tmp_path / "s.db", ["u"])
    sessions = Sessions("u", spool)
    session = sessions.enter("c", kept=True)
    asks(session, "a")
    keep, full = spool.keep_session, True

    def broken(db: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    def kept(user: str, client: str, said: str | None) -> asyncio.Future[None]:
        return spool._ask(broken) if full else keep(user, client, said)

    spool.keep_session = kept  # type: ignore[method-assign]
    await sessions.save(session)
    assert "disk is full" in caplog.text
    full = False
    await sessions.save(session)
    [(client, text)] = await spool.sessions("u")
    assert (client, '"a"' in text) == ("c", True)
    # The same for one that is over, and for what is written when that could not be.
    full = True
    sessions.forget("c")
    await spool.sessions("u")
    full = False
    session = sessions.enter("c", kept=True)
    sessions.forget("c")
    assert await spool.sessions("u") == []
    assert not sessions._rows
    assert not sessions._writes
    spool.close()


@runs
async def test_nobody_is_told_that_a_session_is_on_disk_before_it_is(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s.db", ["u"])
    sessions = Sessions("u", spool)
    session = sessions.enter("c", kept=True)
    asks(session, "a")
    disk = threading.Event()
    spool._ask(lambda _: disk.wait(20))
    first = asyncio.create_task(sessions.save(session))
    await asyncio.sleep(0)
    second = asyncio.create_task(sessions.save(session))
    await asyncio.sleep(0.01)
    assert not second.done(), "SUBACK before the disk"
    # A connection that ends while it waits leaves the write to go on.
    first.cancel()
    disk.set()
    await second
    assert await spool.sessions("u") != []
    # One that is under way when its session is over goes, too.
    asks(session, "b")
    third = asyncio.create_task(sessions.save(session))
    await asyncio.sleep(0)
    sessions.forget("c")
    await third
    assert await spool.sessions("u") == []
    spool.close()


@runs
async def test_of_very_many_sessions_those_of_clients_that_are_here_stay(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s.db", ["u"])
    sessions = Sessions("u", spool)
    first = sessions.enter("here", kept=True)
    for n in range(300):
        sessions.leave(sessions.enter(str(n), kept=True))
    assert len(sessions._kept) == 256
    asks(first, "a")
    await sessions.save(first)
    assert [client for client, _ in await spool.sessions("u")] == ["here"]
    spool.close()


@pytest.mark.parametrize("add", [True, False])
@runs
async def test_a_subscription_that_the_site_has_not_answered_is_not_taken_for_granted(
    add: bool,
) -> None:
    """A SUBACK from memory for what the site may never have heard of would be silence for ever."""
    asked_for: list[tuple[str, ...]] = []

    async def settled(_seat: Any, _asked: Any, _qos: int, filters: list[str], _said: Any) -> Any:
        asked_for.append(tuple(filters))
        if len(asked_for) == 1:
            raise End(Refusal("away", "agent.away", "the connection broke"))
        return [1] * len(filters)

    account: Any = SimpleNamespace(sayable=frozenset(), user=SimpleNamespace(say={}))
    session, seat = Session("c", {}), SimpleNamespace(client=object())
    if not add:
        session.put("a", Asked(1, FilterWishes(retained=1), granted=1))
    wishes = (FilterWishes(retained=1),)
    asked = Sub(True, 1, (("a", 1),), wishes=wishes)
    of: Any = Subscriptions(account, never, session, seat, never, never)  # type: ignore[arg-type]
    of._settled = settled
    with pytest.raises(End):
        await of._answers(asked if add else Sub(False, 1, (("a", 1),)), never)
    # It comes back, and its session with it.
    again: Any = Subscriptions(account, never, session, seat, never, never)  # type: ignore[arg-type]
    again._settled = settled
    assert await again._answers(asked, never) == [1]
    assert asked_for == [("a",)] * 2, "answered from memory"
    assert session.filters["a"].retained, "what is retained came with the answer that was lost"
    assert await again._answers(asked, never) == [1]
    assert len(asked_for) == 2


@runs
async def test_a_filter_that_stands_twice_in_one_subscribe_may_be_refused_once() -> None:
    refused = Refusal("much", "", "too many")

    async def settled(*_: Any) -> list[int | Refusal]:
        return [refused, 1]

    account: Any = SimpleNamespace(sayable=frozenset(), user=SimpleNamespace(say={}))
    session, seat = Session("c", {}), SimpleNamespace(client=object())
    of: Any = Subscriptions(account, never, session, seat, never, never)  # type: ignore[arg-type]
    of._settled = settled
    wishes = FilterWishes(), FilterWishes()
    asked = Sub(True, 1, (("a", 1), ("a", 1)), wishes=wishes)
    assert await of._ask(asked, 1, [0, 1], never) == [refused, 1]
    assert session.filters["a"].granted == 1


@pytest.mark.parametrize("remembered", [None, 0, 1, 2])
@pytest.mark.parametrize("asked", [(2, 1, 2, 0), (1, 0, 1), (0, 1), (2, 2)])
@runs
async def test_a_filter_that_stands_twice_in_one_subscribe_has_the_qos_of_its_last_place(
    asked: tuple[int, ...], remembered: int | None
) -> None:
    held = {}

    async def settled(_s: Any, _a: Any, qos: int, filters: list[str], _said: Any) -> list[int]:
        held.update(dict.fromkeys(filters, qos))
        return [qos] * len(filters)

    account: Any = SimpleNamespace(sayable=frozenset(), user=SimpleNamespace(say={}))
    session, seat = Session("c", {}), SimpleNamespace(client=object())
    of: Any = Subscriptions(account, never, session, seat, never, never)  # type: ignore[arg-type]
    of._settled = settled
    wishes = FilterWishes(retained=1)
    if remembered is not None:
        held["a"] = remembered
        session.put("a", Asked(remembered, wishes, granted=remembered))
    # Each with another filter before it.
    filters = [one for n, qos in enumerate(asked) for one in ((f"x{n}", qos), ("a", qos))]
    said = Sub(True, 1, tuple(filters), wishes=(wishes,) * len(filters))
    answers = await of._answers(said, never)
    assert answers == [qos for _, qos in filters]
    assert held["a"] == asked[-1]
    assert session.filters["a"].qos == asked[-1]


@runs
async def test_own_messages_take_bounded_memory(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s.db", ["u"])
    sessions = Sessions("u", spool)
    for n in range(20_000):
        sessions.sent("c", (1, n))
    assert len(sessions._own) == 16_384
    assert (1, 0) not in sessions._own
    assert (1, 19_999) in sessions._own
    spool.close()


class Held:
    """Says how it was left, and for how long the session is kept from then on."""

    def __init__(self) -> None:
        self.left: list[bool] = []
        self.kept: list[int] = []
        self.placed = True

    async def leave(self, goodbye: bool = True, hold: bool = False) -> None:
        self.left.append(goodbye)

    def release(self) -> None:
        self.placed = False

    async def keep_for(self, seconds: int) -> None:
        self.kept.append(seconds)


@pytest.mark.parametrize(("delay", "expiry", "kept"), [(1, 5, [4]), (9, 1, [0]), (1, FOREVER, [])])
@runs
async def test_a_will_waits_for_its_delay_or_the_session_s_end(
    delay: int, expiry: int, kept: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    timeout = asyncio.timeout

    def quick(seconds: float) -> Any:
        waits.append(seconds)
        return timeout(0.01)

    monkeypatch.setattr(asyncio, "timeout", quick)
    seat: Any = Held()
    account: Any = SimpleNamespace(delays={}, waiting={})
    one = Delay(account, "c", seat, delay)
    assert account.delays == {"c": one}
    await one.vanished(expiry)
    assert waits == [min(delay, expiry)]
    assert (seat.left, seat.kept) == ([False], kept)
    assert not seat.placed
    assert account.delays == account.waiting == {}


@pytest.mark.parametrize("goes_on", [True, False])
@runs
async def test_a_client_that_returns_has_its_will_dropped_unless_it_begins_anew(
    goes_on: bool,
) -> None:
    seat: Any = Held()
    account: Any = SimpleNamespace(delays={}, waiting={})
    one = Delay(account, "c", seat, 3600)
    waits = asyncio.create_task(one.vanished(7200))
    await asyncio.sleep(0)
    await one.returned(goes_on)
    await waits
    assert (seat.left, seat.kept) == ([goes_on], [])


@runs
async def test_a_client_that_returns_just_as_its_will_goes_keeps_its_session() -> None:
    account: Any = SimpleNamespace(delays={}, waiting={})
    comes: list[asyncio.Task[None]] = []

    class Slow(Held):
        async def leave(self, goodbye: bool = True, hold: bool = False) -> None:
            comes.append(asyncio.create_task(one.returned(goes_on=True)))
            await asyncio.sleep(0.01)
            await super().leave(goodbye)

    seat: Any = Slow()
    one = Delay(account, "c", seat, 0)
    await one.vanished(60)
    await asyncio.gather(*comes)
    assert (seat.left, seat.kept) == ([False], [])


@runs
async def test_an_agent_that_ends_sends_wills_that_wait_and_asks_the_site_for_no_more() -> None:
    seat: Any = Held()
    account: Any = SimpleNamespace(delays={}, waiting={})
    waits = asyncio.create_task(Delay(account, "c", seat, 3600).vanished(7200))
    await asyncio.sleep(0)
    waits.cancel()
    await asyncio.gather(waits, return_exceptions=True)
    assert (seat.left, seat.kept, seat.placed) == ([False], [], False)


class House:
    """An account whose site lets everybody in. said: what became of its connections, in order."""

    user = SimpleNamespace(name="u")

    def __init__(self) -> None:
        self.seats = 0
        self.delays: dict[str, Any] = {}
        self.waiting: dict[Any, None] = {}
        self.said: list[tuple[str, str, int | bool | None]] = []
        self.sessions = SimpleNamespace(forget=lambda _: None)
        self.most = 0

    def reader(self, client_id: str, kept: bool, expiry: int | None, *_: Any) -> Any:
        async def disconnect(goodbye: bool = True) -> None:
            await asyncio.sleep(0)
            self.said.append(("left", client_id, goodbye))

        self.said.append(("came", client_id, expiry))
        return SimpleNamespace(disconnect=disconnect, present=True)

    async def enter(self, _: Any) -> None:
        self.most = max(self.most, self.seats)
        await asyncio.sleep(0)

    async def sits(self, client_id: str, delay: int = 0) -> tuple[Delay | None, Refusal | None]:
        one: Any = self
        seat = Seat(one, client_id, never, never, never)
        refusal = await seat.take(delay > 0, 7200, LastWill("t", b"", 0, False) if delay else None)
        return (Delay(one, client_id, seat, delay) if delay else None), refusal


@runs
async def test_a_will_that_waits_gives_its_place_to_a_client_that_comes_the_oldest_first() -> None:
    house = House()
    gone = {}
    for n in range(SEATS):
        delay, refusal = await house.sits(f"gone-{n}", 3600)
        assert delay is not None
        assert refusal is None
        gone[n] = delay
    # Here they all are: nobody's will is sent.
    _, refusal = await house.sits("new")
    assert refusal is not None
    assert refusal.rule == "agent.clients"
    tasks = []
    # In another order than they came in.
    for n in reversed(range(SEATS)):
        tasks.append(asyncio.create_task(gone[n].vanished(7200)))
        await asyncio.sleep(0)
    house.said.clear()
    come = [house.sits(f"new-{n}") for n in range(3)]
    assert [refusal for _, refusal in await asyncio.gather(*come)] == [None] * 3
    left = [(who, goodbye) for what, who, goodbye in house.said if what == "left"]
    # Each sends its will, and says for how long its session is kept from then on.
    for n in (13, 12, 11):
        mine = [goodbye for who, goodbye in left if who == f"gone-{n}"]
        assert mine == [False, True], n
        assert ("came", f"gone-{n}", 7200) in house.said
    assert len(left) == 6, "no more wills than places were needed"
    assert (house.seats, house.most, len(house.waiting)) == (SEATS, SEATS, SEATS - 3)
    # One that returns has its place and session, and its will is dropped.
    await gone[0].returned(goes_on=True)
    assert house.said[-1] == ("left", "gone-0", True)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert house.seats == 3
    assert not house.delays
