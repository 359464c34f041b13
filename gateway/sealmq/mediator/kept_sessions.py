"""Sessions of (client, client id) that the broker keeps (SPEC.md 4.1).

A session at the broker belongs to a client's secret, not to its number: once the key generator has
ended a client's generations (rotated, disabled, relabelled, removed), whoever comes next must find
neither subscriptions nor queue of before. So the store knows of each kept session, and under which
generation it was proved last, and of its subscriptions.

A broker that is killed has lost the sessions and subscriptions that it had not saved. It gets them
back before the journal is published again (`reopen`): else nobody waits there for what that holds.
If that fails after CONNECT, the broker keeps an empty session. `_bare` names the sessions that may
be so: they are subscribed again. A file (`reopening`) says it to the process that comes after one
that was killed meanwhile.

One whose CONNECT said for how long ends so many seconds after its connection. That is counted by a
clock that only rises; over a restart by the time of day, and never for longer than that interval.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sealmq.audit import Audit
from sealmq.loops import first_error
from sealmq.plain import plain
from sealmq.site.layout import write_atomically
from sealmq.store import (
    KeptGone,
    KeptLeft,
    KeptSession,
    KeptSub,
    KeptSubs,
    StoreError,
    StoreRecord,
)
from sealmq.store.records import NEVER

from .core.denied import DeniedByRule
from .core.effects import LOST, MAYBE, SURE, BrokerAway
from .core.keyring import Client
from .core.site import Site
from .shared import SharedStore

log = logging.getLogger("sealmq.mediator")

Key = tuple[int, str]
Again = Callable[[str, Callable[[bool], Awaitable[Sequence[tuple[str, int]]]]], Awaitable[int]]
"""Opens a session at the broker as its client would, has it subscribe to what is given for whether
the broker had it, and leaves it there; how many filters the broker refused. Raises BrokerAway."""

_AGAIN_S = 30.0
# How many are opened at a time: each is a connection to the broker.
_AT_ONCE = 16
# A life of the broker in which no session began here.
_UNSEEN = -1


class KeptSessions:
    """What the store knows of them, and their end.

    `forget(broker's client id)` makes the broker forget a session; it raises BrokerAway. `there`:
    whether the broker is. `losses`: how often it was lost until now. `again`: as in Again.
    `answers` returns if the broker does, and raises BrokerAway. `now`: the clock of `saved`.
    `wall`: Unix seconds. `reopening`: a file that is there as long as `reopen` has not given all
    that it has to.
    """

    def __init__(
        self,
        site: Site,
        store: SharedStore,
        audit: Audit,
        forget: Callable[[str], Awaitable[None]],
        there: Callable[[], bool],
        losses: Callable[[], int],
        again: Again,
        answers: Callable[[], Awaitable[object]],
        reopening: Path,
        now: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._site, self._store, self._audit = site, store, audit
        self._forget, self._there, self._losses = forget, there, losses
        self._again, self._answers, self._now, self._wall = again, answers, now, wall
        self._reopening = reopening
        self._kept: dict[Key, int] = {}
        # Of those that a clock ends: the interval; and when, of those without a connection.
        self._expiry: dict[Key, int] = {}
        self._ends: dict[Key, float] = {}
        # Of these the store does not know yet when they end.
        self._untold: set[Key] = set()
        self._telling: asyncio.Task[None] | None = None
        for row in store.kept():
            self._begin(row)
        # The broker may have these without their filters. The process before this one may have
        # been killed while it opened any of them.
        self._bare: set[Key] = set(self._kept) if reopening.exists() else set()
        # Of those that began at the broker while this runs: how often it had been lost by then.
        self._began: dict[Key, int] = {}
        # What the broker may not have saved: filters, and "" for the session, with the time since
        # which it has them. None: all of them, since nobody knows what was before this began.
        self._young: dict[Key, dict[str, float]] | None = None
        self._ending: dict[Key, asyncio.Task[None]] = {}
        # Rows that are on their way to the disk: until then nobody goes by them.
        self._writing: dict[Key, asyncio.Task[None]] = {}
        # Sessions that should have ended at the broker and have not, with the client's name.
        self.stuck: dict[Key, str] = {}
        self._later: asyncio.TimerHandle | None = None
        self._sweeping: asyncio.Task[None] | None = None

    def _begin(self, row: KeptSession) -> None:
        key = row.client, row.client_id
        self._kept[key] = row.gen
        if row.expiry == NEVER:
            return
        left = min(max(row.ends - self._wall(), 0.0), row.expiry) if row.ends else row.expiry
        self._expiry[key] = row.expiry
        self._ends[key] = self._now() + left
        if not row.ends:
            self._untold.add(key)

    async def prepare(
        self, client: Client, gen: int, client_id: str, clean: bool, expiry: int = NEVER
    ) -> bool:
        """Before the session's own link is opened: ends a session there that belongs to an older
        secret, or in whose place a clean one comes; and has the store note a kept one, so that it
        can be ended some day. Whether the store knew it already. Raises BrokerAway,
        StoreUnavailable; DeniedByRule for one more than [limits] lets a client have.
        """
        key = client.number, client_id
        await self._written(key)
        held = self._kept.get(key)
        if clean:
            if held is not None:
                await self._end(key, held)
            return False
        if held is None or held <= client.ended or self._expired(key):
            # The store knows of none. The broker may have one, if the store was lost or restored.
            await self._end(key, held or 0)
            await self._written(key)
        known = key in self._kept
        if not known:
            self._check_room(client)
        held_for = self._expiry.get(key, NEVER)
        if self._kept.get(key) != gen or held_for != expiry or key in self._ends:
            await self._keep(key, gen, expiry)
        return known

    def _check_room(self, client: Client) -> None:
        most = self._site.config.limits.sessions
        rows = self._kept.items()
        if sum(n == client.number and gen > client.ended for (n, _), gen in rows) >= most:
            raise DeniedByRule(
                f"the broker keeps {most} sessions of this client, and more are not kept ([limits] "
                "sessions); a clean session under one of their client identifiers ends that one",
                "mediator.connect.sessions-full",
            )

    async def subscriptions(self, key: Key, gen: int, known: bool, present: bool) -> list[KeptSub]:
        """The subscriptions of a session that the broker has opened. If it had forgotten the
        session, they go from the store; if it may have it without them, they do not stand at the
        broker (KeptSub.at). Raises StoreUnavailable.
        """
        records: list[StoreRecord] = [KeptSubs(*key)] if known and present else []
        if known and not present:
            expiry = self._expiry.get(key, NEVER)
            records = [KeptGone(*key, gen), KeptSession(*key, gen, expiry)]
        if not present:
            self.changed(key, ("",))
        try:
            held = await self._store.commit(records) if records else []
        except StoreError:
            if known and not present:
                # Else it would be found there the next time, without what the store still has.
                self._bare.add(key)
                with contextlib.suppress(BrokerAway):
                    await self._forget(self._site.broker_id(*key))
            raise
        subs = [sub for h in held if isinstance(h.record, KeptSubs) for sub in h.record.subs]
        if subs and key in self._bare:
            subs = [replace(sub, at="") for sub in subs]
            await self._store.commit(subs)
        self._bare.discard(key)
        return subs

    def doubt(self, key: Key) -> None:
        """Nobody knows whether the broker has begun this session, which the store knows: it was
        asked to, and its answer did not come."""
        self._bare.add(key)

    def doubtful(self, key: Key, present: bool) -> int:
        """As in effects.Opened. `present`: whether the broker had the session."""
        losses = self._losses()
        if not present:
            self._began[key] = losses
        began = self._began.get(key)
        if began is None:
            return MAYBE
        return SURE if began == losses else LOST

    # --- a broker that was lost ---

    def changed(self, key: Key, filters: Iterable[str]) -> None:
        """The broker has these filters of a kept session now; "": the session itself."""
        if self._young is not None:
            self._young.setdefault(key, {}).update(dict.fromkeys(filters, self._now()))

    def saved(self, before: float) -> None:
        """What the broker had at that time is on its disk."""
        for key, filters in list((self._young or {}).items()):
            left = {name: at for name, at in filters.items() if at > before}
            if self._young is not None and len(left) < len(filters):
                self._young[key] = left
                if not left:
                    del self._young[key]

    async def reopen(self, everything: bool = False) -> None:
        """Gives the broker, which is back, the sessions and subscriptions that it may have lost;
        any of them, if `everything`.

        The client of one that was lost finds it present, and its packet ids in doubt. One that is
        still there gets filters that are known to be young, and no others: with each SUBSCRIBE the
        broker queues all that is retained there once more. After a restart of this process all that
        the broker has is young: only saves from then on are seen. Raises BrokerAway; then it is all
        to be done once more.
        """
        young = None if everything else self._young
        keys = [
            key
            for key, gen in self._kept.items()
            if (young is None or key in young or key in self._bare) and not self._is_over(key, gen)
        ]
        if keys:
            self._says_that_it_reopens(True)
        slots = asyncio.Semaphore(_AT_ONCE)

        async def one(key: Key) -> tuple[bool, Iterable[str]]:
            async with slots:
                return await self._reopened(key, None if young is None else young.get(key, {}))

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(key), name="kept session") for key in keys]
        except BaseExceptionGroup as errors:
            error = first_error(errors)
            if isinstance(error, StoreError):
                raise BrokerAway(f"what it has lost is not known: {error}") from None
            raise error from None
        self._young = {} if self._young is None else self._young
        losses = 0
        for key, task in zip(keys, tasks, strict=True):
            lost, unsaved = task.result()
            if lost:
                losses += 1
                self._began[key] = _UNSEEN
            self.changed(key, unsaved)
        if keys:
            self._says_that_it_reopens(False)
        if losses:
            log.warning("the broker had lost %d kept sessions; it has them again", losses)

    def _says_that_it_reopens(self, on: bool) -> None:
        try:
            if on:
                write_atomically(self._reopening, b"", 0o600)
            else:
                self._reopening.unlink(missing_ok=True)
        except OSError as error:  # say a full disk: it only helps who comes after a kill
            log.warning("%s: %s", self._reopening, error.strerror)

    # Whether the broker had lost it, and what of it the broker has now, perhaps not saved. young:
    # None if nobody knows what was saved before.
    async def _reopened(
        self, key: Key, young: Mapping[str, float] | None
    ) -> tuple[bool, Iterable[str]]:
        lost = False
        all_: dict[str, int] = {}

        async def filters(present: bool) -> list[tuple[str, int]]:
            nonlocal lost
            if not present:
                self._bare.add(key)
            lost = key in self._bare
            held = await self._store.commit([KeptSubs(*key)])
            for h in held:
                for sub in h.record.subs if isinstance(h.record, KeptSubs) else ():
                    # As the broker had it: once, at the highest QoS.
                    if sub.at:
                        all_[sub.at] = max(sub.qos, all_.get(sub.at, 0))
            return [(at, qos) for at, qos in all_.items() if lost or at in (young or ())]

        text = plain(key[1], 100)
        try:
            refused = await self._again(self._site.broker_id(*key), filters)
        except BrokerAway as error:
            # One that the broker does not take holds up nobody else; but it may have been lost.
            self._bare.add(key)
            await self._answers()
            log.warning("client %d: session '%s' is not opened again: %s", key[0], text, error)
            return True, ("",)
        self._bare.discard(key)
        if refused:
            log.warning("client %d: session '%s': %d filters refused", key[0], text, refused)
        return lost, ["", *all_] if lost or young is None else list(young)

    # An earlier connection may have ended while it waited for this. The disk may have failed it.
    async def _written(self, key: Key) -> None:
        while (writing := self._writing.get(key)) is not None:
            await asyncio.wait({writing})

    async def _keep(self, key: Key, gen: int, expiry: int) -> None:
        work = self._write(key, gen, expiry)
        task = self._writing[key] = asyncio.get_running_loop().create_task(work)

        def over(task: asyncio.Task[None]) -> None:
            del self._writing[key]
            if not task.cancelled():
                task.exception()

        task.add_done_callback(over)
        await asyncio.shield(task)

    async def _write(self, key: Key, gen: int, expiry: int) -> None:
        rows: list[dict[Key, Any]] = [self._kept, self._expiry, self._ends]
        before = [row.get(key) for row in rows]
        # At once: no clock ends it while this is written.
        self._forgets(key)
        self._kept[key] = gen
        if expiry != NEVER:
            self._expiry[key] = expiry
        try:
            await self._store.commit([KeptSession(*key, gen, expiry)])
        except StoreError:
            self._forgets(key)
            for row, value in zip(rows, before, strict=True):
                if value is not None:
                    row[key] = value
            self._untold |= {key} & self._ends.keys()
            raise

    def _forgets(self, key: Key) -> None:
        self._kept.pop(key, None)
        self._expiry.pop(key, None)
        self._ends.pop(key, None)
        self._untold.discard(key)

    # --- what a clock ends ---

    def left(self, key: Key) -> None:
        """The newest connection of this session is over."""
        expiry = self._expiry.get(key)
        if expiry is not None and key not in self._ends:
            self._ends[key] = self._now() + expiry
            self._untold.add(key)

    def _expired(self, key: Key) -> bool:
        return self._ends.get(key, math.inf) <= self._now()

    def tick(self) -> None:
        """About once a second: ends what is over, and has the store note what will be."""
        idle = self._sweeping is None or self._sweeping.done()
        if idle and self._there() and any(self._expired(k) for k in self._ends.keys() - self.stuck):
            self.sweep()
        if self._untold and (self._telling is None or self._telling.done()):
            loop = asyncio.get_running_loop()
            self._telling = loop.create_task(self.tell(), name="sessions that end")

    async def tell(self) -> None:
        """The store is told when sessions end that it does not know of yet."""
        untold, self._untold = self._untold, set()
        ahead = self._wall() - self._now()
        records: list[StoreRecord] = [
            KeptLeft(*key, self._kept[key], math.ceil(self._ends[key] + ahead))
            for key in untold
            if key in self._kept and key in self._ends
        ]
        try:
            if records:
                await self._store.commit(records)
        except StoreError:
            self._untold |= untold & self._ends.keys()

    # --- what is over ---

    def sweep(self) -> None:
        """Ends at the broker what belongs to generations that are over, each session by itself.

        One that cannot be ended is named, and tried again.
        """
        before = self._sweeping

        async def work() -> None:
            if before is not None:
                await asyncio.wait({before})
            await self._sweep()

        self._sweeping = asyncio.get_running_loop().create_task(work(), name="old sessions")

    async def _sweep(self) -> None:
        for key, gen in list(self._kept.items()):
            if not self._there():
                return  # this begins anew when the broker is back
            if self._kept.get(key) != gen or not self._is_over(key, gen):
                continue
            if self._expired(key):
                text = plain(key[1], 100)
                log.info("client %d: its session '%s' is over, after %d s without a connection",
                         key[0], text, self._expiry[key])  # fmt: skip
            try:
                await self._end(key, gen)
            except (BrokerAway, StoreError) as error:
                if self._there():
                    self._stuck(key, str(error))
        # Ended since, or not to be ended any more.
        for key in [key for key in self.stuck if self._goes_on(key)]:
            del self.stuck[key]
        self._try_again()

    def _is_over(self, key: Key, gen: int) -> bool:
        if self._expired(key):
            return True
        if not self._site.kg_there:
            return False  # an old copy of the keys may lack clients
        client = self._site.ring.clients.get(key[0])
        return client is None or gen <= client.ended or client.disabled

    def _goes_on(self, key: Key) -> bool:
        gen = self._kept.get(key)
        return gen is None or (self._site.kg_there and not self._is_over(key, gen))

    def _stuck(self, key: Key, reason: str) -> None:
        if key in self.stuck:
            return
        client = self._site.ring.clients.get(key[0])
        name = client.name if client is not None else str(key[0])
        self.stuck[key] = name
        text = f"its session '{plain(key[1], 100)}' is not ended at the broker yet: {reason}"
        log.warning("client %s: %s; tried again every %d s", name, text, int(_AGAIN_S))
        self._audit.write("broker-away", client=name, reason=text[:500])

    def _try_again(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self.stuck:
            self._later = asyncio.get_running_loop().call_later(_AGAIN_S, self.sweep)

    # One attempt at a time for each session: a second connection would end the first one.
    async def _end(self, key: Key, gen: int) -> None:
        task = self._ending.get(key)
        if task is None:
            work = self._end_at_broker(key, gen)
            task = self._ending[key] = asyncio.get_running_loop().create_task(work)
            task.add_done_callback(lambda _: self._ending.pop(key, None))
        await asyncio.shield(task)

    async def _end_at_broker(self, key: Key, gen: int) -> None:
        await self._forget(self._site.broker_id(*key))
        self._began.pop(key, None)
        self._bare.discard(key)
        if self._young is not None:
            self._young.pop(key, None)
        await self._store.commit([KeptGone(*key, gen)])
        if self._kept.get(key) == gen:
            self._forgets(key)
