"""What a verdict may ask of the mediator: a closed set.

A family only names a duty; the mediator does it. A family says beforehand which ones it may name
(Family.duties), and one that names what this mediator does not do (EXECUTED) is not loaded. A duty
that was not declared, or has values that the wire cannot carry, turns the verdict into a deny
(engine.bad-duty).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .ask import Question


@dataclass(frozen=True, slots=True)
class LabelTopic:
    """Make `label` the topic's label, durably, then ask `publish` again (paper, Algorithm 2)."""

    label: str


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Go on under another topic (publish, deliver) or filter (subscribe)."""

    topic: str


@dataclass(frozen=True, slots=True)
class PutTlv:
    """Put an item into the TLV block of m3 (SPEC.md 3.4). Nothing of a publisher's items is there
    unless a family puts it.

    `type` is 32 to 127, or 0xa0 to 0xff with the critical bit; `value` at most 255 bytes.
    """

    type: int
    value: bytes


@dataclass(frozen=True, slots=True)
class SealTo:
    """Seal m3 to one link (ref 1, a client's number) or a grant (ref 2), not to the label."""

    ref: int
    number: int


@dataclass(frozen=True, slots=True)
class Follow:
    """Ask about this subscription again whenever what it rests on (deps, until) has gone.

    A later deny pauses it at the broker, a later allow resumes it with its QoS. Denies of a
    followed subscription are followed as well, so they have to say their deps too. With `until`
    NEVER only the deps count.
    """


Duty = LabelTopic | Rewrite | PutTlv | SealTo | Follow

Duties = Mapping[Question, frozenset[type[Duty]]]
"""Duties by the question that they answer."""

EXECUTED: Duties = {
    "connect": frozenset(),
    "publish": frozenset({LabelTopic, Rewrite, PutTlv}),
    "subscribe": frozenset({Rewrite, Follow}),
    "deliver": frozenset(),
}
"""What this mediator does, by the question that it is asked for: publishing.py, subscribing.py."""
