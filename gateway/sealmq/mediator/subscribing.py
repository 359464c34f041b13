"""SUBSCRIBE and UNSUBSCRIBE (SPEC.md 4.2): verify each filter's token, ask the policy, strip,
forward what is left.

A refused filter gets 0x80 at its place and a notice; the others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from sealmq.broker.promises import check_group, check_publish
from sealmq.families.engine import Decision
from sealmq.families.shared import GROUP, inner
from sealmq.mqtt import Suback, Subscribe, Unsuback, Unsubscribe, build
from sealmq.store import KeptSub
from sealmq_spec.const import SUBSCRIBE, TOKEN, UNSUBSCRIBE
from sealmq_spec.errors import Denied, SealError
from sealmq_spec.topics import check_filter, matches

from . import refusals
from .channel import Work
from .joints import NONE, Joint, Raw
from .pausing import REFUSED, Pausing
from .refusals import of, rule_of
from .ruled import Ruled

if TYPE_CHECKING:
    from .connection import Connection

_TOKEN = TOKEN.decode().rstrip("/")
_PUBLIC = "@sm1/"
_PENDING = 64
# Filters in one packet: each costs a verification.
_MOST = 512
# Filters that are judged at one go.
_AT_ONCE = 4


class _Place(NamedTuple):
    """One allowed filter of a SUBSCRIBE: where it stood, the filter, the QoS asked for.

    `joint`: what it is at the broker (None: public records); `held`: it there, and what it was
    there `before`. `turn` of this SUBSCRIBE there, and the QoS `sent`.
    """

    at: int
    raw: str
    qos: int
    joint: Joint | None = None
    held: Raw | None = None
    turn: int = 0
    sent: int = NONE
    before: Raw | None = None


class Subscribing:
    """The subscriptions of one connection."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self._pausing = Pausing(conn, self._at)
        # SUBSCRIBEs of the client that the broker has not answered.
        self._pending = 0
        self._public: set[str] = set()

    def wants_public(self, topic: str) -> bool:
        """Whether a filter whose own first level is @sm1 matches (SPEC.md 4.3)."""
        return any(matches(filt, topic) for filt in self._public)

    def restore(self, rows: Sequence[KeptSub]) -> None:
        """What the session that the broker has kept is subscribed to."""
        self._public.update(row.filter for row in rows if row.filter.startswith(_PUBLIC))
        self._pausing.restore([row for row in rows if not row.filter.startswith(_PUBLIC)])

    def again(self, filters: Iterable[str]) -> None:
        """The policy may say something else of these, as they arrived: pauses and resumes."""
        self._pausing.again(filters)

    # --- SUBSCRIBE ---

    def asked(self, packet: Subscribe) -> Work:
        """Handles one SUBSCRIBE, one with many filters behind those of others' packets.

        A filter with wildcards may cross very many reservations, and a packet has up to 512.
        """
        if _AT_ONCE < len(packet.filters) <= _MOST:
            return self._slowly(packet)
        return self._conn.kept_subs.paced(self.subscribe, packet)

    # The policy remembers its answers.
    async def _slowly(self, packet: Subscribe) -> None:
        conn = self._conn
        for text, qos in packet.filters:
            with suppress(SealError):
                filt = _without_token(text)
                check_filter(filt)
                conn.policy.subscribe(filt, qos, conn.hub.now_ms())
            await asyncio.sleep(0)
            if conn.state != "open":
                return
        work = conn.kept_subs.paced(self.subscribe, packet)
        if work is not None:
            await work

    def subscribe(self, packet: Subscribe) -> None:
        """Handles one SUBSCRIBE at once."""
        conn = self._conn
        places: list[_Place] = []
        onward: list[tuple[str, int]] = []
        if self._pending >= _PENDING or len(packet.filters) > _MOST:
            conn.close("too many filters, or SUBSCRIBEs without an answer of the broker")
            return
        for at, (text, qos) in enumerate(packet.filters):
            try:
                decision, raw, filt = self._allowed(text, qos)
            except SealError as error:
                self._refuse(refusals.SUBSCRIBE, error, text)
                continue
            if decision is None:
                places.append(_Place(at, raw, qos))
                onward.append((filt, qos))
                continue
            place = self._hold(at, decision, qos, filt)
            places.append(place)
            onward.append((filt, place.sent))
        if not onward:
            conn.send(build.suback(packet.packet_id, [REFUSED] * len(packet.filters)))
            return
        self._pending += 1
        answer = partial(self._answered, packet.packet_id, len(packet.filters), places)
        self._pausing.subacks.expect(packet.packet_id, answer)
        conn.upstream.send(build.subscribe(packet.packet_id, onward))

    def _allowed(self, text: str, qos: int) -> tuple[Decision | None, str, str]:
        conn = self._conn
        filt, ctr = conn.link.token(SUBSCRIBE, qos, text, conn.token_low)
        try:
            check_filter(filt)
            conn.kept_subs.check(filt)
            if filt.startswith(_PUBLIC):
                conn.hub.broker_takes.check_filter(filt)
                check_publish(conn.hub.broker.retained, 0, retain=True, qos=0)
                self._public.add(filt)
                return None, filt, filt
            # ! is the families' own: what none of them claims stays refused.
            if filt[0] == "@" or conn.policy.parse("subscribe", filt)[:1] == "!":
                raise Denied(f"filters that begin with {filt[0]} are reserved")
            decision = conn.policy.subscribe(filt, qos, conn.hub.now_ms())
            if not decision.allow:
                raise Ruled(decision.reason, decision.rule)
            at = self._at(decision)
        except SealError as error:
            raise of(error, ctr) from None
        if decision.overridden:
            conn.hub.audit.count_unenforced(conn.client.name, filt, decision.rule, "subscribe")
        return decision, filt, at

    # What a family made of the client's filter goes to the broker, so it is checked as if a client
    # had sent it.
    def _at(self, decision: Decision) -> str:
        check_filter(decision.topic)
        self._conn.hub.broker_takes.check_filter(decision.topic)
        if decision.topic[0] in "!@":
            raise Denied(f"filters that begin with {decision.topic[0]} are reserved")
        return self._grouped(decision.topic)

    # A group is one of readers at one label (and purpose, which a family puts into its name): a
    # member that must not read would swallow its share.
    def _grouped(self, filt: str) -> str:
        if not filt.startswith(GROUP):
            return filt
        conn = self._conn
        check_group(conn.hub.broker.shared)
        inner(filt)  # Malformed
        return f"{GROUP}{conn.client.label}.{filt.removeprefix(GROUP)}"

    # The policy knows of it from now on: the broker may send before it answers.
    def _hold(self, at: int, decision: Decision, qos: int, filt: str) -> _Place:
        pausing, raw = self._pausing, decision.raw
        self._conn.policy.holds(decision, qos)
        joint = pausing.joints.of(raw)
        before = joint.raws[raw] if joint is not None and joint.filt == filt else None
        held = Raw(qos, allowed=True)
        joint, left = pausing.joints.put(raw, filt, held)
        if left is not None:
            pausing.settle(left)
        joint.refused = False
        turn = joint.sent(joint.wanted)
        return _Place(at, raw, qos, joint, held, turn, joint.have, before)

    def _answered(
        self, packet_id: int, count: int, places: list[_Place], got: Sequence[int]
    ) -> None:
        conn = self._conn
        self._pending -= 1
        codes = [REFUSED] * count
        kept: list[tuple[str, int, str]] = []
        joints: dict[Joint, None] = {}
        for n, place in enumerate(places):
            code = got[n] if n < len(got) else REFUSED
            codes[place.at] = code if code == REFUSED else min(code, place.qos)
            if place.joint is None or place.held is None:
                if code != REFUSED:
                    kept.append((place.raw, code, place.raw))
                continue
            place.joint.answered(place.turn, None if code == REFUSED else code)
            now = self._pausing.joints.of(place.raw)
            if code != REFUSED:
                place.held.qos, place.held.taken = codes[place.at], True
            # Else the client has left it meanwhile, or subscribed again.
            if now is not None and now.raws[place.raw] is place.held:
                (self._refused if code == REFUSED else self._granted)(place, place.held)
                joints[now] = None
        for joint in joints:
            kept += joint.rows
        conn.kept_subs.granted(kept, partial(conn.send, build.suback(packet_id, codes)))
        for joint in joints:
            self._pausing.settle(joint)

    def _granted(self, place: _Place, held: Raw) -> None:
        self._conn.policy.granted(place.raw, held.qos, self._conn.hub.now_ms())

    def _refused(self, place: _Place, held: Raw) -> None:
        conn = self._conn
        if place.before is None or not place.before.taken:
            self._pausing.joints.drop(place.raw)
            conn.policy.unsubscribed(place.raw)
            conn.kept_subs.left([place.raw], lambda: None)
            return
        # It has what it had.
        held.qos, held.taken = place.before.qos, True
        conn.policy.granted(place.raw, held.qos)

    def granted(self, packet: Suback) -> None:
        """The broker's SUBACK."""
        self._pausing.subacks.came(packet.packet_id, packet.codes)

    # --- UNSUBSCRIBE ---

    def unsubscribe(self, packet: Unsubscribe) -> None:
        """Handles one UNSUBSCRIBE; it has no refusal in MQTT, so a refused filter gets its notice
        and stays.
        """
        conn = self._conn
        onward: list[str] = []
        left: list[str] = []
        joints: list[Joint] = []
        if len(packet.filters) > _MOST:
            conn.close("too many filters in one UNSUBSCRIBE")
            return
        for text in packet.filters:
            ctr = 0
            try:
                filt, ctr = conn.link.token(UNSUBSCRIBE, 0, text, conn.token_low)
                check_filter(filt)
                for raw in conn.policy.same(filt):
                    onward += self._leave(raw, joints)
                    left.append(raw)
            except SealError as error:
                error.ctr = error.ctr or ctr
                self._refuse(refusals.UNSUBSCRIBE, error, text)
        answer = partial(conn.send, build.unsuback(packet.packet_id))
        turns = [(joint, joint.turn) for joint in joints if not joint.raws]
        if onward:
            self._pausing.unsubacks.expect(
                packet.packet_id, lambda _: self._gone(turns, left, answer)
            )
            conn.upstream.send(build.unsubscribe(packet.packet_id, onward))
        else:
            conn.kept_subs.left(left, answer)
        for joint in joints:
            self._pausing.settle(joint)

    def _gone(
        self, turns: list[tuple[Joint, int]], left: list[str], answer: Callable[[], None]
    ) -> None:
        for joint, turn in turns:
            joint.answered(turn, NONE)
        self._conn.kept_subs.left(left, answer)

    # What goes from the broker: nothing while the same filter is held with another encoding, say
    # for another purpose. What was recorded counts, not what the policy would make of it now.
    def _leave(self, filt: str, joints: list[Joint]) -> list[str]:
        conn = self._conn
        if filt in self._public:
            self._public.discard(filt)
            return [filt]
        joint = self._pausing.joints.drop(filt)
        conn.policy.unsubscribed(filt)
        if joint is None:
            plain = conn.policy.parse("subscribe", filt)
            conn.hub.broker_takes.check_filter(plain or "")
            at = self._grouped(plain) if plain else ""
            return [at] if at and self._pausing.joints.at(at) is None else []
        joints.append(joint)
        if joint.raws:
            return []
        joint.sent(NONE)
        return [joint.filt]

    def left(self, packet: Unsuback) -> None:
        """The broker's UNSUBACK."""
        self._pausing.unsubacks.came(packet.packet_id, None)

    def _refuse(self, what: int, error: SealError, text: str) -> None:
        rule = rule_of("subscribe", error)
        event = "packet-refused" if 0 < error.code < 5 else "subscribe-refused"
        self._conn.refuse(what, error, rule, event=event, topic=_without_token(text) or None)


# What the audit log shows: the token is of no use to its readers.
def _without_token(text: str) -> str:
    parts = text.split("/", 2)
    return parts[2] if parts[0] == _TOKEN and len(parts) == 3 and parts[2] else text
