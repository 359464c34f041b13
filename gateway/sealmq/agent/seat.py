"""A local client's place at the site: a connection of its own, whose session and will the site
keeps. Only who reads, has a will, or a session that is kept takes one.

A site sends a will at once. So one that is to wait (MQTT 5) is waited with, and the place is held:
it ends with a goodbye if the client returns, and without one if not. Where all places are taken and
a client comes that needs one, the will that has waited longest goes before its time: its client is
gone, and that is what it says.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from sealmq.client import Client, ClientError, NotAuthorised, Refused
from sealmq_spec.errors import SealError

from .account import SEATS, Account
from .wire import FOREVER, LastWill, Refusal

log = logging.getLogger("sealmq.agent")


class Seat:
    """client: its connection to the site, None while it has none; kept: whether its session
    outlives that. on_state, on_release, on_lost: told of what becomes of the connection, of PUBRELs
    and of subscriptions that a new connection does not have.
    """

    def __init__(
        self,
        account: Account,
        client_id: str,
        on_state: Callable[[str], None],
        on_release: Callable[[int], None],
        on_lost: Callable[[Refused], None],
    ) -> None:
        self._account, self._client_id = account, client_id
        self._on_state, self._on_release, self._on_lost = on_state, on_release, on_lost
        self.client: Client | None = None
        self.kept = False
        self._placed = False

    @property
    def present(self) -> bool:
        """Whether the site had the session still."""
        return self.client is not None and self.client.present

    async def take(
        self, kept: bool = False, expiry: int = FOREVER, will: LastWill | None = None
    ) -> Refusal | None:
        """Connect; why it cannot be."""
        account = self._account
        if not self._placed and (refusal := await self._place()):
            return refusal
        seconds = expiry if kept and expiry < FOREVER else None
        client = account.reader(
            self._client_id,
            kept,
            seconds,
            will,
            self._on_state,
            self._on_release,
            self._on_lost,
        )
        try:
            await account.enter(client)
        except (ClientError, SealError) as error:
            self.release()
            with contextlib.suppress(ClientError, SealError):
                await client.disconnect()
            return _refused(error)
        except BaseException:
            self.release()
            raise
        self.client, self.kept = client, kept
        return None

    async def _place(self) -> Refusal | None:
        account = self._account
        while account.seats >= SEATS:
            oldest = next(iter(account.waiting), None)
            if oldest is None:
                why = f"{SEATS} clients of {account.user.name} read already; the site takes no more"
                return Refusal("much", "agent.clients", why)
            await oldest.at_once()
        account.seats += 1
        self._placed = True
        return None

    async def leave(self, goodbye: bool = True, hold: bool = False) -> None:
        """Disconnect; without a goodbye the site sends the will. hold: the place is wanted again,
        and taken or released by whoever says so."""
        client, self.client = self.client, None
        try:
            if client is not None:
                await client.disconnect(goodbye=goodbye)
        finally:
            if not hold:
                self.release()

    def release(self) -> None:
        """The place is another client's to take."""
        if self._placed:
            self._placed = False
            self._account.seats -= 1

    async def keep_for(self, seconds: int) -> None:
        """The site is told by a CONNECT for how long it keeps the session from now on: no seal
        covers a DISCONNECT. 0: one that is not kept takes its place."""
        refusal = await self.take(seconds > 0, seconds)
        if refusal is not None:
            log.warning("%s", f"{self._client_id}: the site keeps its session as before: {refusal}")
        if not seconds:
            self._account.sessions.forget(self._client_id)
        await self.leave()


def _refused(error: ClientError | SealError) -> Refusal:
    if isinstance(error, NotAuthorised):
        why = (
            "the site refuses it: its broker keeps no sessions, or has as many as [limits] "
            "sessions lets it have, the will is not allowed, or the client is disabled; "
            "the site's log says which"
        )
        return Refusal("denied", "agent.connect", why)
    if isinstance(error, SealError):
        return Refusal.of(error)
    return Refusal("away", "agent.away", str(error))


class Delay:
    """A will that is to wait, from CONNECT on: until its client returns, its time has come, or its
    place is wanted."""

    def __init__(self, account: Account, client_id: str, seat: Seat, seconds: int) -> None:
        self._account, self._client_id = account, client_id
        self._seat, self._seconds = seat, seconds
        # Whether it goes on with the session; None: it is gone still.
        self._returned: bool | None = None
        self._enough = asyncio.Event()
        self._over = asyncio.Event()
        account.delays[client_id] = self

    async def returned(self, goes_on: bool) -> None:
        """Its client has come again. goes_on: with this session; else its end sends the will."""
        if self._returned is None:
            self._returned = goes_on
        self._enough.set()
        await self._over.wait()

    async def at_once(self) -> None:
        """Another client needs its place. Returns when that is free."""
        self._account.waiting.pop(self, None)
        self._enough.set()
        await self._over.wait()

    async def vanished(self, expiry: int) -> None:
        """Its client has ended without a goodbye. expiry: for how long the session is kept."""
        seat, clock = self._seat, asyncio.get_running_loop().time
        began, longest = clock(), min(self._seconds, expiry)
        # How long it has waited; None: not to its end, since the agent ends.
        waited: int | None = None
        self._account.waiting[self] = None
        try:
            async with asyncio.timeout(longest):
                await self._enough.wait()
            waited = int(clock() - began)
        except TimeoutError:
            waited = longest
        finally:
            self._account.waiting.pop(self, None)
            try:
                # The will goes out also where the agent is told to end: nobody would send it later.
                await seat.leave(self._returned is True, hold=True)
                # A client that came meanwhile has the session, and says how long it is kept.
                if self._returned is None and waited is not None and expiry < FOREVER:
                    await seat.keep_for(expiry - waited)
            finally:
                self._end()

    async def left(self, hold: bool = False) -> None:
        """Its client has said goodbye: its will is not sent. hold: as in Seat.leave."""
        try:
            await self._seat.leave(hold=hold)
        finally:
            self._end(hold)

    def _end(self, hold: bool = False) -> None:
        if not hold:
            self._seat.release()
        if self._account.delays.get(self._client_id) is self:
            del self._account.delays[self._client_id]
        self._over.set()
