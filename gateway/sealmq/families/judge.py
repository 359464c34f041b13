"""One question to all families: fixed order, first deny wins, whatever goes wrong is a deny.

The trace collects what the answer rests on, also what a family read without saying so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sealmq_spec.errors import Malformed

from .api import (
    FOREVER,
    NEVER,
    Dep,
    Duty,
    Family,
    LabelTopic,
    NotYet,
    Question,
    Rewrite,
    Verdict,
)
from .ask import Ask
from .decision import ENGINE, Decision, Refused, Vote, check_duty, merge_duties
from .facts import Facts, UnknownFact

OnFault = Callable[[str, str, Exception], None]


class Trace:
    """What the present question has rested on so far."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.deps: dict[Dep, None] = {}
        self.until = FOREVER
        # Of the first family that says any.
        self.purpose = ""
        self.under = ""

    def begin(self) -> None:
        self.deps = {}
        self.until = FOREVER
        self.purpose = self.under = ""

    def rest_on(self, deps: tuple[Dep, ...], until: int) -> None:
        for dep in deps:
            self.deps[dep] = None
        self.until = min(self.until, until)

    def fact(self, name: str, subject: str, now_ms: int) -> Any:
        """Ask.fact: an absent fact is a dep as well, so that its arrival is noticed."""
        self.deps["fact", name, subject] = None
        value, until = self._facts.read(name, subject, now_ms)
        self.until = min(self.until, until)
        return value


class Judge:
    """The families of one order, and how to ask them."""

    def __init__(self, order: Sequence[Family], trace: Trace, on_fault: OnFault) -> None:
        self._order = order
        self._trace = trace
        self._on_fault = on_fault
        self._lost: set[str] = set()
        self._parsers = [f for f in order if type(f).parse is not Family.parse]

    def lost(self, family: str) -> None:
        """Its index no longer says what the store holds: it allows nothing until a restart."""
        self._lost.add(family)

    def has_lost(self, family: str) -> bool:
        """Whether `lost` was said of it."""
        return family in self._lost

    @property
    def parses(self) -> bool:
        """Whether any family has a topic encoding of its own."""
        return bool(self._parsers)

    def parse(self, ask: Ask) -> None:
        """Fill ask.topic and ask.notes from ask.raw. Refused (engine.parse)."""
        topic = ask.raw
        notes = {}
        for family in self._parsers:
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
        ask.notes = notes

    def decide(self, ask: Ask) -> Decision:
        """The merged verdict on what `ask` holds. Raises NotYet, nothing else."""
        trace = self._trace
        trace.begin()
        ask.volatile = False
        votes: list[Vote] = []
        duties: list[Duty] = []
        ask.topic = ask.raw
        ask.notes = {}
        try:
            if self._parsers:
                self.parse(ask)
            verdict = self._round(ask, votes, duties)
            rewrite = _rewrite(duties)
            if verdict is None and rewrite not in (None, ask.topic):
                # The other topic is judged by every family too, else a rewrite would walk past r_p.
                ask.topic = rewrite or ""
                votes, duties = [], []
                trace.purpose = trace.under = ""
                verdict = self._round(ask, votes, duties)
                if verdict is None and _rewrite(duties) not in (None, ask.topic):
                    raise Refused("engine.rewrite-loop", "the topic was rewritten twice")
        except Refused as refused:
            trace.until = min(trace.until, refused.until)
            votes.append(Vote(ENGINE, refused.rule, refused.reason))
            return self._decision(ask, False, votes, [])
        return self._decision(ask, verdict is None, votes, duties)

    def _round(self, ask: Ask, votes: list[Vote], duties: list[Duty]) -> Verdict | None:
        """Ask each family once; the deny, or None when all allow."""
        if not self._order:
            raise Refused("engine.no-family", "the policy order is empty", FOREVER)
        for family in self._order:
            if family.name in self._lost:
                raise Refused("engine.exception", f"{family.name} has lost its state", FOREVER)
            verdict = self._answer(family, ask.question, ask)
            self._trace.rest_on(verdict.deps, verdict.until)
            votes.append(Vote(family.name, verdict.rule, verdict.reason))
            if not verdict.allow:
                return verdict
            if verdict.purpose and not self._trace.purpose:
                self._trace.purpose, self._trace.under = verdict.purpose, verdict.under
            for duty in verdict.duties:
                self._check(family, ask, duty)
            merge_duties(duties, verdict.duties)
        return None

    def _check(self, family: Family, ask: Ask, duty: Duty) -> None:
        try:
            check_duty(family, ask.question, duty, ask.who)
        except Refused as refused:
            self._on_fault(family.name, ask.question, ValueError(refused.reason))
            raise

    def _answer(self, family: Family, question: Question, ask: Ask) -> Verdict:
        try:
            verdict: object = getattr(family, question)(ask)
        except NotYet:
            raise
        except UnknownFact as unknown:
            # Rests on the fact (see Trace.fact), so it may be cached until the fact comes.
            raise Refused("engine.unknown-fact", f"nothing known of {unknown}", FOREVER) from None
        except Exception as error:  # a defect of one family must not take the mediator down
            self._on_fault(family.name, question, error)
            raise Refused("engine.exception", f"{family.name} failed on {question}") from error
        if not isinstance(verdict, Verdict) or verdict.allow not in (True, False):
            self._on_fault(family.name, question, TypeError(f"no verdict: {type(verdict)}"))
            raise Refused("engine.bad-verdict", f"{family.name} gave no verdict")
        if verdict.rule not in family.rules:
            self._on_fault(family.name, question, LookupError(f"rule {verdict.rule!r}"))
            raise Refused("engine.bad-verdict", f"{family.name} has no such rule")
        return verdict

    def _decision(self, ask: Ask, allow: bool, votes: list[Vote], duties: list[Duty]) -> Decision:
        said = votes[0] if allow else votes[-1]
        label = next((d.label for d in duties if isinstance(d, LabelTopic)), None)
        return Decision(
            question=ask.question,
            allow=allow,
            rule=said.rule,
            reason=said.reason,
            family=said.family,
            until=NEVER if ask.volatile else self._trace.until,
            deps=tuple(self._trace.deps),
            duties=tuple(duties),
            raw=ask.raw,
            topic=ask.topic,
            notes=ask.notes,
            label=label,
            plain=allow and not duties and ask.topic == ask.raw,
            overridden=False,
            votes=tuple(votes),
            purpose=self._trace.purpose if allow else "",
            under=self._trace.under if allow else "",
        )


def _rewrite(duties: Sequence[Duty]) -> str | None:
    return next((duty.topic for duty in duties if isinstance(duty, Rewrite)), None)
