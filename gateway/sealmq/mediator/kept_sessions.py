"""Sessions of (client, client id) that the broker keeps (SPEC.md 4.1).

A session at the broker belongs to a client's secret, not to its number: once the key generator has
ended a client's generations (rotated, disabled, relabelled, removed), whoever comes next must find
neither subscriptions nor queue of before. So the store knows of each kept session, and under which
generation it was proved last, and of its subscriptions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from sealmq.audit import Audit
from sealmq.plain import plain
from sealmq.store import KeptGone, KeptSession, KeptSub, KeptSubs, StoreError, StoreRecord

from .core.denied import DeniedByRule
from .core.effects import LOST, MAYBE, SURE, BrokerAway
from .core.keyring import Client
from .core.site import Site
from .shared import SharedStore

log = logging.getLogger("sealmq.mediator")

Key = tuple[int, str]

_AGAIN_S = 30.0


class KeptSessions:
    """What the store knows of them, and their end.

    `forget(broker's client id)` makes the broker forget a session; it raises BrokerAway. `there`:
    whether the broker is. `losses`: how often it was lost until now.
    """

    def __init__(
        self,
        site: Site,
        store: SharedStore,
        audit: Audit,
        forget: Callable[[str], Awaitable[None]],
        there: Callable[[], bool],
        losses: Callable[[], int],
    ) -> None:
        self._site, self._store, self._audit = site, store, audit
        self._forget, self._there, self._losses = forget, there, losses
        self._kept = {(row.client, row.client_id): row.gen for row in store.kept()}
        # Of those that began at the broker while this runs: how often it had been lost by then.
        self._began: dict[Key, int] = {}
        self._ending: dict[Key, asyncio.Task[None]] = {}
        # Sessions that should have ended at the broker and have not, with the client's name.
        self.stuck: dict[Key, str] = {}
        self._later: asyncio.TimerHandle | None = None
        self._sweeping: asyncio.Task[None] | None = None

    async def prepare(self, client: Client, gen: int, client_id: str, clean: bool) -> bool:
        """Before the session's own link is opened: ends a session there that belongs to an older
        secret, or in whose place a clean one comes; and has the store note a kept one, so that it
        can be ended some day. Whether the store knew it already. Raises BrokerAway,
        StoreUnavailable; DeniedByRule for one more than [limits] lets a client have.
        """
        key = client.number, client_id
        held = self._kept.get(key)
        if clean:
            if held is not None:
                await self._end(key, held)
            return False
        if held is None or held <= client.ended:
            # The store knows of none. The broker may have one, if the store was lost or restored.
            await self._end(key, held or 0)
        known = key in self._kept
        if not known:
            self._check_room(client)
        if self._kept.get(key) != gen:
            await self._keep(key, gen)
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
        session, they go from the store. Raises StoreUnavailable.
        """
        records: list[StoreRecord] = [KeptSubs(*key)] if known and present else []
        if known and not present:
            records = [KeptGone(*key, gen), KeptSession(*key, gen)]
        held = await self._store.commit(records) if records else []
        return [sub for h in held if isinstance(h.record, KeptSubs) for sub in h.record.subs]

    def doubtful(self, key: Key, present: bool) -> int:
        """As in effects.Opened. `present`: whether the broker had the session."""
        losses = self._losses()
        if not present:
            self._began[key] = losses
        began = self._began.get(key)
        if began is None:
            return MAYBE
        return SURE if began == losses else LOST

    async def _keep(self, key: Key, gen: int) -> None:
        before = self._kept.get(key)
        self._kept[key] = gen
        try:
            await self._store.commit([KeptSession(*key, gen)])
        except StoreError:
            if before is None:
                self._kept.pop(key, None)
            else:
                self._kept[key] = before
            raise

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
        if not self._site.kg_there:
            return  # an old copy of the keys may lack clients
        for key, gen in list(self._kept.items()):
            if not self._there():
                return  # this begins anew when the broker is back
            if self._kept.get(key) != gen or not self._is_over(key, gen):
                continue
            try:
                await self._end(key, gen)
            except (BrokerAway, StoreError) as error:
                if self._there():
                    self._stuck(key, str(error))
        # Ended since, or not to be ended any more.
        for key in [key for key in self.stuck if not self._is_over(key, self._kept.get(key))]:
            del self.stuck[key]
        self._try_again()

    def _is_over(self, key: Key, gen: int | None) -> bool:
        client = self._site.ring.clients.get(key[0])
        if gen is None:
            return False
        return client is None or gen <= client.ended or client.disabled

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
        await self._store.commit([KeptGone(*key, gen)])
        if self._kept.get(key) == gen:
            del self._kept[key]
