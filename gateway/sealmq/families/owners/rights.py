"""What the client of a command may do, over all events that it is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..ask import Ask, Who
from .actions import ADVERTISE, AUTHENTICATE, CHANGE_POLICY, EMERGENCY, MASKS
from .assertions import Assertion
from .chains import ALL, Plan
from .events import EventType
from .expressions import Value
from .facts import EventFacts, OpenFacts
from .names import EVERYBODY
from .state import State


class Rights:
    """Of one client, at one time."""

    def __init__(self, state: State, who: Who, now_ms: int) -> None:
        self._state, self._who, self._now_ms = state, who, now_ms

    def kinds(self, made: Assertion) -> list[EventType]:
        """The types that it is about."""
        app, kind = made.app or made.condition.app, made.type or made.condition.type
        return [
            one
            for one in self._state.types.by_key.values()
            if app in ("", one.app) and kind in ("", one.name)
        ]

    def facts(
        self,
        kind: EventType | None,
        owner: str,
        values: Mapping[str, Value],
        client: str,
        sender: str = "",
        topic: str = "",
    ) -> EventFacts:
        """Of an event that nobody has published: as if it were delivered to the client now."""
        # An ask of its own: the answer to a command rests on nothing.
        who = Who(client, 0, "", self._who.site, self._who.label)
        # Others' are counted at another worker, perhaps.
        counts = self._state.counts if client == self._who.client else None
        ask = Ask(who, self._state.outside, {}, ("subs", ""), counts)
        ask.fill("deliver", topic, self._now_ms)
        return EventFacts(ask, kind, owner, values, client, sender, self._state.world)

    def _held(
        self, plan: Plan, kind: EventType | None, owner: str, action: int, must: bool
    ) -> bool:
        client, dynamic = self._who.client, self._state.settings.dynamic
        facts = self.facts(kind, owner, {}, client)
        # What will be looked at again may hold later; what is looked at but once has to hold.
        judged = OpenFacts(facts, kind, must=must, later=dynamic and not must)
        return plan.holds(client, action, judged.judge)

    def _over(self, made: Assertion, owner: str, action: int, must: bool) -> Iterable[bool]:
        """Of each type that it is about, whether the client holds the action."""
        of = ALL if owner == EVERYBODY else owner
        # For all owners, for each of them; and once and for all, where nobody looks again.
        must = must or not of or not self._state.settings.dynamic
        if action in (AUTHENTICATE, ADVERTISE):
            yield self._held(self._pseudo(made, of), None, of, action, must)
            return
        for kind in self.kinds(made):
            yield self._held(self._state.plans.of(kind, of), kind, of, action, must)

    def _pseudo(self, made: Assertion, of: str) -> Plan:
        """About no event that there is: advertising types, and connecting."""
        app, kind = made.app or made.condition.app, made.type or made.condition.type
        if not app:
            return self._state.plans.of(None, of)
        return self._plan_of(app, kind or "any", of)

    def _plan_of(self, app: str, kind: str, of: str) -> Plan:
        none = EventType(app, kind, "none", "sender")
        return Plan(self._state.index, none, of, not self._state.settings.dynamic, None)

    def may_change(self, made: Assertion, owner: str) -> bool:
        """Whether the client may assert it: it may change the policy of some of these events."""
        acts = made.actions & made.condition.actions
        found = list(self._over(made, owner, CHANGE_POLICY, False))
        if acts & (AUTHENTICATE | ADVERTISE):
            of = ALL if owner == EVERYBODY else owner
            plan = self._pseudo(made, of)
            if not self._held(plan, None, of, CHANGE_POLICY, True):
                return False
            found = found or [True]
        return any(found) if self._state.settings.dynamic else bool(found) and all(found)

    def changes_all(self, made: Assertion, owner: str) -> bool:
        """Whether it may change the policy of all of them."""
        found = list(self._over(made, owner, CHANGE_POLICY, True))
        return bool(found) and all(found)

    def lacking(self, made: Assertion, owner: str) -> int:
        """Which of its actions the client holds for none of these events."""
        acts, lacking = made.actions & made.condition.actions, 0
        for action in MASKS.values():
            if acts & action and not any(self._over(made, owner, action, False)):
                lacking |= action
        return lacking

    def advertises(self, kind: EventType) -> bool:
        """Whether it may advertise this type."""
        return self._held(self._plan_of(kind.app, kind.name, ALL), kind, ALL, ADVERTISE, True)

    def in_emergency(self, owner: str) -> bool:
        """Whether the owner has granted it emergency access to some of his events."""
        return any(
            self._held(self._state.plans.of(kind, owner), kind, owner, EMERGENCY, False)
            for kind in self._state.types.by_key.values()
        )
