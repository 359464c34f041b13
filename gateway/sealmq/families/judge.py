"""One question to all families: fixed order, first deny wins, whatever goes wrong is a deny.

The ask collects what the answer rests on, also what a family read without saying so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sealmq_spec.errors import Malformed

from .api import (
    FOREVER,
    NEVER,
    Audited,
    Duty,
    Family,
    LabelTopic,
    NotYet,
    Question,
    Rewrite,
    Verdict,
)
from .ask import NO_NOTES, QUESTIONS, Ask
from .attributes import UnknownAttribute
from .decision import ENGINE, Decision, Refused, Said, check_duty, merge_duties

OnFault = Callable[[str, str, Exception], None]


class Judge:
    """The families of one order, and how to ask them."""

    def __init__(self, order: Sequence[Family], on_fault: OnFault) -> None:
        self._on_fault = on_fault
        self.lost_state: dict[str, str] = {}
        """Families whose index no longer says what the store holds, and why."""
        # By name and not in the order: a client cannot know that (registry.encodings).
        by_name = sorted(order, key=lambda family: family.name)
        self._parsers = {q: [f for f in by_name if q in f.parses] for q in QUESTIONS}
        self._asked: dict[Question, list[tuple[Family, Callable[[Ask], object]]]] = {
            q: [(family, getattr(family, q)) for family in order] for q in QUESTIONS
        }

    def lost(self, family: str, why: str) -> None:
        """Its index no longer says what the store holds: it allows nothing until a restart."""
        self.lost_state[family] = why

    def has_lost(self, family: str) -> bool:
        """Whether `lost` was said of it."""
        return family in self.lost_state

    @property
    def parses(self) -> bool:
        """Whether any family has a topic encoding of its own."""
        return any(self._parsers.values())

    def parse(self, ask: Ask) -> None:
        """Fill ask.topic and ask.notes from ask.raw. Refused (engine.parse)."""
        topic = ask.raw
        notes = {}
        for family in self._parsers[ask.question]:
            try:
                parsed = family.parse(ask.question, topic)
                if parsed is not None:
                    topic, notes[family.name] = parsed
            except Malformed as error:  # the client's doing, no defect
                raise Refused("engine.parse", f"{family.name}: {error}") from None
            except Exception as error:  # a defect of one family must not take the mediator down
                self._on_fault(family.name, "parse", error)
                raise Refused("engine.parse", f"{family.name} cannot read the topic") from error
        ask.topic = topic
        ask.notes = notes or NO_NOTES

    def decide(self, ask: Ask) -> Decision:
        """The merged verdict on what `ask` holds. Raises NotYet, nothing else."""
        ask.deps = {}
        ask.until = FOREVER
        ask.volatile = False
        ask.counted = {}
        ask.one_sender = ""
        ask.topic = ask.raw
        ask.notes = NO_NOTES
        said: list[Said] = []
        duties: list[Duty] = []
        try:
            if self._parsers[ask.question]:
                self.parse(ask)
            allow, audit = self._round(ask, said, duties)
            if duties and allow and _rewrite(duties, ask.topic) is not None:
                # The other topic is judged by every family too, else a rewrite would walk past r_p.
                ask.topic = _rewrite(duties, ask.topic) or ""
                said, duties = [], []
                allow, audit = self._round(ask, said, duties)
                if allow and _rewrite(duties, ask.topic) is not None:
                    raise Refused("engine.rewrite-loop", "the topic was rewritten twice")
        except Refused as refused:
            allow, audit = False, ()
            ask.until = min(ask.until, refused.until)
            said.append((ENGINE, refused.rule, refused.reason))
        label = None
        if not allow:
            duties = []
        elif duties:
            label = next((d.label for d in duties if isinstance(d, LabelTopic)), None)
        return Decision(
            ask.question,
            allow,
            NEVER if ask.volatile else ask.until,
            tuple(ask.deps),
            tuple(duties),
            ask.raw,
            ask.topic,
            ask.notes,
            label,
            False,
            tuple(said),
            audit,
            tuple(ask.counted.items()),
        )

    def _round(self, ask: Ask, said: list[Said], duties: list[Duty]) -> tuple[bool, Audited]:
        """Ask each family once, up to the first that denies: whether all allow, and what those that
        were asked say for the audit.
        """
        audit: Audited = ()
        deps = ask.deps
        for family, answer in self._asked[ask.question]:
            if family.name in self.lost_state:
                raise Refused("engine.exception", f"{family.name} has lost its state", FOREVER)
            try:
                verdict = answer(ask)
                if not isinstance(verdict, Verdict) or verdict.allow not in (True, False):
                    raise self._bad(family, ask, "gave no verdict", type(verdict))
                if verdict.rule not in family.rules:
                    raise self._bad(family, ask, "has no such rule", verdict.rule)
                for dep in verdict.deps:
                    deps[dep] = None
                if verdict.until < ask.until:
                    ask.until = verdict.until
                said.append((family.name, verdict.rule, verdict.reason))
                if verdict.audit:
                    for name, value in verdict.audit:
                        if name not in family.audited or type(value) is not str:
                            raise self._bad(family, ask, "has no such audit field", name)
                    audit += verdict.audit
                if not verdict.allow:
                    return False, audit
                if verdict.duties:
                    self._merge(family, ask, duties, verdict.duties)
            except (NotYet, Refused):
                raise
            except UnknownAttribute as unknown:
                # It rests on the attribute (Ask.attribute), so it may be cached until that comes.
                raise Refused(
                    "engine.unknown-attribute", f"nothing is known of {unknown}", FOREVER
                ) from None
            except Exception as error:  # a defect of one family must not take the mediator down
                self._on_fault(family.name, ask.question, error)
                text = f"{family.name} failed on {ask.question}"
                raise Refused("engine.exception", text) from error
        if not said:
            raise Refused("engine.no-family", "the policy order is empty", FOREVER)
        return True, audit

    def _bad(self, family: Family, ask: Ask, what: str, got: object) -> Refused:
        self._on_fault(family.name, ask.question, TypeError(f"it {what}: {got}"))
        return Refused("engine.bad-verdict", f"{family.name} {what}")

    def _merge(self, family: Family, ask: Ask, into: list[Duty], more: Sequence[Duty]) -> None:
        try:
            for duty in more:
                check_duty(family, ask.question, duty, ask.who)
        except Refused as refused:
            self._on_fault(family.name, ask.question, ValueError(refused.reason))
            raise
        merge_duties(into, more)


def _rewrite(duties: Sequence[Duty], topic: str) -> str | None:
    """The other topic that is asked for."""
    to = next((duty.topic for duty in duties if isinstance(duty, Rewrite)), topic)
    return None if to == topic else to
