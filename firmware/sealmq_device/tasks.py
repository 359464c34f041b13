# The two tasks of an asyncio client. One a connection, the link, joins, reads and keeps up: it runs
# the generators that link.py describes. The other watches its deadlines.
import asyncio
import errno
from socket import SOCK_STREAM, getaddrinfo, socket

from micropython import const

from sealmq_spec.errors import SealError, TooLarge, Unavailable

from .joining import told
from .keepalive import Keepalive
from .link import (
    _LENGTH,
    ANSWERED,
    CONNACK,
    IDLE,
    NODELAY,
    PAUSE,
    PUBLISH,
    READ,
    ROOTS,
    TCP,
    unknown,
)
from .waiting import readable, writable
from .waits import Core, pulse
from .wire import Wire

_TYPING = False
if _TYPING:
    from typing import Any

    from .link import Steps

OPENED = const(-1)  # what connect() waits for


class Tasks:
    def __init__(self, core: Core) -> None:
        self.core = core
        core.over = self._over
        if core._places:
            core._places.task = True
        # Set while there is a session, and while there is none.
        self.up = asyncio.Event()
        self.down = asyncio.Event()
        self.down.set()
        self.error: "Exception | None" = None  # that ended the last connection
        self._keep = Keepalive(core.keepalive)
        self._changed = asyncio.Event()
        self._link: "Any" = None
        self._watch: "Any" = None
        self._busy = False  # joining: nothing else can be written
        self._until = 0  # by when the link has to get on, 0: whenever

    # --- the link ---

    async def _lives(self, clean: bool) -> None:
        me = self._link
        core = self.core
        why: "BaseException" = OSError(errno.ECONNRESET)
        try:
            present = await self._drive(core._joining(clean))
            self._keep.start(core.mono())
            self.down.clear()
            self.up.set()
            core.waits.pop(OPENED).end(present)
            pulse(self._changed)
            while True:
                try:
                    first, body = await self._packet(True)
                    core._take(first, body)
                except TooLarge as error:
                    core._refuse(error)
                self._keep.heard(core.mono())
                if core.must():
                    await self._drive(core._upkeeping())
                # After upkeep: a refusal may have come while that waited, and nothing need follow.
                if core.outdated:
                    try:
                        await self._drive(core._newer(core.outdated[-1].epoch))
                    finally:
                        core.told()
                pulse(self._changed)
        except asyncio.CancelledError:
            pass  # whoever did that has told all others
        except BaseException as error:
            why = error
            if not isinstance(error, (OSError, SealError)):
                raise
        finally:
            if self._link is me:
                core._close()
                self._over(why)

    # The link is over: all who wait for it hear why. Called in the link's own task it does nothing
    # before its end, as the link may go on with another connection.
    def _over(self, why: "BaseException | None") -> None:
        link = self._link
        if link is None:
            return
        me = asyncio.current_task()
        if why is None:
            if link is me:
                return
            why = OSError(errno.ECONNRESET)
        self._link = None
        for task in (link, self._watch):
            if task is not None and task is not me:
                task.cancel()
        self._watch = None
        self._busy = False
        self._until = 0
        core = self.core
        core._close()
        self.up.clear()
        self.down.set()
        core.told()
        lost = OSError(errno.ECONNRESET)
        self.error = why if isinstance(why, Exception) else lost
        # What went wrong in the link itself, such as no memory, is not theirs to handle.
        core.fail(why if isinstance(why, (OSError, SealError)) else lost)
        pulse(self._changed)

    # Runs a generator of link.py: this task is the only one that reads.
    async def _drive(self, steps: "Steps") -> "Any":
        got = await self._runs(steps, self._does)
        self._busy = False
        return got

    # Runs a generator of link.py; does: waits for what it yields.
    async def _runs(self, steps: "Steps", does: "Any") -> "Any":
        step: "Any" = steps.send
        got: "Any" = None
        try:
            while True:
                want = step(got)
                step = steps.send
                try:
                    got = await does(want)
                except (OSError, SealError) as error:
                    step = steps.throw
                    got = error
        except StopIteration as end:
            return end.value
        finally:
            steps.close()

    async def _does(self, want: int) -> "Any":
        if want > IDLE:
            return await self._answers(want)
        if want == READ:
            return await self._packet(False, True)
        if want == CONNACK:
            await self._fill(self.core._four, False)
        elif want == IDLE:
            await self._idle()
        elif want == PAUSE:
            await asyncio.sleep(1)
        else:
            await self._open()
        return None

    async def _open(self) -> None:
        core = self.core
        core._close()
        try:
            found = getaddrinfo(core.server, core.port, 0, SOCK_STREAM)[0]
        except OSError:
            raise unknown(core) from None
        sock = socket(*found[:3])
        core.sock = Wire(sock, core.mono, self._flushed)
        sock.setblocking(False)
        try:
            sock.connect(found[4])
        except OSError as error:
            if error.errno != errno.EINPROGRESS:
                raise
            self._until = core.mono() + 1000 * core.timeout
            await writable(sock)
            self._until = 0
        sock.setsockopt(TCP, NODELAY, 1)

    def _flushed(self, error: "Exception | None") -> None:
        if error is None:
            pulse(self._changed)
        else:
            self._over(error)

    # Nothing new is written from here on; what is awaited may still come.
    async def _idle(self) -> None:
        core = self.core
        self._busy = True
        until = core.mono() + 1000 * core.timeout
        while core.waits and OPENED not in core.waits and core.mono() < until:
            try:
                first, body = await self._packet(False)
                core._take(first, body)
            except TooLarge as error:
                core._refuse(error)
        if OPENED not in core.waits:
            core.fail(OSError(errno.ECONNRESET))

    # As Link._answer.
    async def _answers(self, want: int) -> "Any":
        core = self.core
        until = core.mono() + 1000 * core.timeout
        try:
            while True:
                try:
                    first, body = await self._packet(False)
                    if first == want >> 16:
                        if (
                            body.startswith(ANSWERED)
                            if want == ROOTS
                            else want & 0xFFFF == (body[0] << 8 | body[1])
                        ):
                            return body
                    core._take(first, body)
                except TooLarge as error:
                    core._refuse(error)
                core._check()
                if core._denied is not None:
                    said = core._denied
                    core._denied = None
                    return said
                if core.mono() > until:
                    if want == ROOTS:
                        raise Unavailable("no answer from the key generator")
                    raise OSError(errno.ETIMEDOUT)
        finally:
            core._awaited = 0

    # --- reading ---

    # The next packet. free: it may begin whenever it likes. strange: as Link._read.
    async def _packet(self, free: bool, strange: bool = False) -> "tuple[int, bytearray]":
        core = self.core
        two = core._two
        # A peer that sends without end shall not stop all else.
        await asyncio.sleep(0)
        await self._fill(two, free)
        first = two[0]
        n = two[1]
        if n > 127:
            one = bytearray(1)
            n &= 127
            shift = 7
            while True:
                await self._fill(one, False)
                n |= (one[0] & 127) << shift
                shift += 7
                if one[0] < 128:
                    break
                if shift > 21:
                    raise core._broken("remaining length over four bytes")
        if first & 0xF0 != PUBLISH and _LENGTH.get(first) != n:
            core._unknown(first, n)
        if n > core.limit:
            if strange:
                core._unknown(first, n)
            for piece in core._thrown_away(first, n):
                await asyncio.sleep(0)
                await self._fill(piece, False)
        body = bytearray(n)
        await self._fill(body, False)
        return first, body

    async def _fill(self, buf: "bytearray | memoryview", free: bool) -> None:
        core = self.core
        sock = core._alive().sock
        done = until = 0
        while done < len(buf):
            got = sock.readinto(memoryview(buf)[done:] if done else buf)
            if got:
                done += got
            elif got is not None:
                raise OSError(errno.ECONNRESET)
            else:
                if not free or done:
                    # For all of it, and as long again for each 4 kB: not anew for each byte.
                    until = until or core.mono() + 1000 * core.timeout * (1 + (len(buf) >> 12))
                    self._until = until
                await readable(sock)
                self._until = 0

    # --- deadlines ---

    def _ping(self) -> None:
        core = self.core
        core.ping()
        self._keep.pinged(core.mono())

    # However it ends, the link does: nothing waits without a deadline.
    async def _watches(self) -> None:
        try:
            while True:
                await asyncio.sleep(min(1, self.core.timeout / 4))
                self._look()
        except Exception as error:
            self._over(told(self.core, error))
            if not isinstance(error, OSError):
                raise

    def _look(self) -> None:
        core = self.core
        keep = self._keep
        now = core.mono()
        wire = core.sock
        late = 0 < self._until < now
        if wire is not None and wire.rest and now > wire.moved + 1000 * core.timeout:
            late = True
        for wait in core.waits.values():
            if wait.key != OPENED and wait.until < now:
                late = True
        if self.up.is_set() and not self._busy:
            late = late or keep.dead(now)
            if not late and not wire.rest and keep.wait(now) <= 0:
                self._ping()
        if late:
            raise OSError(errno.ETIMEDOUT)
