"""A family that has deliveries sealed to the reader's link or to a grant, puts items into them, or
lets through what some senders have sent (tests).
"""

from __future__ import annotations

from typing import ClassVar

from sealmq.families.api import (
    HOWS,
    Ask,
    AtQos,
    Duties,
    Duty,
    Family,
    OnlyFrom,
    PutTlv,
    SealToGrant,
    SealToLink,
    Verdict,
    allow,
    deny,
)


class Sealing(Family):
    """`wants`: of each client's deliveries. `asked`: how the messages came about which it was
    asked. `keeps_back`: a `how` that it denies. `puts`: duties of each publish; its items are those
    of the publisher, too. `found`: items and grant of each delivery.
    """

    name: ClassVar[str] = "sealing"
    rules: ClassVar[dict[str, str]] = {
        "sealing.fine": "The family has nothing against it.",
        "sealing.back": "The test keeps it back.",
        "sealing.sender": "It is of another sender.",
    }
    duties: ClassVar[Duties] = {
        "publish": frozenset({PutTlv, SealToGrant}),
        "deliver": frozenset({AtQos, OnlyFrom, PutTlv, SealToGrant, SealToLink}),
    }
    tlvs: ClassVar[frozenset[int]] = frozenset({40, 41})

    def __init__(self, **wants: tuple[Duty, ...]) -> None:
        self.wants = wants
        self.asked: list[str] = []
        self.keeps_back = ""
        self.puts: tuple[Duty, ...] = ()
        self.found: list[tuple[dict[int, bytes], tuple[str, str] | None]] = []

    def connect(self, ask: Ask) -> Verdict:
        return allow("sealing.fine", "fine")

    subscribe = connect

    def publish(self, ask: Ask) -> Verdict:
        items = [PutTlv(kind, value) for kind, value in ask.tlv.items()] if self.puts else ()
        return allow("sealing.fine", "fine", duties=(*items, *self.puts))

    def deliver(self, ask: Ask) -> Verdict:
        how = HOWS[ask.how]
        self.asked.append(how)
        self.found.append((dict(ask.tlv), ask.grant))
        if how == self.keeps_back:
            return deny("sealing.back", how)
        return allow("sealing.fine", "fine", duties=self.wants.get(ask.who.client, ()))


def only_from(*clients: str) -> Duty:
    """Of other senders' messages the family's deny."""
    return OnlyFrom(frozenset(clients), "sealing.sender", "another sender")
