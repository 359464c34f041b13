"""One local client's connection: what it says, what it is answered, what it is sent.

A packet is answered in the order of its kind: publishes as the site decides, subscriptions one
SUBSCRIBE after the other; a PUBLISH waits for the answers to subscriptions before it. Everything is
bounded: what a client has not been answered, what it has not acknowledged, what it has not read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from sealmq.client import Refused as SiteRefused
from sealmq.loops import first_error
from sealmq.mqtt import ProtocolError, build

from .account import Account, note
from .delivery import UNREAD, Delivery, Out
from .seat import Delay, Seat
from .sessions import UNRELEASED, Session, Unreleased
from .subscriptions import REFUSED, Subscriptions
from .wire import (
    Ack,
    Acks,
    Bye,
    Dialect,
    End,
    Hello,
    Opening,
    Ping,
    Pub,
    Refusal,
    Said,
    Sub,
)

log = logging.getLogger("sealmq.agent")

_CONNECT_S = 10.0
# A client that connects while the site is away waits so long for it.
_AWAY_S = 5.0
_GOING = 32
_GOING_BYTES = 4 << 20
_LINGER_S = 2.0
_UNKNOWN = Refusal("unknown", "", "no message waits under this packet identifier")


class Pipe(Protocol):
    """Bytes of one connection, whatever carries them."""

    async def read(self) -> bytes:
        """At least one byte; b"" at the end."""

    async def send(self, data: bytes | bytearray) -> None:
        """Returns once not too much waits to be sent. What it is given is its own. OSError."""

    async def close(self) -> None: ...

    def proved(self) -> None:
        """It is known whose it is: it gives its stranger's place up."""


class _Answer(partial[None]):
    """`_Answers.tell` of one PUBLISH."""

    def asker(self) -> object | None:
        answers: _Answers = self.func.__self__  # type: ignore[attr-defined]
        return answers.asker(self)


class _Answers:
    """What the site's decisions mean to one connection. They may come when nobody is there any
    more, so it holds nothing of it but the ids that were accepted."""

    def __init__(
        self, local: Local, account: Account, client_id: str, received: Unreleased
    ) -> None:
        self.account = account
        self._local, self._client_id, self._received = weakref.ref(local), client_id, received
        self._kept = local.kept

    def asker(self, answer: object) -> object | None:
        """Who still needs this answer (going.py): the answer itself stands for a connection, the
        packet ids for a kept session."""
        local = self._local()
        if local is not None and not local.gone:
            return answer
        return self._received if self._kept else None

    def tell(
        self, size: int, topic: str, qos: int, packet_id: int, refusal: Refusal | None
    ) -> None:
        """What has become of a PUBLISH. size: what it counts for."""
        if refusal is not None:
            log.info("%s", f"{self._client_id}: {topic}: refused: {refusal}")
            self.account.tell(topic, refusal)
        if qos == 2:
            # Even if nobody is there any more: who comes back may send it again.
            self._received.decided(packet_id, refusal is None)
        if (local := self._local()) is not None:
            local.decided(size, qos, packet_id, refusal)


class Local:
    """enter: which account a user name and password are of, or None. joined: told of each client
    that has come in; ends those that had its place, and returns once they have left it."""

    def __init__(
        self,
        pipe: Pipe,
        enter: Callable[[str | None, bytes | None], Account | None],
        joined: Callable[[Local], Awaitable[None]],
    ) -> None:
        self._pipe, self._enter, self._joined = pipe, enter, joined
        self._dialect: Dialect | None = None
        self._account: Account | None = None
        self._hello: Hello | None = None
        self.client_id = ""
        self._said: list[Said] = []
        self._out = Out()
        self._fault: Exception | None = None
        self._seat: Seat | None = None
        self._delivery: Delivery | None = None
        # A will that waits for this client's return after its end.
        self._delay: Delay | None = None
        # Whether its session, which another connection has left, ends with this one.
        self._last = False
        self._session: Session | None = None
        self._received = Unreleased()
        # PUBLISHes that have no answer yet, and what they take.
        self._going = self._going_bytes = 0
        self._answers: _Answers | None = None
        self._room = asyncio.Event()
        self._subscriptions: Subscriptions | None = None
        # When it was heard last, and whether anything that it says now would be; when it last took
        # something of what it is sent, and whether it has to before it is listened to.
        self._heard, self._listening = 0.0, False
        self._took, self._full = 0.0, False
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._group: asyncio.TaskGroup | None = None
        self._left = asyncio.Event()

    @property
    def account(self) -> Account | None:
        """Whose it is, once it is in."""
        return self._account

    @property
    def kept(self) -> bool:
        """Whether its session outlives its connection."""
        return self._session is not None and self._session.kept

    @property
    def gone(self) -> bool:
        """Whether it is told nothing more."""
        return self._ended.done() or self._left.is_set()

    # --- life ---

    async def run(self) -> None:
        """Serve it to its end. Raises nothing that it or the site can cause."""
        end = End()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                # From the first on: one whose place is taken while it waits for the site does not
                # take it back.
                group.create_task(self._until_ended(), name="agent: end")
                await self._open()
                for name, work in (
                    ("read", self._read()),
                    ("write", self._write()),
                    ("subscribe", self._asks.run(group)),
                ):
                    group.create_task(work, name=f"agent: {name}")
        except BaseExceptionGroup as errors:
            found_end = first_error(errors)
            if not isinstance(found_end, End | OSError):
                raise found_end from None
            end = found_end if isinstance(found_end, End) else End()
        finally:
            try:
                await self._close(end)
            finally:
                self._left.set()

    async def _close(self, end: End) -> None:
        who = self.client_id or "a client"
        if end.refusal is not None:
            log.info("%s", f"{who}: ended: {end.refusal}")
        if self._dialect is not None and end.refusal is not None and self._hello is not None:
            self._out.send(self._dialect.goodbye(end.refusal))
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                if self._out.data:
                    await self._pipe.send(bytes(self._out.data))
        if self._account is not None and self._seat is not None:
            await self._leave(self._account, self._seat, end)
        self._left.set()
        await self._pipe.close()
        if not self._ended.done():
            self._ended.cancel()
        elif not self._ended.cancelled():
            self._ended.exception()

    async def _leave(self, account: Account, seat: Seat, end: End) -> None:
        """Its place at the site; while the client waits for our end."""
        if self._session is not None:
            account.sessions.leave(self._session)
        expiry = 0 if self._last and end.expiry is None else end.expiry
        delay, hello = self._delay, self._hello
        if delay is not None and end.will and hello is not None:
            lasts = hello.expiry if expiry is None else expiry
            account.later(delay.vanished(lasts), f"agent: will of {self.client_id}")
            return
        keeps = expiry is not None and seat.kept
        if delay is not None:
            await delay.left(hold=keeps)
        else:
            await seat.leave(goodbye=not end.will, hold=keeps)
        # One that came meanwhile has the session.
        if expiry is not None and keeps and not self._ended.done():
            await seat.keep_for(expiry)
        seat.release()

    async def left(self) -> None:
        """Returns once it says nothing more, and has left its place at the site."""
        await self._left.wait()

    def end(self, refusal: Refusal) -> None:
        """From outside: another client takes its place, or the agent ends."""
        if not self._ended.done():
            self._ended.set_exception(End(refusal))

    async def _until_ended(self) -> None:
        # Not cancelled with its task: it says afterwards whether another one has come.
        await asyncio.shield(self._ended)

    # --- CONNECT ---

    async def _open(self) -> None:
        """CONNECT, and who it is. End."""
        opening = Opening()
        try:
            async with asyncio.timeout(_CONNECT_S):
                while self._dialect is None:
                    data = await self._pipe.read()
                    if not data:
                        raise End()
                    if (found := opening.feed(data)) is not None:
                        self._dialect, data = found
                        self._take(data)
                while not self._said and self._fault is None:
                    data = await self._pipe.read()
                    if not data:
                        raise End()
                    self._take(data)
        except TimeoutError:
            raise End() from None
        except ProtocolError as error:
            raise End(Refusal("broken", "", str(error))) from None
        if not self._said:
            code = getattr(self._fault, "connack", None)
            if code == 1:
                await self._pipe.send(b"\x20\x02\x00\x01")
            raise End(Refusal("broken", "", str(self._fault)))
        hello = self._said.pop(0)
        if not isinstance(hello, Hello):
            raise End(Refusal("broken", "", "CONNECT is the first packet"))
        await self._greet(self._dialect, hello)

    async def _greet(self, dialect: Dialect, hello: Hello) -> None:
        account = self._enter(hello.user, hello.password)
        made = ""
        self.client_id = hello.client_id
        if not hello.client_id:
            self.client_id = made = f"auto-{secrets.token_hex(8)}"
        refusal = None
        present = False
        if account is None:
            # The same words, and a second, whatever was wrong.
            await asyncio.sleep(1.0)
            refusal = Refusal("password", "agent.password", "user name or password is wrong")
        elif hello.fault:
            refusal = Refusal("impossible", "agent.property", hello.fault)
        elif not hello.client_id and hello.kept:
            refusal = Refusal("identifier", "", "a session that is kept has a client identifier")
        else:
            self._account = account
            self._pipe.proved()
            await self._joined(self)
            hello = await self._resumed(account, hello)
            refusal, present = await self._sit(account, dialect, hello)
        self._out.send(dialect.connack(present, refusal, made))
        if refusal is not None:
            raise End(refusal)
        self._hello = hello
        if account is None or self._session is None:
            return
        if dialect.tells or account.sessions.stored(self.client_id):
            # Saving takes a while. After CONNACK: nothing of the site's may come before that.
            await account.sessions.save(self._session)

    async def _resumed(self, account: Account, hello: Hello) -> Hello:
        """With what there is of an earlier connection."""
        if (delay := account.delays.get(self.client_id)) is not None:
            await delay.returned(goes_on=not hello.fresh)
        expiry = account.sessions.expiry_of(self.client_id)
        if hello.kept or hello.fresh or not expiry:
            return hello
        # MQTT 5, section 3.1.2.4: it goes on once more, and is over with this connection.
        self._last = True
        return replace(hello, kept=True, expiry=expiry)

    async def _sit(
        self, account: Account, dialect: Dialect, hello: Hello
    ) -> tuple[Refusal | None, bool]:
        """What has to be there before CONNACK."""
        if not await account.until_up(_AWAY_S) and account.refusal is not None:
            return account.refusal, False
        will = hello.will
        if will is not None and (
            refusal := account.user.discovery.judge(account.name, will.topic, will.payload)
        ):
            return refusal, False
        delivery = Delivery(account, self.client_id, dialect, hello.window, self._out)
        seat = Seat(account, self.client_id, self._stated, delivery.released, self._lost)
        self._delivery, self._seat = delivery, seat
        if (will is not None or hello.kept) and (refusal := await self._seated(account, hello)):
            return refusal, False
        self._session = session = account.sessions.enter(self.client_id, hello.kept, seat.present)
        self._received, session.expiry = session.received, hello.expiry
        self._subscriptions = Subscriptions(account, dialect, session, seat, delivery, self._out)
        return None, seat.present

    async def _seated(self, account: Account, hello: Hello) -> Refusal | None:
        """A session that is kept, or a will."""
        seat, will = self._place, hello.will
        if not account.up:
            return Refusal("away", "agent.away", "the site is away, which keeps sessions and wills")
        if hello.kept and hello.fresh:
            # What there is of the session ends first.
            if refusal := await seat.take():
                return refusal
            await seat.leave(hold=True)
        if refusal := await seat.take(hello.kept, hello.expiry, will):
            return refusal
        self._sends.begin(seat.client, seat.kept)
        if will is not None and will.delay and hello.kept and not self._last:
            self._delay = Delay(account, self.client_id, seat, will.delay)
        return None

    # --- what it says ---

    def _take(self, data: bytes) -> None:
        """Packets of `data`; what broke MQTT is kept for after them."""
        if self._dialect is None or self._fault is not None:
            return
        try:
            self._said += self._dialect.feed(data)
        except ProtocolError as error:
            # What came before the fault in one piece is not looked at: the connection is over.
            self._fault = error

    async def _read(self) -> None:
        hello = self._hello
        if hello is not None and hello.keepalive and self._group is not None:
            alive = self._alive(hello.keepalive * 1.5)
            self._group.create_task(alive, name="agent: keep alive")
        clock = asyncio.get_running_loop().time
        asks = self._asks
        while True:
            for said in self._said:
                if type(said) is Pub:
                    if asks.asking or self._going >= _GOING or self._going_bytes > _GOING_BYTES:
                        await self._until_room()
                    self._publish(said)
                elif type(said) is Acks:
                    self._sends.acks(said.packet_ids)
                else:
                    await self._handle(said)
            self._said.clear()
            if self._fault is not None:
                raise End(Refusal("broken", "", str(self._fault)))
            if len(self._out.data) > 2 * UNREAD:
                # Whoever does not read what it is answered is not listened to.
                self._full = True
                await self._out.below(2 * UNREAD)
                # What it has said meanwhile is heard now.
                self._full, self._heard = False, clock()
            self._listening = True
            data = await self._pipe.read()
            self._listening, self._heard = False, clock()
            if not data:
                raise End()
            self._take(data)

    async def _alive(self, seconds: float) -> None:
        """One look an interval, not one timer a read."""
        clock = asyncio.get_running_loop().time
        self._heard = clock()
        while True:
            await asyncio.sleep(max(0.05, self._there(clock()) + seconds - clock()))
            now = clock()
            if now - self._there(now) >= seconds:
                raise End(Refusal("silent", "", "silent for 1.5 keep alives"))

    def _there(self, now: float) -> float:
        """When it gave the last sign of life. While the site is slow it is not listened to, and may
        be silent; one that does not read what it is sent may not."""
        if not self._listening and not self._full:
            self._heard = now
        return max(self._heard, self._took) if self._full else self._heard

    async def _until_room(self) -> None:
        # Who publishes without waiting for SUBACK is to get what it publishes.
        await self._asks.answered()
        while self._going >= _GOING or self._going_bytes > _GOING_BYTES:
            self._room.clear()
            await self._room.wait()

    async def _handle(self, said: Said) -> None:
        match said:
            case Sub():
                await self._asks.put(said)
            case Ack():
                self._acked(said)
            case Ping():
                self._out.send(self._wire.pong())
            case Bye():
                if said.expiry and (self._last or not self._place.kept):
                    why = "a session expiry interval in DISCONNECT, where CONNECT had none or 0"
                    raise End(Refusal("broken", "", why))
                kept_for = self._hello.expiry if self._hello is not None else None
                raise End(None, said.will, None if said.expiry == kept_for else said.expiry)
            case Hello():
                raise End(Refusal("broken", "", "a second CONNECT"))

    @property
    def _wire(self) -> Dialect:
        if self._dialect is None:
            raise End()
        return self._dialect

    @property
    def _sends(self) -> Delivery:
        if self._delivery is None:
            raise End()
        return self._delivery

    @property
    def _place(self) -> Seat:
        if self._seat is None:
            raise End()
        return self._seat

    @property
    def _asks(self) -> Subscriptions:
        if self._subscriptions is None:
            raise End()
        return self._subscriptions

    @property
    def _mine(self) -> Account:
        if self._account is None:
            raise End()
        return self._account

    # --- publish ---

    def _publish(self, pub: Pub) -> None:
        topic, payload, qos, _, dup, packet_id, *_ = pub
        if qos == 2 and packet_id in self._received.accepted:
            if dup:
                self._out.send(self._wire.ack("PUBREC", packet_id))
                return
            # Another one: a client that was started anew, say, and counts from 1 again.
            self._received.accepted.discard(packet_id)
        if qos == 2 and len(self._received.accepted) >= UNRELEASED:
            why = f"{UNRELEASED} messages of QoS 2 wait for their PUBREL"
            raise End(Refusal("much", "agent.unreleased", why))
        answers = self._answers
        if answers is None:
            account = self._mine
            answers = self._answers = _Answers(self, account, self.client_id, self._received)
        size = len(payload) + len(topic) + 256
        self._going += 1
        self._going_bytes += size
        answer = _Answer(answers.tell, size, topic, qos, packet_id)
        answers.account.publish(self.client_id, pub, answer)

    def decided(self, size: int, qos: int, packet_id: int, refusal: Refusal | None) -> None:
        """The site has, about a PUBLISH of this client."""
        self._going -= 1
        self._going_bytes -= size
        self._room.set()
        if self._dialect is None or self._ended.done() or not qos:
            return
        if refusal is None and qos == 1:
            self._out.send(build.puback(packet_id))
            return
        account = self._mine
        if refusal is not None and not self._dialect.tells and not account.user.acknowledge:
            # 3.1.1 can say no to a PUBLISH by ending the connection alone [MQTT-3.3.5-2].
            self.end(refusal)
            return
        kind = "PUBACK" if qos == 1 else "PUBREC"
        self._out.send(self._dialect.ack(kind, packet_id, refusal))

    def refused(self, topic: str, refusal: Refusal) -> None:
        """A refusal that nothing else tells, or is told besides."""
        asks, wire = self._subscriptions, self._dialect
        if asks is not None and asks.notes and wire is not None and len(self._out.data) < UNREAD:
            self._out.send(wire.note(REFUSED, note(topic, refusal)))

    # --- acknowledgements ---

    def _acked(self, ack: Ack) -> None:
        if ack.kind == "PUBREL":
            # Clients that overlook a PUBREC's reason code see it here. What is not known was
            # accepted by an agent that has ended since: its client would take another code for a
            # failure.
            refused = self._received.released(ack.packet_id)
            self._out.send(self._wire.ack("PUBCOMP", ack.packet_id, _UNKNOWN if refused else None))
            return
        self._sends.acked(ack)

    def _stated(self, what: str) -> None:
        """Something has become of the site's connection."""
        log.info("%s", f"{self.client_id}: {what}")
        if what == "connected" and self._delivery is not None:
            self._delivery.again()

    def _lost(self, error: SiteRefused) -> None:
        """A subscription, in a new connection to the site: its client comes again, and is told."""
        self.end(Refusal("away", error.rule, str(error)))

    async def _write(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            await self._pipe.send(await self._out.next())
            self._took = clock()
