"""One visit to somebody's broker: the tries in their order, within its limits, without a trace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias

from .accounts import Account, Accounts
from .across import Across
from .probe import BREAKS_OFF, SYS, Came, Limits, Probe, Where
from .result import Failed, Finding, Unclear, Untried
from .revoked import AFTER, Revoked
from .revoking import Revoking

_TIDY_S = 15.0
_Work: TypeAlias = Callable[[Account, str], Awaitable[str]]


async def examine(
    where: Where, accounts: Accounts, limits: Limits, revoking: Revoking
) -> list[Finding]:
    """Every try's result. It ends by itself, and takes away what it has left at the broker."""
    visit = _Visit(Probe(where, accounts, limits), revoking)
    try:
        await visit.tries()
    finally:
        await visit.tidy()
    return visit.found


class _Visit:
    def __init__(self, probe: Probe, revoking: Revoking) -> None:
        self._probe, self._revoking = probe, revoking
        self._across, self._revoked = Across(probe), Revoked(probe, revoking)
        self.found: list[Finding] = []
        self._end = asyncio.get_running_loop().time() + probe.limits.seconds

    async def tries(self) -> None:
        across, accounts = self._across, self._probe.accounts
        each, topics = accounts.each, accounts.topics
        await self._try("allowed", "", across.allowed)
        await self._try("anonymous", "", across.anonymous)
        await self._try("guess", "", across.guess)
        unread = {who: [topic for topic in topics if topic not in who.read] for who in each}
        unwritten = {who: [topic for topic in topics if topic not in who.write] for who in each}
        shut: dict[str, tuple[_Work, dict[Account, list[str]]]] = {
            "read": (across.plainly, unread),
            "hash": (across.hash, unread),
            "share": (across.share, unread),
            "write": (across.write, unwritten),
            "will": (across.will, unwritten),
            "sys": (across.sys, {who: [SYS + "#"] for who in each if not who.sys}),
        }
        if self.found[0].ok is not True:  # a refusal would mean nothing
            why = f"what is allowed does not work: {self.found[0].reason}"
            rest = (*shut, "takeover", *AFTER)
            self.found += [Finding.of(rule, "", Untried(why)) for rule in rest]
            return
        for rule, (work, theirs) in shut.items():
            for who, which in theirs.items():
                await self._each(rule, who, which, work)
            if all(one.rule != rule for one in self.found):
                self.found.append(Finding.of(rule, "", Untried("every account of the file may")))
        await self._try("takeover", "", across.takeover)
        self.found += await self._revoked.findings(self._end)

    async def _each(self, rule: str, who: Account, topics: Sequence[str], work: _Work) -> None:
        """One row for all topics: one that is open decides, then one that says nothing."""
        if not topics:
            return
        opened: list[str] = []

        async def all_of_them() -> str:
            unclear: list[str] = []
            said: dict[str, None] = {}
            for topic in topics:
                try:
                    said[await work(who, topic)] = None
                except Failed as error:
                    opened.append(str(error))
                except BREAKS_OFF as error:
                    unclear.append(f"{topic}: {error}")
            if opened:
                raise Failed("; ".join(opened))
            if unclear:
                raise Unclear("; ".join(unclear))
            return ", ".join(said)

        await self._try(rule, who.name, all_of_them, opened)

    async def _try(
        self, rule: str, who: str, work: Callable[[], Awaitable[str]], opened: Sequence[str] = ()
    ) -> None:
        """Its row. `opened`: what it has found when its time ends."""
        came: str | Exception
        if asyncio.get_running_loop().time() >= self._end:
            came = Untried(self._over())
        else:
            try:
                async with asyncio.timeout_at(self._end):
                    came = await work()
            except TimeoutError:
                came = Failed("; ".join(opened)) if opened else Unclear(self._over())
            except (Failed, Untried, *BREAKS_OFF) as error:
                came = error
        self.found.append(Finding.of(rule, who, came))

    def _over(self) -> str:
        return f"its time of {self._probe.limits.seconds:g} s is over (--seconds)"

    async def tidy(self) -> None:
        """Give back what was revoked, end sessions, clear what is retained; and say whether."""
        self._probe.messages = 0
        topics = dict.fromkeys(self._revoked.retained)
        sessions = [*self._across.sessions, *self._revoked.sessions]
        left = [f"a session of {who.name}'s, client id {name}" for who, name in sessions]
        left += [f"a retained message on {topic}" for topic in topics]
        works = [partial(self._ended, who, name) for who, name in sessions]
        works += [partial(self._clear, topic) for topic in topics]
        stays = []
        try:
            await self._revoking.restore()
        except (Untried, *BREAKS_OFF) as error:
            stays.append(f"rights that were taken away ({error})")
        end = asyncio.get_running_loop().time() + _TIDY_S
        for what, work in zip(left, works, strict=True):
            try:
                async with asyncio.timeout_at(end):
                    await work()
            except (TimeoutError, *BREAKS_OFF) as error:
                stays.append(f"{what} ({str(error) or 'no answer in time'})")
        said = "what it retained is cleared" if topics else "it retained nothing"
        came = Unclear("may be there still: " + ", ".join(stays)) if stays else said
        self.found.append(Finding.of("left", "", came))

    async def _ended(self, who: Account, name: str) -> None:
        """A session ends with the next clean one."""
        async with self._probe.enter(who, name):
            pass

    async def _clear(self, topic: str) -> None:
        probe, accounts = self._probe, self._probe.accounts
        writer = accounts.writer(topic, accounts.revoke)
        reader = accounts.reader(topic, accounts.revoke)
        came = Came()
        async with probe.lines(writer, reader) as lines:
            await lines[writer].publish(topic, b"", retain=True)
            await lines[reader].subscribe(topic)
            await probe.until(lines[reader], await probe.publish(lines[writer], topic), came)
        if came.retained:
            raise Unclear("it is given out still")
