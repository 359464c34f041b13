"""Tries at somebody's broker: what is left to an account that has lost its rights.

It has a connection, a kept session and a retained message while it is revoked. Then, one after the
other, with one connection at a time: does the connection go on, does the session, what can it begin
anew, and is what it left still given out?
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from sealmq.broker.errors import BrokerError, Closed, Unreachable
from sealmq.broker.peer import Peer

from .accounts import Account
from .probe import BREAKS_OFF, Came, Lines, Probe, mark_of_ours, new_name
from .result import Failed, Finding, Unclear, Untried
from .revoking import Revoking

AFTER = ("anew", "live", "kept", "retained")
_PAUSE_S = 0.2
_ALIVE_S = 15.0
# Deliveries may come after the answer to a ping; a second message missed is no accident.
_MISSED = 2


@dataclass(frozen=True, slots=True)
class _Scene:
    """who: will lose its rights. writer, reader: of `read`; over, looks: of `write`."""

    who: Account
    read: str
    write: str
    writer: Account
    reader: Account
    over: Account
    looks: Account


class Revoked:
    """`retained`, `sessions`: what it has made the broker keep."""

    def __init__(self, probe: Probe, revoking: Revoking) -> None:
        self._probe, self._accounts, self._revoking = probe, probe.accounts, revoking
        self.retained: list[str] = []
        self.sessions: list[tuple[Account, str]] = []

    async def findings(self, end: float) -> list[Finding]:
        """The rows; `end`: of the loop's time, to which what an operator takes is added."""
        who = self._accounts.revoke
        outcome: dict[str, str | Exception] = {}
        rest: Exception = Unclear("the try before it came to nothing")
        try:
            scene = self._scene(who)
            async with asyncio.timeout_at(end) as limit:
                await self._revoked(scene, outcome, limit)
        except TimeoutError:
            rest = Unclear("the time is over (--seconds)")
        except (Untried, *BREAKS_OFF) as error:
            rest = error
        rows = []
        for rule in AFTER:
            found = outcome.get(rule, rest)
            # What is allowed still is no leftover.
            if rule != "anew" and isinstance(found, Failed) and not _holds(outcome.get("anew")):
                found = Unclear("whether the revocation has taken effect at all is not known")
            rows.append(Finding.of(rule, who.name if who else "", found))
        return rows

    def _scene(self, who: Account | None) -> _Scene:
        self._revoking.check()
        if who is None:
            raise Untried('the file does not say which account to revoke (revoke = "NAME")')
        accounts = self._accounts
        for read in who.read:
            for write in who.write:
                writer, reader = accounts.writer(read, who), accounts.reader(read, who)
                over, looks = accounts.writer(write, who), accounts.reader(write, who)
                if who not in (writer, reader, over, looks):
                    return _Scene(who, read, write, writer, reader, over, looks)
        raise Untried(f"it takes others that may read and write a topic that {who.name} may too")

    async def _revoked(
        self, at: _Scene, outcome: dict[str, str | Exception], limit: asyncio.Timeout
    ) -> None:
        probe, others = self._probe, (at.writer, at.reader, at.over, at.looks)
        name = at.who.client_id or new_name()
        self.sessions.append((at.who, name))
        async with AsyncExitStack() as had:
            line = await had.enter_async_context(probe.enter(at.who, name, clean=False))
            await line.subscribe(at.read)
            async with probe.lines(*others) as lines:
                await probe.until(line, await probe.publish(lines[at.writer], at.read), Came())
                left = await self._leave(line, lines, at)
            await self._take_away(at.who, line, limit)
            await self._serves(at.writer)
            async with probe.lines(*others) as lines:
                await lines[at.reader].subscribe(at.read)
                outcome["live"] = await self._live(line, lines, at)
                await had.aclose()
                outcome["kept"] = await self._kept(name, lines, at)
                outcome["anew"] = await self._anew(lines, at)
                kept = left if isinstance(left, Exception) else await self._old(left, lines, at)
                outcome["retained"] = kept

    async def _take_away(self, who: Account, line: Peer, limit: asyncio.Timeout) -> None:
        """Revoke, and keep its connection alive meanwhile. An operator's time does not count."""
        loop = asyncio.get_running_loop()
        began, end = loop.time(), limit.when() or 0.0
        if self._revoking.by_hand:
            limit.reschedule(None)
        doing = asyncio.create_task(self._revoking.revoke(who.name), name="doctor: revoke")
        try:
            while not (await asyncio.wait({doing}, timeout=_ALIVE_S))[0]:
                with contextlib.suppress(BrokerError):
                    await line.held()
            await doing
        finally:
            doing.cancel()
            await asyncio.gather(doing, return_exceptions=True)
        if self._revoking.by_hand:
            limit.reschedule(end + loop.time() - began)

    async def _serves(self, who: Account) -> None:
        """Returns when it lets somebody else in: revoking may have restarted it."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._probe.limits.answer_s
        while True:
            try:
                async with self._probe.enter(who):
                    return
            except Unreachable:
                if loop.time() > end:
                    raise
            await asyncio.sleep(_PAUSE_S)

    async def _live(self, line: Peer, lines: Lines, at: _Scene) -> str | Exception:
        """The connection that it had. A broker may take some time to hear of a revocation."""
        loop, seconds = asyncio.get_running_loop(), self._probe.limits.answer_s
        end, missed = loop.time() + seconds, 0
        while missed < _MISSED:
            came = Came()
            await self._probe.carried(lines, at.writer, at.reader, at.read)
            if not await self._read_on(line, came):
                return "hung up on"
            missed = 0 if came.marks else missed + 1
            if not missed and loop.time() >= end:
                had = "in the connection that it had"
                return Failed(f"{seconds:g} s later {at.who.name} still gets {at.read} {had}")
            await asyncio.sleep(_PAUSE_S)
        return "nothing comes any more"

    async def _kept(self, name: str, lines: Lines, at: _Scene) -> str | Exception:
        """It comes back to its session, and subscribes to nothing."""
        probe, came = self._probe, Came()
        marks = {await probe.carried(lines, at.writer, at.reader, at.read)}
        async with self._back(at.who, name) as line:
            if isinstance(line, str):
                return line
            said = "its session is there" if line.present else "its session is gone"
            for _ in range(_MISSED):
                said = said if await self._read_on(line, came) else "hung up on"
                marks.add(await probe.carried(lines, at.writer, at.reader, at.read))
            await self._read_on(line, came)
        if came.marks & marks:
            return Failed(f"{at.who.name} comes back and gets {at.read} without subscribing to it")
        return f"{said}, and nothing comes"

    async def _anew(self, lines: Lines, at: _Scene) -> str | Exception:
        """It connects, subscribes and publishes as it did when it was allowed to."""
        probe, came, looked, mark = self._probe, Came(), Came(), mark_of_ours()
        await lines[at.looks].subscribe(at.write)
        async with self._back(at.who) as line:
            if isinstance(line, str):
                return line
            with contextlib.suppress(Closed):
                await line.subscribe(at.read)
            for _ in range(_MISSED):
                await probe.carried(lines, at.writer, at.reader, at.read)
                await self._read_on(line, came)
            probe.count()
            with contextlib.suppress(Closed):
                await line.offer(at.write, mark)
        last = await probe.publish(lines[at.over], at.write)
        await probe.until(lines[at.looks], last, looked)
        found = [f"reads {at.read}"] if came.marks else []
        found += [f"writes {at.write}"] if mark in looked.marks else []
        return Failed(f"{at.who.name} still {' and '.join(found)}") if found else "it gets nowhere"

    @asynccontextmanager
    async def _back(self, who: Account, name: str = "") -> AsyncIterator[Peer | str]:
        """A connection of the account that was revoked, or how it is kept out."""
        async with AsyncExitStack() as stack:
            got: Peer | str
            try:
                line = await stack.enter_async_context(self._probe.peer(who, name, clean=not name))
                got = f"CONNACK {line.code}" if line.code else line
            except Closed:
                got = "hung up on"
            yield got

    async def _read_on(self, line: Peer, came: Came) -> bool:
        """What has come to it; False: it has been hung up on."""
        try:
            await self._probe.now(line, came)
        except Closed:
            return False
        return True

    async def _leave(self, line: Peer, lines: Lines, at: _Scene) -> bytes | Exception:
        """A retained message of the account's, which another one gets."""
        if b"" in (await self._retained_now(lines, at)).retained:
            return Untried(f"{at.write} holds a retained message, which is not the doctor's")
        self.retained.append(at.write)
        mark = await self._probe.publish(line, at.write, retain=True)
        came = await self._retained_now(lines, at)
        return mark if mark in came.retained else Unclear(f"it retains nothing on {at.write}")

    async def _old(self, mark: bytes, lines: Lines, at: _Scene) -> str | Exception:
        if mark in (await self._retained_now(lines, at)).retained:
            return Failed(f"what {at.who.name} left on {at.write} is still given to who subscribes")
        again = await self._probe.publish(lines[at.over], at.write, retain=True)
        if again not in (await self._retained_now(lines, at)).retained:
            return Unclear(f"it retains nothing on {at.write}, of {at.over.name} neither")
        return "it is not given out any more"

    async def _retained_now(self, lines: Lines, at: _Scene) -> Came:
        """What comes to one who subscribes, again or anew: retained messages [MQTT-3.8.4-3]."""
        came = Came()
        line = lines[at.looks]
        for _ in range(_MISSED):
            await line.subscribe(at.write)
            last = await self._probe.publish(lines[at.over], at.write)
            await self._probe.until(line, last, came)
        return came


def _holds(found: str | Exception | None) -> bool:
    return isinstance(found, str)
