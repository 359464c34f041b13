# The asyncio client: the blocking one's core, with waiting done by tasks. One task a connection,
# the link, joins, reads and keeps up; a second one watches its deadlines. Other tasks wait for
# nothing but events, so cancelling one of them disturbs no other, and never a packet: what is
# sealed is written in the same step (wire.py).
#
# What blocks: the look-up of the mediator's name, the store, ciphers.
import asyncio
import errno
from socket import SOCK_STREAM, getaddrinfo, socket

from micropython import const

from sealmq_spec.errors import (
    Misuse,
    SealError,
    TooLarge,
    Unavailable,
    WrongEpoch,
    from_notice,
)

from . import client
from .keepalive import Keepalive
from .link import _LENGTH, ANSWERED
from .subscribing import subscribing, to_filter
from .waiting import readable, writable
from .wire import Wire

_TYPING = False
if _TYPING:
    from typing import Any

    from sealmq_spec.reader import Message

    from .incoming import Notice
    from .link import Steps

_UNACKED = const(8)  # as in client.py: so many wait for their PUBACK at most
_PUBACK = const(0x40)
_LAST_CTR = const(0xFFFFFD)
_OPENED = const(-1)  # what connect() waits for
_CONNACK = const(1)  # as in link.py
_READ = const(2)
_IDLE = const(3)
_ROOTS = const(0x300000)
_PUBLISH = const(0x30)
_WHAT_PUBLISH = const(1)
_WRONG_EPOCH = const(6)
_TCP = const(6)
_NODELAY = const(1)


# What one task waits for: an acknowledgement, or the notice about ctr.
class _Wait:
    def __init__(self, key: int, ctr: int, until: int, pid: int, raw: bytes) -> None:
        self.key = key
        self.ctr = ctr
        self.until = until
        self.pid = pid
        self.raw = raw  # of a PUBLISH
        self.got: "Any" = None
        self.error: "Exception | None" = None
        self.epoch = 0
        self.event = asyncio.Event()

    def end(self, got: "Any") -> None:
        self.got = got
        self.event.set()


# The core, and what it tells.
class _Core(client.Client):
    over: "Any" = None  # called when a connection is closed
    mail: "Any" = None  # an event: a message came
    _heard = -0x3FFFFFFF  # what hearing.py makes reads by itself

    def _attributes(self) -> None:
        client.Client._attributes(self)
        self.waits: "dict[int, _Wait]" = {}
        # Refused for their epoch: told when there are new roots, or none to be had.
        self.outdated: "list[_Wait]" = []

    def _close(self) -> None:
        held = self.sock
        client.Client._close(self)
        if held is not None and self.over is not None:
            self.over(None)

    # What hearing.py prepares is for the blocking client's reads.
    def _learn(self, topic: bytes, payload: bytearray) -> None:
        pass

    def _acked(self, first: int, body: bytearray) -> None:
        client.Client._acked(self, first, body)
        if len(body) > 1:
            wait = self.waits.pop(first << 16 | body[0] << 8 | body[1], None)
            if wait is not None:
                wait.end(body)

    def _noticed(self, said: "Notice") -> None:
        ctr = said[1]
        if ctr:
            for wait in list(self.waits.values()):
                if wait.ctr == ctr:
                    del self.waits[wait.key]
                    wait.got = said
                    if said[2] == _WRONG_EPOCH and wait.raw:
                        self.outdated.append(wait)
                    else:
                        wait.event.set()
        elif said[0] == _WHAT_PUBLISH:
            # Which of them it is about is not known (SPEC.md 4.4): all can be sent again.
            self.fail(from_notice(said), True)
        client.Client._noticed(self, said)

    def _deliver(self, message: "Message") -> None:
        client.Client._deliver(self, message)
        _pulse(self.mail)

    # Ends all waits, or those for a PUBACK, without one. What they sent is kept for resend().
    def fail(self, error: Exception, published: bool = False) -> None:
        for wait in list(self.waits.values()):
            if wait.raw or not published:
                del self.waits[wait.key]
                if wait.raw:
                    self._keep(wait.ctr, wait.pid, wait.raw)
                wait.error = error
                wait.event.set()

    # Under way again, or not to be.
    def told(self) -> None:
        for wait in self.outdated:
            wait.event.set()
        self.outdated = []

    def must(self) -> bool:
        s = self.session
        return bool(s.due) or s.ctr > _LAST_CTR or self._astray


# Wakes all who wait for something to change.
def _pulse(event: "asyncio.Event") -> None:
    event.set()
    event.clear()


class Client:
    # As the blocking Client's. With a keepalive, pings are sent and a silent peer is left.
    def __init__(self, *args: "Any", **kw: "Any") -> None:
        core = self.core = _Core(*args, **kw)
        core.over = self._over
        core.mail = asyncio.Event()
        # Set while there is a session, and while there is none.
        self.up = asyncio.Event()
        self.down = asyncio.Event()
        self.down.set()
        self.error: "Exception | None" = None  # that ended the last connection
        # As in the blocking Client.
        self.refused = core.refused
        self.notices = core.notices
        self.unacked = core.unacked
        self._keep = Keepalive(core.keepalive)
        self._changed = asyncio.Event()
        self._link: "Any" = None
        self._watch: "Any" = None
        self._busy = False  # joining: nothing else can be written
        self._until = 0  # by when the link has to get on, 0: whenever

    # --- for the application ---

    # As the blocking Client's.
    async def connect(self, clean_session: bool = True) -> bool:
        if self._busy:
            raise Misuse("another task connects already")
        self.core._close()
        self._busy = True
        wait = self._expect(_OPENED, 0, 0, b"")
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
    ) -> int:
        core = self.core
        again = False
        while True:
            await self._clear()
            ctr = core._send(topic, msg, retain, qos, life)
            self._keep.sent(core.mono())
            if not qos:
                return ctr
            pid = core.pid
            raw = bytes(core._out[core._sent : core._sent + core._size])
            wait = self._expect(_PUBACK << 16 | pid, ctr, pid, raw)
            wait.epoch = core.ident.own.epoch
            got = await self._ended(wait)
            if not isinstance(got, tuple):
                return ctr
            error = from_notice(got)
            if again or not isinstance(error, WrongEpoch) or core.ident.own.epoch == wait.epoch:
                raise error
            # It was not forwarded: published anew, once, under the roots of the new epoch.
            again = True

    async def subscribe(self, topic: "str | bytes", qos: int = 0) -> int:
        filt = to_filter(topic)
        if qos not in (0, 1):
            raise Misuse("QoS is 0 or 1")
        await self._clear()
        granted: int = await self._asks(subscribing(self.core, filt, qos))
        return granted

    async def unsubscribe(self, topic: "str | bytes") -> None:
        filt = to_filter(topic)
        await self._clear()
        await self._asks(self.core._unsubscribing(filt))

    async def resend(self) -> None:
        await self._clear()
        await self._asks(self.core._resending())

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

    def isconnected(self) -> bool:
        return self.up.is_set()

    def set_last_will(
        self, topic: "str | bytes", msg: bytes, retain: bool = False, qos: int = 0, life: int = 0
    ) -> None:
        self.core.set_last_will(topic, msg, retain, qos, life)

    def now_ms(self) -> "int | None":
        return self.core.now_ms()

    def has_kg_time(self) -> bool:
        return self.core.has_kg_time()

    def receipted(self, ctr: int) -> bool:
        return self.core.receipted(ctr)

    # --- what other tasks wait for ---

    # Until a packet can be written.
    async def _clear(self) -> None:
        core = self.core
        error: "Exception | None" = OSError(errno.ENOTCONN)
        while True:
            wire = core.sock
            if self._link is None or (wire is None and not self._busy):
                raise error or OSError(errno.ENOTCONN)
            if core.session.ctr > _LAST_CTR and not self._busy:
                # The link begins a boot session as soon as a packet wakes it.
                self._busy = True
                self._until = core.mono() + 1000 * core.timeout
                self._ping()
            elif not self._busy and not wire.rest and len(core.waits) < _UNACKED:
                return
            await self._changed.wait()
            error = self.error

    def _ping(self) -> None:
        core = self.core
        core.ping()
        self._keep.pinged(core.mono())

    def _expect(self, key: int, ctr: int, pid: int, raw: bytes) -> _Wait:
        core = self.core
        until = core.mono() + 1000 * core.timeout
        wait = core.waits[key] = _Wait(key, ctr, until, pid, raw)
        return wait

    async def _ended(self, wait: _Wait) -> "Any":
        try:
            await wait.event.wait()
        finally:
            waits = self.core.waits
            if waits.get(wait.key) is wait:
                del waits[wait.key]
            _pulse(self._changed)
        if wait.error is not None:
            raise wait.error
        return wait.got

    # Runs a generator that waits for acknowledgements only.
    async def _asks(self, steps: "Steps") -> "Any":
        core = self.core
        step: "Any" = steps.send
        got: "Any" = None
        try:
            while True:
                want = step(got)
                step = steps.send
                ctr = core._awaited
                core._awaited = 0
                self._keep.sent(core.mono())
                try:
                    got = await self._ended(self._expect(want, ctr, 0, b""))
                except (OSError, SealError) as error:
                    step = steps.throw
                    got = error
        except StopIteration as end:
            return end.value
        finally:
            steps.close()

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
            core.waits.pop(_OPENED).end(present)
            _pulse(self._changed)
            while True:
                try:
                    first, body = await self._packet(True)
                    core._take(first, body)
                except TooLarge as error:
                    core._refuse(error)
                self._keep.heard(core.mono())
                if core.outdated:
                    try:
                        await self._drive(core._newer(core.outdated[-1].epoch))
                    finally:
                        core.told()
                if core.must():
                    await self._drive(core._upkeeping())
                _pulse(self._changed)
                # A peer that sends without end shall not stop all else.
                await asyncio.sleep(0)
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
        error = why if isinstance(why, Exception) else OSError(errno.ECONNRESET)
        self.error = error
        core.fail(error)
        _pulse(self._changed)

    # Runs a generator of link.py: this task is the only one that reads.
    async def _drive(self, steps: "Steps") -> "Any":
        core = self.core
        step: "Any" = steps.send
        got: "Any" = None
        try:
            while True:
                want = step(got)
                step = steps.send
                got = None
                try:
                    if want > _IDLE:
                        got = await self._answers(want)
                    elif want == _READ:
                        got = await self._packet(False)
                    elif want == _CONNACK:
                        await self._fill(core._four, False)
                    elif want == _IDLE:
                        await self._idle()
                    else:
                        await self._open()
                except (OSError, SealError) as error:
                    step = steps.throw
                    got = error
        except StopIteration as end:
            self._busy = False
            return end.value
        finally:
            steps.close()

    async def _open(self) -> None:
        core = self.core
        core._close()
        family, kind, proto, _, address = getaddrinfo(core.server, core.port, 0, SOCK_STREAM)[0]
        sock = socket(family, kind, proto)
        core.sock = Wire(sock, core.mono, self._flushed)
        sock.setblocking(False)
        try:
            sock.connect(address)
        except OSError as error:
            if error.errno != errno.EINPROGRESS:
                raise
            self._until = core.mono() + 1000 * core.timeout
            await writable(sock)
            self._until = 0
        sock.setsockopt(_TCP, _NODELAY, 1)

    def _flushed(self, error: "Exception | None") -> None:
        if error is None:
            _pulse(self._changed)
        else:
            self._over(error)

    # Nothing new is written from here on; what is awaited may still come.
    async def _idle(self) -> None:
        core = self.core
        self._busy = True
        until = core.mono() + 1000 * core.timeout
        while core.waits and _OPENED not in core.waits and core.mono() < until:
            try:
                first, body = await self._packet(False)
                core._take(first, body)
            except TooLarge as error:
                core._refuse(error)
        if _OPENED not in core.waits:
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
                            if want == _ROOTS
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
                    if want == _ROOTS:
                        raise Unavailable("no answer from the key generator")
                    raise OSError(errno.ETIMEDOUT)
        finally:
            core._awaited = 0

    # --- reading ---

    # The next packet. free: it may begin whenever it likes.
    async def _packet(self, free: bool) -> "tuple[int, bytearray]":
        core = self.core
        two = core._two
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
                    raise core._broken("remaining length of more than four bytes")
        if first & 0xF0 != _PUBLISH and _LENGTH.get(first) != n:
            core._unknown(first, n)
        if n > core.limit:
            for piece in core._thrown_away(first, n):
                await self._fill(piece, False)
        body = bytearray(n)
        await self._fill(body, False)
        return first, body

    async def _fill(self, buf: "bytearray | memoryview", free: bool) -> None:
        core = self.core
        sock = core._alive().sock
        done = 0
        while done < len(buf):
            got = sock.readinto(memoryview(buf)[done:] if done else buf)
            if got:
                done += got
            elif got is not None:
                raise OSError(errno.ECONNRESET)
            else:
                if not free or done:
                    self._until = core.mono() + 1000 * core.timeout
                await readable(sock)
                self._until = 0

    # --- deadlines ---

    async def _watches(self) -> None:
        core = self.core
        keep = self._keep
        while True:
            await asyncio.sleep(min(1, core.timeout / 4))
            now = core.mono()
            wire = core.sock
            late = 0 < self._until < now
            if wire is not None and wire.rest and now > wire.moved + 1000 * core.timeout:
                late = True
            for wait in core.waits.values():
                if wait.key != _OPENED and wait.until < now:
                    late = True
            if self.up.is_set() and not self._busy:
                late = late or keep.dead(now)
                if not late and not wire.rest and keep.wait(now) <= 0:
                    try:
                        self._ping()
                    except OSError:
                        return
            if late:
                self._over(OSError(errno.ETIMEDOUT))
                return
