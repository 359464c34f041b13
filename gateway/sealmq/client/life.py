"""The life of a client over its connections: serve, keep alive, renew, connect again.

One task, owned by the client, holds it all; each connection's tasks are in a TaskGroup of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from sealmq.loops import first_error
from sealmq.mqtt import build
from sealmq_spec.errors import (
    Denied,
    RateLimited,
    SealError,
    Stale,
    TooLarge,
    Unavailable,
    Unsupported,
)

from . import events as ev
from .backoff import Backoff
from .boot import Boots
from .core import Core
from .desk import Desk
from .door import Door, Opened
from .errors import (
    ClientError,
    Closed,
    ConnectionLost,
    ConnectRefused,
    Refused,
    ServerUnavailable,
    StateError,
    TimedOut,
    in_words,
)
from .randomness import mono_ms, new_nonce
from .state import own_epoch
from .values import Notice, Options
from .wire import Wire

log = logging.getLogger("sealmq.client")

_DRAIN_S = 10.0
# Between two requests for new roots: at first, and at most (SPEC.md 7.4).
_ASK_AGAIN_S, _ASK_AGAIN_MOST_S = 5.0, 60.0
_DAY_MS = 86_400_000
_BACKLOG = 4 * 1024 * 1024
# Trying again would not help with these; of CONNACK's codes, 3 aside, nothing will either.
_FINAL = (ConnectRefused, StateError, Denied, TooLarge, Unsupported)


class _Fresh(Exception):
    """This connection ended in good order; a new boot session begins."""


class Life:
    """A client's connections, one after the other. `error` is what ended the last one for good."""

    def __init__(
        self,
        boots: Boots,
        desk: Desk,
        door: Door,
        options: Options,
        on_state: Callable[[str], None] | None,
    ) -> None:
        self._boots, self._desk, self._door = boots, desk, door
        self._options = options
        self._on_state = on_state
        self.error: Exception | None = None
        self.over = asyncio.Event()
        self._opened: Opened | None = None
        self.send: Callable[[bytes], None] = self._nowhere
        """Queue bytes on the present connection."""
        self.wire: Wire | None = None
        """Of the present connection."""
        self.core: Core | None = None
        """Of the connection that may be used now, if there is one."""
        self._opening: asyncio.Task[Opened] | None = None
        self._task: asyncio.Task[None] | None = None
        self._stale = asyncio.Event()
        # The epoch of the client's label that is needed.
        self._wanted = 0
        self._worn = False
        self._heard = 0
        self.paused = False
        """Whether nothing is read, since there is no room for messages."""
        self._backoff = Backoff()
        # mono of the last welcome.
        self._welcomed = 0
        # Filter as it goes over the wire, what is said with it included -> QoS, to subscribe again
        # in a new connection.
        self.filters: dict[str, int] = {}
        self.on_lost: Callable[[Refused], None] | None = None
        """Told of each of them that a new connection does not have."""
        # What was asked for again, by ctr, and what of it was refused for the moment.
        self._asked: set[int] = set()
        self._passing: list[str] = []
        self._patience = Backoff()
        self._retry: asyncio.TimerHandle | None = None

    # --- for operations --------------------------------------------------------------------------

    @property
    def may_renew(self) -> bool:
        """Whether there is any way to new roots."""
        return self._door.may_renew

    def _nowhere(self, data: bytes) -> None:
        """There is no connection: what is sent is lost."""

    async def flush(self) -> None:
        """Wait until the present connection takes more. ConnectionLost."""
        if self._opened is not None:
            await self._opened.wire.flush()

    def outdated(self, wanted: int) -> None:
        """The client's label has this epoch, or a newer one: new roots are needed."""
        self._wanted = max(self._wanted, wanted)
        self._stale.set()

    def _doubt_clock(self) -> None:
        """The gateway has another time than this boot session: one that begins anew asks for it."""
        if self._boots.leave():
            self._tell("the gateway has another time; a new boot session begins")
            self.worn()

    def worn(self) -> None:
        """Begin a new boot session once what is underway is done."""
        self._worn = True
        self._stale.set()

    # --- start and end ---------------------------------------------------------------------------

    async def start(self, within: float) -> None:
        """The first connection, welcomed, tried again for so long. Raises what prevents it."""
        name = "sealmq client: first connection"
        self._opening = opening = asyncio.create_task(self._first(within), name=name)
        try:
            opened = await opening
        except asyncio.CancelledError:
            here = asyncio.current_task()
            stopped = self.error is not None and not (here is not None and here.cancelling())
            await self._give_up(opening)
            if self.error is None or not stopped:
                raise
            raise self.error from None  # `stop` has ended it
        if self.error is not None:
            await self._give_up(opening)
            raise self.error
        self._use(opened)
        self._task = asyncio.create_task(self._serve(), name="sealmq client")
        self._task.add_done_callback(self._served)

    async def _give_up(self, opening: asyncio.Task[Opened]) -> None:
        """`stop`, or who cancels, may have come before there was a connection that it could end."""
        if not opening.cancelled() and opening.exception() is None:
            self._opened = opening.result()
            await self.stop()

    async def _first(self, within: float) -> Opened:
        try:
            await self._boots.open(within)
            return await self._first_connection(within)
        except BaseException:
            self._boots.close()
            raise

    async def _first_connection(self, within: float) -> Opened:
        if not self._options.reconnect or within <= 0:
            return await self._door.open()
        failed: Exception = TimedOut(f"connecting took more than {within:g} s")
        try:
            async with asyncio.timeout(within):
                while self.error is None:
                    try:
                        return await self._door.open()
                    except (ClientError, SealError) as error:
                        if final(error):
                            raise
                        failed = error
                        self._tell(f"{in_words(error)}; trying again")
                    await asyncio.sleep(self._backoff.next())
                failed = self.error
        except TimeoutError:
            pass
        raise failed

    async def stop(self, goodbye: bool = True) -> None:
        """Say goodbye, end every task, give the state file back. Without a goodbye the will fires.

        What has been acknowledged can still be received; nothing more is acknowledged.
        """
        # Taken away from its task, which closes without a goodbye, and is cancelled meanwhile.
        opened = self._left()
        if opened is not None:
            opened.core.close()
            if goodbye:
                opened.wire.goodbye(build.disconnect())
        self._end(Closed("the client is disconnected"))
        try:
            tasks: tuple[asyncio.Task[Any] | None, ...] = self._opening, self._task
            for task in tasks:
                while task is not None and not task.done():
                    # A connection that ends in this very moment can swallow it.
                    task.cancel()
                    await asyncio.wait([task], timeout=0.2)
            self._task = None
            await self._drop()
        finally:
            if opened is not None:
                await opened.wire.close()
            self._boots.close()

    def _served(self, task: asyncio.Task[None]) -> None:
        # `stop` has said so before. Others: whoever cancels all tasks, or a loop's end.
        if task.cancelled() and self.error is None:
            why = "the task that serves the connection was cancelled, or its event loop has ended"
            self._end(ConnectionLost(why, "disconnect, and connect again"))

    def _end(self, error: Exception) -> None:
        if self.error is None:
            self.error = error
        self.over.set()
        self._desk.fail(error)

    def _use(self, opened: Opened) -> None:
        self._opened, self.core = opened, opened.core
        self.wire, self.send = opened.wire, opened.wire.send
        # Before anybody can send something new: what is sent again, then the filters.
        opened.wire.send(opened.core.take())
        self._desk.resumed(opened.core.session)
        self._subscribe_again(opened.core)
        # The welcome says whether the roots held are the newest; what was wanted before is over.
        self._wanted, self._worn = 0, False
        self._stale.clear()
        self._heard = self._welcomed = mono_ms()
        self._tell("connected")
        self._desk.bell.ring()

    def _left(self) -> Opened | None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        opened, self._opened, self.core, self.wire = self._opened, None, None, None
        self.send = self._nowhere
        return opened

    async def _drop(self) -> None:
        opened = self._left()
        if opened is not None:
            opened.core.close()
            await opened.wire.close()

    # --- serving ---------------------------------------------------------------------------------

    async def _serve(self) -> None:
        try:
            while True:
                wait, said = 0.0, ""
                try:
                    await self._connection()
                except _Fresh:
                    self._door.end_session()
                except (ClientError, SealError) as error:
                    self._backoff.lasted(mono_ms() - self._welcomed)
                    wait = self._backoff.next()
                    if not self._options.reconnect or final(error):
                        raise
                    self._desk.dropped(error)
                    said = in_words(error)
                finally:
                    await self._drop()
                if said:
                    self._tell(said)
                await self._again(wait)
        except Exception as error:
            self._end(error)

    async def _again(self, wait: float) -> None:
        """Connect again; where the options say so until it succeeds or cannot ever."""
        while True:
            await asyncio.sleep(wait)
            try:
                self._use(await self._door.open())
                return
            except (ClientError, SealError) as error:
                if not self._options.reconnect or final(error):
                    raise
                self._tell(in_words(error))
            wait = self._backoff.next()

    async def _connection(self) -> None:
        opened = self._opened
        if opened is None:
            raise ConnectionLost("no connection")
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read(opened), name="sealmq client: read")
                group.create_task(self._keep_alive(opened), name="sealmq client: keep alive")
                group.create_task(self._renewal(opened), name="sealmq client: renewal")
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None

    async def _read(self, opened: Opened) -> None:
        wire, core = opened.wire, opened.core
        events: Sequence[ev.Event] = opened.early
        while True:
            for event in events:
                wire.send(self._desk.handle(event, core.session))
                if isinstance(event, ev.Outdated):
                    self.outdated(core.session.epoch_seen)
                elif isinstance(event, ev.Told):
                    self._door.refused(opened, event.notice)
                    if _is_stale(event.notice):
                        self._doubt_clock()
                elif isinstance(event, ev.Answer):
                    await self._door.answered(opened, event.packet)
            wire.send(core.take())
            self._desk.bell.ring()
            if wire.backlog > _BACKLOG:
                await wire.flush()
            if core.stopped:
                events = core.go_on(mono_ms())
                continue
            if not self._may_read():
                self.paused = True
                try:
                    await self._desk.bell.until(self._may_read)
                finally:
                    self.paused = False
            data = await wire.read()
            self._heard = mono_ms()
            events = core.receive(data, self._heard)

    def _may_read(self) -> bool:
        admits = self._desk.inbox.admits
        return admits(False) or admits(self._desk.waits() or bool(self._boots.outbox))

    def _subscribe_again(self, core: Core) -> None:
        """New tokens for the filters of earlier connections."""
        for ctr in self._asked:
            self._desk.grants.forget(ctr)
        self._asked.clear()
        self._passing, self._patience = [], Backoff()
        self._ask(core, self.filters)

    def _ask(self, core: Core, which: Iterable[str]) -> None:
        filters = [(filt, self.filters[filt]) for filt in which if filt in self.filters]
        for i in range(0, len(filters), FILTERS):
            some = filters[i : i + FILTERS]
            ctrs, packet = core.subscribe(some)
            for ctr, (filt, _) in zip(ctrs, some, strict=True):
                self._asked.add(ctr)
                self._desk.grants.call(ctr, filt, partial(self._asked_again, core, ctr, filt))
            self.send(packet)

    def _asked_again(self, core: Core, ctr: int, filt: str, error: Exception | None) -> None:
        """A refusal that passes is no last word; any other one comes as a notice."""
        self._asked.discard(ctr)
        if not isinstance(error, Refused) or core is not self.core or filt not in self.filters:
            return
        # Without a notice nobody knows why.
        unsaid = isinstance(error, Denied) and not error.rule
        if isinstance(error, Unavailable | RateLimited) or unsaid:
            self._tell(f"{error}; trying again")
            self._passing.append(filt)
            if self._retry is None:
                loop = asyncio.get_running_loop()
                self._retry = loop.call_later(self._patience.next(), self._ask_passing, core)
            return
        self._desk.told(Notice(error.what, ctr, error.code, error.rule, error.reason))
        if self.on_lost is not None:
            self.on_lost(error)

    def _ask_passing(self, core: Core) -> None:
        self._retry = None
        passing, self._passing = self._passing, []
        if core is self.core:
            self._ask(core, passing)

    async def _keep_alive(self, opened: Opened) -> None:
        wire, core = opened.wire, opened.core
        keepalive = self._options.keepalive or 60
        sent = -1
        while True:
            await asyncio.sleep(keepalive / 4)
            now = mono_ms()
            silent = now - self._heard
            if silent > keepalive * 1500 and not self.paused:
                raise ConnectionLost(f"the mediator has been silent for {silent // 1000} s")
            if wire.sent == sent or silent > keepalive * 250:
                wire.send(build.pingreq())
            sent = wire.sent
            if now - opened.kg_asked > _DAY_MS:
                opened.kg_asked = now
                wire.send(core.control(core.session.ask_time(new_nonce(), now)))

    async def _renewal(self, opened: Opened) -> None:
        """New roots for the connection as it is. A new boot session, behind what is underway, only
        where they are another label's, and where counters run out."""
        session = opened.core.session
        while not self._worn:
            await self._stale.wait()
            self._stale.clear()
            if own_epoch(session.ident) >= self._wanted:
                continue
            if not self._door.may_renew:
                self._tell("the client's label has a newer epoch, and this client has no way to it")
            elif not await self._new_roots(opened):
                break
        self.core = None
        try:
            async with asyncio.timeout(_DRAIN_S):
                await self._desk.bell.until(self._settled)
        except TimeoutError:
            self._tell("messages are still unacknowledged; they are given up")
        opened.core.close()
        opened.wire.goodbye(build.disconnect())
        raise _Fresh

    def _settled(self) -> bool:
        return not self._boots.outbox and not self._desk.receipts

    async def _new_roots(self, opened: Opened) -> bool:
        """False when the roots that came are another label's."""
        session = opened.core.session
        pause = _ASK_AGAIN_S
        while True:
            try:
                await self._door.renew(opened)
                if not self._boots.turn(session):
                    return False
                if own_epoch(session.ident) >= self._wanted:
                    self._desk.bell.ring()
                    return True
                raise Unavailable("the key generator has no newer epoch yet")
            except (ClientError, SealError) as error:
                # A disk that is full, say, may have room again.
                if final(error) and not isinstance(error, StateError):
                    raise
                # The epoch held is good until its hand-over ends: time to try again.
                self._tell(f"no new roots: {error}")
            await asyncio.sleep(pause)
            pause = min(2 * pause, _ASK_AGAIN_MOST_S)

    def _tell(self, what: str) -> None:
        log.info("%s", what)
        if self._on_state is not None:
            self._on_state(what)


def final(error: ClientError | SealError) -> bool:
    """Whether trying again cannot help."""
    return isinstance(error, _FINAL) and not isinstance(error, ServerUnavailable)


# Filters in one SUBSCRIBE.
FILTERS = 50


def _is_stale(notice: Notice) -> bool:
    """Whether a message of this client's was sealed by a wrong clock, it seems."""
    return notice.what == "publish" and notice.ctr > 0 and notice.code == Stale.code
