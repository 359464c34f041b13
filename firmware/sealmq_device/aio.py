# The asyncio client: the blocking one's core, with waiting done by tasks. One of them, the link,
# reads and keeps up (tasks.py). All others wait for nothing but events (waits.py), so cancelling
# one of them disturbs no other, and never a packet: what is sealed is written in the same step
# (wire.py).
#
# What blocks: the look-up of the mediator's name, the store, ciphers.
import asyncio
import errno

from sealmq_spec.errors import Misuse, SealError, WrongEpoch, from_notice

from .client import PUBACK, UNACKED
from .incoming import LAST_CTR
from .subscribing import subscribing, to_filter
from .tasks import OPENED, Tasks
from .waits import Core, Wait, pulse

_TYPING = False
if _TYPING:
    from collections.abc import Mapping
    from typing import Any

    from sealmq_spec.reader import Message

    from .link import Steps


class Client(Tasks):
    reserve = Core.reserve
    release = Core.release
    presubscribe = Core.presubscribe
    _for = Core._for

    # As the blocking Client's. With a keepalive, pings are sent and a silent peer is left.
    def __init__(self, *args: "Any", **kw: "Any") -> None:
        core = Core(*args, **kw)
        Tasks.__init__(self, core)
        core.mail = asyncio.Event()
        self._resends = False
        # As in the blocking Client.
        self.refused = core.refused
        self.notices = core.notices
        self.unacked = core.unacked
        self.set_last_will = core.set_last_will
        self.now_ms = core.now_ms
        self.has_kg_time = core.has_kg_time
        self.receipted = core.receipted

    # --- for the application ---

    # As the blocking Client's.
    async def connect(self, clean_session: bool = True) -> bool:
        if self._busy:
            raise Misuse("another task connects already")
        self.core._close()
        self._busy = True
        wait = self._expect(OPENED, 0, 0, b"")
        self._link = asyncio.create_task(self._lives(clean_session))
        self._watch = asyncio.create_task(self._watches())
        try:
            await wait.event.wait()
        except asyncio.CancelledError:
            self._over(asyncio.CancelledError())
            raise
        if wait.error is not None:
            raise wait.error
        present: bool = wait.got
        return present

    # As the blocking Client's. Waits while earlier packets are still going out, and with QoS 1 for
    # this message's own PUBACK. Cancelled, it may have been published.
    async def publish(
        self,
        topic: "str | bytes",
        msg: "bytes | str",
        retain: bool = False,
        qos: int = 0,
        life: int = 0,
        tlv: "Mapping[int, bytes] | None" = None,
    ) -> int:
        core = self.core
        again = False
        while True:
            await self._clear()
            ctr = core.publish(topic, msg, retain, qos, life, tlv)
            self._keep.sent(core.mono())
            if not qos:
                return ctr
            pid = core.pid
            raw = bytes(core._out[core._sent : core._sent + core._size])
            wait = self._expect(PUBACK << 16 | pid, ctr, pid, raw)
            wait.epoch = core.ident.own.epoch
            got = await self._ended(wait)
            if not isinstance(got, tuple):
                return ctr
            error = from_notice(got)
            if again or not isinstance(error, WrongEpoch) or core.ident.own.epoch == wait.epoch:
                raise error
            # It was not forwarded: published anew, once, under the roots of the new epoch.
            again = True

    async def subscribe(
        self, topic: "str | bytes", qos: int = 0, purpose: "str | None" = None
    ) -> int:
        if purpose is not None:
            topic = self._for(topic, purpose)
        filt = to_filter(topic)
        if qos != 0 and qos != 1:
            raise Misuse("QoS is 0 or 1")
        await self._clear()
        granted: int = await self._asks(subscribing(self.core, filt, qos))
        return granted

    async def unsubscribe(self, topic: "str | bytes", purpose: "str | None" = None) -> None:
        if purpose is not None:
            topic = self._for(topic, purpose)
        filt = to_filter(topic)
        await self._clear()
        await self._asks(self.core._unsubscribing(filt))

    # As the blocking Client's; reserve, release and presubscribe give this one's coroutine.
    async def command(self, family: str, body: "bytes | str") -> bytes:
        from .commanding import commanding

        await self._clear()
        reply: bytes = await self._asks(commanding(self.core, family, body))
        return reply

    # One task at a time: an acknowledgement ends one wait.
    async def resend(self) -> None:
        while self._resends:
            await self._changed.wait()
        self._resends = True
        try:
            await self._clear()
            await self._asks(self.core._resending())
        finally:
            self._resends = False
            pulse(self._changed)

    async def ping(self) -> None:
        await self._clear()
        self._ping()

    async def disconnect(self) -> None:
        core = self.core
        wire = core.sock
        try:
            while wire is not None and core.sock is wire and wire.rest:
                await self._changed.wait()
            if core.sock is wire and not self._busy:
                core.disconnect()
        finally:
            core._close()
            self._over(None)

    # Messages, in their order and for ever: `async for message in client`. Sixteen wait.
    def __aiter__(self) -> "Client":
        return self

    async def __anext__(self) -> "Message":
        core = self.core
        while not core._queue:
            await core.mail.wait()
        return core._queue.pop(0)

    # As in the blocking Client.
    @property
    def missing(self) -> "dict[bytes, int]":
        return self.core.missing

    def isconnected(self) -> bool:
        return self.up.is_set()

    # --- what other tasks wait for ---

    # Until a packet can be written.
    async def _clear(self) -> None:
        core = self.core
        error: "Exception | None" = OSError(errno.ENOTCONN)
        while True:
            wire = core.sock
            if self._link is None or (wire is None and not self._busy):
                raise error or OSError(errno.ENOTCONN)
            if core.session.ctr > LAST_CTR and not self._busy:
                # The link begins a boot session as soon as a packet wakes it.
                self._busy = True
                self._until = core.mono() + 1000 * core.timeout
                self._ping()
            elif not self._busy and not wire.rest and len(core.waits) < UNACKED:
                return
            await self._changed.wait()
            if isinstance(self.error, (OSError, SealError)):
                error = self.error

    def _expect(self, key: int, ctr: int, pid: int, raw: bytes) -> Wait:
        core = self.core
        until = core.mono() + 1000 * core.timeout
        wait = core.waits[key] = Wait(key, ctr, until, pid, raw)
        return wait

    async def _ended(self, wait: Wait) -> "Any":
        try:
            await wait.event.wait()
        finally:
            waits = self.core.waits
            if waits.get(wait.key) is wait:
                del waits[wait.key]
            pulse(self._changed)
        if wait.error is not None:
            raise wait.error
        return wait.got

    # Runs a generator that waits for acknowledgements only.
    async def _asks(self, steps: "Steps") -> "Any":
        return await self._runs(steps, self._answered)

    async def _answered(self, want: int) -> "Any":
        core = self.core
        ctr = core._awaited
        core._awaited = 0
        self._keep.sent(core.mono())
        return await self._ended(self._expect(want, ctr, 0, b""))
