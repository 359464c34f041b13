"""The merged verdict, the engine's own rules, and the check of duties. Deny by default."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sealmq_spec.const import MAX_TOPIC

from .api import (
    FOREVER,
    NEVER,
    AtQos,
    Audited,
    Dep,
    Duty,
    Family,
    Follow,
    LabelTopic,
    OnlyFrom,
    PutTlv,
    Question,
    Rewrite,
    SealToGrant,
    SealToLink,
)
from .ask import Who
from .duties import EXECUTED, exclude
from .shared import PUBLIC
from .topiclabels import NONE
from .values import value

ENGINE = "engine"
CLOSED = "engine.closed"
CLOSED_REASON = "the site lost what it knew of labels and consent; its operator has to reopen it"

RULES: Mapping[str, str] = {
    "engine.attribute-malformed": "What was told of an attribute is not well written.",
    "engine.attribute-not-yours": "This client tells no attribute of that name.",
    "engine.attribute-subject": "The attribute cannot be of this client, pair or site.",
    "engine.attribute-validity": "Nothing of the attribute may be told for so long.",
    "engine.bad-duty": "A family asked for a duty that it has not declared or nobody can do.",
    "engine.bad-proposal": "A family's command proposed records that are not its own.",
    "engine.bad-verdict": "A family's answer was no verdict, or by a rule that no table holds.",
    "engine.closed": "Labels and reservations may be lost: nothing is delivered, no topic gets a "
    "label and no command changes anything until an operator runs `sealmq reopen`.",
    "engine.duty-conflict": "Two families asked for duties that exclude each other.",
    "engine.exception": "A family failed on the question; what it cannot judge is denied.",
    "engine.feedback-malformed": "The command is no feedback.",
    "engine.feedback-unread": "The client does not subscribe to what it gives feedback on.",
    "engine.no-command": "The family takes no commands.",
    "engine.no-feedback": "No policy family of this site takes feedback.",
    "engine.no-family": "No policy family is there to allow it.",
    "engine.parse": "A family could not read the topic or filter.",
    "engine.rewrite-loop": "Families kept rewriting the topic.",
    "engine.unknown-attribute": "A family needed an attribute that no source has told, or whose "
    "validity is over.",
}
"""The rules that the engine itself denies by, each with one plain line for `explain`."""


Said = tuple[str, str, str]
"""The fields of a Vote."""


class Vote(NamedTuple):
    """What one family said."""

    family: str
    rule: str
    reason: str


@value
class Decision:
    """The merged verdict.

    `raw` is the topic or filter as it arrived, `topic` the one to go on with (parsed, rewritten);
    `notes` what the families' encodings said. `label` is the label to commit before going on (duty
    LabelTopic), or None. `overridden`: it was a deny, and `enforce = false` made an allow of it.
    `said`: family, rule and reason of every family that was asked. `audit`: what these say in their
    audit fields; nothing where the engine itself denies, or lets through what was denied.
    `counted`: the counts that were read, names and subjects, each with the senders for whose
    messages alone it counts, or None: for everybody's.
    """

    question: Question
    allow: bool
    until: int
    deps: tuple[Dep, ...]
    duties: tuple[Duty, ...]
    raw: str
    topic: str
    notes: Mapping[str, Mapping[str, Any]]
    label: str | None
    overridden: bool
    said: tuple[Said, ...]
    audit: Audited = ()
    counted: tuple[tuple[tuple[str, str], Collection[str] | None], ...] = ()

    def for_sender(self, client: str) -> Decision:
        """What a delivery's is for a message of this client, "" for one that is not known: of a
        duty OnlyFrom that does not name it, its family's deny.
        """
        for duty in self.duties:
            if isinstance(duty, OnlyFrom) and client not in duty.senders:
                return _denied(self, (duty.rule.partition(".")[0], duty.rule, duty.reason))
        if any(senders is not None for _, senders in self.counted):
            mine = [(key, None) for key, of in self.counted if of is None or client in of]
            return replace(self, counted=tuple(mine))
        return self

    @property
    def votes(self) -> tuple[Vote, ...]:
        """Every family that was asked."""
        return tuple(map(Vote._make, self.said))

    @property
    def _by(self) -> Said:
        return self.said[0 if self.allow and not self.overridden else -1]

    @property
    def family(self) -> str:
        """Which one decided ("engine": the engine's own rules): the one that denied, or of several
        that allowed the first.
        """
        return self._by[0]

    @property
    def rule(self) -> str:
        """By which rule."""
        return self._by[1]

    @property
    def reason(self) -> str:
        """Why, in words: what a client is told that is refused."""
        return self._by[2]


class Refused(Exception):
    """Inside the engine: the question ends with a deny by a rule of the engine's own."""

    def __init__(self, rule: str, reason: str, until: int = NEVER) -> None:
        super().__init__(reason)
        self.rule = rule
        self.reason = reason
        self.until = until


def when_closed(decision: Decision) -> Decision:
    """The decision while the site is closed: a delivery of what a label protects, and the label of
    a new topic, are denied whatever the families say. Public records carry no label.
    """
    delivers = decision.question == "deliver" and not decision.topic.startswith(PUBLIC)
    if not decision.allow or not (delivers or decision.label is not None):
        return decision
    return _denied(decision, (ENGINE, CLOSED, CLOSED_REASON))


def _denied(decision: Decision, by: Said) -> Decision:
    """The deny that it becomes by this, in the place of what that family has said before."""
    others = (said for said in decision.said if said[0] != by[0])
    return replace(
        decision,
        allow=False,
        duties=(),
        label=None,
        overridden=False,
        said=(*others, by),
        audit=() if by[0] == ENGINE else decision.audit,
    )


def check_duty(family: Family, question: Question, duty: Duty, who: Who) -> None:
    """Refused (engine.bad-duty) unless the family has declared this duty for this question, the
    mediator does it, and can.
    """
    if type(duty) not in family.duties.get(question, ()) or type(duty) not in EXECUTED[question]:
        text = f"{type(duty).__name__} is no duty that {family.name} declares for {question}"
        raise Refused("engine.bad-duty", text, FOREVER)
    if not _can_be_done(family, duty, who):
        raise Refused("engine.bad-duty", f"{type(duty).__name__} with values that cannot be done")


def _can_be_done(family: Family, duty: object, who: Who) -> bool:
    match duty:
        case LabelTopic(label):
            return label == who.label != NONE
        case Rewrite(str(topic)):
            return 0 < len(topic.encode()) <= MAX_TOPIC
        case PutTlv(int(kind), bytes(value)):
            # A mediator that opens the message again would refuse a critical one that it lacks.
            known = kind < 0x80 or kind & 0x7F in family.tlvs
            return _family_tlv(kind) and known and len(value) <= 255
        case OnlyFrom(frozenset() as senders, str(rule), str()):
            # "" is a sender that is not known. Who denies is told by the rule's first word.
            own = rule.startswith(family.name + ".") and rule in family.rules
            return own and "" not in senders
        case Follow() | SealToLink():
            return True
        case AtQos(int(qos)):
            return 0 <= qos <= 2
        case SealToGrant(str(of), str()):
            return of == family.name
        case _:
            return False


def _family_tlv(kind: int) -> bool:
    """Types 0 to 31, critical or not, are the protocol's own (SPEC.md 3.4)."""
    return 0 <= kind <= 255 and kind & 0x7F >= 32


def merge_duties(duties: list[Duty], more: Sequence[Duty]) -> None:
    """Add `more` to `duties`; Refused (engine.duty-conflict) if two of them exclude each other."""
    for duty in more:
        if duty in duties:
            continue
        for other in duties:
            if exclude(duty, other):
                text = f"{type(other).__name__} and another {type(duty).__name__}"
                raise Refused("engine.duty-conflict", text)
        duties.append(duty)
