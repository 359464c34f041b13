"""One client's connection: who it is, which part handles which packet, and the ways to answer.

States: new, opening, quarantine (SPEC.md 4.1), open, closed. Nothing reaches the broker before
open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from sealmq.families.engine import Conn
from sealmq.mqtt import (
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    ProtocolError,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Unsubscribe,
    build,
)
from sealmq.store import WillRecord
from sealmq_spec import control
from sealmq_spec.const import CONTROL
from sealmq_spec.errors import SealError, Unavailable

from .channel import Channel, Work
from .controlling import Controlling
from .core.boots import BootSession
from .core.keyring import Client, Keyring
from .core.limits import KEEPALIVE_UPSTREAM_S, OPENING_S, QUARANTINE_S
from .core.refusals import CONNECT, PUBLISH, QUARANTINE, SUBSCRIBE, TABLE, UNSUBSCRIBE, proof_of
from .delivering import Delivering
from .holding import Holding
from .hub import Hub, task_of
from .keptsubs import KeptSubs
from .opening import open_session
from .publishing import Publishing
from .strangers import source_of
from .subscribing import Subscribing
from .telling import Telling
from .upstream import Upstream

Handler = Callable[[Any], Work]

_CONTROL = CONTROL.decode()
_UNAVAILABLE = "not possible just now; the gateway's log says why"

_EVENTS = {
    CONNECT: "connect-refused",
    PUBLISH: "publish-refused",
    SUBSCRIBE: "subscribe-refused",
    UNSUBSCRIBE: "subscribe-refused",
}


class Connection(Channel):
    """What the parts share: client, link, policy, upstream, and ways to answer."""

    client: Client
    link: BootSession
    upstream: Upstream

    def __init__(self, hub: Hub) -> None:
        super().__init__()
        self.hub = hub
        self.state = "new"
        self.policy_conn: Conn | None = None
        self.client_id = ""
        self.conn_no = 0
        self.low = 0
        self.token_low = 0
        self.keepalive_s = 0
        self.will: WillRecord | None = None
        self._upstream_beat = 0.0
        self.telling = Telling(self)
        self.show_records = self.telling.records
        self.holding = Holding(self)
        self.publishing = Publishing(self)
        self.kept_subs = KeptSubs(self)
        self.subscribing = Subscribing(self)
        self.delivering = Delivering(self)
        self.controlling = Controlling(self)
        self._handlers: dict[type[Packet], Handler] = {
            Publish: self._publish,
            Puback: self.delivering.acked,
            Pubrec: self.delivering.acked,
            Pubrel: self.publishing.underway.released,
            Pubcomp: self.delivering.acked,
            Subscribe: self.subscribing.asked,
            Unsubscribe: partial(self.kept_subs.paced, self.subscribing.unsubscribe),
            Pingreq: self._ping,
        }

    @property
    def policy(self) -> Conn:
        """This client before the policy families; there once its proof has verified."""
        if self.policy_conn is None:
            raise RuntimeError("no policy before a proof")
        return self.policy_conn

    @property
    def who(self) -> str:
        """The client's name once its proof has verified, else its address."""
        return self.client.name if self.state == "open" else self.peer

    # --- packets ---

    def arrived(self) -> None:
        self.hub.connections.add(self)
        self.set_deadline(OPENING_S)
        self.hub.strangers.enter(self, source_of(self.peer))

    def vouched(self, client: int) -> None:
        """Something in this client's name has verified; it may have been recorded."""
        if self.state in ("opening", "quarantine"):
            self.hub.strangers.enter(self, client)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.hub.spawn(work, task_of(self.who))

    def slow(self, full: bool) -> None:
        if self.state == "open":
            self.delivering.slow(full)

    def handle(self, packet: Packet) -> Work:
        if isinstance(packet, Disconnect):
            self._end("DISCONNECT", clean=True)
            return None
        if isinstance(packet, Connect):
            self.state = "opening"
            return open_session(self, packet)
        if self.state == "quarantine":
            return self._in_quarantine(packet)
        if self.state != "open":
            return None
        return self._handlers[type(packet)](packet)

    def _in_quarantine(self, packet: Packet) -> Work:
        if isinstance(packet, Pingreq):
            self.send(build.pingresp())
        elif isinstance(packet, Publish) and packet.topic == _CONTROL:
            return self.controlling.provision(packet)
        else:
            error = SealError("only provisioning before there are keys")
            self.refuse(QUARANTINE, error, "mediator.quarantine")
        return None

    def _publish(self, packet: Publish) -> Work:
        if packet.topic == _CONTROL:
            return self.controlling.packet(packet)
        return self.publishing.publish(packet)

    def _ping(self, packet: Pingreq) -> None:
        if self.link.owed:
            self.down(self.link.receipt())
        self.send(build.pingresp())

    # --- answers ---

    def down(self, body: bytes) -> None:
        """Sends a control packet (SPEC.md 4.4)."""
        order = self.hub.next_order()
        self.send(build.publish(CONTROL, self.link.down(order, self.conn_no, body)))

    def refuse(
        self,
        what: int,
        error: SealError,
        rule: str,
        acknowledge: Callable[[], None] = lambda: None,
        qos: int = 0,
        event: str = "",
        **about: str | None,
    ) -> None:
        """Answers a refused packet as the table in refusals.py has it: one audit record, a notice
        once there is a link, the acknowledgement, the end of the connection.

        `error` says what arrived and what was expected, and has the packet's counter if that has
        verified. `about`: fields of the audit record.
        """
        row = TABLE[what, qos > 0][proof_of(error)]
        # Also behind the connection's end: a packet may have waited for the disk.
        known = what != CONNECT and self.policy_conn is not None
        self.hub.audit.write(
            event or _EVENTS.get(what, "packet-refused"),
            client=self.client.name if known else None,
            peer=self.peer,
            rule=rule,
            reason=str(error)[:500],
            **about,
        )
        if self.state == "open":
            ctr = error.ctr if row.named else 0
            # What goes wrong inside the gateway is for its log: reasons name files.
            said = _UNAVAILABLE if isinstance(error, Unavailable) else str(error)
            self.down(control.notice(what, ctr, error.code, rule, said))
        if row.acknowledged:
            acknowledge()
        if row.ends:
            self.close(f"refused: {rule}")

    def broken(self, error: ProtocolError) -> None:
        """The client broke MQTT: one record, the CONNACK code where MQTT has one, the end."""
        if self.state == "closed":
            return
        self.hub.audit.write(
            "packet-refused",
            client=self.who if self.state == "open" else None,
            peer=self.peer,
            rule="mqtt." + type(error).__name__,
            reason=str(error)[:500],
        )
        if error.connack is not None and self.state == "new":
            self.send(build.connack(False, error.connack))
        self.close("malformed MQTT")

    def keys_changed(self, before: Keyring) -> None:
        """The hub has a new keyring: take over what concerns this client, or end."""
        if self.state != "open":
            return
        ring = self.hub.ring
        client = ring.clients.get(self.client.number)
        label = ring.labels.get(client.label) if client is not None else None
        if client is None or label is None or client.label != self.client.label:
            self._put_out("the client was removed or relabelled")
            return
        if client.disabled or not client.goes_on(self.link.gen):
            self._put_out("the client was disabled or has new keys")
            return
        self.client = client
        if before.labels.get(label.number) != label:
            self.telling.epoch(label)
        self.holding.look()

    # Once the operator's command says that nothing is delivered any more, nothing must be.
    def _put_out(self, reason: str) -> None:
        self.close(reason)
        self.cut()

    def answered(self, gen: int) -> bool:
        """A provisioning answer with this generation has been passed on to the client.

        Whether it brought a new epoch.
        """
        held = self.holding.epoch
        client = self.hub.ring.clients.get(self.client.number)
        if client is not None:
            self.telling.forget()
            self.holding.answered(client.epochs.get(gen, 0))
        return self.holding.epoch > held

    def policy_changed(self, changed: set[Conn]) -> None:
        """The configuration changed: a client that may not connect any more ends."""
        if self.state != "open" or self.policy not in changed:
            return
        decision = self.policy.connect(self.hub.now_ms())
        if not decision.allow:
            self.close(f"refused from now on: {decision.rule}")

    # --- life ---

    def opened(self) -> None:
        """The proof has verified and the broker is there."""
        self.state = "open"
        self.small = False
        self.hub.rooms.enter(self)
        self.hub.by_policy[self.policy] = self
        self.hub.strangers.leave(self)
        self.set_deadline(0)
        self._upstream_beat = asyncio.get_running_loop().time()

    def quarantined(self) -> None:
        """Provisioning only, and not for long."""
        self.state = "quarantine"
        self.set_deadline(QUARANTINE_S)

    def beat(self, now: float) -> None:
        """About once a second: a client silent for 1.5 keep alives is gone (MQTT 3.1.2.10)."""
        if self.state != "open":
            return
        if self.held_back:
            self.heard = now  # what it sends waits for us
        if self.keepalive_s and now - self.heard > 1.5 * self.keepalive_s:
            self.close("keep alive ran out")
            return
        self.holding.beat(now)
        if now - self._upstream_beat >= KEEPALIVE_UPSTREAM_S:
            self._upstream_beat = now
            self.upstream.beat()

    def close(self, reason: str) -> None:
        """Ends the connection as not clean: a will fires."""
        self._end(reason, clean=False)

    def gone(self, reason: str) -> None:
        self.close(reason)

    def upstream_lost(self, reason: str) -> None:
        """The broker is gone for this client."""
        if self.state == "open":
            self.hub.audit.write("broker-away", client=self.client.name, reason=reason[:500])
        self._end("broker lost", clean=False, ours=True)

    def stop(self, reason: str) -> None:
        """This mediator ends the connection, for reasons of its own: no will fires."""
        self._end(reason, clean=False, ours=True)

    def _end(self, reason: str, clean: bool, ours: bool = False) -> None:
        if self.state == "closed":
            return
        was, self.state = self.state, "closed"
        self.hub.connections.discard(self)
        self.controlling.ended()
        self.finish()
        if was != "open":
            self.hub.strangers.leave(self)
            if self.policy_conn is not None:
                self.policy_conn.close(self.hub.now_ms())
            if self.will is not None:
                self.hub.wills.drop(self.will)
            return
        self.hub.rooms.leave(self)
        self.hub.by_policy.pop(self.policy, None)
        self.holding.drop()
        self.upstream.close()
        self.publishing.underway.ended()
        self.hub.audit.write(
            "disconnect", client=self.client.name, reason=reason[:500], clean=clean
        )
        if self.will is not None and not clean and not ours:
            self.hub.wills.fire(self.will, self.policy)
            return
        self.policy.close(self.hub.now_ms())
        if self.will is not None:
            (self.hub.wills.drop if clean else self.hub.wills.leave)(self.will)
