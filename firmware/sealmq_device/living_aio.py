# A client that lives, for asyncio: life.py's decisions, run by one task (`run`) over aio.Client,
# which keeps the keep alive itself. Messages come by `async for` from the client, and its events
# `up` and `down` say whether there is a session.
import asyncio

from sealmq_spec.errors import Misuse, SealError

from .life import ASK, COMMAND, CONNECT, DROP, LISTEN, PING, RESEND, SEND, WAIT, Life

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
        if what == SEND:
            return await c.publish(*arg.args)
        if what == CONNECT:
            await c.connect(self.clean)
        elif what == RESEND:
            await c.resend()
        elif what == PING:
            await c.ping()
        elif what == DROP:
            self.core._close()
            raise arg
        elif what != ASK:
            await c._clear()
            self._sync()
        elif arg[1] == COMMAND:
            await c.command(*arg[0])
        elif arg[1] < 0:
            await c.unsubscribe(arg[0])
        else:
            await c.subscribe(arg[0], arg[1])
        return 0
