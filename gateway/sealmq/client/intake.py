"""Messages and public records as they come in: opened, kept waiting, or refused. Sans-IO."""

from __future__ import annotations

from collections import Counter

from sealmq.mqtt import Publish, QoS2Receiver, build
from sealmq_spec.const import CONTROL, MANIFEST
from sealmq_spec.errors import NoKey, SealError, Unauthentic
from sealmq_spec.records import get_record
from sealmq_spec.session import Session

from . import events as ev
from .foreign import Complaints
from .foreign import Reader as Foreign
from .missing import Missing
from .names import Names
from .opener import Opener
from .speech import V311, Speech
from .values import HOWS, Came, Message

_new = tuple.__new__


class Intake:
    """Of one connection. `refused` counts by class; `out`: what has to be sent, taken by the core.

    A message is acknowledged once it is read or refused.
    """

    def __init__(
        self,
        session: Session,
        reader: Opener,
        received: QoS2Receiver,
        refused: Counter[str],
        settle: bool = False,
        speech: Speech = V311,
        names: Names | None = None,
    ) -> None:
        self._settle, self._speech = settle, speech
        self._names = names or Names()
        self._session, self._reader = session, reader
        self._received, self._refused = received, refused
        self._missing = Missing()
        self.seeks = False
        """Whether messages wait for records, so that `no_record` has to be told."""
        # Not with a reader that opens nothing: a bridge's.
        self._foreign = reader if isinstance(reader, Foreign) else None
        self._complaints = Complaints()
        self.out = bytearray()

    def message(self, packet: Publish, now: int | None, mono: int, events: list[ev.Event]) -> None:
        """A message. now: verified time in ms."""
        try:
            self._opened(packet, now, mono, events)
        except SealError as error:
            self.dismiss(packet, error, events)

    def _opened(self, packet: Publish, now: int | None, mono: int, events: list[ev.Event]) -> None:
        """Raises SealError when it is refused."""
        topic, raw, payload, qos, retain, dup, packet_id = packet
        foreign = self._foreign
        if foreign is not None:
            foreign.last = b""
        try:
            opened = self._reader.open(raw, payload, now)
        except NoKey as error:
            label = error.label
            # No record brings roots of the client's own label.
            own = self._reader.ident.own.label
            if label in (0, own) or not self._missing.keeps(packet, label, mono):
                raise
            self.seeks = True
            if self._missing.asks(label):
                self.out += self._speech.publish(CONTROL, self._session.fetch(label, mono))
                self._missing.asked(label, self._session.ctr)
            return
        except Unauthentic:
            if foreign is not None and foreign.last:
                self._complain(topic, foreign.last, mono)
            raise
        text, plain, label, sender, age, how, tlv = opened
        due, came = b"", None
        if qos:
            due = build.puback(packet_id) if qos == 1 else build.pubrec(packet_id)
            if self._settle:
                came, due = _new(Came, (packet_id, dup, due, self)), b""
        named = self._names.told.get((label, sender)) or (f"#{label}", f"#{sender}")
        message = _new(
            Message,
            (
                text, plain, *named, age, HOWS[how], qos, retain, tlv, label, sender,
                b"" if foreign is None else foreign.last, came, self._reader.m1,
            ),
        )  # fmt: skip
        last = events[-1] if events else None
        if type(last) is ev.Arrived:
            last.messages.append(message)
            last.due += due
        else:
            events.append(ev.Arrived([message], bytearray(due)))

    # Its outer tag has verified, so this site's mediator has sealed it; what is inside is not what
    # its publisher made.
    def _complain(self, topic: str, message: bytes, mono: int) -> None:
        body = self._complaints.about(topic, message, mono)
        if body:
            self.out += self._speech.publish(CONTROL, self._session.up(body, mono))
            self._complaints.sent(self._session.ctr)

    def replied(self, ctr: int) -> bool:
        """A reply; whether it was to a complaint."""
        return self._complaints.answered(ctr, False)

    def dismiss(self, packet: Publish, error: SealError, events: list[ev.Event]) -> None:
        """Counts and acknowledges what is refused."""
        self._refused[type(error).__name__] += 1
        events.append(ev.Dismissed(packet.topic, error, ack(packet)))

    def record(self, payload: bytes, mono: int, events: list[ev.Event]) -> None:
        """A record or a manifest, from wherever it comes: what verifies counts (SPEC.md 8)."""
        self._reader.add(payload)
        if not self._missing or payload[0] == MANIFEST:
            return
        now = self._session.now_ms(mono)
        for packet in self._missing.came(get_record(payload)[2]):
            self.message(packet, now, mono, events)

    def grant(self, body: bytes) -> None:
        """A grant that the mediator sends before messages that are sealed to it (SPEC.md 4.4)."""
        self._reader.add_grant(body)

    def no_record(self, mono: int, events: list[ev.Event]) -> None:
        """Something else than a record has come: what the last ones did not open is refused."""
        self._give_up(self._missing.over(mono), events)
        self.seeks = bool(self._missing)

    def denied(self, ctr: int, mono: int, events: list[ev.Event]) -> bool:
        """A notice for a control packet of ours; whether it was about records, or a complaint."""
        if self._complaints.answered(ctr, True):
            return True
        packets = self._missing.denied(ctr, mono) if self._missing else []
        self._give_up(packets, events)
        return bool(packets)

    def _give_up(self, packets: list[Publish], events: list[ev.Event]) -> None:
        for packet in packets:
            self.dismiss(packet, NoKey("no record opens its label"), events)

    def close(self) -> None:
        """The connection is over: what was not acknowledged comes again."""
        for packet in self._missing.everything():
            self._received.release(packet.packet_id)


def ack(packet: Publish) -> bytes:
    """PUBACK or PUBREC where one is due."""
    if packet.qos == 1:
        return build.puback(packet.packet_id)
    return build.pubrec(packet.packet_id) if packet.qos else b""
