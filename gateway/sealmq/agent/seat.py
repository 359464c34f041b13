"""A local client's place at the site: a connection of its own, whose session and will the site
keeps. Only who reads, has a will, or a session that is kept takes one.

A site sends a will at once. So one that is to wait (MQTT 5) is waited with, and the place is held:
it ends with a goodbye if the client returns, and without one if not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from sealmq.client import Client, ClientError, NotAuthorised
from sealmq_spec.errors import SealError

from .account import SEATS, Account
from .wire import FOREVER, LastWill, Refusal

log = logging.getLogger("sealmq.agent")


class Seat:
    """client: its connection to the site, None while it has none; kept: whether its session
    outlives that. on_state, on_release: told of what becomes of the connection, and of PUBRELs.
    """

    def __init__(
        self,
        account: Account,
        client_id: str,
        on_state: Callable[[str], None],
        on_release: Callable[[int], None],
    ) -> None:
        self._account, self._client_id = account, client_id
        self._on_state, self._on_release = on_state, on_release
        self.client: Client | None = None
        self.kept = False

    @property
    def present(self) -> bool:
        """Whether the site had the session still."""
        return self.client is not None and self.client.present

    async def take(
        self, kept: bool = False, expiry: int = FOREVER, will: LastWill | None = None
    ) -> Refusal | None:
        """Connect; why it cannot be."""
        account = self._account
        if account.seats >= SEATS:
            why = f"{SEATS} clients of {account.user.name} read already; the site takes no more"
            return Refusal("much", "agent.clients", why)
        account.seats += 1
        seconds = expiry if kept and expiry < FOREVER else None
        client = account.reader(
            self._client_id, kept, seconds, will, self._on_state, self._on_release
        )
        try:
            await account.enter(client)
        except (ClientError, SealError) as error:
            account.seats -= 1
            with contextlib.suppress(ClientError, SealError):
                await client.disconnect()
            return _refused(error)
        except BaseException:
            account.seats -= 1
            raise
        self.client, self.kept = client, kept
        return None

    async def leave(self, goodbye: bool = True) -> None:
        """Disconnect; without a goodbye the site sends the will."""
        client, self.client = self.client, None
        if client is not None:
            self._account.seats -= 1
            await client.disconnect(goodbye=goodbye)

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
    """A will that is to wait, from CONNECT on: until its client returns, or its time has come."""

    def __init__(self, account: Account, client_id: str, seat: Seat, seconds: int) -> None:
        self._account, self._client_id = account, client_id
        self._seat, self._seconds = seat, seconds
        self._returned: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        account.delays[client_id] = self

    async def returned(self, goes_on: bool) -> None:
        """Its client has come again. goes_on: with this session; else its end sends the will."""
        if not self._returned.done():
            self._returned.set_result(goes_on)
        await self._over.wait()

    async def vanished(self, expiry: int) -> None:
        """Its client has ended without a goodbye. expiry: for how long the session is kept."""
        seconds = min(self._seconds, expiry)
        goes_on = timed_out = False
        try:
            async with asyncio.timeout(seconds):
                goes_on = await asyncio.shield(self._returned)
        except TimeoutError:
            timed_out = True
        finally:
            # Also where the agent ends: the will is not lost.
            await self._end(goes_on)
        # A client that came meanwhile has the session, and says itself how long it is kept.
        if timed_out and expiry < FOREVER and not self._returned.done():
            await self._seat.keep_for(expiry - seconds)

    async def left(self) -> None:
        """Its client has said goodbye: its will is not sent."""
        await self._end(True)

    async def _end(self, goodbye: bool) -> None:
        try:
            await self._seat.leave(goodbye)
        finally:
            if self._account.delays.get(self._client_id) is self:
                del self._account.delays[self._client_id]
            self._over.set()
