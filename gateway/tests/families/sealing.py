"""A family that has deliveries sealed to the reader's link or to a grant, puts items into them, or
lets through what some senders have sent (tests).
"""

from __future__ import annotations

from typing import ClassVar

from sealmq.families.api import (
    HOWS,
    Ask,
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
    asked. `keeps_back`: a `how` that it denies.
    """

    name: ClassVar[str] = "sealing"
    rules: ClassVar[dict[str, str]] = {
        "sealing.fine": "The family has nothing against it.",
        "sealing.back": "The test keeps it back.",
        "sealing.sender": "It is of another sender.",
    }
    duties: ClassVar[Duties] = {"deliver": frozenset({OnlyFrom, PutTlv, SealToGrant, SealToLink})}
    tlvs: ClassVar[frozenset[int]] = frozenset({40, 41})

    def __init__(self, **wants: tuple[Duty, ...]) -> None:
        self.wants = wants
        self.asked: list[str] = []
        self.keeps_back = ""

    def connect(self, ask: Ask) -> Verdict:
        return allow("sealing.fine", "fine")

    publish = subscribe = connect

    def deliver(self, ask: Ask) -> Verdict:
        how = HOWS[ask.how]
        self.asked.append(how)
        if how == self.keeps_back:
            return deny("sealing.back", how)
        return allow("sealing.fine", "fine", duties=self.wants.get(ask.who.client, ()))


def only_from(*clients: str) -> Duty:
    """Of other senders' messages the family's deny."""
    return OnlyFrom(frozenset(clients), "sealing.sender", "another sender")
