"""CONNECT (SPEC.md 4.1): verify, compare with the store, store, and only then touch a session or
the broker.

A peer that fails learns a CONNACK code and nothing else; the audit log holds the reason.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sealmq.broker.promises import NotPromised, check_publish, check_session
from sealmq.mqtt import Connect, build
from sealmq.store import SessionMark, StoreUnavailable
from sealmq_spec import control
from sealmq_spec.const import BEHIND, CONTROL, READY, TLV_KG_TIME
from sealmq_spec.errors import SealError, Unavailable
from sealmq_spec.provision import time_nonce
from sealmq_spec.tlv import pack

from .core.proof import Claim, Newest, claim_of, is_behind, verify
from .core.refusals import CONNECT, rule_of
from .core.ruled import Ruled
from .rooms import NoPlace
from .upstream import BrokerAway, Upstream
from .wills import accept_will

if TYPE_CHECKING:
    from .connection import Connection

_NOT_AUTHORISED, _UNAVAILABLE = 5, 3


async def open_session(conn: Connection, packet: Connect) -> None:
    """From CONNECT to welcome, or to a refusal and one audit record."""
    hub = conn.hub
    try:
        claim = claim_of(packet)
        if claim.quarantine:
            _quarantine(conn, claim)
            return
        client, link = verify(packet, claim, hub.ring, hub.number, hub.links)
    except Ruled as error:
        _refuse(conn, packet, error, error.rule)
        return
    except SealError as error:
        _refuse(conn, packet, error, rule_of("connect", error))
        return
    conn.client, conn.link, conn.conn_no = client, link, claim.conn
    conn.low, conn.token_low = claim.low, claim.token_low
    conn.client_id, conn.keepalive_s = packet.client_id, packet.keepalive
    if is_behind(claim, hub.newest(client.number)):
        _behind(conn, packet, claim)
        return
    conn.vouched(client.number)
    conn.policy_conn = hub.engine.connection(hub.engine.who(client.name, client.number))
    try:
        _check_promises(conn, packet)
        _ask(conn)
        await _commit(conn, packet, claim)
        if packet.will is not None:
            conn.will = await accept_will(conn, packet.will)
        await _reach_broker(conn, packet, claim)
    except _Behind:
        _behind(conn, packet, claim)
    except (Ruled, NotPromised) as error:
        _refuse(conn, packet, error, error.rule)
    except NoPlace as error:
        _refuse(conn, packet, error, "mediator.connect.full", _UNAVAILABLE)
    except (BrokerAway, StoreUnavailable, Unavailable) as error:
        event = "store-unavailable" if isinstance(error, StoreUnavailable) else "broker-away"
        hub.audit.write(event, client=client.name, reason=str(error)[:500])
        _end(conn, _UNAVAILABLE)
    except SealError as error:
        _refuse(conn, packet, error, rule_of("will", error))


def _ask(conn: Connection) -> None:
    decision = conn.policy.connect(conn.hub.now_ms())
    if not decision.allow:
        raise Ruled(decision.reason, decision.rule)


# What the broker would not keep is refused, not lost without a word; what it would hang up on too.
def _check_promises(conn: Connection, packet: Connect) -> None:
    hub = conn.hub
    broker = hub.broker
    check_session(broker.keeps_sessions, packet.clean_session)
    at_broker = hub.sessions.upstream_id(conn.client.number, packet.client_id)
    hub.broker_takes.check_client_id(packet.client_id, at_broker)
    if packet.will is not None:
        check_publish(broker.retained, broker.qos, packet.will.retain, packet.will.qos)


# Much may have changed while the store and the broker were waited for.
def _still_welcome(conn: Connection, claim: Claim) -> None:
    client = conn.hub.ring.clients.get(claim.client)
    if client is None or client.disabled or claim.gen not in client.links:
        raise Ruled("the client was disabled or has new keys", "mediator.connect.changed")
    if client.label not in conn.hub.ring.labels:
        raise Ruled("the client has no label", "mediator.connect.changed")
    conn.client = client
    _ask(conn)


class _Behind(Exception):
    pass


def _quarantine(conn: Connection, claim: Claim) -> None:
    conn.quarantined()
    conn.send(build.connack(False, 0))


def _refuse(
    conn: Connection, packet: Connect, error: SealError, rule: str, code: int = _NOT_AUTHORISED
) -> None:
    answer = partial(conn.send, build.connack(False, code))
    conn.refuse(CONNECT, error, rule, answer, client_id=packet.client_id[:100] or None)


def _end(conn: Connection, code: int) -> None:
    conn.send(build.connack(False, code))
    conn.close("refused")


def _welcome(conn: Connection, status: int, floor: int, tlv: bytes) -> bytes:
    hub, window = conn.hub, conn.link.accepted
    label = hub.ring.labels.get(conn.client.label)
    conn.link.owed = 0
    epoch = label.epoch if label else 0
    body = control.welcome(
        status, hub.now_ms(), floor, window.top, window.mask, epoch, hub.ring.kseq, tlv
    )
    return build.publish(CONTROL, conn.link.down(hub.next_order(), conn.conn_no, body))


# Genuine, but not higher than the newest: a replay, or a board whose boot counter fell back.
# Nothing upstream is touched.
def _behind(conn: Connection, packet: Connect, claim: Claim) -> None:
    newest = conn.hub.newest(claim.client)
    floor = newest.boot if newest else 0
    conn.hub.audit.write(
        "connect-refused",
        client=conn.client.name,
        peer=conn.peer,
        client_id=packet.client_id[:100] or None,
        rule="mediator.connect.behind",
        reason=f"boot {claim.boot} conn {claim.conn} does not rise above boot {floor}",
    )
    conn.send(build.connack(False, 0) + _welcome(conn, BEHIND, floor, pack(())))
    conn.close("behind")


async def _commit(conn: Connection, packet: Connect, claim: Claim) -> None:
    hub = conn.hub
    if not hub.house.up:
        raise BrokerAway("the broker is away")
    mark = SessionMark(claim.client, claim.gen, claim.boot, claim.salt, claim.conn)
    held = (await hub.store.commit([mark]))[0]
    if isinstance(held.record, SessionMark):
        m = held.record
        hub.rose(claim.client, Newest(m.gen, m.boot, m.salt, m.conn))
    if not held.fresh:
        raise _Behind
    conn.link = hub.links.keep(conn.link)
    hub.wills.returned(claim.client, conn.client_id)
    if claim.gen in conn.client.pending:
        await hub.confirm(claim.client, claim.gen)
        hub.audit.write("provisioned", client=conn.client.name, gen=claim.gen)


async def _reach_broker(conn: Connection, packet: Connect, claim: Claim) -> None:
    hub = conn.hub
    hub.rooms.place(conn)
    upstream = Upstream(conn.delivering.packet, conn.upstream_lost, conn.pressure)
    clean = packet.clean_session
    known = await hub.sessions.prepare(conn.client, claim.gen, packet.client_id, clean)
    upstream_id = hub.sessions.upstream_id(claim.client, packet.client_id)
    # What the broker sends before the welcome is out waits in the socket.
    present = await upstream.open(hub.broker, upstream_id, clean)
    if clean:
        hub.sessions.cleaned(claim.client, packet.client_id)
    else:
        try:
            key = claim.client, packet.client_id
            kept = await hub.sessions.subscriptions(key, claim.gen, known, present)
        except StoreUnavailable:
            upstream.close()
            raise
        conn.kept_subs.begin(kept)
    tlv = b"\x00"
    if claim.wants_kg_time:
        nonce_c = time_nonce(claim.salt, claim.boot, claim.conn)
        blob = await hub.kg_time(claim.client, nonce_c, conn.link.suite)
        if blob is not None:
            tlv = pack([(TLV_KG_TIME, blob)])
    if conn.state != "opening":
        upstream.close()
        return
    if not hub.house.up:
        # It was lost meanwhile: what it forgot is published again before anybody is let in.
        upstream.close()
        raise BrokerAway("the broker is away")
    try:
        _still_welcome(conn, claim)
    except Ruled:
        upstream.close()
        raise
    conn.upstream = upstream
    conn.opened()
    conn.send(build.connack(present, 0) + _welcome(conn, READY, claim.boot, tlv))
    conn.holding.begin()
    conn.subscribing.restore(conn.kept_subs.rows)
    conn.delivering.begin()
    hub.audit.write(
        "connect", client=conn.client.name, peer=conn.peer, client_id=packet.client_id[:100]
    )
