"""SUBSCRIBE and UNSUBSCRIBE (SPEC.md 4.2): verify each filter's token, ask the policy, strip,
forward what is left.

A refused filter gets 0x80 at its place and a notice; the others go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from sealmq.broker.promises import NotPromised, check_group, check_publish
from sealmq.families.engine import Decision
from sealmq.mqtt import Suback, Subscribe, Unsuback, Unsubscribe, build
from sealmq.store import KeptSub
from sealmq_spec.const import SUBSCRIBE, TOKEN, UNSUBSCRIBE
from sealmq_spec.errors import Denied, Malformed, SealError, TooLarge
from sealmq_spec.topics import check_filter, matches

from .ruled import Ruled

if TYPE_CHECKING:
    from .connection import Connection

_SUBSCRIBE, _UNSUBSCRIBE = 2, 3
_REFUSED = 0x80
_TOKEN = TOKEN.decode().rstrip("/")
_PUBLIC = "@sm1/"
_PENDING = 64
# Filters in one packet: each costs a verification.
_MOST = 512


class _Place(NamedTuple):
    """One allowed filter of a SUBSCRIBE: where it stood, what the policy said (None: public
    records), and the filter for the broker.
    """

    at: int
    decision: Decision | None
    onward: str


class Subscribing:
    """The subscriptions of one connection."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        # Packet id -> how many filters came, and which of them went on.
        self._pending: dict[int, tuple[int, list[_Place]]] = {}
        # Packet id -> the filters, as they arrived, that an UNSUBSCRIBE is about.
        self._leaving: dict[int, list[str]] = {}
        self._public: set[str] = set()

    def wants_public(self, topic: str) -> bool:
        """Whether a filter whose own first level is @sm1 matches (SPEC.md 4.3)."""
        return any(matches(filt, topic) for filt in self._public)

    def subscribe(self, packet: Subscribe) -> None:
        """Handles one SUBSCRIBE."""
        conn = self._conn
        places: list[_Place] = []
        onward: list[tuple[str, int]] = []
        if len(self._pending) >= _PENDING or len(packet.filters) > _MOST:
            conn.close("too many filters, or SUBSCRIBEs without an answer of the broker")
            return
        for at, (text, qos) in enumerate(packet.filters):
            try:
                decision, filt, _ = self._allowed(text, qos)
            except SealError as error:
                self._refuse(_SUBSCRIBE, error, text)
                continue
            places.append(_Place(at, decision, filt))
            onward.append((filt, qos))
        if not onward:
            conn.send(build.suback(packet.packet_id, [_REFUSED] * len(packet.filters)))
            return
        self._pending[packet.packet_id] = (len(packet.filters), places)
        conn.upstream.send(build.subscribe(packet.packet_id, onward))

    def _allowed(self, text: str, qos: int) -> tuple[Decision | None, str, int]:
        conn = self._conn
        filt, ctr = conn.link.token(SUBSCRIBE, qos, text, conn.token_low)
        check_filter(filt)
        if filt.startswith(_PUBLIC):
            try:
                check_publish(conn.hub.broker.retained, 0, retain=True, qos=0)
            except NotPromised as error:
                raise _with_ctr(error, ctr) from None
            self._public.add(filt)
            return None, filt, ctr
        if filt[0] in "!@":
            raise _with_ctr(Denied(f"filters that begin with {filt[0]} are reserved"), ctr)
        decision = conn.policy.subscribe(filt, qos, conn.hub.now_ms())
        if not decision.allow:
            raise _with_ctr(Ruled(decision.reason, decision.rule), ctr)
        try:
            conn.kept_subs.check(filt)
        except TooLarge as error:
            raise _with_ctr(error, ctr) from None
        if decision.overridden:
            conn.hub.audit.count_unenforced(conn.client.name, filt, decision.rule, "subscribe")
        return decision, self._grouped(decision.topic, ctr), ctr

    # A group is one of readers at one label: a member that must not read would swallow its share.
    def _grouped(self, filt: str, ctr: int) -> str:
        if not filt.startswith("$share/"):
            return filt
        conn = self._conn
        try:
            check_group(conn.hub.broker.shared)
        except NotPromised as error:
            raise _with_ctr(error, ctr) from None
        _, group, rest = (*filt.split("/", 2), "", "")[:3]
        if not group or not rest:
            raise _with_ctr(Malformed("a shared filter is $share/GROUP/FILTER"), ctr)
        return f"$share/{conn.client.label}.{group}/{rest}"

    def granted(self, packet: Suback) -> None:
        """The broker's SUBACK, put together with our refusals."""
        conn = self._conn
        pending = self._pending.pop(packet.packet_id, None)
        if pending is None:
            return
        count, places = pending
        codes = [_REFUSED] * count
        kept = []
        for place, code in zip(places, packet.codes, strict=False):
            codes[place.at] = code
            if code != _REFUSED and place.decision is not None:
                conn.policy.subscribed(place.decision, code, conn.hub.now_ms())
                kept.append((place.decision.raw, code, place.onward))
        conn.kept_subs.granted(kept, partial(conn.send, build.suback(packet.packet_id, codes)))

    def restore(self, rows: Sequence[KeptSub]) -> None:
        """What the session that the broker has kept is subscribed to: judged anew."""
        conn = self._conn
        for row in rows:
            decision = conn.policy.subscribe(row.filter, row.qos, conn.hub.now_ms())
            if decision.allow:
                conn.policy.subscribed(decision, row.qos, conn.hub.now_ms())

    def unsubscribe(self, packet: Unsubscribe) -> None:
        """Handles one UNSUBSCRIBE;
        it has no refusal in MQTT, so a refused filter gets its notice and stays.
        """
        conn = self._conn
        onward: list[str] = []
        left: list[str] = []
        if len(packet.filters) > _MOST:
            conn.close("too many filters in one UNSUBSCRIBE")
            return
        for text in packet.filters:
            try:
                filt, ctr = conn.link.token(UNSUBSCRIBE, 0, text, conn.token_low)
                check_filter(filt)
                plain = self._grouped(conn.policy.parse("subscribe", filt), ctr)
            except SealError as error:
                self._refuse(_UNSUBSCRIBE, error, text)
                continue
            self._public.discard(filt)
            left.append(filt)
            # False while the same filter is held with another encoding, say for another purpose.
            if conn.policy.unsubscribed(filt) and plain:
                onward.append(plain)
        if not onward:
            conn.kept_subs.left(left, partial(conn.send, build.unsuback(packet.packet_id)))
            return
        self._leaving[packet.packet_id] = left
        conn.upstream.send(build.unsubscribe(packet.packet_id, onward))

    def left(self, packet: Unsuback) -> None:
        """The broker's UNSUBACK."""
        filters = self._leaving.pop(packet.packet_id, None)
        if filters is not None:
            answer = partial(self._conn.send, build.unsuback(packet.packet_id))
            self._conn.kept_subs.left(filters, answer)

    def _refuse(self, what: int, error: SealError, text: str) -> None:
        rule = error.rule if isinstance(error, Ruled | NotPromised) else ""
        rule = rule or "mediator.subscribe." + type(error).__name__.lower()
        ctr = getattr(error, "ctr", 0)
        if isinstance(error, Malformed) or not ctr:
            ctr = 0
        event = "packet-refused" if 0 < error.code < 5 else "subscribe-refused"
        self._conn.refuse(what, ctr, error, rule, _without_token(text), event)


# What the audit log shows: the token is of no use to its readers.
def _without_token(text: str) -> str:
    parts = text.split("/", 2)
    return parts[2] if parts[0] == _TOKEN and len(parts) == 3 and parts[2] else text


def _with_ctr(error: SealError, ctr: int) -> SealError:
    error.ctr = ctr
    return error
