"""From the live link to its readers (GATEWAY.md G2): a message goes once to each reader that the
subscription table names, and a fault with one of them is not the others'.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from sealmq.mqtt import Publish
from sealmq_spec.errors import SealError

from .limits import Room
from .message import Message
from .site import Site
from .table import Copies, SubscriptionTable


class Outbox(Hashable, Protocol):
    """A reader's (delivery.py). `name`: its client's."""

    name: str

    def deliver(self, message: Message, value: int) -> None:
        """One of the live link. value: as the table has it."""

    def failed(self) -> None:
        """It could not be delivered to."""


class Outboxes:
    """What those of one worker share. `table`: who reads what of the live link; `copies`: what that
    brought; `held`: bytes that wait in all of them; `room`: how many may.
    """

    __slots__ = ("copies", "held", "room", "table")

    def __init__(self) -> None:
        self.table: SubscriptionTable[Outbox] = SubscriptionTable()
        self.copies = Copies()
        self.held = 0
        self.room = Room()


def fan_out(site: Site, outboxes: Outboxes, packet: Publish) -> None:
    """One PUBLISH of the live link, into the outbox of each reader that the table names."""
    if packet.retain or not packet.payload:
        # Copies for a new subscription, which fetches its own; and a cleared retained message.
        return
    readers = outboxes.table.match(packet.topic)
    if not readers:
        return
    try:
        message = Message(site, packet)
    except SealError as error:
        rule = "mediator.deliver." + type(error).__name__.lower()
        for reader in readers:
            site.counts.count_denied(reader.name, packet.topic, rule)
        return
    if not message.record and outboxes.copies.again((packet.topic, packet.payload)):
        return
    failed: list[Exception] = []
    for reader, value in readers.items():
        try:
            reader.deliver(message, value)
        except Exception as error:  # a fault with one reader is not the others'
            failed.append(error)
            reader.failed()
    if failed:
        raise failed[0]
