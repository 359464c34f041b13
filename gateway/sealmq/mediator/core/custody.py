"""Custody: who must not forget a message of QoS 1 or 2, and whose acknowledgement moves it on.

The table of gateway/DESIGN.md, which a test compares with this one; gateway/tests/custody explores
whether the code keeps it, whoever dies. Nothing here runs in a mediator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

PUBLISHER = "publisher"
ACCEPTED = "journal and broker"
BROKER = "broker"
MEMORY = "mediator's memory"


class Row(NamedTuple):
    """Where a message is, who owes it from there on, and until when."""

    where: str
    owner: str
    until: str


CUSTODY: Mapping[int, Row] = {
    1: Row("read, not judged or being labelled", PUBLISHER, "judged, label durable"),
    2: Row(
        "forwarded", PUBLISHER, "broker's PUBACK, or PUBCOMP (the mediator answers PUBREC itself)"
    ),
    3: Row(
        "broker has it, journal not yet durable",
        PUBLISHER,
        "journal durable: PUBACK or PUBREC to the publisher",
    ),
    4: Row("accepted", ACCEPTED, "the broker's third save after it"),
    5: Row(
        "broker's queue of the live link",
        BROKER,
        "in every reader's outbox: PUBACK or PUBREC/PUBCOMP on the live link",
    ),
    6: Row("outbox of a clean session", MEMORY, "the reader's PUBACK or PUBCOMP; its end"),
    7: Row(
        "own link's queue, outbox of a kept session, `$share` of a clean one",
        BROKER,
        "the reader's PUBACK or PUBREC, passed on (a kept session's with the broker's packet id)",
    ),
}
"""The rows of DESIGN.md's table, by their numbers."""

CLEAN, KEPT = "clean", "kept"
ENDS: Mapping[str, frozenset[str]] = {
    CLEAN: frozenset({"reader", "live", "control", "broker", "worker"}),
    KEPT: frozenset({"reader", "own", "control", "broker", "worker"}),
}
"""Whose end ends the session of such a reader: its connection's, a link's, a process's. What a
clean one is owed ends with it, and what a kept one is owed with nothing.
"""
