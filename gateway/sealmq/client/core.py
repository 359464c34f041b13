"""One connection of a client, sans-IO: bytes in and events out, operations in and bytes out.

Nothing of a peer is trusted before CONNACK and a valid welcome behind it (SPEC.md 4.4). The clock
comes in as `mono`, milliseconds that only rise. Session, reader and outbox outlive a connection.
"""

from __future__ import annotations

import enum
import logging
from collections import Counter, deque
from collections.abc import Sequence

from sealmq.mqtt import (
    Connack,
    Pingresp,
    Puback,
    Pubacks,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    QoS2Receiver,
    Suback,
    Unsuback,
    build,
)
from sealmq.mqtt import ProtocolError as MqttFault
from sealmq_spec.const import (
    ANSWER,
    BEHIND,
    CONTROL,
    DOWN,
    M2_HEAD,
    M2_MIN,
    M3_HEAD,
    MAX_PAYLOAD,
    MAX_TLV,
    MAX_TOPIC,
    OP_EPOCH,
    OP_GRANT,
    OP_NEWS,
    OP_NOTICE,
    OP_RECEIPT,
    OP_RECORD,
    OP_REPLY,
    OP_TIME,
    OP_WELCOME,
    PUBLIC,
    UNSUBSCRIBE,
)
from sealmq_spec.errors import Malformed, SealError, WrongEpoch
from sealmq_spec.news import get_news
from sealmq_spec.session import Session
from sealmq_spec.tlv import EMPTY

from . import events as ev
from .errors import BadWelcome, ClientError, ConnectionLost, PeerFault, connect_refused
from .intake import Intake, ack
from .names import Names
from .opener import Opener
from .outbox import Outbox
from .seal import Link, seal_message, seal_passed
from .speech import V311, Came, Farewell, Hint, Speech
from .values import WHAT, News, Notice

log = logging.getLogger("sealmq.client")

_OTHERS = CONTROL[0], PUBLIC[0]

# Remaining length of the largest PUBLISH that can be valid (SPEC.md 9).
MAX_PACKET = MAX_TOPIC + 4 + M2_MIN + (M3_HEAD - M2_HEAD) + 2 + MAX_TLV + MAX_PAYLOAD


class Stage(enum.Enum):
    """How far the mediator has shown who it is."""

    CONNACK = enum.auto()
    WELCOME = enum.auto()
    READY = enum.auto()
    DEAD = enum.auto()


class Core:
    """One connection. `refused` counts what the reader and the session refuse, by class."""

    def __init__(
        self,
        session: Session,
        reader: Opener,
        outbox: Outbox,
        received: QoS2Receiver,
        refused: Counter[str],
        may_leave: bool = True,
        settle: bool = False,
        speech: Speech = V311,
        names: Names | None = None,
    ) -> None:
        self._speech = speech
        self.session, self.reader, self.outbox = session, reader, outbox
        # Whether the application says when a message is acknowledged.
        self._settle = settle
        # Whether a boot session may be left for its clock.
        self._may_leave = may_leave
        self.refused = refused
        self.stage = Stage.CONNACK
        self._received = received
        self._present = False
        self._decoder = speech.decoder(MAX_PACKET)
        self._link: Link | None = None
        # What came in and has not been looked at, and what the peer broke behind it.
        self._packets: deque[Came] = deque()
        self._broken: Exception | None = None
        self._out = bytearray()
        self._intake = Intake(session, reader, received, refused, settle, speech, names)
        self.came_of = self._intake
        """What Came.of is of messages of this connection."""
        # packet id -> ctrs of the tokens that the answer speaks of.
        self._asked: dict[int, tuple[int, ...]] = {}

    @property
    def present(self) -> bool:
        """Whether the MQTT session was there before."""
        return self._present

    def take(self) -> bytes:
        """What the protocol itself wants sent; empty afterwards."""
        if not self._out and not self._intake.out:
            return b""
        out = bytes(self._out + self._intake.out)
        self._out.clear()
        self._intake.out.clear()
        return out

    # --- operations: each gives the bytes to send ------------------------------------------------

    def publish(
        self,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        kind: int,
        life: int,
        mono: int,
        block: bytes = EMPTY,
        passed: bool = False,
    ) -> tuple[int, bytes]:
        """(ctr, PUBLISH). topic: checked UTF-8. kind: m1's class. block: TLV. passed: the payload
        is an m1 already.

        With QoS 1 and 2 it is kept.
        """
        flags = qos << 1 | retain
        sealed: bytes | bytearray
        if passed:
            if self._link is None or self._link.km is not self.session.ident.km:
                self._link = Link(self.session)
            ctr, sealed = seal_passed(self._link, topic, payload, flags, mono, block)
        else:
            ctr, sealed = seal_message(self.session, topic, payload, flags, kind, life, mono, block)
        packet_id = self.outbox.ids.take() if qos else 0
        packet = self._speech.publish(topic, sealed, qos, retain, packet_id=packet_id)
        if qos:
            self.outbox.add(packet_id, ctr, qos, packet)
        return ctr, packet

    def subscribe(self, filters: Sequence[tuple[str, int]]) -> tuple[tuple[int, ...], bytes]:
        """(ctr of each token, SUBSCRIBE) for (filter, QoS) pairs."""
        tokens = [self.session.token(filt, qos) for filt, qos in filters]
        packet_id = self.outbox.ids.take()
        wire = [(text, qos) for (text, _), (_, qos) in zip(tokens, filters, strict=True)]
        ctrs = tuple(ctr for _, ctr in tokens)
        self._asked[packet_id] = ctrs
        return ctrs, self._speech.subscribe(packet_id, wire)

    def unsubscribe(self, filters: Sequence[str]) -> tuple[tuple[int, ...], bytes]:
        """(ctr of each token, UNSUBSCRIBE)."""
        tokens = [self.session.token(filt, 0, UNSUBSCRIBE) for filt in filters]
        packet_id = self.outbox.ids.take()
        ctrs = tuple(ctr for _, ctr in tokens)
        self._asked[packet_id] = ctrs
        return ctrs, self._speech.unsubscribe(packet_id, [text for text, _ in tokens])

    def control(self, packet: bytes) -> bytes:
        """A PUBLISH of a control packet up, or of a provisioning request."""
        return self._speech.publish(CONTROL, packet)

    def close(self) -> None:
        """The connection is over: ids of unanswered SUBSCRIBEs are free again, and messages that
        were not acknowledged come again."""
        self.stage = Stage.DEAD
        self._intake.close()
        for packet_id in self._asked:
            self.outbox.ids.release(packet_id)
        self._asked.clear()

    # --- what comes in ---------------------------------------------------------------------------

    def receive(self, data: bytes, mono: int) -> list[ev.Event]:
        """What `data` means. A Fault, always the last event, ends the connection.

        An Answer is the last event as well: what came behind it may need the roots that it brings,
        and waits for `go_on`.
        """
        if self.stage is Stage.DEAD:
            return []
        try:
            self._packets.extend(self._decoder.feed(data))
        except MqttFault as error:
            self._packets.extend(error.packets)
            self._broken = PeerFault(f"the mediator broke MQTT: {error}")
        return self.go_on(mono)

    @property
    def stopped(self) -> bool:
        """Whether something waits for `go_on`."""
        return bool(self._packets) or self._broken is not None

    def go_on(self, mono: int) -> list[ev.Event]:
        """What came behind an Answer means."""
        out: list[ev.Event] = []
        fault: Exception | None = None
        packets, intake, ready = self._packets, self._intake, Stage.READY
        now = self.session.now_ms(mono)
        while packets and fault is None:
            packet = packets.popleft()
            try:
                if self.stage is not ready:
                    self._opening(packet, mono, out)
                    now = self.session.now_ms(mono)
                elif type(packet) is Publish and not (
                    packet.topic_raw[0] in _OTHERS and _is_told(packet)
                ):
                    if intake.seeks:
                        intake.no_record(mono, out)
                    if not (packet.qos == 2 and self._again(packet)):
                        intake.message(packet, now, mono, out)
                else:
                    self._take(packet, mono, out)
                    now = self.session.now_ms(mono)
            except (ClientError, SealError) as error:
                fault = error
            except Exception as error:  # a defect of ours must not outlive the connection
                log.exception("a %s that this client cannot handle", type(packet).__name__)
                fault = PeerFault(f"a packet that this client fails on: {type(error).__name__}")
            if out and isinstance(out[-1], ev.Answer):
                return out
        fault = fault or self._broken
        if fault is not None:
            self.stage = Stage.DEAD
            self._packets.clear()
            self._broken = None
            out.append(ev.Fault(fault))
        return out

    def _opening(self, packet: Came, mono: int, out: list[ev.Event]) -> None:
        if isinstance(packet, Farewell):
            raise _ended(packet)
        if self.stage is Stage.CONNACK:
            if not isinstance(packet, Connack):
                raise BadWelcome(f"{type(packet).__name__} arrived where CONNACK was due")
            if packet.code:
                raise connect_refused(packet.code)
            self._present = packet.session_present
            self.stage = Stage.WELCOME
        elif self.stage is Stage.WELCOME:
            self._welcome(packet, mono, out)

    def _welcome(self, packet: Came, mono: int, out: list[ev.Event]) -> None:
        if not isinstance(packet, Publish) or not _is_control(packet):
            raise BadWelcome(f"{type(packet).__name__} arrived where the welcome was due")
        conflict = self.session.clock_conflict
        try:
            op, status = self.session.down(packet.payload, mono)
        except SealError as error:
            raise BadWelcome(f"the welcome is not valid: {error}") from error
        if op != OP_WELCOME:
            raise BadWelcome(f"control operation {op} arrived where the welcome was due")
        if status == BEHIND:
            out.append(ev.Behind(self.session.boot_floor))
            self.stage = Stage.DEAD
            return
        if self.session.now_ms(mono) is None:
            raise BadWelcome("the welcome took longer than 2 s, too long to set the clock by it")
        differs = self.session.clock_conflict and not conflict
        if differs and self.session.conn > 1 and self._may_leave:
            out.append(ev.OtherTime())
            self.stage = Stage.DEAD
            return
        self.stage = Stage.READY
        if not self._present:
            self._received.clear()
        again, lost = self.outbox.resume(self._present)
        self._out += again
        out.append(ev.Ready(self._present))
        out.extend(ev.Lost(ctr) for ctr in lost)
        if self.session.outdated():
            out.append(ev.Outdated())

    # All but messages.
    def _take(self, packet: Came, mono: int, out: list[ev.Event]) -> None:
        if self._intake.seeks and not (isinstance(packet, Publish) and packet.topic_raw == CONTROL):
            self._intake.no_record(mono, out)
        match packet:
            case Publish():
                self._told(packet, mono, out)
            case Pubacks():
                self._acked(self.outbox.pubacks(packet.packet_ids), out)
            case Puback():
                self._acked(self.outbox.pubacks((packet.packet_id,)), out)
            case Pubrec():
                self.outbox.pubrec(packet.packet_id)
                self._out += build.pubrel(packet.packet_id)
            case Pubcomp():
                self._acked((self.outbox.pubcomp(packet.packet_id),), out)
            case Farewell():
                raise _ended(packet)
            case Pubrel():
                self._received.release(packet.packet_id)
                if self._settle:
                    out.append(ev.Released(packet.packet_id))
                else:
                    self._out += build.pubcomp(packet.packet_id)
            case Suback():
                ctrs = self._answered(packet.packet_id, "SUBACK")
                if len(ctrs) != len(packet.codes):
                    raise PeerFault(
                        f"SUBACK with {len(packet.codes)} codes for {len(ctrs)} filters"
                    )
                out.extend(
                    ev.Granted(ctr, code) for ctr, code in zip(ctrs, packet.codes, strict=True)
                )
            case Unsuback():
                out.extend(ev.Removed(c) for c in self._answered(packet.packet_id, "UNSUBACK"))
            case Pingresp():
                out.append(ev.Pong())
            case Hint():
                self._hinted(packet, out)
            case _:
                raise PeerFault(f"{type(packet).__name__} arrived in a connection that was open")

    # In the clear anybody can refuse: the notice that comes before it is what counts.
    def _hinted(self, packet: Hint, out: list[ev.Event]) -> None:
        ctr, refused = self.outbox.refused(packet.packet_id) or (0, False)
        if ctr and not refused and not self.session.receipted(ctr):
            raise PeerFault(
                f"{packet.kind} refuses a message (MQTT 5, reason {packet.code:#04x}), "
                "and no sealed notice says so"
            )
        if packet.kind == "PUBACK":
            self._acked(self.outbox.pubacks((packet.packet_id,)), out)
        else:
            # It ends here: no PUBREL follows (MQTT 5, section 4.3.3).
            self.outbox.pubrec(packet.packet_id)
            self._acked((self.outbox.pubcomp(packet.packet_id),), out)

    def _answered(self, packet_id: int, kind: str) -> tuple[int, ...]:
        ctrs = self._asked.pop(packet_id, None)
        if ctrs is None:
            raise PeerFault(f"{kind} for packet id {packet_id}, which awaits none")
        self.outbox.ids.release(packet_id)
        return ctrs

    def _acked(self, found: Sequence[int | None], out: list[ev.Event]) -> None:
        ctrs = [ctr for ctr in found if ctr is not None]
        if len(ctrs) < len(found):
            # Twice acknowledged, or made up: harmless, and worth a count.
            self.refused["UnexpectedAck"] += len(found) - len(ctrs)
        if ctrs:
            out.append(ev.Acked(ctrs))

    # --- PUBLISH ---------------------------------------------------------------------------------

    def _again(self, packet: Publish) -> bool:
        known = not self._received.accept(packet.packet_id)
        # Without DUP it is another message (SPEC.md 6.2). The reader's windows drop it if it came
        # before all the same.
        if known and packet.dup and not self._settle:
            self._out += ack(packet)
            return True
        return False

    # A control packet, or a record.
    def _told(self, packet: Publish, mono: int, out: list[ev.Event]) -> None:
        if packet.qos == 2 and self._again(packet):
            return
        try:
            if packet.topic_raw == CONTROL:
                self._control(packet, mono, out)
            else:
                self._intake.record(packet.payload, mono, out)
        except SealError as error:
            self._intake.dismiss(packet, error, out)
            return
        self._out += ack(packet)

    def _control(self, packet: Publish, mono: int, out: list[ev.Event]) -> None:
        if not _is_control(packet):
            raise Malformed("control packets come with QoS 0 and without RETAIN")
        if packet.payload[:1] == bytes((ANSWER,)):
            out.append(ev.Answer(packet.payload))
            return
        if packet.payload[:1] != bytes((DOWN,)):
            raise Malformed(f"control packet begins with {packet.payload[:1].hex()}")
        op, said = self.session.down(packet.payload, mono)
        if op != OP_RECORD and self._intake.seeks:
            self._intake.no_record(mono, out)
        if op == OP_RECEIPT:
            out.append(ev.Receipted())
        elif op == OP_NOTICE:
            what, ctr, code, rule, reason = said
            again = what == 1 and self.outbox.refuse(ctr)
            if again and code == WrongEpoch.code:
                # An earlier connection may have taken it, and the mediator have been restarted.
                out.append(ev.Doubtful(ctr))
                return
            if what != 4 or not self._intake.denied(ctr, mono, out):
                out.append(ev.Told(Notice(WHAT.get(what, ""), ctr, code, rule, reason)))
        elif op == OP_RECORD:
            self._intake.record(said, mono, out)
        elif op == OP_GRANT:
            self._intake.grant(said)
        elif op == OP_NEWS:
            out.append(ev.Heard(News(*get_news(said))))
        elif op == OP_REPLY:
            if not self._intake.replied(said[0]):
                out.append(ev.Replied(*said))
        elif op in (OP_EPOCH, OP_TIME) and self.session.outdated():
            out.append(ev.Outdated())
        elif op == OP_WELCOME:
            raise Malformed("a second welcome in one connection")


def _ended(said: Farewell) -> ConnectionLost:
    why = f", {said.reason[:100]!r}" if said.reason else ""
    return ConnectionLost(
        f"the mediator ended the connection (MQTT 5, reason {said.code:#04x}{why})"
    )


def _is_told(packet: Publish) -> bool:
    return packet.topic_raw == CONTROL or packet.topic_raw.startswith(PUBLIC)


def _is_control(packet: Publish) -> bool:
    return packet.topic_raw == CONTROL and not packet.qos and not packet.retain
