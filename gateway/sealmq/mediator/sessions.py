"""Sessions of (client, client id) that the broker keeps (SPEC.md 4.1).

A session at the broker belongs to a client's secret, not to its number: once the key generator has
ended a client's generations (rotated, disabled, relabelled, removed), whoever comes next must find
neither subscriptions nor queue of before. So the store knows of each kept session, and under which
generation it was proved last, and of its subscriptions (keptsubs.py).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from sealmq.plain import plain
from sealmq.store import KeptGone, KeptSession, KeptSub, KeptSubs, StoreError, StoreRecord

from .core.keyring import Client
from .core.ruled import Ruled
from .upstream import BrokerAway, Upstream

if TYPE_CHECKING:
    from .hub import Hub

log = logging.getLogger("sealmq.mediator")

Key = tuple[int, str]

_AGAIN_S = 30.0


class Sessions:
    """What the store knows of them, and their end."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._kept = {(row.client, row.client_id): row.gen for row in hub.store.kept()}
        self._ending: dict[Key, asyncio.Task[None]] = {}
        # What should have ended at the broker and has not: the client's name.
        self.stuck: dict[Key, str] = {}
        self._later: asyncio.TimerHandle | None = None

    def upstream_id(self, client: int, client_id: str) -> str:
        """The client identifier at the broker: no two sites or clients share one."""
        return f"sealmq/{self._hub.ring.site.hex()}/{client}/{client_id}"

    def kept(self, client: int, client_id: str) -> bool:
        """Whether the broker should have a session of this identifier."""
        return (client, client_id) in self._kept

    async def prepare(self, client: Client, gen: int, client_id: str, clean: bool) -> bool:
        """Before the broker is reached: an older secret's session has ended there, and the store
        knows that there will be one to end some day. Whether it knew this one already. Raises
        BrokerAway, StoreUnavailable; Ruled for one more than [limits] lets a client have.
        """
        key = client.number, client_id
        held = self._kept.get(key)
        if not clean and (held is None or held <= client.ended):
            # None: the broker has none, but where the store was lost, or is an older one again.
            await self._end(key, held or 0)
        known = key in self._kept
        if not clean and not known:
            self._check_room(client)
        if not clean and self._kept.get(key) != gen:
            await self._keep(key, gen)
        return known

    def _check_room(self, client: Client) -> None:
        most = self._hub.config.limits.sessions
        rows = self._kept.items()
        if sum(n == client.number and gen > client.ended for (n, _), gen in rows) >= most:
            raise Ruled(
                f"the broker keeps {most} sessions of this client, and more are not kept ([limits] "
                "sessions); a clean session under one of their client identifiers ends that one",
                "mediator.connect.sessions-full",
            )

    async def subscriptions(self, key: Key, gen: int, known: bool, present: bool) -> list[KeptSub]:
        """Once the broker has it: the session's subscriptions. Those that the broker has forgotten
        go from the store. Raises StoreUnavailable.
        """
        if self._kept.get(key) != gen:  # a clean session was opened meanwhile, and ended by this
            await self._keep(key, gen)
        records: list[StoreRecord] = [KeptSubs(*key)] if known and present else []
        if known and not present:
            records = [KeptGone(*key, gen), KeptSession(*key, gen)]
        held = await self._hub.store.commit(records) if records else []
        return [sub for h in held if isinstance(h.record, KeptSubs) for sub in h.record.subs]

    # Known before it is written: what takes the one before away (_forget) may come behind this.
    async def _keep(self, key: Key, gen: int) -> None:
        before = self._kept.get(key)
        self._kept[key] = gen
        try:
            await self._hub.store.commit([KeptSession(*key, gen)])
        except StoreError:
            if before is None:
                self._kept.pop(key, None)
            else:
                self._kept[key] = before
            raise

    def cleaned(self, client: int, client_id: str) -> None:
        """A clean session was opened: the broker has thrown away what it kept."""
        gen = self._kept.pop((client, client_id), None)
        if gen is not None:
            self._hub.spawn(self._forget((client, client_id), gen), f"session of {client}")

    async def sweep(self) -> None:
        """Ends at the broker what belongs to generations that are over, each session by itself.

        One that cannot be ended is named, and tried again.
        """
        hub = self._hub
        if hub.kg is None:
            return  # an old copy of the keys does not know of everybody
        for key, gen in list(self._kept.items()):
            if not hub.house.connected:
                return  # begun anew when the broker is back
            if self._kept.get(key) != gen or not self._is_over(key, gen):
                continue
            try:
                await self._end(key, gen)
            except (BrokerAway, StoreError) as error:
                if hub.house.connected:
                    self._stuck(key, str(error))
        # Ended since, or not to be ended any more.
        for key in [key for key in self.stuck if not self._is_over(key, self._kept.get(key))]:
            del self.stuck[key]
        self._try_again()

    def _is_over(self, key: Key, gen: int | None) -> bool:
        client = self._hub.ring.clients.get(key[0])
        if gen is None:
            return False
        return client is None or gen <= client.ended or client.disabled

    def _stuck(self, key: Key, reason: str) -> None:
        if key in self.stuck:
            return
        hub = self._hub
        client = hub.ring.clients.get(key[0])
        name = client.name if client is not None else str(key[0])
        self.stuck[key] = name
        text = f"its session '{plain(key[1], 100)}' is not ended at the broker yet: {reason}"
        log.warning("client %s: %s; tried again every %d s", name, text, int(_AGAIN_S))
        hub.audit.write("broker-away", client=name, reason=text[:500])

    def _try_again(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self.stuck:
            loop = asyncio.get_running_loop()
            self._later = loop.call_later(
                _AGAIN_S, lambda: self._hub.spawn(self.sweep(), "old sessions")
            )

    # Once at a time for each session: a second connection would throw the first one out.
    async def _end(self, key: Key, gen: int) -> None:
        task = self._ending.get(key)
        if task is None:
            work = self._end_at_broker(key, gen)
            task = self._ending[key] = asyncio.get_running_loop().create_task(work)
            task.add_done_callback(lambda _: self._ending.pop(key, None))
        await asyncio.shield(task)

    async def _end_at_broker(self, key: Key, gen: int) -> None:
        upstream = Upstream(lambda packet: None, lambda reason: None)
        await upstream.open(self._hub.broker, self.upstream_id(*key), clean=True)
        upstream.close()
        await self._hub.store.commit([KeptGone(*key, gen)])
        if self._kept.get(key) == gen:
            del self._kept[key]

    async def _forget(self, key: Key, gen: int) -> None:
        # There may be the next one already, which has no subscriptions yet.
        after = self._kept.get(key)
        records: list[StoreRecord] = [KeptGone(*key, gen)]
        if after is not None:
            records = [KeptGone(*key, after), KeptSession(*key, after)]
        try:
            await self._hub.store.commit(records)
        except StoreError as error:
            log.info("a session of client %d stays in the store: %s", key[0], error)
