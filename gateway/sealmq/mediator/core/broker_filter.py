"""One filter at the broker, and the filters of a client for which it is there.

Several of a client's filters may be the same one at the broker. The broker then has the highest QoS
that was granted to any of those which the policy allows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

NONE = -1
"""The QoS of no subscription."""


@dataclass(slots=True)
class Held:
    """A filter of the client's, without its token: the QoS granted, what the policy says now, and
    whether the broker has ever taken it. `identifier`: the client's own for it, 0: none.
    """

    qos: int
    allowed: bool
    taken: bool = False
    identifier: int = 0


@dataclass(slots=True, eq=False)
class BrokerFilter:
    """One filter at the broker, and the client's filters for which it is there.

    `have`: the QoS at which the broker has it once all that was sent is done; `turn` counts what
    was sent, and `real` is the QoS by its last answer. `busy`: a pause or resume is under way.
    `refused`: the broker refused to resume it, and is not asked again until the policy changes.
    """

    filter: str
    link: str
    held: dict[str, Held] = field(default_factory=dict)
    have: int = NONE
    real: int = NONE
    turn: int = 0
    busy: bool = False
    refused: bool = False

    @property
    def wanted(self) -> int:
        """At which QoS the broker should have it."""
        return max((held.qos for held in self.held.values() if held.allowed), default=NONE)

    @property
    def asked(self) -> int:
        """At which QoS a SUBSCRIBE asks for it. A filter that the policy stopped allowing while
        others of the packet were judged is asked for, too, and paused after the answer.
        """
        qos = (held.qos for held in self.held.values())
        return max(qos) if self.wanted == NONE else self.wanted

    @property
    def missed(self) -> int:
        """`wanted`, but only of filters that were granted once: others have a task that asks."""
        qos = (held.qos for held in self.held.values() if held.allowed and held.taken)
        return max(qos, default=NONE)

    @property
    def rows(self) -> list[tuple[str, int, str, int]]:
        """For the store: the filters that the broker has taken, with their filter at the broker, ""
        while they are paused, and the client's identifier.
        """
        at = "" if self.have == NONE else self.filter
        held = self.held.items()
        return [(raw, one.qos, at, one.identifier) for raw, one in held if one.taken]

    def sent(self, qos: int) -> int:
        """A SUBSCRIBE at this QoS, or an UNSUBSCRIBE (NONE), is on its way: its turn."""
        self.have = qos
        self.turn += 1
        return self.turn

    def answered(self, turn: int, qos: int | None) -> None:
        """The broker has done what was sent at that turn: it has this now, or (None) what it had.

        Answers come in the order of what was sent.
        """
        if qos is not None:
            self.real = qos
        if turn == self.turn:
            self.have = self.real
