"""The control topic !c1 (SPEC.md 4.3, 4.4, 7.2): provisioning requests, time, records, the
families' commands.

Nothing that arrives here crosses to the broker.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from sealmq.families.api import FamilyRecord, Proposal, Verdict
from sealmq.kglink import KgDenied, KgError, KgUnauthentic, KgUnavailable, KgUnknown
from sealmq.mqtt import Publish, build
from sealmq.store import StoreUnavailable
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

from .core import refusals
from .core.refusals import QUARANTINE, of, rule_of
from .core.wrap import tag_of
from .strangers import source_of

if TYPE_CHECKING:
    from .connection import Connection

# Header, body of at most 16,384 bytes, tag (SPEC.md 9).
_MAX_UP = M2_HEAD + 16_384 + TAG
# Provisioning requests of one connection, and in how many seconds (SPEC.md 7.2).
_ASKS, _ASKS_S = 5, 60
# Lengths of a question for names: 1 to 32 pairs of label and client.
_PAIRS = range(7, 1 + 6 * 32 + 1, 6)

Work = Coroutine[Any, Any, None] | None


class Controlling:
    """The control packets of one connection."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        # When the newest provisioning requests came.
        self._asks: deque[float] = deque(maxlen=_ASKS)
        self._asking = False
        self._asker: asyncio.Task[Any] | None = None

    def ended(self) -> None:
        """The connection is over: nobody waits for the key generator any more."""
        if self._asker is not None:
            self._asker.cancel()

    def packet(self, packet: Publish) -> Work:
        """A control packet in an open session."""
        ctr = 0
        try:
            if packet.qos or packet.retain:
                raise Malformed("control packets have QoS 0 and no RETAIN")
            if packet.payload[:1] == bytes((ASK,)):
                return self.provision(packet)
            if packet.payload[:1] != bytes((UP,)):
                raise Malformed("a control packet begins with 14 or 1a")
            if len(packet.payload) > _MAX_UP:
                raise TooLarge(f"control packet of {len(packet.payload)} bytes, at most {_MAX_UP}")
            ctr, s1, body = self._conn.link.open_control(packet.payload)
            self._conn.link.look(ctr, self._conn.low)
            check_fresh("control packet", self._conn.hub.now_ms() // 1000 - s1)
            self._conn.link.mark(ctr, tag_of(packet.payload)).done = True
            return self._operation(ctr, body)
        except SealError as error:
            self._refuse(of(error, ctr))
        return None

    def _operation(self, ctr: int, body: bytes) -> Work:
        op = body[0]
        if op == OP_ASK_TIME and len(body) == 17:
            return self._time(body[1:])
        if op == OP_FETCH and len(body) == 4:
            label = int.from_bytes(body[1:], "big")
            ring = self._conn.hub.ring
            records = ring.records_for(self._conn.client.label, label)
            if not records:
                raise Denied(f"no record leads from this client's label to label {label}")
            for record in dict.fromkeys([*records, *ring.old_records(label)]):
                self._conn.down(bytes((OP_RECORD,)) + record)
            return None
        if op == OP_NAMES and len(body) in _PAIRS:
            self._names(ctr, body)
            return None
        if op == OP_COMMAND and len(body) >= 2 and len(body) >= 2 + body[1]:
            self._conn.link.command(ctr)
            return self._command(ctr, body[2 : 2 + body[1]], body[2 + body[1] :])
        if op in (OP_ASK_TIME, OP_FETCH, OP_COMMAND, OP_NAMES):
            raise Malformed(f"control operation {op:#x} of {len(body)} bytes")
        raise Unsupported(f"control operation {op:#x} of {len(body)} bytes")

    def _names(self, ctr: int, body: bytes) -> None:
        conn, out = self._conn, bytearray()
        for at in range(1, len(body), 6):
            label, number = (int.from_bytes(body[i : i + 3], "big") for i in (at, at + 3))
            for name in conn.hub.ring.names(conn.client.label, label, number):
                raw = name.encode()
                out += bytes((len(raw),)) + raw
        conn.down(bytes((OP_REPLY,)) + ctr.to_bytes(3, "big") + bytes(out))

    async def _time(self, nonce_c: bytes) -> None:
        conn = self._conn
        blob = await conn.hub.kg_time(conn.client.number, nonce_c, conn.link.suite)
        tlv = pack([(TLV_KG_TIME, blob)]) if blob is not None else EMPTY
        now = conn.hub.now_ms().to_bytes(6, "big")
        conn.down(bytes((OP_TIME,)) + nonce_c + now + tlv)

    async def _command(self, ctr: int, family: bytes, body: bytes) -> None:
        conn = self._conn
        hub = conn.hub
        try:
            name = family.decode()
        except UnicodeDecodeError:
            self._refuse(of(Malformed("a family's name is ASCII"), ctr))
            return
        answer = await self._judged(name, body)
        if isinstance(answer, Verdict):
            self._refuse(of(Denied(answer.reason), ctr), answer.rule)
            return
        said, client = answer.audit, conn.client.name

        def told() -> None:
            if said is not None:
                parted = "topic" in said or None
                if parted:
                    hub.audit.part(said["topic"])
                hub.audit.write("command", client=client, family=name, parted=parted, **said)

        changed = asyncio.get_running_loop().create_future()
        rows = _rows(answer)
        hub.changing.update(dict.fromkeys(rows, changed))
        try:
            await hub.commit(list(answer.records), told, answer.urgent)
        except StoreUnavailable as error:
            self._refuse(of(Unavailable(str(error)), ctr), "mediator.command.unavailable")
            return
        finally:
            for row in rows:
                del hub.changing[row]
            changed.set_result(None)
        if conn.state == "open":
            conn.down(bytes((OP_REPLY,)) + ctr.to_bytes(3, "big") + answer.reply)

    # What it was judged by still holds when it is stored: else a reservation could replace another
    # one that it must not, which came just before and was still on its way to the disk.
    async def _judged(self, family: str, body: bytes) -> Proposal | Verdict:
        hub = self._conn.hub
        while True:
            if hub.rewriting is not None:
                await asyncio.wait({hub.rewriting})
                continue
            answer = self._conn.policy.command(family, body, hub.now_ms())
            if isinstance(answer, Verdict):
                return answer
            busy = {hub.changing[row] for row in _rows(answer) if row in hub.changing}
            if not busy:
                return answer
            await asyncio.wait(busy)

    def provision(self, packet: Publish) -> Work:
        """A provisioning request, in quarantine or in a session: the key generator judges it.

        In a session it keeps nothing waiting that comes behind it.
        """
        now = asyncio.get_running_loop().time()
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
            return None
        work = self._provision(packet.payload)
        if self._conn.state != "open":
            return work
        self._asking = True
        self._conn.spawn(work)
        return None

    async def _provision(self, request: bytes) -> None:
        conn = self._conn
        self._asker = asyncio.current_task()
        try:
            try:
                answer = await conn.hub.asking.provision(request, source_of(conn.peer))
            finally:
                self._asker, self._asking = None, False
        except KgError as error:
            if conn.state != "closed":
                refused = _SEAL_ERRORS.get(type(error), Unavailable)(str(error))
                rule = "mediator.control.ended" if self._old(error, request) else ""
                self._refuse(refused, rule)
            return
        conn.vouched(answer.client)
        conn.send(build.publish(CONTROL, answer.packet))
        if conn.state == "open" and answer.gen and answer.client == conn.client.number:
            if conn.answered(answer.gen):
                # It was due: however often labels are rekeyed, their clients may follow.
                self._asks.clear()

    # An enrolment of before `client rotate` asks under a secret that nobody has any more.
    def _old(self, error: KgError, request: bytes) -> bool:
        _, number, held, _, _ = get_ask(request)
        client = self._conn.hub.ring.clients.get(number)
        unproved = isinstance(error, KgUnauthentic)
        return unproved and client is not None and held <= client.ended > 0

    def _refuse(self, error: SealError, rule: str = "") -> None:
        packet = QUARANTINE if self._conn.state == "quarantine" else refusals.CONTROL
        self._conn.refuse(packet, error, rule or rule_of("control", error))


def _rows(answer: Proposal) -> set[tuple[str, str]]:
    return {(r.family, r.key) for r in answer.records if isinstance(r, FamilyRecord)}


_SEAL_ERRORS: dict[type[KgError], type[SealError]] = {
    KgDenied: Denied,
    KgUnknown: Denied,
    KgUnauthentic: Unauthentic,
    KgUnavailable: Unavailable,
}
