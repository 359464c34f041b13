"""Boot sessions of a client: roots, boot, salt (SPEC.md 1, 4.1, 5, 7.2), and what lives as long.

boot is raised in stable memory before the first CONNECT of a boot session; new roots are stored
before anything of them is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from sealmq.mqtt import QoS2Receiver
from sealmq_spec.const import U24
from sealmq_spec.identity import Identity
from sealmq_spec.relink import relink
from sealmq_spec.session import Session

from .cipher import make
from .core import Core
from .errors import StateBusy
from .foreign import Reader
from .names import Names
from .opening import take_answer
from .outbox import Outbox
from .randomness import mono_ms, new_salt
from .speech import V311, Speech
from .state import State, own_roots

log = logging.getLogger("sealmq.client")

T = TypeVar("T")

# Ciphers, replay windows and topics that a reader keeps, of each.
_KEPT = 1024
# A new boot session begins while this many counters are left.
_SPARE = 4096
# Between two boot sessions that begin for the clock alone (SPEC.md 7.4).
_CLOCK_MS = 60_000
_LONG_AGO = -(1 << 62)
# How long a state file that another process has is waited for: two `sealmq pub` may overlap.
BUSY_MS = 5_000
_BUSY_PAUSE_S = 0.05


class Boots:
    """The present boot session and the way to the next. `state` None: boot is kept in RAM only."""

    def __init__(
        self,
        identity: Identity,
        state: State | None,
        known_tlv: Sequence[int] = (),
        settle: bool = False,
        speech: Speech = V311,
    ) -> None:
        self.identity = identity
        self._speech = speech
        self._settle = settle
        self.reader = Reader(identity, make, _KEPT, known_tlv)
        self.names = Names()
        self.received = QoS2Receiver()
        self.refused: Counter[str] = Counter()
        self.outbox = Outbox(self._speech)
        self.session: Session | None = None
        self._state = state
        self._boot = 0
        self._kg_nonce = b""
        # When a boot session was left for its clock.
        self._left = _LONG_AGO

    async def open(self) -> None:
        """Lock and read the state file, which a process that ends soon may have. StateError."""
        if self._state is None:
            return
        end = mono_ms() + BUSY_MS
        while True:
            try:
                self._boot, self._kg_nonce = await _in_thread(self._state.open, self.identity)
            except StateBusy:
                if mono_ms() >= end:
                    raise
                await asyncio.sleep(_BUSY_PAUSE_S)
            else:
                break
        self.reader.reset()

    def close(self) -> None:
        """Give the state file back."""
        if self._state is not None:
            self._state.close()

    @property
    def next(self) -> tuple[int, bytes]:
        """(boot, a fresh salt) that the next boot session might have; nothing is stored."""
        boot = min(self._boot + 1, U24)
        return boot, new_salt(boot, self._kg_nonce)

    @property
    def spent(self) -> bool:
        """Whether boot has come to its end: only a higher gen begins again from 1 (SPEC.md 5)."""
        return self._boot >= U24 and self.session is None

    def worn(self) -> bool:
        """Whether counters run out soon, so that a new boot session has to begin."""
        s = self.session
        return s is not None and (U24 - s.ctr < _SPARE or s.conn >= U24)

    def end(self) -> None:
        """The boot session is over; nothing of it will be sent again."""
        self.session = None

    def leave(self) -> bool:
        """Whether the boot session may be left for its clock now; then it counts as left."""
        allowed = self._may_leave()
        if allowed:
            self._left = mono_ms()
        return allowed

    def _may_leave(self) -> bool:
        return mono_ms() - self._left > _CLOCK_MS

    def behind(self, floor: int) -> None:
        """The mediator has seen a higher boot: the next one lies above `floor`."""
        self._boot = max(self._boot, floor)
        self.session = None

    async def begin(self) -> Session:
        """A new boot session. StateError when boot cannot be stored."""
        boot = self._boot + 1
        await self._store(self.identity, boot)
        self._read_with(self.identity)
        self.outbox = Outbox(self._speech)
        # A copy: a session that is given new roots keeps its link, the identity has the newest.
        ident = copy.copy(self.identity)
        self.session = Session(ident, make, boot, new_salt(boot, self._kg_nonce))
        self.reader.session = self.session
        self.reader.plans.clear()
        return self.session

    def core(self, session: Session) -> Core:
        """The sans-IO side of a new connection."""
        return Core(
            session,
            self.reader,
            self.outbox,
            self.received,
            self.refused,
            self._may_leave(),
            self._settle,
            self._speech,
            self.names,
        )

    def turn(self, session: Session) -> bool:
        """The newest roots for the open connection, which keeps its link (SPEC.md 7.2).

        False when they are another label's: then it takes a new connection.
        """
        if not self._same_label(session):
            return False
        if self.identity.own is not session.ident.own:
            session.turn(self.identity)
            self._read_with(self.identity)
        return True

    def take_up(self, session: Session) -> Session | None:
        """The boot session for a new connection, under the newest generation.

        boot, salt and counters go on, so what is under way is sealed for the new link as it is.
        None when another boot session has to begin, with another label's roots.
        """
        if session.ident.gen == self.identity.gen:
            return session
        if not self._same_label(session):
            return None
        old, new = session.ident, copy.copy(self.identity)
        self.outbox.relink(partial(relink, make, old, new, session.boot, session.salt))
        session.renew(new)
        self._read_with(self.identity)
        return session

    def _same_label(self, session: Session) -> bool:
        fresh, used = own_roots(self.identity), own_roots(session.ident)
        return fresh is not None and used is not None and fresh.label == used.label

    def _read_with(self, identity: Identity) -> None:
        if self.reader.ident is not identity:
            self.reader.ident = identity
            self.reader.reset()

    async def take_answer(self, nonce_c: bytes, packet: bytes) -> None:
        """New roots, stored first. Raises SealError, StateError."""
        fresh = take_answer(self.identity, nonce_c, packet)
        self._kg_nonce = packet[2:14]
        await self.adopt(fresh)

    async def adopt(self, fresh: Identity) -> None:
        """New roots; `turn` and the next connection use them."""
        higher = fresh.gen > self.identity.gen
        await self._store(fresh, 0 if self._boot >= U24 and higher else self._boot)
        self.identity = fresh
        own = own_roots(fresh)
        if own is not None:
            log.info("roots of label %d epoch %d, generation %d", own.label, own.epoch, fresh.gen)

    async def _store(self, identity: Identity, boot: int) -> None:
        if self._state is not None:
            await _in_thread(self._state.save, identity, boot, self._kg_nonce)
        self._boot = boot


# A thread goes on when whoever waits for it is cancelled; the state file is given back after it.
async def _in_thread(work: Callable[..., T], *given: Any) -> T:
    task = asyncio.create_task(asyncio.to_thread(work, *given), name="sealmq client: state")
    try:
        return await asyncio.shield(task)
    finally:
        while not task.done():  # however often it is cancelled
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([task])
