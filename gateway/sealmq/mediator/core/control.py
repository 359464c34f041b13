"""The control topic !c1 (SPEC.md 4.3, 4.4, 7.2): provisioning requests, time, records, the
families' commands.

Nothing that arrives here goes to the broker.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from sealmq.families.api import COMMAND, FamilyRecord, Later, Proposal, Verdict
from sealmq.kgtypes import KgDenied, KgError, KgUnauthentic, KgUnavailable, KgUnknown
from sealmq.mqtt import Publish
from sealmq.store.errors import StoreFull, StoreUnavailable
from sealmq_spec.const import (
    ASK,
    CONTROL,
    M2_HEAD,
    OP_ASK_TIME,
    OP_COMMAND,
    OP_FETCH,
    OP_NAMES,
    OP_RECORD,
    OP_REPLY,
    OP_TIME,
    TAG,
    TLV_KG_TIME,
    UP,
)
from sealmq_spec.errors import (
    Denied,
    Malformed,
    RateLimited,
    SealError,
    TooLarge,
    Unauthentic,
    Unavailable,
    Unsupported,
)
from sealmq_spec.provision import get_ask
from sealmq_spec.tlv import EMPTY, pack
from sealmq_spec.window import check_fresh

from . import refusals
from .effects import AskTime, Commit, Lock, Provision, Tell, Unlock, Yield
from .limits import QUEUE, QUEUE_BYTES
from .refusals import QUARANTINE, of, rule_of
from .session_api import SessionApi
from .tasks import Queue, Task
from .wrap import tag_of

# Header, body of at most 16,384 bytes, tag (SPEC.md 9).
_MAX_UP = M2_HEAD + 16_384 + TAG
# How many provisioning requests a connection may send in how many seconds (SPEC.md 7.2).
_ASKS, _ASKS_S = 5, 60
# Lengths of a question for names: 1 to 32 pairs of label and client.
_PAIRS = range(7, 1 + 6 * 32 + 1, 6)
# Records that go out between two turns for others.
_RECORDS = 16
_OPEN, _CLOSED = "open", "closed"
_ASK = bytes((ASK,))

Row = tuple[str, str]


class Caller(SessionApi, Protocol):
    """What control packets use of a session."""

    state: str
    low: int
    gate: Queue

    def vouched(self, client: int) -> None: ...
    def answered(self, gen: int) -> bool: ...


class Control:
    """The control packets of one session."""

    def __init__(self, session: Caller) -> None:
        self._s = session
        # Control packets after one that waits for the shell.
        self.waits: deque[Publish] = deque()
        self._held = 0
        self._busy = False
        # When the newest provisioning requests came.
        self._asks: deque[float] = deque(maxlen=_ASKS)
        self._asking = False

    @property
    def crowded(self) -> bool:
        """Whether enough waits."""
        return len(self.waits) >= QUEUE or self._held > QUEUE_BYTES

    def packet(self, packet: Publish) -> None:
        """A control packet, in quarantine or in an open session. They wait for one another."""
        asks = packet.payload[:1] == _ASK and self._s.state == _OPEN
        if self._busy and not asks:
            self._held += len(packet.payload)
            self.waits.append(packet)
        else:
            self._handle(packet)

    def _handle(self, packet: Publish) -> None:
        if self._s.state == _OPEN:
            self._packet(packet)
        else:
            self.provision(packet)

    # The task holds back later packets on other topics too.
    def _hold(self, task: Task, ends: bool = False) -> None:
        self._busy = True
        self._s.hold(task, self._go_on, ends)

    def _go_on(self) -> None:
        self._busy = False
        while self.waits and not self._busy and self._s.state != _CLOSED:
            packet = self.waits.popleft()
            self._held -= len(packet.payload)
            self._handle(packet)

    def _packet(self, packet: Publish) -> None:
        s = self._s
        ctr = 0
        try:
            if packet.qos or packet.retain:
                raise Malformed("control packets have QoS 0 and no RETAIN")
            if packet.payload[:1] == _ASK:
                self.provision(packet)
                return
            if packet.payload[:1] != bytes((UP,)):
                raise Malformed("a control packet begins with 14 or 1a")
            if len(packet.payload) > _MAX_UP:
                raise TooLarge(f"control packet of {len(packet.payload)} bytes, at most {_MAX_UP}")
            ctr, s1, body = s.link.open_control(packet.payload)
            s.link.look(ctr, s.low)
            check_fresh("control packet", s.site.now_ms // 1000 - s1)
            s.link.mark(ctr, tag_of(packet.payload)).done = True
            self._operation(ctr, body)
        except SealError as error:
            self._refuse(of(error, ctr))

    def _operation(self, ctr: int, body: bytes) -> None:
        s = self._s
        op = body[0]
        if op == OP_ASK_TIME and len(body) == 17:
            self._hold(self._time(body[1:]))
        elif op == OP_FETCH and len(body) == 4:
            self._fetch(int.from_bytes(body[1:], "big"))
        elif op == OP_NAMES and len(body) in _PAIRS:
            self._names(ctr, body)
        elif op == OP_COMMAND and len(body) >= 2 and len(body) >= 2 + body[1]:
            s.link.command(ctr)
            self._hold(self._command(ctr, body[2 : 2 + body[1]], body[2 + body[1] :]))
        elif op in (OP_ASK_TIME, OP_FETCH, OP_COMMAND, OP_NAMES):
            raise Malformed(f"control operation {op:#x} of {len(body)} bytes")
        else:
            raise Unsupported(f"control operation {op:#x} of {len(body)} bytes")

    def _fetch(self, label: int) -> None:
        s = self._s
        ring = s.site.ring
        records = ring.records_for(s.client.label, label)
        if not records:
            raise Denied(f"no record leads from this client's label to label {label}")
        some = dict.fromkeys([*records, *ring.old_records(label)])
        self._hold(self._records(list(some)), ends=True)

    # A label may have had many epochs: others have their turn, and no more is sealed than the
    # socket takes.
    def _records(self, records: list[bytes]) -> Task:
        s = self._s
        for n, record in enumerate(records):
            if n % _RECORDS == 0:
                turn = s.gate.join()
                try:
                    yield turn
                finally:
                    s.gate.leave(turn)
            s.down(bytes((OP_RECORD,)) + record)

    def _names(self, ctr: int, body: bytes) -> None:
        s, out = self._s, bytearray()
        for at in range(1, len(body), 6):
            label, number = (int.from_bytes(body[i : i + 3], "big") for i in (at, at + 3))
            for name in s.site.ring.names(s.client.label, label, number):
                raw = name.encode()
                out += bytes((len(raw),)) + raw
        s.down(bytes((OP_REPLY,)) + ctr.to_bytes(3, "big") + bytes(out))

    def _time(self, nonce_c: bytes) -> Task:
        s = self._s
        blob = yield AskTime(0, nonce_c)
        if s.state != _OPEN:
            return
        tlv = pack([(TLV_KG_TIME, blob)]) if blob is not None else EMPTY
        s.down(bytes((OP_TIME,)) + nonce_c + s.site.now_ms.to_bytes(6, "big") + tlv)

    # Rows are locked from the judgement to the store: else a reservation could replace another one
    # that came just before, was still on its way to the disk, and must not be replaced.
    def _command(self, ctr: int, family: bytes, body: bytes) -> Task:
        s = self._s
        try:
            name = family.decode()
        except UnicodeDecodeError:
            self._refuse(of(Malformed("a family's name is ASCII"), ctr))
            return
        engine, held = s.site.engine, frozenset[Row]()
        try:
            yield Lock(0, held)  # waits until rows of clients that are gone are put right
            while s.state == _OPEN:
                applied = engine.applied
                answer = s.policy.command(name, body, s.site.now_ms)
                if isinstance(answer, Later):
                    found = None
                    while found is None:
                        yield Yield(0)
                        if s.state != _OPEN:
                            return
                        found = answer.go_on()
                    answer = found
                if isinstance(answer, Verdict):
                    self._refuse(of(engine.refusal(answer.rule, answer.reason), ctr))
                    return
                wanted = _rows(answer)
                if not held >= wanted:
                    if held:
                        s.emit(Unlock(held))
                        held = frozenset()
                    yield Lock(0, wanted)
                    held = wanted
                    if engine.applied != applied:
                        continue
                yield from self._store(ctr, name, answer)
                return
        finally:
            if held:
                s.emit(Unlock(held))

    def _store(self, ctr: int, family: str, answer: Proposal) -> Task:
        s, said, client = self._s, answer.audit, self._s.client.name
        part = "" if said is None else said.get("topic", "")
        try:
            if answer.records:
                yield Commit(0, tuple(answer.records), answer.urgent, part)
        except StoreFull as error:
            self._refuse(of(Denied(str(error)), ctr), "mediator.command.full")
            return
        except StoreUnavailable as error:
            self._refuse(of(Unavailable(str(error)), ctr), "mediator.command.unavailable")
            return
        # It is in force from now on, whether the client is told or not.
        if said is not None:
            parted = "topic" in said or None
            which = family if answer.event == COMMAND else None
            s.audit(answer.event, client=client, family=which, parted=parted, **said)
        if answer.tells:
            s.emit(Tell(family, answer.tells))
        if s.state == _OPEN:
            s.down(bytes((OP_REPLY,)) + ctr.to_bytes(3, "big") + answer.reply)

    # --- provisioning ---

    def provision(self, packet: Publish) -> None:
        """A provisioning request, in quarantine or in a session: the key generator judges it.

        In a session later packets do not wait for it.
        """
        s = self._s
        now = s.site.mono_s
        try:
            if packet.qos or packet.retain:
                raise Malformed("control packets have QoS 0 and no RETAIN")
            get_ask(packet.payload)
            if len(self._asks) == _ASKS and now - self._asks[0] < _ASKS_S:
                raise RateLimited(f"more than {_ASKS} provisioning requests in {_ASKS_S} s")
            self._asks.append(now)
            if self._asking:
                raise RateLimited("a provisioning request while another one is under way")
        except SealError as error:
            self._refuse(error)
            return
        if s.state == _OPEN:
            self._asking = True
            s.beside(self._provision(packet.payload), self._asked)
        else:
            self._hold(self._provision(packet.payload), ends=True)

    def _asked(self) -> None:
        self._asking = False

    def _provision(self, request: bytes) -> Task:
        s = self._s
        try:
            answer = yield Provision(0, request)
        except KgError as error:
            if s.state != _CLOSED:
                refused = _SEAL_ERRORS.get(type(error), Unavailable)(str(error))
                rule = "mediator.control.ended" if self._old(error, request) else ""
                self._refuse(refused, rule)
            return
        s.vouched(answer.client)
        s.write(s.wire.publish(CONTROL, answer.packet))
        if s.state == _OPEN and answer.gen and answer.client == s.client.number:
            if s.answered(answer.gen):
                # A request that brought a new epoch does not count: labels may be rekeyed at any
                # rate.
                self._asks.clear()

    # An enrolment from before `client rotate` asks under a secret that is no longer known.
    def _old(self, error: KgError, request: bytes) -> bool:
        _, number, held, _, _ = get_ask(request)
        client = self._s.site.ring.clients.get(number)
        unproved = isinstance(error, KgUnauthentic)
        return unproved and client is not None and held <= client.ended > 0

    def _refuse(self, error: SealError, rule: str = "") -> None:
        packet = QUARANTINE if self._s.state == "quarantine" else refusals.CONTROL
        self._s.refuse(packet, error, rule or rule_of("control", error))


def _rows(answer: Proposal) -> frozenset[Row]:
    return frozenset((r.family, r.key) for r in answer.records if isinstance(r, FamilyRecord))


_SEAL_ERRORS: dict[type[KgError], type[SealError]] = {
    KgDenied: Denied,
    KgUnknown: Denied,
    KgUnauthentic: Unauthentic,
    KgUnavailable: Unavailable,
}
