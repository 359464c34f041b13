# A client that lives, for asyncio: life.py's decisions, run by one task (`run`) over aio.Client,
# which keeps the keep alive itself. Messages come by `async for` from the client, and its events
# `up` and `down` say whether there is a session.
import asyncio

from sealmq_spec.errors import Misuse, SealError

from .life import DROP, LISTEN, SEND, SYNC, WAIT, Life

_TYPING = False
if _TYPING:
    from typing import Any

    from .aio import Client


class Living(Life):
    # client: of aio.py, with a keepalive. The rest as Life has it.
    def __init__(self, client: "Client", *args: "Any", **kw: "Any") -> None:
        self.client = client
        self._begin(client.core, 0, *args, **kw)

    def _poke(self) -> None:
        changed = self.client._changed
        changed.set()
        changed.clear()

    def _lost(self) -> bool:
        return self.client.down.is_set()

    # For ever. Cancelled, it leaves the session as it is: see disconnect().
    async def run(self) -> None:
        while True:
            await self.turn()

    # One turn: waits at most ms, or does one thing that takes as long as the network lets it.
    async def turn(self, ms: int = 1000) -> None:
        client = self.client
        what, arg = self.next(self.core.mono())
        got = 1
        error: "Exception | None" = None
        if what == WAIT or what == LISTEN:
            try:
                await asyncio.wait_for(client._changed.wait(), min(arg, ms) / 1000)
            except asyncio.TimeoutError:
                pass
        else:
            try:
                got = await self._do(what, arg)
            except Misuse:
                raise
            except (OSError, SealError) as caught:
                error = caught
        # The link may be joining anew: what that is about to subscribe is its own until then.
        while client._busy:
            await client._changed.wait()
        if error is None and self._lost():
            error = client.error
        if what != WAIT:
            self.came(what, arg, got, error)
        self._turned()

    # Ends the session properly: no will is published. run() would begin another one.
    async def disconnect(self) -> None:
        self.up = False
        await self.client.disconnect()

    async def _do(self, what: int, arg: "Any") -> int:
        c = self.client
        if what == DROP:
            self.core._close()
            raise arg
        if what == SYNC:
            await c._clear()
            self._sync()
            return 0
        name, args = self._call(what, arg)
        got = await getattr(c, name)(*args)
        return got if what == SEND else 0
