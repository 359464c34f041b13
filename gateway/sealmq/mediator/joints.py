"""Which filters a client holds, and under what the broker has them. No packet, no policy.

Several filters of a client may be one at the broker: a purpose stands in front of it, and the
broker never sees that. It then has one subscription for all of them, at the highest QoS that any of
those which are allowed was granted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

NONE = -1
"""The QoS of no subscription."""


@dataclass(slots=True)
class Raw:
    """A filter as it stands behind the token: the QoS granted, what the policy says now, and
    whether the broker has ever taken it.
    """

    qos: int
    allowed: bool
    taken: bool = False


@dataclass(slots=True, eq=False)
class Joint:
    """One filter at the broker.

    `have`: at which QoS the broker has it, once it has done all that was sent; `turn` counts what
    was sent, and `real` is what it has answered. `busy`: an order of the mediator's own is under
    way. `refused`: the broker did not take it back; not asked again until the policy changes.
    """

    filt: str
    raws: dict[str, Raw] = field(default_factory=dict)
    have: int = NONE
    real: int = NONE
    turn: int = 0
    busy: bool = False
    refused: bool = False

    @property
    def wanted(self) -> int:
        """At which QoS the broker should have it."""
        return max((raw.qos for raw in self.raws.values() if raw.allowed), default=NONE)

    @property
    def rows(self) -> list[tuple[str, int, str]]:
        """For the store: the filters that the broker has taken, and where they stand there, ""
        while they do not.
        """
        at = "" if self.have == NONE else self.filt
        return [(raw, held.qos, at) for raw, held in self.raws.items() if held.taken]

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


class Joints:
    """All of one connection."""

    def __init__(self) -> None:
        self._at: dict[str, Joint] = {}
        self._of: dict[str, Joint] = {}

    def __len__(self) -> int:
        return len(self._at)

    def of(self, raw: str) -> Joint | None:
        """What a client's filter belongs to; None if it does not hold it."""
        return self._of.get(raw)

    def at(self, filt: str) -> Joint | None:
        """By the broker's filter."""
        return self._at.get(filt)

    def put(self, raw: str, filt: str, held: Raw) -> tuple[Joint, Joint | None]:
        """The client holds it, under this filter at the broker: its place, and the one that it
        has left for it, if any.
        """
        joint = self._at.get(filt)
        if joint is None:
            joint = self._at[filt] = Joint(filt)
        old = self._of.get(raw)
        if old is joint:
            old = None
        elif old is not None:
            del old.raws[raw]
        joint.raws[raw] = held
        self._of[raw] = joint
        return joint, old

    def drop(self, raw: str) -> Joint | None:
        """The client has left it: where it was. `tidy` that, once the broker knows."""
        joint = self._of.pop(raw, None)
        if joint is not None:
            del joint.raws[raw]
        return joint

    def tidy(self, joint: Joint) -> None:
        """Forgets it when there is nothing left of it, here nor, in the end, at the broker."""
        over = not joint.raws and joint.have == NONE and not joint.busy
        if over and self._at.get(joint.filt) is joint:
            del self._at[joint.filt]
