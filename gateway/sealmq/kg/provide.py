"""Provisioning answers and KG time (SPEC.md 7.2, 7.3): the only uses of a client's ps.

Only a request whose tag verifies changes anything. A new generation is on disk before its answer
exists; while one is pending it is answered again, so a replayed request changes nothing and uses
nothing up: what is limited for a client is how many new generations it gets, and whoever only
recorded its requests can confirm none.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection

from sealmq.aead import make
from sealmq.kinds import GATEWAY
from sealmq.order import Order
from sealmq_spec import provision
from sealmq_spec.const import CCM, CHACHA, U24
from sealmq_spec.errors import Malformed
from sealmq_spec.errors import Unauthentic as TagError
from sealmq_spec.records import Roots
from sealmq_spec.tlv import EMPTY

from . import rows
from .bucket import Buckets
from .errors import Bad, Denied, Unauthentic, Unknown
from .rows import ClientRow, LinkRow
from .store import Clock, KgStore, counter

_BURST = 20
_EVERY_MS = 1000
_LEAP = 1024


class Answered(NamedTuple):
    """A provisioning answer. fresh: it made a new generation. changed: link slots did change."""

    packet: bytes
    client: ClientRow
    status: int
    gen: int
    kseq: int
    fresh: bool
    changed: bool


class Provider:
    """Answers for one site. `order` is this process's, so no nonce comes twice (SPEC.md 5)."""

    def __init__(self, store: KgStore, site: bytes, order: Order, clock: Clock) -> None:
        self._store, self._site, self._order, self._clock = store, site, order, clock
        self._buckets = Buckets(_BURST, _EVERY_MS)

    def answer(self, packet: bytes, mediator: int) -> Answered:
        """The answer to a request that this mediator passed on, which the request is bound to.

        Bad, Unknown or Unauthentic when there is none to give.
        """
        try:
            suite, number, held, _, nonce_c = provision.get_ask(packet)
        except Malformed as error:
            raise Bad(str(error)) from None
        with self._store.transaction() as tx:
            row = rows.client(tx, number)
            if row is None:
                raise Unknown(f"client {number} is not known")
            ps = rows.ps(tx, self._store.vault, row)
            self._check(ps, row, suite, packet, mediator)
            now = self._clock()
            if row.disabled:
                return self._empty(tx, row, ps, nonce_c, provision.DISABLED, now)
            if self._pending(tx, row, held, mediator) is None:
                if not self._buckets.take(number, now):
                    return self._empty(tx, row, ps, nonce_c, provision.LATER, now)
            return self._provision(tx, row, ps, nonce_c, held, mediator, now)

    def _check(self, ps: bytes, row: ClientRow, suite: int, packet: bytes, mediator: int) -> None:
        if suite not in (CCM, CHACHA) or suite != row.suite:
            raise Unauthentic(f"client {row.name} asks under suite {suite}, its is {row.suite}")
        try:
            provision.check_ask(make, self._site, ps, packet, mediator)
        except TagError:
            raise Unauthentic(f"the request in the name of {row.name} does not verify") from None

    def _empty(
        self, tx: Connection, row: ClientRow, ps: bytes, nonce_c: bytes, status: int, now: int
    ) -> Answered:
        packet = self._seal(row, ps, nonce_c, status, b"", now)
        return Answered(packet, row, status, 0, counter(tx, "kseq"), False, False)

    def _seal(
        self, row: ClientRow, ps: bytes, nonce_c: bytes, status: int, body: bytes, now: int
    ) -> bytes:
        order = self._order.next_bytes(now)
        return provision.answer(
            make, self._site, ps, row.suite, status, row.number, nonce_c, order, body
        )

    def _provision(
        self,
        tx: Connection,
        row: ClientRow,
        ps: bytes,
        nonce_c: bytes,
        held: int,
        mediator: int,
        now: int,
    ) -> Answered:
        ended = rows.end_before(tx, row.number, held)
        link, fresh = self.pending(tx, row, held, mediator)
        kseq = self._store.rise(tx) if fresh or ended else counter(tx, "kseq")
        own = rows.current_roots(tx, self._store.vault, row.label)
        if row.kind == GATEWAY:
            # A bridge passes on what it cannot open.
            own = Roots(own.label, own.epoch, own.suite, bytes(rows.ROOT), bytes(rows.ROOT))
        body = provision.body(
            link.gen,
            own.label,
            own.epoch,
            own.suite,
            row.suite,
            link.mediator,
            kseq,
            now,
            own.r,
            own.r_bar,
            link.km,
            EMPTY,
        )
        packet = self._seal(row, ps, nonce_c, provision.OK, body, now)
        return Answered(packet, row, provision.OK, link.gen, kseq, fresh, fresh or ended)

    def pending(
        self, tx: Connection, row: ClientRow, held: int, mediator: int
    ) -> tuple[LinkRow, bool]:
        """The client's pending link slot, and whether it was made just now.

        `held` is the generation that the client holds. It is above ours only when our store came
        back from a backup and has not begun high enough; then a pending one below it would be
        refused, and those right above it may have been issued.
        """
        link = self._pending(tx, row, held, mediator)
        if link is not None:
            return link, False
        gen = row.gen + 1 if held <= row.gen else max(held + 1, min(held + _LEAP, U24))
        if gen > U24:
            raise Bad(f"all generations of {row.name} are used up", "add it under another name")
        epoch = rows.current_epoch(tx, row.label).epoch
        return rows.new_link(tx, self._store.vault, row, gen, mediator, epoch), True

    def _pending(self, tx: Connection, row: ClientRow, held: int, mediator: int) -> LinkRow | None:
        """The pending link slot that answers a request, if there is one.

        It goes with the current epoch of the client's label: one that was made before that epoch is
        replaced, so that a generation tells which epoch the client holds.
        """
        epoch = rows.current_epoch(tx, row.label).epoch
        for link in rows.links(tx, self._store.vault, row.number).get(row.number, []):
            fits = link.gen >= held and link.mediator == mediator and link.epoch == epoch
            if link.pending and fits:
                return link
        return None

    def time(self, number: int, nonce_c: bytes, suite: int) -> bytes:
        """KG time for a client: 43 bytes (SPEC.md 7.3)."""
        with self._store.transaction() as tx:
            row = rows.client(tx, number)
            if row is None:
                raise Unknown(f"client {number} is not known")
            if row.disabled:
                raise Denied(f"client {row.name} is disabled")
            if suite != row.suite:
                raise Bad(f"client {row.name} has suite {row.suite}, not {suite}")
            ps = rows.ps(tx, self._store.vault, row)
            epoch = rows.current_epoch(tx, row.label).epoch
            kseq = counter(tx, "kseq")
        now = self._clock()
        order = self._order.next_bytes(now)
        return provision.kg_time(
            make, self._site, ps, suite, number, nonce_c, order, now, epoch, kseq
        )
