"""What a verdict may ask of the mediator: a closed set.

A family only names a duty; the mediator does it. A family says beforehand which ones it may name
(Family.duties), and one that names what this mediator does not do (EXECUTED) is not loaded. A duty
that was not declared, or has values that the wire cannot carry, turns the verdict into a deny
(engine.bad-duty).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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

    `type` is 32 to 127, or with the critical bit one that the family understands (`tlvs`), and
    `value` has at most 255 bytes. On publish the item goes to all readers; on deliver to this one,
    in the place of one of the same type, for what SealToLink costs.
    """

    type: int
    value: bytes


@dataclass(frozen=True, slots=True)
class SealToLink:
    """Seal m3 to the link of the reader's connection (SPEC.md 3.3, ref 1), not to the label: nobody
    else with the label's keys opens what this reader is sent. Costs opening m3, once for all
    readers, and sealing it for each.
    """


@dataclass(frozen=True, slots=True)
class SealToGrant:
    """Seal m3 to a grant (SPEC.md 3.3, ref 2), not to the label. The family's part of the key
    generator says who holds it (manifest.py, KgPart).

    On deliver: only who holds it opens what is captured on the way to a reader of it; to whom does
    not, nothing is delivered. Costs opening m3 and sealing it, once for all readers.

    On publish: what lies at the broker. The grant has to be one that no client holds: then nobody
    but the site's mediators sees the items that families have put, and nobody else makes such a
    copy (Ask.grant). Each delivery is asked about with the items, and sealed for its reader without
    them. Costs opening and sealing m3 at each delivery, once for all readers.
    """

    family: str
    name: str


@dataclass(frozen=True, slots=True)
class Follow:
    """Ask about this subscription again whenever what it rests on (deps, until) has gone.

    A later deny pauses it at the broker, a later allow resumes it with its QoS. Denies of a
    followed subscription are followed as well, so they have to say their deps too. With `until`
    NEVER only the deps count.
    """


@dataclass(frozen=True, slots=True)
class OnlyFrom:
    """Deliver messages of these senders (names of clients) and of nobody else: others' are denied
    by `rule`, one of the family's. A sender that is not known is none of them.

    The verdict is cached as any other is. Costs opening m3, once for all readers.
    """

    senders: frozenset[str]
    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class AtQos:
    """Deliver it with this QoS at most. The broker and the table know a reader's filters, not what
    families say of them in notes: a family by whose notes only some of `Ask.subs` want the message
    names the greatest QoS of those. Of several duties the least counts.

    What comes over a link of the session's own (`$share`, a session that is kept) has the broker's
    QoS, of which only 0 is made.
    """

    qos: int


Duty = LabelTopic | Rewrite | PutTlv | SealToLink | SealToGrant | Follow | OnlyFrom | AtQos

Duties = Mapping[Question, frozenset[type[Duty]]]
"""Duties by the question that they answer."""

EXECUTED: Duties = {
    "connect": frozenset(),
    "publish": frozenset({LabelTopic, Rewrite, PutTlv, SealToGrant}),
    "subscribe": frozenset({Rewrite, Follow}),
    "deliver": frozenset({AtQos, OnlyFrom, PutTlv, SealToGrant, SealToLink}),
}
"""What this mediator does, by the question that it is asked for: mediator/core/inbound.py,
subscriptions.py, delivery.py."""


def exclude(one: Duty, other: Duty) -> bool:
    """Whether two different duties cannot both be done. A delivery has one form, and a type of TLV
    occurs once in it, with or without the critical bit. Of several that name senders, or a QoS, all
    count.
    """
    if isinstance(one, (AtQos, OnlyFrom)):
        return False
    if isinstance(one, PutTlv) and isinstance(other, PutTlv):
        return one.type & 0x7F == other.type & 0x7F
    sealing = SealToLink, SealToGrant
    return type(one) is type(other) or (isinstance(one, sealing) and isinstance(other, sealing))


def lies_under(duties: Iterable[Duty]) -> tuple[str, str] | None:
    """Family and name of the grant to which the broker's copy of a message is sealed."""
    for duty in duties:
        if isinstance(duty, SealToGrant):
            return duty.family, duty.name
    return None


def at_most(duties: Iterable[Duty], qos: int) -> int:
    """That QoS, or the lower one that is asked for."""
    return min([qos, *(duty.qos for duty in duties if isinstance(duty, AtQos))])


def look_inside(duties: Iterable[Duty]) -> bool:
    """Whether any of these, of a delivery, needs what lies inside of m3."""
    return any(not isinstance(duty, AtQos) for duty in duties)


def sealed_anew(duties: Iterable[Duty]) -> bool:
    """Whether they make another m3 of it, for this reader alone or for some."""
    return any(isinstance(duty, (PutTlv, SealToGrant, SealToLink)) for duty in duties)


def items_put(duties: Iterable[Duty], among: Mapping[int, bytes]) -> dict[int, bytes]:
    """The items `among`, and those that are put, in the place of those of their types."""
    put = {duty.type: duty.value for duty in duties if isinstance(duty, PutTlv)}
    types = {kind & 0x7F for kind in put}
    return {kind: value for kind, value in among.items() if kind & 0x7F not in types} | put
