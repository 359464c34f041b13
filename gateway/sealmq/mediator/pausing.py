"""Subscriptions that the policy no longer allows are paused at the broker, and resumed with their
QoS when it does again. The client is told of neither (it could do nothing about it, and a client
that knows nothing of purposes would not understand); what a paused one still gets is judged as
always, so that pausing saves work and never has to be in time.

What the policy says and what the broker has may both change while an order is under way: an answer
of the broker only ends the order, and then both are compared anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from sealmq.families.engine import Decision
from sealmq.mqtt import build
from sealmq.store import KeptSub
from sealmq_spec.errors import SealError, Unavailable

from .answers import Answers, OwnIds
from .core.refusals import SUBSCRIBE
from .joints import NONE, Joint, Joints, Raw

if TYPE_CHECKING:
    from collections.abc import Callable

    from .connection import Connection

REFUSED = 0x80
# Orders of the mediator's own that one connection may have under way.
_ORDERS = 64
REFUSED_RULE = "mediator.resume.refused"
LOWER_RULE = "mediator.resume.qos"


def _nothing() -> None:
    pass


class Pausing:
    """Of one connection. `at`: the filter at the broker that a decision means; raises SealError."""

    def __init__(self, conn: Connection, at: Callable[[Decision], str]) -> None:
        self._conn = conn
        self._filter_at = at
        self.joints = Joints()
        self.subacks: Answers[Sequence[int]] = Answers()
        self.unsubacks: Answers[None] = Answers()
        self._ids = OwnIds(self._taken)
        self._orders = 0
        self._waiting: dict[Joint, None] = {}

    def _taken(self, packet_id: int) -> bool:
        if packet_id in self.subacks or packet_id in self.unsubacks:
            return True
        return self._conn.publishing.underway.holds(packet_id) is not None

    # --- what the policy says ---

    def restore(self, rows: Iterable[KeptSub]) -> None:
        """What the session that the broker has kept is subscribed to: judged anew."""
        conn = self._conn
        for row in rows:
            decision = conn.policy.subscribe(row.filter, row.qos, conn.hub.now_ms())
            conn.policy.holds(decision, row.qos)
            filt = row.at or self._at(decision) or decision.topic
            joint, _ = self.joints.put(row.filter, filt, Raw(row.qos, allowed=False, taken=True))
            if row.at:
                joint.have = joint.real = max(joint.have, row.qos)
        for row in rows:
            self._judge(row.filter)

    def again(self, raws: Iterable[str]) -> None:
        """What these rest on has changed."""
        for raw in raws:
            self._judge(raw)

    def _judge(self, raw: str) -> None:
        conn = self._conn
        joint = self.joints.of(raw)
        decision = conn.policy.again(raw, conn.hub.now_ms())
        if joint is None or decision is None:
            return
        filt = self._at(decision)
        held = joint.raws[raw]
        held.allowed = filt is not None
        joint.refused = False
        if filt is not None and filt != joint.filt:
            # Rewritten otherwise than before, say into the group of another purpose.
            joint, left = self.joints.put(raw, filt, held)
            if left is not None:
                self.settle(left)
        self.settle(joint)

    def _at(self, decision: Decision) -> str | None:
        if not decision.allow:
            return None
        try:
            return self._filter_at(decision)
        except SealError:
            return None

    # --- orders ---

    def settle(self, joint: Joint) -> None:
        """Orders what the broker lacks, or has and should not."""
        wanted = joint.wanted
        pause = wanted == NONE and joint.have != NONE
        self.joints.tidy(joint)
        if joint.busy or not (pause or (wanted > joint.have and not joint.refused)):
            return
        if self._orders >= _ORDERS:
            self._waiting[joint] = None
            return
        self._orders += 1
        joint.busy = True
        if not pause:
            self._conn.kept_subs.ordered(partial(self._resume, joint))
            return
        self._mark(joint)

    # On disk before the broker hears of it: else it could be lost for ever.
    def _mark(self, joint: Joint) -> None:
        kept = self._conn.kept_subs
        for raw in joint.raws:
            kept.paused(raw, _nothing)
        kept.ordered(partial(self._pause, joint))

    def _pause(self, joint: Joint) -> None:
        if any(self._conn.kept_subs.at(raw) for raw in joint.raws):
            # Granted meanwhile.
            self._mark(joint)
            return
        if joint.wanted != NONE or joint.have == NONE:
            self._stored(joint)
            self._done(joint)
            return
        packet_id = self._ids.take()
        turn = joint.sent(NONE)
        self.unsubacks.expect(packet_id, lambda _: self._paused(joint, turn))
        self._conn.upstream.send(build.unsubscribe(packet_id, [joint.filt]))

    def _paused(self, joint: Joint, turn: int) -> None:
        joint.answered(turn, NONE)
        self._done(joint)

    def _resume(self, joint: Joint) -> None:
        wanted = joint.wanted
        if wanted <= joint.have:
            self._done(joint)
            return
        packet_id = self._ids.take()
        turn = joint.sent(wanted)
        self.subacks.expect(packet_id, partial(self._resumed, joint, turn, wanted))
        self._conn.upstream.send(build.subscribe(packet_id, [(joint.filt, wanted)]))

    def _resumed(self, joint: Joint, turn: int, wanted: int, codes: Sequence[int]) -> None:
        code = codes[0]
        joint.answered(turn, None if code == REFUSED else code)
        if code == REFUSED:
            joint.refused = True
            self._tell(joint, REFUSED_RULE, "the broker refuses a subscription that it had before")
        else:
            if code < wanted:
                self._lower(joint, code)
            self._stored(joint)
        self._done(joint)

    def _lower(self, joint: Joint, code: int) -> None:
        conn = self._conn
        for raw, held in joint.raws.items():
            if held.qos > code:
                held.qos = code
                conn.policy.granted(raw, code)
        self._tell(joint, LOWER_RULE, f"the broker resumes a subscription with QoS {code} only")

    # What the broker has is what the store says, so that a returning client finds it.
    def _stored(self, joint: Joint) -> None:
        self._conn.kept_subs.granted(joint.rows, _nothing)

    def _done(self, joint: Joint) -> None:
        joint.busy = False
        self._orders -= 1
        self.settle(joint)
        while self._waiting and self._orders < _ORDERS:
            waiting = next(iter(self._waiting))
            del self._waiting[waiting]
            self.settle(waiting)

    def _tell(self, joint: Joint, rule: str, words: str) -> None:
        for raw in joint.raws:
            error = Unavailable(words)
            self._conn.refuse(SUBSCRIBE, error, rule, topic=raw)
