"""What policy families keep: plain rows. The store makes them durable, `Family.apply` indexes them.

The path is the same at start-up, for an own change and for another mediator's: commit says what
holds, and only what holds is applied.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopicLabel:
    """The label of a published topic; the first writer wins. `client`: a name, `at_ms`: Unix ms."""

    topic: str
    label: str
    client: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class TopicReset:
    """σ(t) ← ⊖ (paper, 3.2): the learned label is forgotten once, and a mark stays.

    `done`: that happened before; this tells of the mark only.
    """

    topic: str
    done: bool = False


@dataclass(frozen=True, slots=True)
class ResetDone:
    """The configuration no longer resets this topic: its mark goes, its label stays."""

    topic: str


@dataclass(frozen=True, slots=True)
class FamilyRecord:
    """A family's own row; the last writer wins. `value` None deletes it.

    `client`: on whom it counts ([limits] rows), "" for nobody. The engine says so of what a command
    proposes; whatever the family has put there is overwritten.
    """

    family: str
    key: str
    value: bytes | None
    client: str = ""


Record = TopicLabel | TopicReset | ResetDone | FamilyRecord
