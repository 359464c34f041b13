"""What an agent keeps until the site has decided: the database, and the account that fills and
empties it, with a site that is a table of answers."""

from __future__ import annotations

import asyncio
import functools
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from calls import counted
from sealmq.agent import account as account_module
from sealmq.agent import backlog as backlog_module
from sealmq.agent.account import Account
from sealmq.agent.config import BadConfig, User
from sealmq.agent.delivery import Delivery
from sealmq.agent.local import Local
from sealmq.agent.run import _spool
from sealmq.agent.sessions import UNRELEASED, Unreleased
from sealmq.agent.spool import Full, Kept, Spool
from sealmq.agent.wire import Ack, End, Five, Pub, Refusal, Three
from sealmq.client import ConnectionLost, How, Message
from sealmq.client.errors import refusal
from sealmq.client.values import Came
from sealmq_spec.errors import Denied, RateLimited, Stale, Unavailable, WrongEpoch

NOW = 1_800_000_000


def runs(work: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine."""

    @functools.wraps(work)
    def test(**fixtures: Any) -> None:
        asyncio.run(work(**fixtures))

    return test


def kept(seq: int, payload: bytes = b"x", origin: str = "1 id", **more: Any) -> Kept:
    return Kept(seq, origin, "a/b", payload, 1, False, {}, NOW, None)._replace(**more)


# --- the database --------------------------------------------------------------------------------


@runs
async def test_what_waits_is_on_disk_in_the_order_in_which_it_came(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s.db", ["u", "other"])
    assert (tmp_path / "s.db").stat().st_mode & 0o777 == 0o600
    first, second, third = (spool.number() for _ in range(3))
    # The first one was tried before it was kept.
    await asyncio.gather(
        spool.put("u", kept(second, b"2"), False), spool.put("other", kept(third), False)
    )
    await spool.put("u", kept(first, b"1", put={"attribute": ["a=1"]}, until=NOW + 9), False)
    spool.close()
    again = Spool(tmp_path / "s.db", ["u", "other"])
    assert again.waits("u")
    assert again.number() > third
    found = await again.oldest("u", 9)
    assert [one.payload for one in found] == [b"1", b"2"]
    assert found[0] == kept(first, b"1", put={"attribute": ["a=1"]}, until=NOW + 9)
    assert [one.seq for one in await again.oldest("u", 1)] == [first]
    assert await again.oldest("u", 9, ["a/b"]) == []
    assert [one.seq for one in await again.expired("u", NOW + 10, 9)] == [first]
    assert await again.expired("u", NOW + 9, 9) == []
    await again.done("u", [first, second])
    assert not again.waits("u")
    assert again.waits("other")
    again.close()


@runs
async def test_only_the_same_message_that_comes_again_keeps_its_place(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s.db", ["u"])
    first = await spool.put("u", kept(spool.number()), False)
    assert await spool.put("u", kept(spool.number()), True) == first
    for other in (
        {"payload": b"y"}, {"origin": "2 id"}, {"topic": "a"}, {"qos": 2}, {"retain": True},
        {"put": {"attribute": ["a=1"]}},
    ):  # fmt: skip
        assert await spool.put("u", kept(spool.number())._replace(**other), True) != first, other
    # Two readings that are the same are two messages: only DUP says that one comes again.
    assert await spool.put("u", kept(spool.number()), False) != first
    assert len(await spool.oldest("u", 99)) == 8
    spool.close()


@runs
async def test_the_bound_is_of_all_that_a_message_takes_and_what_is_gone_makes_room(
    tmp_path: Path,
) -> None:
    spool = Spool(tmp_path / "s.db", ["u"], messages=3, size=4000)
    one = kept(spool.number())
    for more in ({"topic": "t" * 4000}, {"origin": "1 " + "c" * 4000}, {"payload": bytes(4000)}):
        with pytest.raises(Full):
            spool.put("u", one._replace(**more), False)
    with pytest.raises(Full):
        spool.put("u", one._replace(put={"attribute": ["a=" + "x" * 4000]}), False)
    seqs = [await spool.put("u", kept(spool.number()), False) for _ in range(3)]
    with pytest.raises(Full):
        spool.put("u", kept(spool.number()), False)
    await spool.done("u", seqs[:1])
    await spool.put("u", kept(spool.number()), False)
    # The place of one that was there already is given back.
    await spool.done("u", seqs[1:2])
    assert await spool.put("u", kept(spool.number()), True) == seqs[2]
    await spool.put("u", kept(spool.number()), False)
    with pytest.raises(Full):
        spool.put("u", kept(spool.number()), False)
    spool.close()


@runs
async def test_what_comes_while_the_disk_is_busy_is_one_commit(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s.db", ["u"])
    commits: list[str] = []

    # Asked for first, so that all the rest waits for it.
    def work(db: sqlite3.Connection) -> None:
        db.set_trace_callback(commits.append)
        time.sleep(0.3)

    busy = spool._ask(work)
    puts = [spool.put("u", kept(spool.number()), False) for _ in range(200)]
    await asyncio.gather(busy, *puts)
    await spool.oldest("u", 1)
    assert commits.count("COMMIT") <= 4, commits.count("COMMIT")
    assert sum(one.startswith("INSERT") for one in commits) == 200
    spool.close()


@runs
async def test_a_full_disk_refuses_what_comes_and_forgets_nothing_that_was_sent(
    tmp_path: Path,
) -> None:
    spool = Spool(tmp_path / "s.db", ["u"])
    first = await spool.put("u", kept(spool.number(), bytes(9000)), False)

    def full(db: sqlite3.Connection) -> None:
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count = {pages}")

    # PRAGMAs of a database's size are not part of a transaction.
    await spool._ask(full)
    big = spool.put("u", kept(spool.number(), bytes(90_000)), False)
    small = spool.oldest("u", 9)
    with pytest.raises(sqlite3.Error, match="full"):
        await big
    assert [one.seq for one in await small] == [first], "one that fails took others with it"

    # A row that cannot be deleted is not sent again by this process, and goes later.
    def broken(_: sqlite3.Connection) -> tuple[int, int]:
        raise sqlite3.OperationalError("disk I/O error")

    delete, spool._delete = spool._delete, broken  # type: ignore[method-assign, assignment]
    with pytest.raises(sqlite3.Error):
        await spool.done("u", [first])
    assert not spool.waits("u")
    assert await spool.oldest("u", 9) == []
    spool._delete = delete  # type: ignore[method-assign]
    await spool.done("u", [])
    spool.close()
    with sqlite3.connect(tmp_path / "s.db") as db:
        assert db.execute("SELECT COUNT(*) FROM unsent").fetchone() == (0,)


@runs
async def test_messages_of_users_that_are_gone_are_deleted_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool = Spool(tmp_path / "s.db", ["old", "u"])
    for user in ("old", "old", "u"):
        await spool.put(user, kept(spool.number()), False)
    spool.close()
    again = Spool(tmp_path / "s.db", ["u"])
    assert "2 unsent messages of 'old' were deleted" in caplog.text
    assert await again.oldest("old", 9) == []
    assert len(await again.oldest("u", 9)) == 1
    again.close()


def test_a_database_that_is_none_is_said_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "s.db").write_bytes(b"not a database" * 100)
    with pytest.raises(BadConfig, match=r"s\.db: file is not a database"):
        _spool(tmp_path / "s.db", ["u"])


# --- the account ---------------------------------------------------------------------------------


class Site:
    """Stands where a Client is. answers: by topic, what the site says: None, an error, or "later".
    once: topics whose answer it gives once. room: how many may be underway."""

    def __init__(self) -> None:
        self.connected = True
        self.room = 99
        self.sent: list[tuple[str, bytes, int]] = []
        self.answers: dict[str, Exception | str | None] = {}
        self.once: set[str] = set()
        self.open: list[Callable[[Exception | None], None]] = []

    def publish_nowait(self, topic: str, payload: bytes, *, over: Any, life: int, **_: Any) -> bool:
        if not self.connected or len(self.open) >= self.room:
            return False
        self.sent.append((topic, payload, life))
        answer = self.answers.get(topic, "later")
        if topic in self.once:
            del self.answers[topic]
        if answer == "later":
            self.open.append(over)
        else:
            asyncio.get_running_loop().call_soon(over, answer)
        return True

    async def publish(self, topic: str, payload: bytes, *, life: int, **_: Any) -> None:
        self.sent.append((topic, payload, life))
        answer = self.answers.get(topic)
        if isinstance(answer, Exception):
            raise answer


class Wallet:
    class identity:
        name, client = "u", 9


class World:
    """An account with its spool, and what it has answered: topic and payload -> refusal."""

    def __init__(self, folder: Path) -> None:
        self.spool = Spool(folder / "s.db", ["u"])
        self.told: list[tuple[str, Refusal]] = []
        self.answered: list[tuple[bytes, Refusal | None]] = []
        user = User("u", None, "", "", None, None, {})
        tell: Any = lambda topic, why: self.told.append((topic, why))  # noqa: E731
        self.account = Account(user, Wallet(), self.spool, tell)  # type: ignore[arg-type]
        self.site = Site()
        self.back()

    def back(self) -> None:
        self.site.connected = True
        self.account._client = self.site  # type: ignore[assignment]
        self.account._said("connected")

    def away(self) -> None:
        self.site.connected = False
        self.account._said("the connection broke")

    def publish(self, payload: bytes, topic: str = "a/b", client: str = "c", **more: Any) -> None:
        given: dict[str, Any] = {"qos": 1, "retain": False, "dup": False, "packet_id": 1, **more}
        pub = Pub(topic, payload, **given)
        self.account.publish(client, pub, lambda why: self.answered.append((payload, why)))

    async def until(self, what: Callable[[], object]) -> None:
        async with asyncio.timeout(30):
            while not what():  # noqa: ASYNC110 - whatever is looked at
                await asyncio.sleep(0.01)

    async def kept(self) -> None:
        """Until nothing is in memory: what is not sent is on disk."""
        await self.until(lambda: not self.account._going and not self.account._backlog._going)

    async def rows(self) -> list[bytes]:
        return [one.payload for one in await self.spool.oldest("u", 99)]


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[World]:
    made = World(folder)
    account = made.account
    waits = asyncio.create_task(account._backlog.run(account._up, account._try))
    try:
        yield made
    finally:
        waits.cancel()
        await asyncio.gather(waits, return_exceptions=True)
        made.spool.close()


@runs
async def test_a_message_is_answered_after_the_site_has_decided_and_its_row_is_gone(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as w:
        w.away()
        w.publish(b"1")
        await w.kept()
        assert await w.rows() == [b"1"]
        assert w.answered == []
        deleted: list[int] = []
        done = w.spool.done

        def watched(user: str, seqs: Any) -> Any:
            assert w.site.sent, "deleted before it was sent"
            assert w.answered == [], "answered before its row was deleted"
            deleted.extend(seqs)
            return done(user, seqs)

        w.spool.done = watched  # type: ignore[method-assign]
        w.back()
        await w.until(lambda: w.answered)
        assert w.answered == [(b"1", None)]
        assert len(deleted) == 1
        assert w.site.sent == [("a/b", b"1", 0)]
        assert not w.account._backlog._waiting


@runs
async def test_what_waits_in_memory_goes_to_disk_with_what_comes_when_the_site_leaves(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as w:
        w.site.room = 2
        for n in range(4):
            w.publish(b"%d" % n, packet_id=n + 1)
        w.publish(b"q0", qos=0, packet_id=0)
        assert [p for _, p, _ in w.site.sent] == [b"0", b"1"]
        w.away()
        w.publish(b"4", packet_id=5)
        # Those that are underway end with the connection, later than the others.
        for over in w.site.open:
            over(ConnectionLost("it broke"))
        w.site.open.clear()
        await w.kept()
        assert await w.rows() == [b"0", b"1", b"2", b"3", b"4"]
        assert [why.rule if why else None for _, why in w.answered] == ["agent.away"]
        w.site.sent.clear()
        w.back()
        await w.until(lambda: len(w.answered) == 6)
        assert [p for _, p, _ in w.site.sent] == [b"0", b"1", b"2", b"3", b"4"]


@runs
async def test_qos_0_goes_while_the_site_is_there_whatever_waits_on_disk(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.site.answers["slow"] = refusal("publish", "slow", RateLimited.code, "r", "slow")
        w.away()
        w.publish(b"1", topic="slow")
        await w.kept()
        w.back()
        await w.until(lambda: w.site.sent)
        assert w.spool.waits("u")
        w.publish(b"0", topic="t", qos=0, packet_id=0)
        assert w.answered == [(b"0", None)]


@runs
async def test_what_is_expiring_is_not_taken_for_a_message_that_is_on_its_way(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as w:
        w.publish(b"new")
        [underway] = w.account._going.values()
        with w.account._backlog._sent([kept(99, b"", "1 c")], known=False):
            assert w.account._backlog.find("1 c") is None
        assert w.account._going == {"1 c": underway}


@runs
async def test_no_error_of_one_job_ends_the_thread(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s.db", ["u"])

    def broken(db: sqlite3.Connection) -> None:
        raise ValueError("a row that nobody can read")

    with pytest.raises(ValueError, match="nobody can read"):
        await asyncio.wait_for(spool._ask(broken), 20)
    await asyncio.wait_for(spool.put("u", kept(spool.number()), False), 20)
    spool.close()


def test_topics_that_nobody_tries_any_more_take_no_memory() -> None:
    aside = backlog_module._Aside()
    for n in range(1000):
        aside.put(f"t/{n}", 0.0)
    assert len(aside.now(0.5)) == 1000
    assert aside.now(100.0) == []
    assert not aside._topics


@runs
async def test_dup_is_the_same_message_in_memory_on_disk_and_underway(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.publish(b"1")
        w.publish(b"1", dup=True)
        w.publish(b"1", client="d", dup=True)
        assert len(w.site.sent) == 2, "another client's packet id is another one"
        w.away()
        for over in w.site.open:
            over(ConnectionLost("it broke"))
        await w.kept()
        w.publish(b"1", dup=True)
        w.publish(b"1", dup=False)
        await w.kept()
        assert await w.rows() == [b"1"] * 3
        w.back()
        await w.until(lambda: len(w.answered) == 5)


@runs
async def test_an_expiry_is_passed_on_as_what_is_left_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [float(NOW)]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    async with world(tmp_path) as w:
        for expiry, life in ((None, 0), (2, 1), (60, 5), (64, 6), (90_000, 16), (1 << 40, 31)):
            w.publish(b"", topic=f"t/{expiry}", expiry=expiry)
            assert w.site.sent[-1][2] == life, expiry
        w.publish(b"r", topic="r", retain=True)
        assert w.site.sent[-1][2] == 255
        sent = len(w.site.sent)
        for expiry in (0, 1):
            w.publish(b"%d" % expiry, expiry=expiry)
            assert w.answered[-1][1] is not None
            assert "SealMQ's shortest is 2 s" in w.answered[-1][1].reason
        assert len(w.site.sent) == sent
        # What is kept has what is left when it goes; a clock that was set back adds nothing.
        w.answered.clear()
        w.away()
        w.publish(b"none", topic="k/none")
        w.publish(b"day", topic="k/day", expiry=100_000)
        w.publish(b"old", topic="k/old", expiry=65)
        w.publish(b"over", topic="k/over", expiry=10)
        await w.until(lambda: len(w.account._backlog._waiting) == 4)
        clock[0] += 64 - 1
        w.back()
        await w.until(lambda: len(w.answered) == 4)
        lives = {topic: life for topic, _, life in w.site.sent[sent:]}
        assert lives == {"k/none": 0, "k/day": 16, "k/old": 1}
        over = dict(w.answered)[b"over"]
        assert over is not None
        assert over.rule == "agent.expired"
        w.away()
        w.publish(b"back", topic="k/back", expiry=64)
        await w.until(lambda: w.account._backlog._waiting)
        clock[0] -= 5000
        w.back()
        await w.until(lambda: len(w.answered) == 5)
        assert w.site.sent[-1] == ("k/back", b"back", 6)


@runs
async def test_what_expires_is_told_while_the_site_is_away_and_in_memory_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [float(NOW)]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    monkeypatch.setattr(backlog_module, "_EXPIRE_S", 0.05)
    async with world(tmp_path) as w:
        w.site.room = 0
        w.publish(b"memory", expiry=5)
        clock[0] += 10
        w.site.room = 1
        w.account._pump()
        assert [why.rule for _, why in w.answered if why] == ["agent.expired"]
        w.away()
        w.publish(b"disk", expiry=5)
        w.publish(b"for ever", packet_id=2)
        await w.kept()
        clock[0] += 10
        await w.until(lambda: len(w.answered) == 2)
        assert w.answered[1][0] == b"disk"
        assert await w.rows() == [b"for ever"]
        assert w.site.sent == []


@runs
async def test_topics_that_get_no_word_do_not_hold_up_others(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.away()
        for n in range(40):
            w.site.answers[f"limited/{n}"] = refusal(
                "publish", "t", RateLimited.code, "rate", "too many"
            )
            w.publish(b"%d" % n, topic=f"limited/{n}", packet_id=n + 1)
        w.publish(b"free", topic="free", packet_id=99)
        w.publish(b"no", topic="no", packet_id=98)
        w.site.answers["no"] = refusal("publish", "no", Denied.code, "labels.x", "no")
        await w.kept()
        w.back()
        await w.until(lambda: len(w.answered) == 2)
        rules = {payload: why.rule if why else "" for payload, why in w.answered}
        assert rules == {b"free": "", b"no": "labels.x"}
        w.site.answers.clear()
        await w.until(lambda: len(w.answered) == 42)
        assert not w.spool.waits("u")


@runs
async def test_a_refusal_is_told_and_an_old_epoch_is_tried_once_more(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.site.answers["no"] = refusal("publish", "no", Denied.code, "labels.x", "no")
        w.site.answers["old"] = refusal("publish", "old", WrongEpoch.code, "", "old")
        w.publish(b"no", topic="no")
        await w.until(lambda: w.answered)
        assert w.answered[0][1] is not None
        w.site.once = {"old"}
        w.publish(b"old", topic="old", packet_id=2)
        await w.until(lambda: len(w.answered) == 2)
        assert w.answered[1] == (b"old", None)
        assert [topic for topic, _, _ in w.site.sent] == ["no", "old", "old"]


@runs
@pytest.mark.parametrize("code", [Unavailable.code, RateLimited.code, Stale.code])
async def test_what_passes_is_no_last_word_while_the_site_is_there_either(
    tmp_path: Path, code: int
) -> None:
    """A full journal, say, or a message that was under way while the site was away for a minute. As
    where the message waited on disk: it is sent once more."""
    async with world(tmp_path) as w:
        w.site.answers["burst"] = refusal("publish", "burst", code, "r", "no")
        w.site.once = {"burst"}
        w.publish(b"1", topic="burst")
        await w.until(lambda: w.answered)
        assert w.answered == [(b"1", None)]
        assert len(w.site.sent) == 2
        # What is retained might be set back: a later one may have been taken.
        w.site.answers["burst"] = refusal("publish", "burst", code, "r", "no")
        w.publish(b"2", topic="burst", retain=True, packet_id=2)
        await w.until(lambda: len(w.answered) == 2)
        assert w.answered[1][1] is not None
        assert len(w.site.sent) == 3


@runs
async def test_a_disk_that_fails_refuses_and_does_not_end_the_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog_module, "_DISK_S", 0.05)
    async with world(tmp_path) as w:
        w.away()
        commit, works = w.spool._commit, [False]

        def failing(asked: Any) -> Any:
            if not works[0]:
                raise sqlite3.OperationalError("database or disk is full")
            return commit(asked)

        w.spool._commit = failing  # type: ignore[method-assign, assignment]
        w.publish(b"lost")
        await w.until(lambda: w.answered)
        why = w.answered[0][1]
        assert why is not None
        assert (why.kind, why.rule) == ("much", "agent.disk")
        works[0] = True
        w.publish(b"kept", packet_id=2)
        await w.kept()
        works[0] = False
        w.back()
        await asyncio.sleep(0.2)
        assert len(w.answered) == 1
        works[0] = True
        await w.until(lambda: len(w.answered) == 2)
        assert w.answered[1] == (b"kept", None)


@runs
async def test_sessions_of_qos_2_that_are_kept_take_bounded_memory(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        sessions = w.account.sessions
        first = sessions.enter("first", kept=True)
        first.received.accepted.update(range(1, 2000))
        assert sessions.enter("first", kept=True, present=True) is first
        for n in range(600):
            sessions.enter(f"c{n}", kept=True).received.accepted.update(range(1, 2000))
        total = sum(len(one.received) for one in sessions._kept.values())
        assert total <= 65_536 + 2 * 2000
        assert len(sessions._kept) <= 256
        assert not sessions.enter("first", kept=True, present=True).received


@runs
async def test_who_comes_and_goes_while_the_site_is_slow_fills_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account_module, "_QUEUED", 8)
    monkeypatch.setattr(account_module, "_QUEUED_BYTES", 10_000)
    async with world(tmp_path) as w:
        w.site.room = 0
        for n in range(20):
            w.publish(b"%d" % n, client=f"c{n}")
        assert [why.rule for _, why in w.answered if why] == ["agent.busy"] * 12
        assert len(w.account._going) == 8
        w.site.room = 99
        w.account._pump()
        assert len(w.site.sent) == 8
        w.site.room = 0
        for n in range(20):
            w.publish(bytes(2000), client=f"d{n}")
        assert len(w.account._going) == 8 + 4


@runs
async def test_what_waits_for_room_goes_without_an_answer_that_makes_it(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.site.room = 0
        w.publish(b"q0", qos=0, packet_id=0)
        w.site.room = 1
        await w.until(lambda: w.site.sent)


# --- QoS 2 at a local client ---------------------------------------------------------------------


class Seat:
    """A reader's connection to the site: these messages, and nothing more."""

    error = None

    def __init__(self, *messages: Message) -> None:
        self._messages = list(messages)
        self.completed: list[int] = []
        self.settled = 0

    async def receive_some(self, most: int) -> list[Message]:
        some, self._messages = self._messages[:most], self._messages[most:]
        return some or await asyncio.Future()

    async def ended(self) -> None:
        await asyncio.Future()

    def settle(self, _: Message) -> bool:
        self.settled += 1
        return True

    def complete(self, packet_id: int) -> None:
        self.completed.append(packet_id)


def local_of(account: Any, seat: Any = None) -> Local:
    """A client that is in, with its session kept."""
    made = Local(None, lambda *_: account, lambda _: None)  # type: ignore[arg-type, return-value]
    made._account, made._dialect = account, Three()
    made._delivery = Delivery(account, "c", Three(), 20, made._out)
    made._delivery.begin(seat, kept=True)
    made._session = account.sessions.enter("c", kept=True)
    made._received = made._session.received
    return made


def delivers(local: Local) -> asyncio.Task[None]:
    """Its messages come."""

    async def work() -> None:
        assert local._delivery is not None
        assert local._session is not None
        async with asyncio.TaskGroup() as group:
            await local._delivery.run(local._session, group)

    return asyncio.create_task(work())


@runs
async def test_a_withheld_message_of_qos_2_leaves_no_packet_id_open(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        topic = "homeassistant/switch/other/config"
        came = Came(7, False, b"", None)
        message = Message(topic, b"{}", "l", "boiler", 0, How.LIVE, 2, came=came)
        seat: Any = Seat(message)
        local = local_of(w.account, seat)
        task = delivers(local)
        await w.until(lambda: w.told)
        local._sends.released(7)
        assert seat.completed == [7], "the site waits for PUBCOMP for ever"
        assert not local._out.data, "the client was told of a message that it never had"
        # The site may use the number again.
        local._sends.released(7)
        assert local._out.data
        task.cancel()


@runs
async def test_a_client_that_releases_nothing_is_ended_before_it_fills_memory(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as w:
        local = local_of(w.account)
        local._received.accepted.update(range(1, 2049))
        with pytest.raises(End, match=r"agent\.unreleased"):
            local._publish(Pub("a/b", b"", 2, False, False, 3000))
        # What was accepted is still answered.
        local._publish(Pub("a/b", b"", 2, False, True, 7))
        assert local._out.data
        assert not w.site.sent


@runs
async def test_a_new_message_of_qos_2_under_a_packet_id_that_was_not_released_is_published(
    tmp_path: Path,
) -> None:
    """A client with a kept session was started anew, and counts from 1 again."""
    async with world(tmp_path) as w:
        local = local_of(w.account)
        local._publish(Pub("a/b", b"1", 2, False, False, 1))
        w.site.open.pop()(None)
        assert local._out.data[0] >> 4 == 5
        local._out.data.clear()
        local._publish(Pub("a/b", b"1", 2, False, True, 1))
        assert local._out.data[0] >> 4 == 5, "the same message once more"
        local._out.data.clear()
        local._publish(Pub("a/b", b"2", 2, False, False, 1))
        assert [payload for _, payload, _ in w.site.sent] == [b"1", b"2"]
        # What comes again now is this one, and is not answered before the site has decided.
        local._publish(Pub("a/b", b"2", 2, False, True, 1))
        assert not local._out.data
        w.site.open.pop()(None)
        assert local._received.accepted == {1}


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("qos", [1, 2])
@runs
async def test_who_publishes_anew_with_each_connection_while_the_site_is_away_fills_no_memory(
    tmp_path: Path, qos: int, kept: bool
) -> None:
    async with world(tmp_path) as w:
        w.away()
        session = w.account.sessions.enter("c", kept=True)
        for n in range(50):
            local = local_of(w.account)
            local.client_id = "c"
            if kept:
                local._session, local._received = session, session.received
            else:
                local._session = None
            local._publish(Pub("a/b", b"1", qos, False, n > 0, 1))
            # On its way to disk, or there.
            if n % 5 == 0:
                await w.kept()
            if n < 49:
                local._ended.cancel()
                local._left.set()
        await w.kept()
        assert await w.rows() == [b"1"]
        [answers] = w.account._backlog._waiting.values()
        assert len(answers) <= 2
        w.back()
        await w.until(lambda: local._out.data)
        assert not w.account._backlog._waiting
        assert session.received.accepted == ({1} if kept and qos == 2 else set())


@runs
async def test_a_pubrel_of_what_an_earlier_agent_accepted_succeeds_and_of_what_was_refused_does_not(
    tmp_path: Path,
) -> None:
    """MQTT.js reports a message as failed when PUBCOMP has a reason code."""
    async with world(tmp_path) as w:
        local = local_of(w.account)
        local._dialect = Five()
        local._received.decided(3, accepted=False)
        # 3: this connection's refusal, which the client overlooked; 4: an earlier agent's.
        for packet_id, code in ((3, 0x92), (3, 0), (4, 0)):
            local._acked(Ack("PUBREL", packet_id))
            said = bytes(local._out.data)
            assert (said[0] >> 4, said[3], said[4] if len(said) > 4 else 0) == (7, packet_id, code)
            local._out.data.clear()


def test_what_is_remembered_of_refusals_is_bounded_and_forgotten_with_the_next_message() -> None:
    held = Unreleased()
    for packet_id in range(1, 2 * UNRELEASED):
        held.decided(packet_id, accepted=False)
    assert len(held.refused) == UNRELEASED
    held.decided(2 * UNRELEASED - 1, accepted=True)
    assert not held.released(2 * UNRELEASED - 1)
    assert not held.accepted


# --- what a message costs, in calls of Python functions ---


@runs
async def test_a_message_that_a_client_publishes_costs_few_calls(tmp_path: Path) -> None:
    many = 30
    async with world(tmp_path) as w:
        local = local_of(w.account)
        w.site.answers["a/b"] = None
        with counted("agent") as calls:
            for n in range(many):
                local._publish(Pub("a/b", b"x", 1, False, False, n + 1))
            await w.until(lambda: len(local._out.data) == 4 * many)
        assert calls.total() < 13 * many, calls.most_common(20)


@runs
async def test_a_message_that_a_client_is_sent_costs_few_calls(tmp_path: Path) -> None:
    many = 15
    async with world(tmp_path) as w:
        messages = [
            Message("a/b", b"x", "l", "boiler", 0, How.LIVE, 1, came=Came(n, False, b"", None))
            for n in range(1, many + 1)
        ]
        seat: Any = Seat(*messages)
        local = local_of(w.account, seat)
        flights = local._sends._flights
        with counted("agent") as calls:
            task = delivers(local)
            await w.until(lambda: len(flights) == many)
            local._sends.acks(tuple(range(1, many + 1)))
        assert (seat.settled, flights) == (many, {})
        assert calls.total() < 5 * many, calls.most_common(20)
        task.cancel()
