"""What the site's connection of one local client brings, on its way to that client.

Bounded by what the client has not acknowledged and not read. A message of QoS 1 and 2 is
acknowledged to the site when the client has done so; of a session that is kept the site's packet
ids are the client's, so that both go on where they were.
"""

from __future__ import annotations

import asyncio
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
    """A message that the local client has not acknowledged. received: PUBREC has come, PUBREL of
    the site has not."""

    message: Message | None
    received: bool = False


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
        self._space = asyncio.Event()

    def begin(self, seat: Client | None, kept: bool) -> None:
        """It comes from there from now on."""
        self._seat, self._kept = seat, kept

    async def run(self, session: Session, group: asyncio.TaskGroup) -> None:
        """Deliver until cancelled; tasks beside it are the group's. End."""
        seat, account, out, window = self._seat, self._account, self._out, self._window
        if seat is None:
            raise End()
        group.create_task(self._watch(seat), name="agent: site's connection")
        flights, judge, wire = self._flights, account.user.discovery.judge, self._wire
        while True:
            try:
                # No more than it has room for: what waits is bounded by the seat's inbox.
                some = await seat.receive_some(max(1, window - len(flights)))
            except (ClientError, SealError) as error:
                raise End(Refusal("away", "agent.away", str(error))) from None
            for message in some:
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
                        await self._until_space(seat, window)
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

    async def _until_space(self, seat: Client, window: int) -> None:
        while len(self._flights) >= window and seat.error is None:
            self._space.clear()
            await self._space.wait()
        if seat.error is not None:
            # What it has not acknowledged comes again, in another connection.
            raise End(Refusal("away", "agent.away", str(seat.error)))

    def _skip(self, seat: Client, message: Message) -> None:
        """The client does not get it; to the site it is as if it had."""
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
            self._out.send(self._wire.ack("PUBREL", ack.packet_id))

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
        packet_id = self._local.get(theirs, 0)
        flight = self._flights.get(packet_id)
        if flight is not None and flight.received:
            self._out.send(self._wire.ack("PUBREL", packet_id))
        elif self._kept:
            # Of a message that an earlier agent passed on, or the mediator's own, before an id that
            # a broker uses again: its PUBCOMP ends no message of this connection.
            self._strays.add(theirs)
            self._out.send(self._wire.ack("PUBREL", theirs))
        else:
            seat.complete(theirs)

    def again(self) -> None:
        """It is another connection now: what waits for its PUBREL is released."""
        if self._kept:
            return
        self._withheld.clear()
        for packet_id, flight in self._flights.items():
            if flight.received:
                self._out.send(self._wire.ack("PUBREL", packet_id))
        self._local.clear()
