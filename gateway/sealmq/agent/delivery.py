"""What the site's connection of one local client brings, on its way to that client.

Bounded by what the client has not acknowledged and not read. A message of QoS 1 and 2 is
acknowledged to the site when the client has done so; of a session that is kept the site's packet
ids are the client's, so that both go on where they were.

The site's PUBREL stands after messages that are not read while there is no room for them, and room
comes with the client's PUBCOMP. So the client's PUBREL does not wait for it: of a session that ends
with its connection it goes at once. Of a kept one the site sends a message again whose PUBREC it
never had, and its client takes that for another one after a PUBREL: there it goes early only while
nothing is read, and with its packet id on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from sealmq.client import Client, ClientError, Message
from sealmq.mqtt import PacketIds
from sealmq_spec.errors import SealError

from .account import Account
from .sessions import Session
from .wire import Ack, Dialect, End, Refusal

log = logging.getLogger("sealmq.agent")

UNREAD = 256 * 1024
# While there is no room: looks whether the site's connection is read still.
_LOOK_S = 0.1


class Out:
    """Bytes for a client, until the system has taken them."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._written = asyncio.Event()
        self._drained = asyncio.Event()

    def send(self, data: bytes) -> None:
        if not self.data:
            self._written.set()
        self.data += data

    async def below(self, most: int) -> None:
        """Returns once the client has read all but so many bytes."""
        while len(self.data) > most:
            self._drained.clear()
            await self._drained.wait()

    async def next(self) -> bytearray:
        """What is to be sent now, for the caller alone; what was given before has been."""
        while not self.data:
            self._drained.set()
            self._written.clear()
            await self._written.wait()
        data, self.data = self.data, bytearray()
        return data


@dataclass(slots=True)
class _Flight:
    """A message that the local client is not done with. received: its PUBREC has come; freed: it
    was sent PUBREL; released: the site's PUBREL has come."""

    message: Message | None
    received: bool = False
    freed: bool = False
    released: bool = False


class Delivery:
    """To one client, over all its connections to the site. window: how many messages of QoS 1 and 2
    it takes unacknowledged."""

    def __init__(
        self, account: Account, client_id: str, wire: Dialect, window: int, out: Out
    ) -> None:
        self._account, self._client_id = account, client_id
        self._wire, self._window, self._out = wire, window, out
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
        # The site's packet ids that the client is done with, until their PUBREL.
        self._ahead: set[int] = set()
        self._session: Session | None = None
        self._space = asyncio.Event()

    def begin(self, seat: Client | None, kept: bool) -> None:
        """It comes from there from now on."""
        self._seat, self._kept = seat, kept

    async def run(self, session: Session, group: asyncio.TaskGroup) -> None:
        """Deliver until cancelled; tasks beside it are the group's. End."""
        seat, account, out, window = self._seat, self._account, self._out, self._window
        if seat is None:
            raise End()
        self._session = session
        group.create_task(self._watch(seat), name="agent: site's connection")
        flights, judge, wire = self._flights, account.user.discovery.judge, self._wire
        while True:
            try:
                # No more than it has room for: what waits is bounded by the seat's inbox.
                some = await seat.receive_some(max(1, window - len(flights)))
            except (ClientError, SealError) as error:
                raise End(Refusal("away", "agent.away", str(error))) from None
            for message in some:
                if session.freed and self._freed(session, message):
                    seat.settle(message)
                    continue
                if refusal := judge(message.sender, message.topic, message.payload):
                    log.warning("%s", f"{self._client_id}: withheld: {refusal}")
                    account.tell(message.topic, refusal)
                    self._skip(seat, message)
                    continue
                ids: Sequence[int] = ()
                if session.choosing:
                    seen = session.seen(message, account.is_own(message))
                    if seen is None:
                        self._skip(seat, message)
                        continue
                    message, ids = seen
                came = message.came
                packet_id, dup = 0, False
                if came is not None:
                    if len(flights) >= window:
                        await self._until_space(seat, session, window)
                    packet_id = self._place(message, came.packet_id)
                    dup = came.dup and self._kept
                packet = wire.message(message, packet_id, message.qos, dup, ids)
                if packet:
                    out.send(packet)
                elif came is not None:
                    # Larger than the client takes: done with, as if it had been read.
                    self.acked(Ack("PUBACK" if message.qos == 1 else "PUBREC", packet_id, 0x97))
                if len(out.data) > UNREAD:
                    await out.below(UNREAD)

    def _freed(self, session: Session, message: Message) -> bool:
        """Whether its client is done with it, and the site has not heard of that."""
        came = message.came
        return (
            self._kept and message.qos == 2 and came is not None and came.packet_id in session.freed
        )

    async def _until_space(self, seat: Client, session: Session, window: int) -> None:
        while len(self._flights) >= window and seat.error is None:
            if self._kept and seat.paused:
                await self._free_early(session)
            if len(self._flights) < window:
                break
            self._space.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S if self._kept else None):
                    await self._space.wait()
        if seat.error is not None:
            # What it has not acknowledged comes again, in another connection.
            raise End(Refusal("away", "agent.away", str(seat.error)))

    def _skip(self, seat: Client, message: Message) -> None:
        """The client does not get it; to the site it is as if it had."""
        if seat.settle(message) and message.qos == 2 and message.came is not None:
            self._withheld.add(message.came.packet_id)

    async def _free_early(self, session: Session) -> None:
        """PUBREL for what the client has, of a session that is kept."""
        flights = self._flights
        some = [one for one, flight in flights.items() if flight.received and not flight.freed]
        if not some:
            return
        session.freed.update(some)
        await self._account.sessions.save(session)
        for packet_id in some:
            if (flight := flights.get(packet_id)) is not None and flight.received:
                self._free(packet_id, flight)

    def _free(self, packet_id: int, flight: _Flight) -> None:
        if not flight.freed:
            flight.freed = True
            self._out.send(self._wire.ack("PUBREL", packet_id))

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

    # --- what the client says of it ---

    def acks(self, packet_ids: tuple[int, ...]) -> None:
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

    def acked(self, ack: Ack) -> None:
        """PUBACK, PUBREC or PUBCOMP."""
        seat, flight = self._seat, self._flights.get(ack.packet_id)
        if seat is None:
            return
        if ack.kind == "PUBCOMP":
            if ack.packet_id in self._strays:
                self._strays.discard(ack.packet_id)
                self._complete(seat, ack.packet_id)
            elif flight is not None and flight.received:
                self._done(seat, ack.packet_id, flight.released)
            return
        message = flight.message if flight is not None else None
        if flight is None or message is None or message.qos != (1 if ack.kind == "PUBACK" else 2):
            return
        seat.settle(message)
        if ack.kind == "PUBACK":
            self._over(ack.packet_id)
        elif ack.code >= 0x80:
            self._done(seat, ack.packet_id, False)
        else:
            flight.received, flight.message = True, None
            if self._kept:
                self._space.set()
            else:
                self._free(ack.packet_id, flight)

    def _done(self, seat: Client, packet_id: int, released: bool) -> None:
        """The client is, with a message of QoS 2; the site once its PUBREL has come."""
        theirs = next((t for t, mine in self._local.items() if mine == packet_id), None)
        if theirs is not None:
            del self._local[theirs]
            if released:
                self._complete(seat, theirs)
            else:
                self._ahead.add(theirs)
        self._over(packet_id)

    def _complete(self, seat: Client, theirs: int) -> None:
        """PUBCOMP: the site may use the packet id again, so that it is off the disk before."""
        session = self._session
        if session is None or theirs not in session.freed:
            seat.complete(theirs)
            return

        async def complete() -> None:
            await self._account.sessions.save(session)
            seat.complete(theirs)

        session.freed.discard(theirs)
        self._account.later(complete(), f"PUBCOMP of {self._client_id}")

    def _over(self, packet_id: int) -> None:
        self._flights.pop(packet_id, None)
        self._ids.release(packet_id)
        self._space.set()

    # --- what becomes of the site's connection ---

    def released(self, theirs: int) -> None:
        """The site's PUBREL."""
        seat = self._seat
        if seat is None:
            return
        if theirs in self._withheld:
            self._withheld.discard(theirs)
            seat.complete(theirs)
            return
        if theirs in self._ahead:
            self._ahead.discard(theirs)
            self._complete(seat, theirs)
            return
        packet_id = self._local.get(theirs, 0)
        flight = self._flights.get(packet_id)
        if flight is not None and flight.received:
            flight.released = True
            self._free(packet_id, flight)
        elif self._kept:
            # Of a message that an earlier agent passed on, or the mediator's own, before an id that
            # a broker uses again: its PUBCOMP ends no message of this connection.
            self._strays.add(theirs)
            self._out.send(self._wire.ack("PUBREL", theirs))
        else:
            seat.complete(theirs)

    def again(self) -> None:
        """It is another connection now, in which nothing of what came before is known."""
        if self._kept:
            return
        self._withheld.clear()
        self._ahead.clear()
        self._local.clear()
