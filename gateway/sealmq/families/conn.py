"""One client's connection to the policy: each question a method, each answer a Decision.

A cached answer costs one lookup. What the cache's key does not hold must not influence a cached
answer; ask.Ask sees to that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from sealmq import feedback

from .api import Later, Proposal, Question, Seen, Sub, Verdict
from .ask import NO_TLV, Ask, Dep, Who
from .cache import Slot
from .decision import Decision, Refused
from .following import is_followed
from .questions import OWN, Questions
from .shared import reaching

Key = tuple["Conn", str]
"""A connection and a filter as it arrived."""


class Conn:
    """Made by Engine.connection; `close` it. Times are Unix ms."""

    __slots__ = (
        "_closed",
        "_connect",
        "_deliver",
        "_left",
        "_looked",
        "_publish",
        "_questions",
        "_subs",
        "_subscribe",
        "ask",
    )

    def __init__(
        self, questions: Questions[Key], who: Who, number: int, left: Callable[[Conn], object]
    ) -> None:
        self._questions, self._left = questions, left
        self._closed = False
        self._subs: dict[str, Sub] = {}
        self._looked: Dep = ("subs", str(number))
        # Without a reference to the connection: the cycle would wait for the garbage collector.
        self.ask = Ask(who, questions.attributes, self._subs, self._looked, questions.counts)
        self._connect: Slot = {}
        # By QoS and RETAIN, by QoS, by how: two bits each, three for publish.
        self._publish: tuple[Slot, ...] = ({}, {}, {}, {}, {}, {}, {}, {})
        self._subscribe: tuple[Slot, ...] = ({}, {}, {}, {})
        self._deliver: tuple[Slot, ...] = ({}, {}, {}, {})

    @property
    def who(self) -> Who:
        return self.ask.who

    def connect(self, now_ms: int) -> Decision:
        """May this client connect at all."""
        entry = self._connect.get("")
        if entry is not None and now_ms < entry.until:
            return entry.decision
        self.ask.fill("connect", "", now_ms)
        return self._questions.judge(self.ask, self._connect, "")

    def publish(
        self,
        topic: str,
        qos: int,
        retain: bool,
        size: int,
        now_ms: int,
        tlv: Mapping[int, bytes] = NO_TLV,
        message_id: tuple[int, int] | None = None,
    ) -> Decision:
        """May it publish there. `topic` as it arrived; go on with decision.topic.

        allow with `label` set: commit TopicLabel, Engine.apply what holds, and ask again.
        """
        slot = self._publish[qos * 2 + retain]
        key = topic if not tlv else self._questions.key_of(topic, tlv, OWN)
        if key:
            entry = slot.get(key)
            if entry is not None and now_ms < entry.until:
                return entry.decision
        self.ask.fill(
            "publish",
            topic,
            now_ms,
            qos=qos,
            retain=retain,
            size=size,
            tlv=tlv,
            message_id=message_id,
        )
        self.ask.keyed = bool(tlv) and bool(key)
        return self._questions.judge(self.ask, slot, key or topic)

    def subscribe(self, filter: str, qos: int, now_ms: int) -> Decision:
        """May it subscribe. `filter` as it stands after the token; go on with decision.topic.

        A filter with wildcards may take seconds, during which nobody is served: see
        `subscribe_soon`.
        """
        while (decision := self.subscribe_soon(filter, qos, now_ms)) is None:
            pass
        return decision

    def subscribe_soon(self, filter: str, qos: int, now_ms: int) -> Decision | None:
        """`subscribe`, a slice of some milliseconds at most; None: let others have a turn, then ask
        again.

        The caller has nothing to keep, and nothing to cancel: it just does not ask again. Changes
        in between are accounted for, without more time: the decision is the one that `subscribe`
        would give at that moment.
        """
        slot = self._subscribe[qos]
        entry = slot.get(filter)
        if entry is not None and now_ms < entry.until:
            return entry.decision
        self.ask.fill("subscribe", filter, now_ms, qos=qos)
        return self._questions.judge_slice(self.ask, slot, filter)

    def deliver(
        self,
        topic: str,
        label: str,
        how: int,
        now_ms: int,
        size: int = 0,
        tlv: Mapping[int, bytes] = NO_TLV,
        message_id: tuple[int, int] | None = None,
        age_ms: int = 0,
        grant: tuple[str, str] | None = None,
    ) -> Decision:
        """May it have this message. `label`: the name of m1's label, "" for a public record.

        `how` as in SPEC.md 3.3: 0 live, 1 retained, 2 will, 3 queued. `tlv`: the families' items;
        `grant`: under which the broker's copy lies. With either it is asked about each time, unless
        families say that there are few such items (Family.few).
        """
        slot = self._deliver[how]
        plain = not tlv and grant is None
        key = topic if plain else self._questions.key_of(topic, tlv, grant)
        if key:
            entry = slot.get(key)
            if entry is not None and now_ms < entry.until and entry.label == label:
                return entry.decision
        self.ask.fill(
            "deliver", topic, now_ms, label, how, 0, False, size, tlv, message_id, age_ms, grant
        )
        self.ask.keyed = bool(key) and not plain
        return self._questions.judge(self.ask, slot, key or topic)

    def for_sender(self, decision: Decision, client: str) -> Decision:
        """What `deliver` has said, for a message of this client ("": not known whose). To be asked
        whenever it allows with duties: OnlyFrom may be among them.
        """
        return self._questions.for_sender(decision, client)

    def subscribed(self, decision: Decision, qos: int, now_ms: int) -> None:
        """The client has this subscription: `decision` allowed it and the broker accepted it, or it
        is one of a session from before, whatever `decision` says of it now.
        """
        self.holds(decision, qos)
        self.saw("subscribed", decision.raw, now_ms, question="subscribe", qos=qos)

    def granted(self, filter: str, qos: int, now_ms: int | None = None) -> None:
        """The broker grants this QoS for a subscription; with `now_ms` it is a new one."""
        sub = self._subs.get(filter)
        if sub is None:
            return
        if sub.qos != qos:
            self._subs[filter] = replace(sub, qos=qos)
            self._questions.subs_changed(self._looked, sub.filter)
        if now_ms is not None:
            self.saw("subscribed", filter, now_ms, question="subscribe", qos=qos)

    def holding(self, filter: str) -> bool:
        """Whether this subscription (as it arrived) is held."""
        return filter in self._subs

    def again(self, filter: str, now_ms: int) -> Decision | None:
        """What the policy says now of a subscription that is held; None if it is not."""
        while filter in self._subs:
            if (decision := self.again_soon(filter, now_ms)) is not None:
                return decision
        return None

    def again_soon(self, filter: str, now_ms: int) -> Decision | None:
        """`again`, a slice at most (`subscribe_soon`); None: not yet, or it is not `holding`."""
        sub = self._subs.get(filter)
        if sub is None:
            return None
        decision = self.subscribe_soon(filter, sub.qos, now_ms)
        if decision is not None:
            self.holds(decision, sub.qos)
        return decision

    def holds(self, decision: Decision, qos: int) -> None:
        """The client is about to have this subscription: `subscribed`, without telling the
        families.
        """
        raw = decision.raw
        filter, old = decision.topic, self._subs.get(raw)
        new = Sub(filter, qos, decision.notes, reaching(filter))
        if new != old:
            self._subs[raw] = new
            for sub in (new, old):
                if sub is not None:
                    self._questions.subs_changed(self._looked, sub.filter)
        if is_followed(decision):
            self._questions.following.follow((self, raw), decision)
        else:
            self._questions.following.drop((self, raw))

    def same(self, filter: str) -> list[str]:
        """Filters with the same meaning as `filter` (as it arrived): itself, held or not, and other
        encodings of it that the client holds.
        """
        if not self._questions.parses or not self.parse("subscribe", filter) or not self.ask.notes:
            return [filter]
        parsed, notes = self.ask.topic, self.ask.notes
        held = [raw for raw, sub in self._subs.items() if sub.notes == notes and raw != filter]
        # A subscription may have been rewritten: what it was sent as is compared.
        return [filter, *(raw for raw in held if self.parse("subscribe", raw) == parsed)]

    def unsubscribed(self, filter: str) -> bool:
        """`filter` (as it arrived) is left, which is always allowed.

        True when the broker's subscription can go: no other encoding of the same filter is held.
        """
        gone = self._subs.pop(filter, None)
        if gone is None:
            return True
        self._questions.following.drop((self, filter))
        self._questions.subs_changed(self._looked, gone.filter)
        return all(sub.filter != gone.filter for sub in self._subs.values())

    def parse(self, question: Question, topic: str) -> str:
        """`topic` without the families' encodings (for UNSUBSCRIBE); "" if unreadable."""
        if not self._questions.parses:
            return topic
        self.ask.fill(question, topic, 0)
        try:
            self._questions.parse(self.ask)
        except Refused:
            return ""
        return self.ask.topic

    def saw(
        self,
        what: Seen,
        topic: str,
        now_ms: int,
        *,
        question: Question | None = None,
        label: str = "",
        qos: int = 0,
        retain: bool = False,
        size: int = 0,
        how: int = 0,
        tlv: Mapping[int, bytes] = NO_TLV,
        message_id: tuple[int, int] | None = None,
        age_ms: int = 0,
    ) -> None:
        """Tell the families what became of a packet. Free of cost while no family listens.

        `topic` as it arrived. `question` is what was refused; of the others it follows.
        """
        if what not in self._questions.listens:
            return
        self.ask.fill(
            question or _ABOUT[what],
            topic,
            now_ms,
            label=label,
            how=how,
            qos=qos,
            retain=retain,
            size=size,
            tlv=tlv,
            message_id=message_id,
            age_ms=age_ms,
        )
        self._questions.see(what, self.ask)

    def delivered(self, decision: Decision, now_ms: int) -> None:
        """A message has gone out by this answer: what it read of counts counts."""
        self._questions.counts.add((key for key, _ in decision.counted), now_ms)

    def command(self, family: str, body: bytes, now_ms: int) -> Proposal | Verdict | Later:
        """Op 0x81. A Proposal: commit, audit, Engine.apply, reply. A Verdict: the refusal. Later:
        give others a turn before each `go_on`.
        """
        if family == feedback.NAME:
            return self._questions.feedback(self.who, body, now_ms, self._reads)
        return self._questions.command(self.who, family, body, now_ms)

    def _reads(self, topic: str) -> bool:
        return any(sub.reaches(topic) for sub in self._subs.values())

    def close(self, now_ms: int) -> None:
        """The connection is gone; its cached verdicts too. May be called twice."""
        if self._closed:
            return
        self._closed = True
        self._left(self)
        self._questions.cache.drop_slots(self.slots())
        for key in self.held():
            self._questions.following.drop(key)
        self._subs.clear()
        self.saw("gone", "", now_ms)

    def slots(self) -> Iterable[Slot]:
        """Where the cached entries are."""
        return (self._connect, *self._publish, *self._subscribe, *self._deliver)

    def held(self) -> list[Key]:
        """Its subscriptions, as the engine follows them."""
        return [(self, filter) for filter in self._subs]

    def rests_on_subs(self) -> Dep:
        """The dep of verdicts that looked at this connection's subscriptions."""
        return self._looked


_ABOUT: Mapping[Seen, Question] = {
    "accepted": "publish",
    "delivered": "deliver",
    "refused": "publish",
    "subscribed": "subscribe",
    "gone": "connect",
}
