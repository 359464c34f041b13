"""The one interface of all policy families. Deny by default: only an explicit allow allows.

A family is a pure module: no socket, file, thread, clock or loop; time comes in the Ask, as do
attributes from outside (attributes.py), state comes through `configure` and `apply`. It answers
`connect`, `publish`, `subscribe` and `deliver` with a Verdict that says what it rests on (deps) and
how long (until).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, get_args

from sealmq.feedback import Said as Feedback

from .ask import FOREVER, HOWS, NEVER, Ask, Dep, Question, Sub, Who
from .attributes import Attribute, Attributes, Declared, UnknownAttribute, pair
from .counts import Counts
from .duties import (
    EXECUTED,
    AtQos,
    Duties,
    Duty,
    Follow,
    LabelTopic,
    OnlyFrom,
    PutTlv,
    Rewrite,
    SealToGrant,
    SealToLink,
)
from .records import FamilyRecord, Record, ResetDone, TopicLabel, TopicReset
from .values import value

__all__ = [
    "FOREVER",
    "HOWS",
    "NEVER",
    "Ask",
    "AtQos",
    "Attribute",
    "Audited",
    "Change",
    "Dep",
    "Duties",
    "Duty",
    "Family",
    "FamilyConfigError",
    "FamilyError",
    "FamilyRecord",
    "Feedback",
    "Follow",
    "LabelTopic",
    "Later",
    "NotYet",
    "OnlyFrom",
    "Parsed",
    "Policy",
    "Proposal",
    "PutTlv",
    "Question",
    "Record",
    "ResetDone",
    "Rewrite",
    "SealToGrant",
    "SealToLink",
    "Seen",
    "Sub",
    "TopicLabel",
    "TopicReset",
    "UnfitFamily",
    "UnknownAttribute",
    "Verdict",
    "Who",
    "allow",
    "check_family",
    "deny",
    "pair",
]

Seen = Literal["accepted", "delivered", "refused", "subscribed", "gone"]

Audited = tuple[tuple[str, str], ...]
"""Values of a family's audit fields, each with its field's name."""


@value
class Verdict:
    """One family's answer. `rule` is a stable id out of the family's `rules`.

    `until` is Unix ms up to which it may be cached; NEVER (0) means it must not be. `audit`: of the
    fields that the family has (`audited`), what the audit log is to say of a delivery, or of one
    that was denied; "" says nothing.
    """

    allow: bool
    rule: str
    reason: str
    until: int = FOREVER
    deps: tuple[Dep, ...] = ()
    duties: tuple[Duty, ...] = ()
    audit: Audited = ()


def allow(
    rule: str,
    reason: str,
    *,
    until: int = FOREVER,
    deps: tuple[Dep, ...] = (),
    duties: tuple[Duty, ...] = (),
    audit: Audited = (),
) -> Verdict:
    """A verdict that lets the packet go on to the next family."""
    return Verdict(True, rule, reason, until, deps, duties, audit)


def deny(
    rule: str,
    reason: str,
    *,
    until: int = FOREVER,
    deps: tuple[Dep, ...] = (),
    audit: Audited = (),
) -> Verdict:
    """A verdict that ends the question. `reason` is told to the client: at most 200 bytes."""
    return Verdict(False, rule, reason, until, deps, (), audit)


class NotYet(Exception):
    """Raised by a family's `subscribe` or `deliver`: it has looked at as much as may be looked at
    in one go. Asked again, it goes on from there.
    """


class FamilyError(LookupError):
    """A family in `[policy] order` cannot be loaded. `hint` is for the operator."""

    def __init__(self, name: str, what: str, hint: str) -> None:
        super().__init__(what)
        self.name, self.hint = name, hint


class UnfitFamily(FamilyError):
    """The family declares what this gateway does not do."""


class FamilyConfigError(ValueError):
    """Raised by `configure`: [families.NAME] holds what the family cannot take.

    `key` is relative to families.NAME, for instance "tree.billing".
    """

    def __init__(self, key: str, what: str, hint: str) -> None:
        super().__init__(f"{key}: {what}" if key else what)
        self.key, self.what, self.hint = key, what, hint


class Parsed(NamedTuple):
    """A topic or filter without the family's own encoding, and what that encoding said."""

    topic: str
    notes: Mapping[str, Any]


class Change(NamedTuple):
    """What `configure` did: what cached verdicts lose, and records that must be committed."""

    deps: Iterable[Dep] = ()
    records: Sequence[Record] = ()


COMMAND = "command"
"""The event of a command's audit record."""
TOLD, NEWS = 16, 1024
"""Clients that a proposal tells something, and bytes of it."""

AUDITED = frozenset({"topic", "label", "rule", "reason", "detail"})
"""What a family may say in the audit record of its command (shared_spec/audit.schema.json)."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a command would change: commit `records`, audit, apply, then send `reply`.

    `audit`: fields of the record `command`, out of AUDITED; texts. `urgent`: it takes something
    away, so that it has to pass with a full disk, too. `for_site`: the operator has put the client
    in charge, so that the rows do not count on it ([limits] rows). `event`: that of the audit
    record; a family's is always `command`. `tells`: what other clients are told at once, by their
    names: each open session that takes it, whichever worker has it. Of at most 16, each with at
    most 1,024 bytes (TOLD, NEWS).
    """

    records: tuple[Record, ...] = ()
    audit: Mapping[str, str] | None = None
    reply: bytes = b""
    urgent: bool = False
    for_site: bool = False
    event: str = COMMAND
    tells: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Later:
    """The answer to a command takes longer than others may be held up. `go_on`, called again and
    again, works on it for a slice of some milliseconds, and gives None until the answer is there.
    """

    go_on: Callable[[], Proposal | Verdict | None]


class ClientPolicy(Protocol):
    """A client as the configuration names it."""

    @property
    def label(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def disabled(self) -> bool: ...


class CreationPolicy(Protocol):
    """One [[creation]] rule."""

    @property
    def filter(self) -> str: ...
    @property
    def labels(self) -> Sequence[str]: ...
    @property
    def clients(self) -> Sequence[str]: ...


class LimitsPolicy(Protocol):
    """What families read of [limits]."""

    @property
    def topics(self) -> int: ...
    @property
    def label_topics(self) -> int: ...


AttributePolicy = Declared
"""One [attributes.NAME]."""


class PeerPolicy(Protocol):
    """One [peers.NAME], as `sealmq peer add` tells families of it."""

    @property
    def name(self) -> str: ...
    @property
    def exports(self) -> Sequence[str]: ...
    @property
    def imports(self) -> Sequence[str]: ...
    def client_out(self, label: str) -> str: ...
    def client_in(self, label: str) -> str: ...
    def label_in(self, label: str) -> str: ...


class Policy(Protocol):
    """What families read of the configuration (sealmq.toml); `site.config.Config` fits."""

    @property
    def clients(self) -> Mapping[str, ClientPolicy]: ...
    @property
    def topics(self) -> Mapping[str, str]: ...
    @property
    def creation(self) -> Sequence[CreationPolicy]: ...
    @property
    def limits(self) -> LimitsPolicy: ...
    @property
    def attributes(self) -> Mapping[str, AttributePolicy]: ...
    @property
    def peers(self) -> Mapping[str, Any]:
        """Neighbours by name: what they export is mounted below @NAME/."""
        ...

    @property
    def borders(self) -> Mapping[str, Any]:
        """Borders by name (site.model.Border): what each may read, and where it publishes."""
        ...

    @property
    def families(self) -> Mapping[str, Mapping[str, Any]]:
        """[families.NAME]: a family's own settings, which it checks itself."""
        ...

    def dominates(self, a: str, b: str) -> bool:
        """Whether a ≥ b; False for a label that does not exist, and for `none`."""
        ...


class Family:
    """Base of all families. What a family does not answer is denied (engine.exception)."""

    name: ClassVar[str]
    rules: ClassVar[Mapping[str, str]]
    """Every rule id that its verdicts use, with one plain line for `explain`."""
    rate_rules: ClassVar[frozenset[str]] = frozenset()
    """Rules by which a client is refused what it does too often: it is told *rate* (SPEC.md 11),
    since the same may pass later. By all others it is *denied*.
    """
    tlvs: ClassVar[frozenset[int]] = frozenset()
    """TLV types (without the critical bit) that it understands."""
    few: ClassVar[frozenset[int]] = frozenset()
    """Of `tlvs`, those of which there are few different values. An answer about a delivery that
    lies under a grant of the mediators' own, and has no other items, is kept for those with the
    same; so is one about a publish. A publisher says what he likes: what is none of the few
    values is judged with `until` NEVER.
    """
    parses: ClassVar[frozenset[Question]] = frozenset()
    """Questions about whose topic or filter `parse` is asked."""
    duties: ClassVar[Duties] = {}
    """What its verdicts may ask of the mediator, by question: out of duties.EXECUTED."""
    records: ClassVar[frozenset[type[Record]]] = frozenset()
    """Records that are its own, besides its FamilyRecords."""
    reads: ClassVar[frozenset[type[Record]]] = frozenset()
    """Records of others that `apply` gets, too."""
    audited: ClassVar[frozenset[str]] = frozenset()
    """Names of the audit fields that its manifest declares: what its verdicts may say there."""
    opens: ClassVar[bool] = False
    """Whether `deliver` needs tlv, message_id or age_ms, which lie inside the envelope."""
    sees: frozenset[Seen] = frozenset(get_args(Seen))
    """What `see` wants to hear, read after `configure` and `apply`. Each costs a call a message."""
    outside: Attributes = Attributes()
    """What the sources have told, for commands: the engine gives each family its own. A question
    reads Ask.attribute, so that its answer rests on it.
    """
    counts: Counts = Counts()
    """What readers at this worker have got; as `outside`."""

    def configure(self, config: Policy) -> Change:
        """Take the configuration in: at start-up (after `apply`) and at each change."""
        return Change()

    def apply(self, records: Sequence[Record]) -> Iterable[Dep]:
        """Index these rows: the own FamilyRecords, and those of the types in `records` and `reads`.
        Gives what cached verdicts may no longer rest on.
        """
        return ()

    def told(self, rows: Mapping[str, bytes]) -> Iterable[Dep]:
        """What the key generator's part of this family tells mediators (manifest.py, KgKeeps): all
        that there is now, by key. Before the first question, and at each change. Gives what cached
        verdicts may no longer rest on.
        """
        return ()

    def bearers(
        self, since: Mapping[str, int], rows: Callable[[], Iterable[Record]]
    ) -> Sequence[Record]:
        """Since when (Unix ms) the clients bear their names: what an earlier bearer of a name has
        made or left is nobody's now. Gives the records that say so, to be committed and applied.

        rows: all that the store holds, which may be many; `noted` says before whether it matters.
        """
        return ()

    def noted(self, since: Mapping[str, int]) -> bool:
        """The same, told first, and in force at once: whether `bearers` has anything to do."""
        return False

    def parse(self, question: Question, topic: str) -> Parsed | None:
        """Strip the own encoding off a topic or filter; None when there is none. Pure. Asked of the
        questions that `parses` names. The family whose name comes first is asked first.
        """
        return None

    def connect(self, ask: Ask) -> Verdict:
        raise NotImplementedError

    def publish(self, ask: Ask) -> Verdict:
        raise NotImplementedError

    def subscribe(self, ask: Ask) -> Verdict:
        raise NotImplementedError

    def deliver(self, ask: Ask) -> Verdict:
        raise NotImplementedError

    def command(self, who: Who, body: bytes, now_ms: int) -> Proposal | Verdict | Later:
        """Judge a command (SPEC.md 4.4, op 0x81). Pure: it proposes, it changes nothing."""
        return deny("engine.no-command", f"the family {self.name} takes no commands")

    def feedback(self, who: Who, said: Feedback, now_ms: int) -> Proposal | Verdict:
        """What a reader says of a message of another site that it may have got (GATEWAY.md G11): it
        subscribes to the topic. As `command`; the first family that overrides this is asked.
        """
        return deny("engine.no-feedback", f"the family {self.name} takes no feedback")

    def greet(self, who: Who) -> bytes:
        """What this client is told after each of its welcomes (SPEC.md 4.4, op 9), at most 1,024
        bytes; empty: nothing. Nobody knows whether a client that was told something (Proposal) has
        got it: what it has not answered yet is this family's to keep, as a row, and to say again.
        """
        return b""

    def see(self, what: Seen, ask: Ask) -> Iterable[Dep | Attribute]:
        """Something happened, as `ask` says: one of `sees`.

        Of this worker's clients alone: with `[mediator] workers` above 1 nobody sees what others'
        do. So nothing that is counted here may decide for the whole site. What all workers are to
        know goes into a record; or is a value of an attribute that comes of events and is this
        family's ([attributes.NAME] source = "events"): an Attribute among the deps is in force
        here before anything else is judged, and at the other workers soon after. No family here
        overrides it.
        """
        return ()

    def tick(self, now_ms: int) -> Iterable[Dep]:
        """Called about once a second."""
        return ()

    def explain(self, ask: Ask, verdict: Verdict) -> Sequence[str]:
        """Plain lines that say more than the rule's own."""
        return ()


def check_family(family: type[Family] | Family) -> None:
    """UnfitFamily unless this mediator does all that the family may ask of it.

    A duty that nobody does would be dropped, and the message delivered without it; an encoding that
    nobody asks about would be taken for a part of the topic.
    """
    made = family if isinstance(family, type) else type(family)
    if not made.parses and made.parse is not Family.parse:
        raise UnfitFamily(
            family.name,
            f"the policy family {family.name!r} has an encoding of topics and no question to which "
            "it belongs",
            "`parses` has to name the questions about whose topic `parse` is to be asked",
        )
    for rule in sorted(made.rate_rules - made.rules.keys()):
        raise UnfitFamily(
            family.name,
            f"the policy family {family.name!r} has no rule {rule!r} to refuse by",
            "`rate_rules` has to name rules of its `rules`",
        )
    for question, duties in family.duties.items():
        for duty in sorted(duties - EXECUTED.get(question, frozenset()), key=lambda d: d.__name__):
            does = ", ".join(sorted(d.__name__ for d in EXECUTED.get(question, ())))
            raise UnfitFamily(
                family.name,
                f"the policy family {family.name!r} asks for {duty.__name__} on {question}, which "
                f"this gateway does not do",
                f"on {question} it does {does or 'nothing of that kind'}: take {family.name!r} out "
                "of [policy] order, or install a gateway that does it",
            )
