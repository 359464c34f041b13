"""The publish link: all that clients publish, pipelined over one connection.

If it falls while the broker is there, one of the messages that the broker had not answered may be
the cause: each is tried again by `alone`, which finds that out, and publishing waits meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from sealmq.mqtt import Packet, Puback, Pubcomp, Pubrec, build

from .broker import AsEvent, BrokerAddress, BrokerAway, BrokerLink, directly
from .credit import EACH, Credit
from .reconnecting import FIRST_S, MOST_S, ReconnectingLink

log = logging.getLogger("sealmq.mediator")

# The most messages of QoS 2 under way: brokers walk over all of them for each.
TWOS = 500
PACKET_IDS = 65_535
# Above so many bytes under way or waiting nobody should publish, until they are half as many.
MOST_BYTES = 32 * 1024 * 1024
# Bytes that go out between two questions how far the broker is. Of QoS 0, four times as many are
# remembered at most.
ASK_BYTES = 256 * 1024
# Messages that are tried again at a time.
AT_ONCE = 64


# Stands for a client's number in marks (credit.py).
_MARKS = -1
# As the class's own constructor, at a third of its cost.
_new_tuple = tuple.__new__


OVER = "its client was removed, disabled, relabelled or has new keys since"


class NotTaken(Exception):
    """The broker does not take this message. Its text says why we think so."""


class Over(NotTaken):
    """Its client may not publish it any more."""


class Item(NamedTuple):
    """A message. `client`, `gen`: whose it is, and under which of its keys it came. `zeros`: how
    many of QoS 0 were sent before it.
    """

    sent: Any
    topic: bytes
    payload: bytes
    qos: int
    retain: bool
    client: int
    gen: int = 0
    zeros: int = 0


Alone = Callable[[Item], Awaitable[None]]
"""Publishes on a scratch connection (messages.py). Raises NotTaken, BrokerAway."""


async def _at_once() -> None:
    pass


class PublishLink(ReconnectingLink):
    """`accepted` and `not_taken` tell of each message of QoS above 0 once; of QoS 0, only
    `not_taken` may. `pressure` hears whether nobody should publish for now; what comes all the
    same waits here, and then goes out if its client `may` still publish. `ready` is awaited when
    the link is open, before anything goes out: a broker that was lost first gets back what it lost,
    or newer messages would move readers' windows beyond that. `as_event`: as BrokerLink has it.
    """

    def __init__(
        self,
        address: BrokerAddress,
        client_id: str,
        alone: Alone,
        accepted: Callable[[Any], None],
        not_taken: Callable[[Any, str], None],
        pressure: Callable[[bool], None],
        changed: Callable[[], None] = lambda: None,
        credit: Credit | None = None,
        may: Callable[[Item], bool] = lambda item: True,
        ready: Callable[[], Awaitable[None]] = _at_once,
        as_event: AsEvent = directly,
    ) -> None:
        super().__init__(address, client_id, changed)
        self._alone, self._credit, self._may, self._ready = alone, credit, may, ready
        self._as_event = as_event
        if credit is not None:
            credit.room = lambda: self._gate(False)
        # Bytes that go out between two questions how far the broker is.
        self._step = ASK_BYTES if credit is None else min(ASK_BYTES, credit.most // 4)
        self._accepted, self._not_taken, self._pressure = accepted, not_taken, pressure
        self._link: BrokerLink | None = None
        self._send: Callable[[bytes], None] | None = None
        self._id = 0
        # By packet id, in the order in which they were sent.
        self._underway: dict[int, Item] = {}
        self._twos = 0
        # Fewer than the broker allows: its count may lag behind ours.
        self._most_twos = max(1, min(TWOS, address.inflight * 4 // 5))
        # Messages of QoS 0 of which nothing that was sent later has been answered.
        self._zeros: deque[Item] = deque()
        self._zeros_gone = 0
        self._unasked = self._unanswered = 0
        self._asked = False
        # What waits for the link or a packet id. What its client publishes after it waits, too.
        self._waiting: deque[Item] = deque()
        self._held_back: dict[int, int] = {}
        self._suspects: list[Item] = []
        # Bytes of _underway, _waiting and _suspects.
        self._bytes = 0
        self._why: set[str] = {"away"}
        self._oldest = 0

    def publish(
        self,
        sent: Any,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        client: int,
        gen: int = 0,
    ) -> None:
        """Topic and payload are checked already. Messages of one `client` keep their order."""
        send = self._send
        if send is None or (self._held_back and client in self._held_back):
            self._wait(Item(sent, topic, payload, qos, retain, client, gen))
        elif not qos:
            item = _new_tuple(Item, (sent, topic, payload, 0, retain, client, gen, 0))
            self._zeros.append(item)
            send(build.publish(topic, payload, 0, retain))
            self._unasked += len(payload) + EACH
            if self._unasked > self._step:
                self._ask()
        elif (qos == 2 and self._twos >= self._most_twos) or len(self._underway) >= PACKET_IDS:
            self._wait(Item(sent, topic, payload, qos, retain, client, gen))
        else:
            underway = self._underway
            packet_id = self._id % PACKET_IDS + 1
            while packet_id in underway:
                packet_id = packet_id % PACKET_IDS + 1
            self._id = packet_id
            zeros = self._zeros_gone + len(self._zeros)
            item = _new_tuple(Item, (sent, topic, payload, qos, retain, client, gen, zeros))
            underway[packet_id] = item
            if qos == 2:
                self._twos += 1
            send(build.publish(topic, payload, qos, retain, packet_id=packet_id))
            size = len(payload) + EACH
            self._bytes += size
            if self._bytes > MOST_BYTES:
                self._press("bytes", True)
            self._unasked += size
            if self._unasked > self._step:
                self._ask()

    # --- waiting ---

    def _wait(self, item: Item) -> None:
        self._waiting.append(item)
        self._held_back[item.client] = self._held_back.get(item.client, 0) + 1
        self._bytes += len(item.payload) + EACH
        if self._bytes > MOST_BYTES:
            self._press("bytes", True)

    # What waits goes out in its order, as far as it can.
    def _go_on(self) -> None:
        waiting = self._waiting
        while waiting and self._send is not None:
            item = waiting[0]
            if item.qos and len(self._underway) >= PACKET_IDS:
                return
            if item.qos == 2 and self._twos >= self._most_twos:
                return
            waiting.popleft()
            left = self._held_back.pop(item.client) - 1
            self._bytes -= len(item.payload) + EACH
            if item.client == _MARKS or self._may(item):
                self.publish(*item[:7])
            else:
                self._not_taken(item.sent, OVER)
            if left:
                self._held_back[item.client] = left

    # `on`: the broker's queue for the live link may be half full, and what comes waits here.
    def _gate(self, on: bool) -> None:
        if on == ("credit" in self._why):
            return
        self._send = self._link.send if self._link is not None and not on else None
        self._press("credit", on)
        if not on:
            self._go_on()

    def _press(self, why: str, on: bool) -> None:
        before = bool(self._why)
        (self._why.add if on else self._why.discard)(why)
        if before != bool(self._why):
            self._pressure(not before)

    # --- the broker's answers ---

    def _came(self, packet: Packet) -> None:
        kind = type(packet)
        if kind is Puback or kind is Pubcomp:
            item = self._underway.get(packet.packet_id)  # type: ignore[union-attr]
            if item is None or (item.qos == 2) != (kind is Pubcomp):
                return
            del self._underway[packet.packet_id]  # type: ignore[union-attr]
            if item.qos == 2:
                self._twos -= 1
            if self._zeros:
                self._answered(item.zeros)
            self._bytes -= len(item.payload) + EACH
            if self._why:
                self._look_at_room()
            if self._waiting:
                self._go_on()
            if item.client != _MARKS:
                self._accepted(item.sent)
            elif self._credit is not None:
                self._credit.acknowledged(item.payload)
        elif kind is Pubrec and self._link is not None:
            self._link.send(build.pubrel(packet.packet_id))  # type: ignore[union-attr]

    def _look_at_room(self) -> None:
        if self._bytes < MOST_BYTES // 2:
            self._press("bytes", False)

    # The broker has dealt with the first `zeros` messages of QoS 0.
    def _answered(self, zeros: int) -> None:
        while self._zeros_gone < zeros and self._zeros:
            self._zeros.popleft()
            self._zeros_gone += 1

    # Asks how far the broker is: by a ping what it has read, by a mark what its queues hold.
    def _ask(self) -> None:
        link, credit = self._link, self._credit
        if link is None:
            return
        unasked, self._unasked = self._unasked, 0
        if credit is not None and credit.counts:
            self.publish(None, credit.topic.encode(), credit.mark(unasked), 1, False, _MARKS)
            if credit.full:
                self._gate(True)
        self._unanswered += unasked
        sent = self._zeros_gone + len(self._zeros)
        if self._asked:
            if self._unanswered > 4 * ASK_BYTES:
                self._answered(self._zeros_gone + len(self._zeros) // 2)
                self._unanswered //= 2
            return
        if not self._zeros:
            return

        def answered(pong: asyncio.Future[None]) -> None:
            if self._link is link and pong.exception() is None:
                self._asked = False
                self._answered(sent)

        self._asked, self._unanswered = True, 0
        link.ping().add_done_callback(answered)

    # If the broker neither acknowledges a message nor hangs up on it, the link is given up, and the
    # message found as others are.
    def _overdue(self) -> str | None:
        oldest = next(iter(self._underway), 0)
        if oldest and oldest == self._oldest:
            return "the broker has not acknowledged a message"
        self._oldest = oldest
        return None

    # --- the link ---

    async def _hold(self) -> None:
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def lost(reason: str) -> None:
            # At once: what is published until the next turn of the loop would be lost.
            self._send = None
            if not ended.done():
                ended.set_result(reason)

        link = BrokerLink(
            self._came,
            lost,
            lambda full: self._press("full", full),
            overdue=self._overdue,
            as_event=self._as_event,
        )
        try:
            await link.open(self._address, self._client_id)
            await self._ready()
            if not link.up:
                raise BrokerAway(await ended)
            self._link, self._send = link, link.send
            self._asked, self._oldest = False, 0
            self._go_on()
            self._press("away", False)
            self._tell(None)
            reason = await ended
        finally:
            self._link = self._send = None
            link.close()
            self._press("away", True)
            self._press("full", False)
        self._tell(reason)
        await self._try_suspects(reason)

    async def _try_suspects(self, reason: str) -> None:
        if self._credit is not None:
            self._credit.restart()
        waiting = []
        for item in self._underway.values():
            if item.client == _MARKS:
                self._bytes -= len(item.payload) + EACH
            else:
                waiting.append(item)
        first = self._zeros_gone
        zeros = [item._replace(zeros=first + n) for n, item in enumerate(self._zeros)]
        # In the order in which they were sent.
        self._suspects = sorted([*waiting, *zeros], key=lambda item: (item.zeros, not item.qos))
        self._bytes += sum(len(item.payload) + EACH for item in zeros)
        self._underway, self._twos = {}, 0
        self._zeros.clear()
        self._unasked = self._unanswered = 0
        pause = FIRST_S
        if self._suspects:
            log.warning(
                "%s: %d messages that the broker has not answered are tried one by one",
                reason,
                len(self._suspects),
            )
        while self._suspects:
            before = len(self._suspects)
            await self._try_some()
            if len(self._suspects) < before:
                pause = FIRST_S
                continue
            # The broker was lost altogether. It may come back.
            await asyncio.sleep(pause)
            pause = min(pause * 2, MOST_S)

    async def _try_some(self) -> None:
        suspects = self._suspects
        some = suspects[:AT_ONCE]
        async with asyncio.TaskGroup() as group:
            tries = [group.create_task(self._try(item), name="publish") for item in some]
        self._suspects = [i for i, t in zip(some, tries, strict=True) if not t.result()]
        self._suspects += suspects[AT_ONCE:]

    # Whether nothing more is to be done for it.
    async def _try(self, item: Item) -> bool:
        why = None
        try:
            await self._alone(item)
        except NotTaken as error:
            why = str(error)
        except BrokerAway:
            return False
        self._bytes -= len(item.payload) + EACH
        self._look_at_room()
        if why is not None:
            self._not_taken(item.sent, why)
        elif item.qos:
            self._accepted(item.sent)
        return True
