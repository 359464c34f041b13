"""One client's session: a state machine from packets, answers and time to bytes and effects.

STATES says from which state a session can go to which, TAKES which packets it takes in each state
and by which method, and WILLS what becomes of a will. A packet that has to wait for the shell (a
task, tasks.py) holds back later packets of the types in WAIT, so that these stay in the order in
which the client sent them; all others pass, since the task may need them. Nothing goes to the
broker before `open`, and nothing to the client after `closed`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from sealmq.families.engine import Conn
from sealmq.mqtt import (
    Connect,
    Disconnect,
    MalformedPacket,
    Packet,
    Pingreq,
    ProtocolError,
    Pubacks,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Unsubscribe,
)
from sealmq.store.records import WillRecord
from sealmq_spec import control
from sealmq_spec.const import CONTROL
from sealmq_spec.errors import SealError, Unavailable
from sealmq_spec.news import news

from .boots import BootSession, Sent
from .connect import enter, identify
from .control import Control
from .delivery import Delivery
from .effects import SURE, Audit, Deadline, Effect, End, Entered, PauseLink, Vouched, Will
from .fan_out import Outboxes
from .inbound import Inbound, answer, not_taken
from .keyring import Client, Keyring
from .limits import OPENING_S, QUARANTINE_BYTES, QUARANTINE_S, QUEUE, QUEUE_BYTES
from .reasons import (
    BUSY,
    KEEP_ALIVE,
    NOT_AUTHORIZED,
    UNSPECIFIED,
    codes,
    fault,
    fault_rule,
)
from .refusals import CONNECT, PUBLISH, QUARANTINE, SUBSCRIBE, TABLE, UNSUBSCRIBE, proof_of
from .site import Site
from .subscriptions import Subscriptions
from .tasks import Queue, Task, Tasks, Turn
from .wire import ACCEPTED, V311, Wire

NEW, QUARANTINED, OPENING, OPEN, CLOSED = "new", "quarantine", "opening", "open", "closed"

STATES: Mapping[str, frozenset[str]] = {
    NEW: frozenset({QUARANTINED, OPENING, CLOSED}),
    QUARANTINED: frozenset({CLOSED}),
    OPENING: frozenset({OPEN, CLOSED}),
    OPEN: frozenset({CLOSED}),
    CLOSED: frozenset(),
}
"""From each state the next ones."""

TAKES: Mapping[str, Mapping[type[Packet], str]] = {
    NEW: {Connect: "_connect", Disconnect: "_disconnect"},
    QUARANTINED: {
        Publish: "_provision",
        Pingreq: "_pong",
        Disconnect: "_disconnect",
    },
    OPENING: {},
    OPEN: {
        Publish: "_publish",
        Pubacks: "_acked",
        Pubrec: "_acked",
        Pubcomp: "_acked",
        Pubrel: "_released",
        Subscribe: "_subscribe",
        Unsubscribe: "_unsubscribe",
        Pingreq: "_ping",
        Disconnect: "_disconnect",
    },
    CLOSED: {},
}
"""Which packets are taken in each state, by which method. Any other packet breaks MQTT; in
`quarantine` it is refused. While a session opens, the task of its CONNECT holds back everything."""

WAIT = frozenset({Publish, Subscribe, Unsubscribe, Disconnect})
"""What a task holds back in an open session. Control packets (PUBLISH on !c1) wait only for one
another."""

LEFT, GONE, OURS = "left", "gone", "ours"
WILLS: Mapping[str, str] = {LEFT: "drop", GONE: "fire", OURS: "leave"}
"""What becomes of the will of an open session, by who ended it: the client with DISCONNECT; the
client otherwise, or through its fault; this mediator or the broker. In a session that never opened
it is dropped.
"""

_CONTROL = CONTROL.decode()
# What an acknowledgement that waits takes of memory, and a filter beside its text.
_ACK_BYTES, _FILTER_BYTES = 40, 120
_UNAVAILABLE = "not possible just now; the gateway's log says why"
_EVENTS = {
    CONNECT: "connect-refused",
    PUBLISH: "publish-refused",
    SUBSCRIBE: "subscribe-refused",
    UNSUBSCRIBE: "subscribe-refused",
}


class Agenda:
    """The sessions of one worker, for the shell. `by_policy`: those that are open. `pending`: those
    with effects, which it executes and empties after each event; `dirty`: those with bytes in
    `out`, which it writes once a turn of the loop.
    """

    __slots__ = ("by_policy", "dirty", "outboxes", "pending")

    def __init__(self) -> None:
        self.by_policy: dict[Conn, Session] = {}
        self.pending: list[Session] = []
        self.dirty: list[Session] = []
        self.outboxes = Outboxes()


class Session:
    """`client`, `link`, `policy` and what CONNECT said are there from `opening` on, `delivery` and
    `subs` while it is `open`.

    For the shell: it empties `out` and `effects` (Agenda), sets `heard` to `site.mono_s` whenever
    bytes come, and sets `throttled` while it does not read what this client sends.
    """

    client: Client
    link: BootSession
    policy: Conn
    delivery: Delivery
    subs: Subscriptions

    def __init__(self, site: Site, agenda: Agenda, peer: str, wire: Wire = V311) -> None:
        self.site, self.peer, self.wire = site, peer, wire
        self._agenda, self.outboxes = agenda, agenda.outboxes
        self.state = NEW
        self.client_id = ""
        self.conn_no = self.low = self.token_low = self.keepalive_s = 0
        self.clean = True
        self.receive_max = 65_535
        self.known = False
        self.doubtful = SURE
        self.will: WillRecord | None = None
        self.heard = site.mono_s
        self.throttled = False
        self.out: list[bytes] = []
        self.effects: list[Effect] = []
        # Tasks that go on when the client's socket takes more; the first place is taken while it
        # does not.
        self.gate = Queue()
        self._shut: Turn | None = None
        self.inbound = Inbound(self)
        self.control = Control(self)
        self._tasks = Tasks(self.emit)
        self._queue: deque[Packet] = deque()
        self._held = 0
        self._busy = 0
        self._pumping = False
        self._lost: str | None = None
        self._early: list[Packet] = []
        self._takes: Mapping[type[Packet], Callable[[Any], None]] = self._handlers()
        self.emit(Deadline(OPENING_S))

    # --- towards client and shell ---

    def write(self, data: bytes) -> None:
        """Bytes for the client; nothing once it is closed."""
        if self.state == CLOSED:
            return
        if not self.out:
            self._agenda.dirty.append(self)
        self.out.append(data)

    def emit(self, effect: Effect) -> None:
        """Asks the shell for an effect."""
        if not self.effects:
            self._agenda.pending.append(self)
        self.effects.append(effect)

    def audit(self, event: str, **fields: Any) -> None:
        """One audit record."""
        self.emit(Audit(event, fields))

    def down(self, body: bytes) -> None:
        """Sends a sealed control packet (SPEC.md 4.4)."""
        sealed = self.link.down(self.site.next_order(), self.conn_no, body)
        self.write(self.wire.publish(CONTROL, sealed))

    def refuse(
        self,
        what: int,
        error: SealError,
        rule: str,
        acknowledge: Callable[[], None] | None = None,
        qos: int = 0,
        event: str = "",
        **about: str | None,
    ) -> None:
        """Answers a refused packet as the table in refusals.py has it: one audit record, a notice
        in an open session, the acknowledgement, the end of the connection.

        `error` says what arrived and what was expected, and has the packet's counter if that has
        verified. `about`: fields of the audit record.
        """
        row = TABLE[what, qos > 0][proof_of(error)]
        self.audit(
            event or _EVENTS.get(what, "packet-refused"),
            client=self.client.name if what != CONNECT and self.known else None,
            peer=self.peer,
            rule=rule,
            reason=str(error)[:500],
            **about,
        )
        if self.state == OPEN:
            ctr = error.ctr if row.named else 0
            # The reason of a fault inside the gateway is only for its log: it may name files.
            said = _UNAVAILABLE if isinstance(error, Unavailable) else str(error)
            self.down(control.notice(what, ctr, error.code, rule, said))
        if row.acknowledged and acknowledge is not None:
            acknowledge()
        if row.ends:
            self.close(f"refused: {rule}", codes(error).end, rule)

    # --- the client's packets ---

    def receive(self, *packets: Packet) -> None:
        """Packets of the client, in their order; one that has to wait holds back others (WAIT)."""
        for packet in packets:
            if type(packet) is Pubacks and self.state == OPEN:
                # What they make room for goes out after the last of this read.
                self.delivery.acked(packet)
            elif (self._busy or self._pumping) and self._waits(packet):
                self._held += _size(packet)
                self._queue.append(packet)
            elif (handler := self._takes.get(type(packet))) is not None:
                handler(packet)
            else:
                self._not_taken(packet)
        if self.state == OPEN and self.delivery.freed:
            self.delivery.go_on()

    def _handle(self, packet: Packet) -> None:
        handler = self._takes.get(type(packet))
        if handler is None:
            self._not_taken(packet)
        else:
            handler(packet)

    def _waits(self, packet: Packet) -> bool:
        if self.state == OPENING:
            return True
        kind = type(packet)
        return kind in WAIT and not (kind is Publish and packet.topic == _CONTROL)  # type: ignore[union-attr]

    @property
    def crowded(self) -> bool:
        """Whether so much waits that the shell has to stop reading. To be asked after `receive`,
        `reply` and `accepted`.
        """
        if self.state == CLOSED or not (self._queue or self.control.waits):
            return False
        return len(self._queue) >= QUEUE or self._held > QUEUE_BYTES or self.control.crowded

    def hold(self, task: Task, done: Callable[[], None] | None = None, ends: bool = False) -> None:
        """Runs a task that holds back later packets. Its questions are answered even after the
        session has ended, so it looks at `state` after each; or, with `ends`, it is ended with the
        session: nobody answers them then.
        """
        self._busy += 1

        def over() -> None:
            if done is not None:
                done()
            self.release()

        self._tasks.run(task, over, ends)

    def block(self) -> None:
        """Holds back later packets until `release`."""
        self._busy += 1

    def release(self) -> None:
        """Ends one `block` or task that held packets back."""
        self._busy -= 1
        if self._queue or self._lost is not None:
            self._pump()

    def beside(self, task: Task, done: Callable[[], None] | None = None) -> None:
        """Runs a task that holds nothing back; it is ended with the session."""
        self._tasks.run(task, done, ends=True)

    def _pump(self) -> None:
        if self._pumping:
            return
        self._pumping = True
        try:
            while self._queue and not self._busy:
                packet = self._queue.popleft()
                self._held -= _size(packet)
                self._handle(packet)
        finally:
            self._pumping = False
        if self._lost is not None and not self._busy:
            self.close(self._lost)

    def _handlers(self) -> dict[type[Packet], Callable[[Any], None]]:
        return {kind: getattr(self, name) for kind, name in TAKES[self.state].items()}

    def _not_taken(self, packet: Packet) -> None:
        if self.state == QUARANTINED:
            error = SealError("only provisioning before there are keys")
            self.refuse(QUARANTINE, error, "mediator.quarantine")
        elif self.state != CLOSED:
            kind = type(packet).__name__.upper()
            self.broken(MalformedPacket(f"{kind} where none is taken [{self.state}]"))

    def _connect(self, packet: Connect) -> None:
        claim = identify(self, packet)
        if claim is None:
            return
        if claim.quarantine:
            self.quarantined()
        else:
            self._move(OPENING)
            self.hold(enter(self, packet, claim))

    def _provision(self, packet: Publish) -> None:
        if len(packet.payload) > QUARANTINE_BYTES:
            self.close("a large packet before a proof")
        elif packet.topic == _CONTROL:
            self.control.packet(packet)
        else:
            self._not_taken(packet)

    def _publish(self, packet: Publish) -> None:
        if packet.topic == _CONTROL:
            self.control.packet(packet)
        else:
            self.inbound.publish(packet)

    def _acked(self, packet: Pubacks | Pubrec | Pubcomp) -> None:
        self.delivery.acked(packet)
        self.delivery.go_on()

    def _released(self, packet: Pubrel) -> None:
        self.inbound.released(packet)

    def _subscribe(self, packet: Subscribe) -> None:
        self.hold(self.subs.subscribe(packet))

    def _unsubscribe(self, packet: Unsubscribe) -> None:
        self.hold(self.subs.unsubscribe(packet))

    def _pong(self, packet: Pingreq) -> None:
        self.write(self.wire.pingresp())

    def _ping(self, packet: Pingreq) -> None:
        if self.link.owed:
            self.down(self.link.receipt())
        self.write(self.wire.pingresp())

    def _disconnect(self, packet: Disconnect) -> None:
        self._end("DISCONNECT", GONE if packet.with_will else LEFT, answered=True)

    def broken(self, error: ProtocolError) -> None:
        """The client broke MQTT: one audit record, the answer that MQTT has for it, and the end.
        What it sent before that was handled.
        """
        if self.state == CLOSED:
            return
        self.audit(
            "packet-refused",
            client=self.client.name if self.state == OPEN else None,
            peer=self.peer,
            rule=fault_rule(error),
            reason=str(error)[:500],
        )
        if self.state == NEW and (answer := self.wire.broken(error)):
            self.write(answer)
        self.close("malformed MQTT", fault(error), fault_rule(error))

    def lost(self, reason: str) -> None:
        """The client's connection is gone; what it sent before is still handled."""
        if self.state == CLOSED:
            return
        self._lost = reason
        self.inbound.lost()
        self._shut_gate(False)
        if not self._busy and not self._pumping:
            self.close(reason)

    # --- answers and the broker's packets ---

    def reply(self, task: int, answer: object) -> None:
        """The shell's answer to a question."""
        self._tasks.reply(task, answer)
        if self.state == CLOSED:
            self.let_go()

    def accepted(self, sent: Sent) -> None:
        """Broker and journal have what this session forwarded; it may have ended since."""
        self.link.confirm(sent)
        answer(sent)

    def not_taken(self, sent: Sent, why: str) -> None:
        """The broker does not take the message: it is refused, now and whenever it comes again."""
        not_taken(sent, why)

    def news(self, family: str, said: bytes) -> None:
        """What a family tells this client. A socket that takes nothing gets none of it: the family
        says it again (Family.greet).
        """
        if self.state == OPEN and self.delivery.is_writable:
            self.down(news(family.encode(), said))

    def link_packet(self, packet: Packet) -> None:
        """PUBLISH or PUBREL of its own link."""
        if self.state == OPENING or self._early:
            self._early.append(packet)
        elif self.state == OPEN:
            if isinstance(packet, Publish):
                self.delivery.own(packet)
            elif isinstance(packet, Pubrel):
                self.delivery.own_released(packet)

    def link_lost(self, reason: str) -> None:
        """Its own link has fallen; its will is left to its grace."""
        if self.state == OPEN:
            self.audit("broker-away", client=self.client.name, reason=reason[:500])
        self.stop("broker lost")

    def writable(self, on: bool) -> None:
        """Whether the client's socket takes more."""
        if self.state == OPEN:
            self._shut_gate(not on)
            self.delivery.writable(on)
        elif not on:
            # Before a proof the answers are few and short: no honest peer leaves them unread.
            self.close("answers unread before a proof")

    def _shut_gate(self, shut: bool) -> None:
        if self._shut is not None and not shut:
            self.gate.leave(self._shut)
            self._shut = None
        elif self._shut is None and shut:
            self._shut = self.gate.join()

    # --- time, keys, policy ---

    def tick(self) -> None:
        """Once a second: a client silent for 1.5 keep alives is gone (MQTT 3.1.2.10)."""
        if self.state != OPEN:
            return
        now = self.site.mono_s
        if self.throttled or self.crowded:
            self.heard = now  # we do not read what it sends
        if self.keepalive_s and now - self.heard > 1.5 * self.keepalive_s:
            self.close("keep alive ran out", KEEP_ALIVE)
            return
        self.delivery.tick()

    def keys_changed(self, before: Keyring) -> None:
        """The site has a new keyring: takes over what concerns this client, or ends."""
        if self.state != OPEN:
            return
        ring = self.site.ring
        client = ring.clients.get(self.client.number)
        label = ring.labels.get(client.label) if client is not None else None
        if client is None or label is None or client.label != self.client.label:
            self._end("the client was removed or relabelled", GONE, cut=True)
            return
        if client.disabled or not client.goes_on(self.link.gen):
            self._end("the client was disabled or has new keys", GONE, cut=True)
            return
        self.client = client
        self.delivery.keys_changed(before)

    def policy_changed(self) -> None:
        """The policy may judge this client otherwise: the session ends if it may not connect."""
        if self.state != OPEN:
            return
        decision = self.policy.connect(self.site.now_ms)
        if not decision.allow:
            rule = decision.rule
            self.close(f"refused from now on: {rule}", NOT_AUTHORIZED, rule)

    def answered(self, gen: int) -> bool:
        """A provisioning answer with this generation has been passed on to the client. Whether it
        brought a new epoch.
        """
        client = self.site.ring.clients.get(self.client.number)
        return client is not None and self.delivery.epoch_answered(client.epochs.get(gen, 0))

    # --- life ---

    def vouched(self, client: int) -> None:
        """A proof of this client has verified; it may be a recorded one."""
        if self.state in (OPENING, QUARANTINED):
            self.emit(Vouched(client))

    def quarantined(self) -> None:
        """Provisioning only, and not for long."""
        self._move(QUARANTINED)
        self.emit(Deadline(QUARANTINE_S))
        self.write(self.wire.connack(False, ACCEPTED, ""))

    def opened(self, welcome: bytes) -> None:
        """The session is open: the broker has it, and policy and keys allow it."""
        self.delivery = Delivery(self)
        self.subs = Subscriptions(self)
        self._move(OPEN)
        self.heard = self.site.mono_s
        self._agenda.by_policy[self.policy] = self
        self.emit(Entered())
        self.write(welcome)
        for family, said in self.site.engine.greetings(self.policy.who):
            self.news(family, said)

    def begun(self) -> None:
        """The stored subscriptions have been judged again: what the client sent meanwhile and need
        not wait is handled, and then what the own link brought.
        """
        queue, self._queue = self._queue, deque()
        for packet in queue:
            if self._waits(packet):
                self._queue.append(packet)
            else:
                self._held -= _size(packet)
                self._handle(packet)
        early, self._early = self._early, []
        for packet in early:
            self.link_packet(packet)
        self.emit(PauseLink(False))

    def close(self, reason: str, code: int = UNSPECIFIED, rule: str = "") -> None:
        """Ends the connection as not clean: a will fires. code, rule: for a client that is told."""
        self._end(reason, GONE, code, rule)

    def stop(self, reason: str, code: int = BUSY) -> None:
        """The mediator ends the connection, for reasons of its own: a will is left to its grace."""
        self._end(reason, OURS, code)

    def let_go(self) -> None:
        """After its End, once its last task is over: drops its parts, which refer to it, so that
        all of it is freed without the garbage collector.
        """
        if self._tasks:
            return
        own = vars(self)
        if "delivery" in own:
            # The table's answers refer to it until their topics are looked up again.
            vars(self.delivery).clear()
        for part in ("inbound", "control", "delivery", "subs", "_tasks"):
            own.pop(part, None)
        self._tasks = Tasks(_to_nobody)

    def _move(self, state: str) -> None:
        if state not in STATES[self.state]:
            raise RuntimeError(f"a session cannot go from {self.state} to {state}")
        self.state = state
        self._takes = self._handlers()

    # `cut`: once an operator's command says that nothing more is delivered, nothing must be.
    def _end(
        self,
        reason: str,
        by: str,
        code: int = UNSPECIFIED,
        rule: str = "",
        cut: bool = False,
        answered: bool = False,
    ) -> None:
        if self.state == CLOSED:
            return
        was_open = self.state == OPEN
        if was_open and not cut and not answered and (bye := self.wire.goodbye(code, rule)):
            self.write(bye)
        self._move(CLOSED)
        self._queue.clear()
        self._early.clear()
        self._held, self._lost = 0, None
        self._tasks.close()
        self._shut_gate(False)
        if was_open:
            del self._agenda.by_policy[self.policy]
            self.subs.close()
            self.delivery.close()
            clean = by == LEFT
            self.audit("disconnect", client=self.client.name, reason=reason[:500], clean=clean)
        if cut:
            self.out.clear()
        will = WILLS[by] if was_open else "drop"
        if self.will is not None:
            self.emit(Will(will, self.will))
        if self.known and not (self.will is not None and will == "fire"):
            self.policy.close(self.site.now_ms)
        self.emit(End(cut))


def _to_nobody(effect: Effect) -> None:
    """After the end nothing is asked."""


def _size(packet: Packet) -> int:
    if isinstance(packet, Pubacks):
        return _ACK_BYTES * len(packet.packet_ids)
    if isinstance(packet, Subscribe):
        return sum(_FILTER_BYTES + len(text) for text, _ in packet.filters)
    if isinstance(packet, Unsubscribe):
        return sum(_FILTER_BYTES + len(text) for text in packet.filters)
    return len(packet.payload) if isinstance(packet, Publish) else 0
