"""What an agent keeps of sessions: what subscriptions of MQTT 5 ask for, wills that wait."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sealmq.agent.seat import Delay
from sealmq.agent.sessions import Asked, Session, Sessions
from sealmq.agent.spool import Spool
from sealmq.agent.subscriptions import Subscriptions
from sealmq.agent.wire import FOREVER, Refusal, Sub
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


class Seat:
    """Says how it was left, and for how long the session is kept from then on."""

    def __init__(self) -> None:
        self.left: list[bool] = []
        self.kept: list[int] = []

    async def leave(self, goodbye: bool = True) -> None:
        self.left.append(goodbye)

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
    seat: Any = Seat()
    account: Any = SimpleNamespace(delays={})
    one = Delay(account, "c", seat, delay)
    assert account.delays == {"c": one}
    await one.vanished(expiry)
    assert waits == [min(delay, expiry)]
    assert (seat.left, seat.kept) == ([False], kept)
    assert account.delays == {}


@pytest.mark.parametrize("goes_on", [True, False])
@runs
async def test_a_client_that_returns_has_its_will_dropped_unless_it_begins_anew(
    goes_on: bool,
) -> None:
    seat: Any = Seat()
    account: Any = SimpleNamespace(delays={})
    one = Delay(account, "c", seat, 3600)
    waits = asyncio.create_task(one.vanished(7200))
    await asyncio.sleep(0)
    await one.returned(goes_on)
    await waits
    assert (seat.left, seat.kept) == ([goes_on], [])


@runs
async def test_a_client_that_returns_just_as_its_will_goes_keeps_its_session() -> None:
    account: Any = SimpleNamespace(delays={})
    comes: list[asyncio.Task[None]] = []

    class Slow(Seat):
        async def leave(self, goodbye: bool = True) -> None:
            comes.append(asyncio.create_task(one.returned(goes_on=True)))
            await asyncio.sleep(0.01)
            await super().leave(goodbye)

    seat: Any = Slow()
    one = Delay(account, "c", seat, 0)
    await one.vanished(60)
    await asyncio.gather(*comes)
    assert (seat.left, seat.kept) == ([False], [])


@runs
async def test_an_agent_that_ends_sends_wills_that_wait() -> None:
    seat: Any = Seat()
    account: Any = SimpleNamespace(delays={})
    waits = asyncio.create_task(Delay(account, "c", seat, 3600).vanished(7200))
    await asyncio.sleep(0)
    waits.cancel()
    await asyncio.gather(waits, return_exceptions=True)
    assert seat.left == [False]
