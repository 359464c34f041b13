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
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from sealmq.client import Client, ClientError, Message, NotAuthorised
from sealmq.client import Refused as SiteRefused
from sealmq.loops import first_error
from sealmq.mqtt import PacketIds, ProtocolError, build
from sealmq_spec.errors import SealError

from .account import SEATS, UNRELEASED, Account, Unreleased, note
from .wire import FOREVER, Ack, Acks, Bye, Dialect, Hello, Opening, Ping, Pub, Refusal, Said, Sub

log = logging.getLogger("sealmq.agent")

# Refusals that nothing else tells, for local clients that subscribe to it.
REFUSED = "$SYS/sealmq/refused"

_CONNECT_S = 10.0
# A client that connects while the site is away waits so long for it.
_AWAY_S = 5.0
_GOING = 32
_GOING_BYTES = 4 << 20
_UNREAD = 256 * 1024
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


class End(Exception):
    """This connection ends. refusal: why, if it is not in good order; will: whether it is sent;
    expiry: what its session's expiry interval is from now on, in seconds; None: as CONNECT said.
    """

    def __init__(
        self, refusal: Refusal | None = None, will: bool = True, expiry: int | None = None
    ) -> None:
        super().__init__(str(refusal) if refusal else "goodbye")
        self.refusal, self.will, self.expiry = refusal, will, expiry


@dataclass(slots=True)
class _Flight:
    """A message that the local client has not acknowledged. received: PUBREC has come, PUBREL of
    the site has not."""

    message: Message | None
    received: bool = False


class _Answers:
    """What the site's decisions mean to one connection. They may come when nobody is there any
    more, so it holds nothing of it but the ids that were accepted."""

    def __init__(
        self, local: Local, account: Account, client_id: str, received: Unreleased
    ) -> None:
        self.account = account
        self._local, self._client_id, self._received = weakref.ref(local), client_id, received

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
    that has come in, and ends the one that had its place."""

    def __init__(
        self,
        pipe: Pipe,
        enter: Callable[[str | None, bytes | None], Account | None],
        joined: Callable[[Local], None],
    ) -> None:
        self._pipe, self._enter, self._joined = pipe, enter, joined
        self._dialect: Dialect | None = None
        self._account: Account | None = None
        self._hello: Hello | None = None
        self.client_id = ""
        self._said: list[Said] = []
        self._out = bytearray()
        self._written = asyncio.Event()
        self._drained = asyncio.Event()
        self._fault: Exception | None = None
        self._seat: Client | None = None
        self._kept = False
        self._ids = PacketIds()
        self._flights: dict[int, _Flight] = {}
        # The site's packet id of a QoS 2 message -> the local one.
        self._local: dict[int, int] = {}
        # Those of the site's messages of QoS 2 that were withheld, until their PUBREL.
        self._withheld: set[int] = set()
        # Packet ids of PUBRELs that belong to no message of this connection.
        self._strays: set[int] = set()
        self._space = asyncio.Event()
        self._received = Unreleased()
        # PUBLISHes that have no answer yet, and what they take.
        self._going = self._going_bytes = 0
        self._answers: _Answers | None = None
        self._room = asyncio.Event()
        self._subs: asyncio.Queue[Sub] = asyncio.Queue(_GOING)
        # SUBSCRIBE and UNSUBSCRIBE that have no answer yet.
        self._asking = 0
        self._answered = asyncio.Event()
        self._sayings: dict[str, dict[str, str | None]] = {}
        self._notes = False
        # When it was heard last, and whether anything that it says now would be.
        self._heard, self._listening = 0.0, False
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._group: asyncio.TaskGroup | None = None

    @property
    def account(self) -> Account | None:
        """Whose it is, once it is in."""
        return self._account

    # --- life ---

    async def run(self) -> None:
        """Serve it to its end. Raises nothing that it or the site can cause."""
        end = End()
        try:
            await self._open()
            async with asyncio.TaskGroup() as group:
                self._group = group
                for name, work in (
                    ("read", self._read()),
                    ("write", self._write()),
                    ("subscribe", self._subscribing()),
                    ("end", self._until_ended()),
                ):
                    group.create_task(work, name=f"agent: {name}")
                if self._seat is not None:
                    group.create_task(self._deliver(self._seat), name="agent: deliver")
        except End as found:
            end = found
        except BaseExceptionGroup as errors:
            found_end = first_error(errors)
            if not isinstance(found_end, End | OSError):
                raise found_end from None
            end = found_end if isinstance(found_end, End) else End()
        except OSError:
            pass
        finally:
            await self._close(end)

    async def _close(self, end: End) -> None:
        who = self.client_id or "a client"
        if end.refusal is not None:
            log.info("%s", f"{who}: ended: {end.refusal}")
        if self._dialect is not None and end.refusal is not None and self._hello is not None:
            self._out += self._dialect.goodbye(end.refusal)
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                if self._out:
                    await self._pipe.send(bytes(self._out))
        seat, self._seat = self._seat, None
        if seat is not None and self._account is not None:
            self._account.seats -= 1
            await seat.disconnect(goodbye=not end.will)
        # While the client waits for our end; one that came meanwhile has the session.
        goes_on = self._kept and not self._ended.done()
        if end.expiry is not None and goes_on and self._account is not None:
            await self._expires(self._account, end.expiry)
        await self._pipe.close()
        if not self._ended.done():
            self._ended.cancel()
        elif not self._ended.cancelled():
            self._ended.exception()

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
            self._joined(self)
            refusal, present = await self._sit(account, hello)
            if hello.kept and refusal is None:
                self._received = account.received_of(self.client_id, present)
        self._out += dialect.connack(present, refusal, made)
        if refusal is not None:
            raise End(refusal)
        self._hello = hello

    async def _sit(self, account: Account, hello: Hello) -> tuple[Refusal | None, bool]:
        """What has to be there before CONNACK."""
        if not await account.until_up(_AWAY_S) and account.refusal is not None:
            return account.refusal, False
        will = hello.will
        if will is not None and (
            refusal := account.user.discovery.judge(account.name, will.topic, will.payload)
        ):
            return refusal, False
        if will is None and not hello.kept:
            return None, False
        if not account.up:
            why = "the site is away, which keeps sessions and wills"
            return Refusal("away", "agent.away", why), False
        if hello.kept and hello.fresh:
            # What there is of the session ends first.
            refusal = await self._seated(account, replace(hello, will=None), kept=False)
            if refusal is not None:
                return refusal, False
            await self._leave(account)
        refusal = await self._seated(account, hello, hello.kept)
        return refusal, self._seat is not None and self._seat.present

    async def _expires(self, account: Account, seconds: int) -> None:
        """The site is told by a CONNECT for how long it keeps the session from now on: no seal
        covers a DISCONNECT. 0: one that is not kept takes its place."""
        hello = Hello(self.client_id, False, False, 0, None, None, None, expiry=seconds)
        refusal = await self._seated(account, hello, kept=seconds > 0)
        if refusal is not None:
            log.warning("%s", f"{self.client_id}: the site keeps its session as before: {refusal}")
        if not seconds:
            account.received_of(self.client_id, present=False)
        await self._leave(account)

    async def _leave(self, account: Account) -> None:
        seat, self._seat = self._seat, None
        if seat is not None:
            account.seats -= 1
            await seat.disconnect()

    async def _seated(self, account: Account, hello: Hello, kept: bool) -> Refusal | None:
        """A connection to the site that reads for this client."""
        if account.seats >= SEATS:
            why = f"{SEATS} clients of {account.user.name} read already; the site takes no more"
            return Refusal("much", "agent.clients", why)
        account.seats += 1
        expiry = hello.expiry if kept and hello.expiry < FOREVER else None
        seat = account.reader(
            self.client_id, kept, expiry, hello.will, self._stated, self._released
        )
        try:
            await account.enter(seat)
        except (ClientError, SealError) as error:
            account.seats -= 1
            with contextlib.suppress(ClientError, SealError):
                await seat.disconnect()
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
        except BaseException:
            account.seats -= 1
            raise
        self._seat, self._kept = seat, kept
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
        while True:
            for said in self._said:
                if type(said) is Pub:
                    if self._asking or self._going >= _GOING or self._going_bytes > _GOING_BYTES:
                        await self._until_room()
                    self._publish(said)
                elif type(said) is Acks:
                    self._acks(said.packet_ids)
                else:
                    await self._handle(said)
            self._said.clear()
            if self._fault is not None:
                raise End(Refusal("broken", "", str(self._fault)))
            while len(self._out) > 2 * _UNREAD:
                # Whoever does not read what it is answered is not listened to.
                self._drained.clear()
                await self._drained.wait()
            self._listening = True
            data = await self._pipe.read()
            self._listening, self._heard = False, clock()
            if not data:
                raise End()
            self._take(data)

    async def _alive(self, seconds: float) -> None:
        """One look an interval, not one timer a read. While it is not listened to, it may be
        silent."""
        clock = asyncio.get_running_loop().time
        self._heard = clock()
        while True:
            await asyncio.sleep(max(0.05, self._heard + seconds - clock()))
            if not self._listening:
                self._heard = clock()
            elif clock() - self._heard >= seconds:
                raise End(Refusal("silent", "", "silent for 1.5 keep alives"))

    async def _until_room(self) -> None:
        if self._asking:
            # Who publishes without waiting for SUBACK is to get what it publishes.
            self._answered.clear()
            await self._answered.wait()
        while self._going >= _GOING or self._going_bytes > _GOING_BYTES:
            self._room.clear()
            await self._room.wait()

    async def _handle(self, said: Said) -> None:
        match said:
            case Sub():
                self._asking += 1
                await self._subs.put(said)
            case Ack():
                self._acked(said)
            case Ping():
                self._send(self._wire.pong())
            case Bye():
                if said.expiry and not self._kept:
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
    def _reader(self) -> Client:
        if self._seat is None:
            raise End()
        return self._seat

    @property
    def _mine(self) -> Account:
        if self._account is None:
            raise End()
        return self._account

    # --- publish ---

    def _publish(self, pub: Pub) -> None:
        topic, payload, qos, _, _, packet_id, *_ = pub
        if qos == 2 and packet_id in self._received.accepted:
            self._send(self._wire.ack("PUBREC", packet_id))
            return
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
        answer = partial(answers.tell, size, topic, qos, packet_id)
        answers.account.publish(self.client_id, pub, answer)

    def decided(self, size: int, qos: int, packet_id: int, refusal: Refusal | None) -> None:
        """The site has, about a PUBLISH of this client."""
        self._going -= 1
        self._going_bytes -= size
        self._room.set()
        if self._dialect is None or self._ended.done() or not qos:
            return
        if refusal is None and qos == 1:
            self._send(build.puback(packet_id))
            return
        account = self._mine
        if refusal is not None and not self._dialect.tells and not account.user.acknowledge:
            # 3.1.1 can say no to a PUBLISH by ending the connection alone [MQTT-3.3.5-2].
            self.end(refusal)
            return
        kind = "PUBACK" if qos == 1 else "PUBREC"
        self._send(self._dialect.ack(kind, packet_id, refusal))

    def refused(self, topic: str, refusal: Refusal) -> None:
        """A refusal that nothing else tells, or is told besides."""
        if self._notes and self._dialect is not None and len(self._out) < _UNREAD:
            self._send(self._dialect.note(REFUSED, note(topic, refusal)))

    # --- subscribe ---

    async def _subscribing(self) -> None:
        while True:
            asked = await self._subs.get()
            answers: list[int | Refusal] = [0] * len(asked.filters)
            open_: dict[int, list[int]] = {}
            for i, (filt, qos) in enumerate(asked.filters):
                if asked.faults and asked.faults[i]:
                    answers[i] = Refusal("impossible", "agent.property", asked.faults[i])
                elif filt == REFUSED:
                    self._notes = asked.add
                else:
                    open_.setdefault(qos, []).append(i)
            for qos, which in open_.items():
                found = await self._ask(asked, qos, which)
                for i, answer in zip(which, found, strict=True):
                    answers[i] = answer
            for (filt, _), answer in zip(asked.filters, answers, strict=True):
                if isinstance(answer, Refusal):
                    log.info("%s", f"{self.client_id}: {filt}: refused: {answer}")
            self._send(self._wire.granted(asked, answers))
            self._asking -= 1
            if not self._asking:
                self._answered.set()

    async def _ask(self, asked: Sub, qos: int, which: list[int]) -> list[int | Refusal]:
        account = self._mine
        filters = [asked.filters[i][0] for i in which]
        # The names are arguments of the client library: none but these may pass.
        if unknown := asked.said.keys() - account.sayable:
            why = f"{min(unknown)[:64]!r} is nothing that can be said with a subscription"
            return [Refusal("impossible", "agent.property", why)] * len(which)
        said: dict[str, str | None] = {**account.user.say, **asked.said}
        if self._seat is None and not asked.add:
            return [0] * len(which)
        if self._seat is None:
            if self._hello is None or self._group is None:
                raise End()
            refusal = await self._seated(account, self._hello, False)
            if refusal is not None and refusal.kind == "away":
                # Clients take a refusal for the last word, and try a connection again.
                raise End(refusal)
            if refusal is not None:
                return [refusal] * len(which)
            self._group.create_task(self._deliver(self._reader), name="agent: deliver")
        return await self._settled(self._reader, asked, qos, filters, said)

    async def _settled(
        self, seat: Client, asked: Sub, qos: int, filters: list[str], said: dict[str, str | None]
    ) -> list[int | Refusal]:
        try:
            if asked.add:
                found = await seat.subscribe_each(*filters, qos=qos, within=None, **said)
                for filt, answer in zip(filters, found, strict=True):
                    # As many as the site grants: a boot session has a bound (SPEC.md 9).
                    if not isinstance(answer, SiteRefused):
                        self._sayings[filt] = said
                return [Refusal.of(a) if isinstance(a, SiteRefused) else a for a in found]
            for filt in filters:
                await seat.unsubscribe(filt, within=None, **self._sayings.pop(filt, said))
            return [0] * len(filters)
        except SealError as error:
            return [Refusal.of(error)] * len(filters)
        except ClientError as error:
            raise End(Refusal("away", "agent.away", str(error))) from None

    # --- deliver ---

    async def _deliver(self, seat: Client) -> None:
        account = self._mine
        window = self._hello.window if self._hello is not None else 1
        if self._group is not None:
            self._group.create_task(self._watch(seat), name="agent: site's connection")
        flights, judge, wire = self._flights, account.user.discovery.judge, self._wire
        while True:
            try:
                # No more than it has room for: what waits is bounded by the seat's inbox.
                some = await seat.receive_some(max(1, window - len(flights)))
            except (ClientError, SealError) as error:
                raise End(Refusal("away", "agent.away", str(error))) from None
            for message in some:
                if refusal := judge(message.sender, message.topic, message.payload):
                    self._withhold(seat, message, refusal)
                    continue
                came = message.came
                packet_id, dup = 0, False
                if came is not None:
                    if len(flights) >= window:
                        await self._until_space(seat, window)
                    packet_id = self._place(message, came.packet_id)
                    dup = came.dup and self._kept
                packet = wire.message(message, packet_id, message.qos, dup)
                if packet:
                    self._send(packet)
                elif came is not None:
                    # Larger than the client takes: done with, as if it had been read.
                    self._acked(Ack("PUBACK" if message.qos == 1 else "PUBREC", packet_id, 0x97))
                while len(self._out) > _UNREAD:
                    self._drained.clear()
                    await self._drained.wait()

    async def _until_space(self, seat: Client, window: int) -> None:
        while len(self._flights) >= window and seat.error is None:
            self._space.clear()
            await self._space.wait()
        if seat.error is not None:
            # What it has not acknowledged comes again, in another connection.
            raise End(Refusal("away", "agent.away", str(seat.error)))

    def _withhold(self, seat: Client, message: Message, refusal: Refusal) -> None:
        log.warning("%s", f"{self.client_id}: withheld: {refusal}")
        self._mine.tell(message.topic, refusal)
        if seat.settle(message) and message.qos == 2 and message.came is not None:
            self._withheld.add(message.came.packet_id)

    async def _watch(self, seat: Client) -> None:
        """No answer that makes room comes from a site's connection that is over."""
        await seat.ended()
        self._space.set()

    def _place(self, message: Message, theirs: int) -> int:
        """The local packet id: that of the site for a session that is kept."""
        packet_id = theirs if self._kept else self._ids.take()
        if message.qos == 2:
            self._local[theirs] = packet_id
        self._flights[packet_id] = _Flight(message)
        return packet_id

    def _acks(self, packet_ids: tuple[int, ...]) -> None:
        """PUBACKs of 3.1.1."""
        seat, flights = self._seat, self._flights
        for packet_id in packet_ids if seat is not None else ():
            flight = flights.get(packet_id)
            message = None if flight is None else flight.message
            if seat is None or message is None or message.qos != 1:
                continue
            seat.settle(message)
            del flights[packet_id]
            self._ids.release(packet_id)
        self._space.set()

    def _acked(self, ack: Ack) -> None:
        if ack.kind == "PUBREL":
            # Clients that overlook a PUBREC's reason code see it here. What is not known was
            # accepted by an agent that has ended since: its client would take another code for a
            # failure.
            refused = self._received.released(ack.packet_id)
            self._send(self._wire.ack("PUBCOMP", ack.packet_id, _UNKNOWN if refused else None))
            return
        flight, seat = self._flights.get(ack.packet_id), self._seat
        if seat is None:
            return
        if ack.kind == "PUBCOMP":
            if ack.packet_id in self._strays:
                self._strays.discard(ack.packet_id)
                seat.complete(ack.packet_id)
            elif flight is not None and flight.received:
                theirs = next((t for t, mine in self._local.items() if mine == ack.packet_id), None)
                if theirs is not None:
                    del self._local[theirs]
                    seat.complete(theirs)
                self._over(ack.packet_id)
            return
        message = flight.message if flight is not None else None
        if flight is None or message is None or message.qos != (1 if ack.kind == "PUBACK" else 2):
            return
        there = seat.settle(message)
        if ack.kind == "PUBACK" or ack.code >= 0x80:
            self._over(ack.packet_id)
            return
        flight.received, flight.message = True, None
        if not there:
            # The site's connection is another one by now, in which nothing of this is known.
            self._send(self._wire.ack("PUBREL", ack.packet_id))

    def _over(self, packet_id: int) -> None:
        self._flights.pop(packet_id, None)
        self._ids.release(packet_id)
        self._space.set()

    def _released(self, theirs: int) -> None:
        """The site's PUBREL."""
        seat = self._seat
        if seat is None:
            return
        if theirs in self._withheld:
            self._withheld.discard(theirs)
            seat.complete(theirs)
            return
        packet_id = self._local.get(theirs, 0)
        flight = self._flights.get(packet_id)
        if flight is not None and flight.received:
            self._send(self._wire.ack("PUBREL", packet_id))
        elif self._kept:
            # Of a message that an earlier agent passed on, or the mediator's own, before an id that
            # a broker uses again: its PUBCOMP ends no message of this connection.
            self._strays.add(theirs)
            self._send(self._wire.ack("PUBREL", theirs))
        else:
            seat.complete(theirs)

    def _stated(self, what: str) -> None:
        """Something has become of the site's connection: what waits for its PUBREL is released."""
        log.info("%s", f"{self.client_id}: {what}")
        if what != "connected" or self._kept or self._dialect is None:
            return
        self._withheld.clear()
        for packet_id, flight in self._flights.items():
            if flight.received:
                self._send(self._dialect.ack("PUBREL", packet_id))
        self._local.clear()

    # --- bytes ---

    def _send(self, data: bytes) -> None:
        if not self._out:
            self._written.set()
        self._out += data

    async def _write(self) -> None:
        while True:
            if not self._out:
                self._drained.set()
                self._written.clear()
                await self._written.wait()
            data, self._out = self._out, bytearray()
            await self._pipe.send(data)
