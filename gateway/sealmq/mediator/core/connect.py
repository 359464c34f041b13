"""CONNECT (SPEC.md 4.1): verify, compare with the store, store, and only then touch a session or
the broker.

A peer that is refused learns the outcome and nothing else; the reason is in the audit log.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

from sealmq.broker.promises import NotPromised, check_publish, check_session
from sealmq.mqtt import Connect
from sealmq.mqtt import Will as WillPacket
from sealmq.store.errors import StoreUnavailable
from sealmq.store.records import SessionMark, WillRecord
from sealmq_spec import control
from sealmq_spec.const import BEHIND, CONTROL, READY, TLV_KG_TIME
from sealmq_spec.errors import Denied, SealError, Unavailable
from sealmq_spec.provision import time_nonce
from sealmq_spec.tlv import EMPTY, pack

from .denied import DeniedByRule
from .effects import (
    AskTime,
    BrokerAway,
    Commit,
    Confirmed,
    End,
    NoPlace,
    Opened,
    OpenSession,
    Returned,
    Will,
)
from .inbound import Inbound, label_topic
from .proof import Claim, Newest, claim_of, is_behind, verify
from .refusals import CONNECT, rule_of
from .session_api import SessionApi
from .site import Site
from .tasks import Task
from .wire import ACCEPTED, NOT_AUTHORISED, UNAVAILABLE

_CLOSED = "closed"


class Subs(Protocol):
    """The session's subscriptions."""

    def restore(self, rows: tuple[Any, ...]) -> Task | None:
        """Takes over the stored subscriptions of a session that came back."""


class Entrant(SessionApi, Protocol):
    """What CONNECT uses of a session, and sets in it."""

    peer: str
    state: str
    known: bool
    client_id: str
    clean: bool
    receive_max: int
    conn_no: int
    low: int
    token_low: int
    keepalive_s: int
    doubtful: int
    will: WillRecord | None
    inbound: Inbound
    subs: Any

    def vouched(self, client: int) -> None: ...
    def quarantined(self) -> None: ...
    def opened(self, welcome: bytes) -> None: ...
    def begun(self) -> None: ...


def identify(s: Entrant, packet: Connect) -> Claim | None:
    """Verifies who it is by its proof, and sets `client` and `link`. None if nothing more is to be
    done: it was refused, or is behind.
    """
    try:
        claim = claim_of(packet)
        if claim.quarantine:
            return claim
        last = s.site.newest.get(claim.client)
        client, link = verify(packet, claim, s.site.ring, s.site.number, s.site.boots, last)
    except SealError as error:
        _refuse(s, packet, error, rule_of("connect", error))
        return None
    s.client, s.link, s.conn_no = client, link, claim.conn
    s.low, s.token_low = claim.low, claim.token_low
    s.client_id, s.keepalive_s, s.clean = packet.client_id, packet.keepalive, packet.clean_session
    s.receive_max = packet.wishes.receive_max
    if is_behind(claim, last):
        _behind(s, packet, claim)
        return None
    return claim


def enter(s: Entrant, packet: Connect, claim: Claim) -> Task:
    """From a verified proof to welcome, or to a refusal and one audit record."""
    site = s.site
    s.vouched(s.client.number)
    s.policy = site.engine.connection(site.engine.who(s.client.name, s.client.number))
    s.known = True
    try:
        _check_promises(s, packet)
        _ask(s)
        if not (yield from _commit(s, claim)):
            _behind(s, packet, claim)
            return
        if packet.will is not None and s.state != _CLOSED:
            yield from _accept_will(s, packet.will)
        if s.state == _CLOSED:
            return
        wishes = packet.wishes
        opened: Opened = yield OpenSession(
            0, claim.gen, packet.clean_session, wishes.fresh, wishes.expiry
        )
        tlv = EMPTY
        if claim.wants_kg_time and s.state != _CLOSED:
            blob = yield AskTime(0, time_nonce(claim.salt, claim.boot, claim.conn))
            if blob is not None:
                tlv = pack([(TLV_KG_TIME, blob)])
        if s.state == _CLOSED:
            s.emit(End())  # for the link that was opened meanwhile
            return
        # If the broker was lost meanwhile, the journal is published before anybody is let in.
        _check_up(site)
        _still_welcome(s, claim)
    except (DeniedByRule, NotPromised) as error:
        _refuse(s, packet, error, error.rule)
    except NoPlace as error:
        _refuse(s, packet, error, "mediator.connect.full", UNAVAILABLE)
    except (BrokerAway, StoreUnavailable, Unavailable) as error:
        event = "store-unavailable" if isinstance(error, StoreUnavailable) else "broker-away"
        s.audit(event, client=s.client.name, reason=str(error)[:500])
        s.write(s.wire.connack(False, UNAVAILABLE, ""))
        s.close("refused")
    except SealError as error:
        _refuse(s, packet, error, rule_of("will", error))
    else:
        welcome = _welcome(s, READY, claim.boot, tlv)
        s.doubtful = opened.doubtful
        s.opened(s.wire.connack(opened.present, ACCEPTED, "") + welcome)
        s.audit("connect", client=s.client.name, peer=s.peer, client_id=s.client_id[:100])
        restored = s.subs.restore(opened.subs)
        if restored is not None:
            yield from restored
        s.begun()


# Refuses what the broker would drop without a word, or would hang up on.
def _check_promises(s: Entrant, packet: Connect) -> None:
    broker = s.site.broker
    check_session(broker.keeps_sessions, packet.clean_session)
    s.site.takes.check_client_id(
        packet.client_id, s.site.broker_id(s.client.number, packet.client_id)
    )
    if packet.will is not None:
        check_publish(broker.retained, broker.qos, packet.will.retain, packet.will.qos)


def _ask(s: Entrant) -> None:
    decision = s.policy.connect(s.site.now_ms)
    if not decision.allow:
        raise DeniedByRule(decision.reason, decision.rule)


def _check_up(site: Site) -> None:
    if site.away is not None:
        raise BrokerAway(site.away)


# Whether it is newer than the newest CONNECT of this client, which it durably replaces.
def _commit(s: Entrant, claim: Claim) -> Any:
    site = s.site
    _check_up(site)
    last = site.newest.get(claim.client)
    mark = SessionMark(claim.client, claim.gen, claim.boot, claim.salt, claim.conn)
    held = (yield Commit(0, (mark,)))[0]
    if isinstance(held.record, SessionMark):
        m = held.record
        site.newest[claim.client] = Newest(m.gen, m.boot, m.salt, m.conn)
    if not held.fresh:
        return False
    s.link = site.boots.keep(s.link)
    s.emit(Returned(claim.client, s.client_id))
    if claim.gen in s.client.pending:
        site.ring.confirm(claim.client, claim.gen)
        yield Confirmed(0, claim.client, claim.gen)
        if last is None or last.gen < claim.gen:
            s.audit("provisioned", client=s.client.name, gen=claim.gen)
    return True


# Judges the will, labels its topic, and stores it.
def _accept_will(s: Entrant, will: WillPacket) -> Any:
    opened, decision = s.inbound.judge_will(will)
    if decision.allow and decision.label is not None:
        yield from label_topic(s, decision)
        if s.state == _CLOSED:
            return
        opened, decision = s.inbound.judge_will(will)
    if not decision.allow or decision.label is not None:
        raise Denied(f"the will's topic: {decision.reason}")
    if will.retain:
        s.site.retained_bytes.check(decision.topic, s.client.number, len(will.payload))
    record = WillRecord(
        s.client.number,
        s.client_id,
        s.link.gen,
        s.link.boot,
        s.conn_no,
        will.topic,
        will.qos,
        will.retain,
        s.client.label,
        opened.ctr,
        opened.body,
    )
    yield Commit(0, (record,))
    s.will = record
    if s.state == _CLOSED:
        s.emit(Will("drop", record))


# Much may have changed while the store and the broker were waited for.
def _still_welcome(s: Entrant, claim: Claim) -> None:
    client = s.site.ring.clients.get(claim.client)
    if client is None or client.disabled or claim.gen not in client.links:
        raise DeniedByRule("the client was disabled or has new keys", "mediator.connect.changed")
    if client.label not in s.site.ring.labels:
        raise DeniedByRule("the client has no label", "mediator.connect.changed")
    s.client = client
    _ask(s)


def _refuse(
    s: Entrant, packet: Connect, error: SealError, rule: str, outcome: int = NOT_AUTHORISED
) -> None:
    # That of a policy is for the audit log alone.
    said = rule if isinstance(error, NotPromised) else ""
    answer = partial(s.write, s.wire.connack(False, outcome, said))
    s.refuse(CONNECT, error, rule, answer, client_id=packet.client_id[:100] or None)


# Genuine, but not higher than the newest: a replay, or a board whose boot counter fell back.
# Nothing upstream is touched.
def _behind(s: Entrant, packet: Connect, claim: Claim) -> None:
    newest = s.site.newest.get(claim.client)
    floor = newest.boot if newest else 0
    s.audit(
        "connect-refused",
        client=s.client.name,
        peer=s.peer,
        client_id=packet.client_id[:100] or None,
        rule="mediator.connect.behind",
        reason=f"boot {claim.boot} conn {claim.conn} does not rise above boot {floor}",
    )
    s.write(s.wire.connack(False, ACCEPTED, "") + _welcome(s, BEHIND, floor, EMPTY))
    s.close("behind")


def _welcome(s: Entrant, status: int, floor: int, tlv: bytes) -> bytes:
    site, window = s.site, s.link.accepted
    label = site.ring.labels.get(s.client.label)
    s.link.owed = 0
    epoch = label.epoch if label else 0
    body = control.welcome(
        status, site.now_ms, floor, window.top, window.mask, epoch, site.ring.kseq, tlv
    )
    return s.wire.publish(CONTROL, s.link.down(site.next_order(), s.conn_no, body))
