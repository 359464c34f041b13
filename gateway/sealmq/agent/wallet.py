"""The keys of one enrolment, which all its connections share.

Each connection has a boot of its own, in order; what one of them has come to, roots say, counts for
all.
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable

from sealmq.client import Client, Notice, Options, Refused
from sealmq.client.client import address, check_private, read_enrolment
from sealmq.client.door import Renew, asked
from sealmq.client.lent import borrowed
from sealmq.client.opening import Quarantine, take_answer
from sealmq.client.randomness import new_nonce, new_salt
from sealmq.client.state import State, StateFile
from sealmq_spec.identity import Identity

from .config import User

# A connection, or an answer of the key generator, is waited for so long.
TRY_S = 10.0


class Wallet:
    """What all connections of an enrolment share: its newest roots, and boot. A `State`."""

    def __init__(
        self, identity: Identity, host: str, port: int, file: State, again: Renew | None
    ) -> None:
        self.identity = identity
        self.host, self.port = host, port
        self._file, self._again = file, again
        self._lock = threading.Lock()
        self._asking = asyncio.Lock()
        self._boot, self._kg_nonce = file.open(identity)

    @classmethod
    async def of(cls, user: User) -> Wallet:
        """Exposed, StateError, Malformed, OSError; GatewayDown, LendRefused where it is lent."""
        if user.enrolment is None:
            lent = await borrowed(user.site, user.client)
            return cls(lent.identity, lent.host, lent.port, lent.boot, lent.again)
        check_private(user.enrolment)
        data = read_enrolment(user.enrolment)
        host, port = address(data)
        state = user.state or user.enrolment.with_name(user.enrolment.name + ".state")
        return cls(Identity.from_enrolment(data), host, port, StateFile(state), None)

    def open(self, identity: Identity) -> tuple[int, bytes]:
        """The newest roots, and the last boot."""
        with self._lock:
            if self.identity.gen:
                identity.load(self.identity.dump())
            return self._boot, self._kg_nonce

    def save(self, identity: Identity, boot: int, kg_nonce: bytes) -> None:
        """What one connection has come to counts for all. StateError."""
        with self._lock:
            newer = identity.gen > self.identity.gen
            boot = boot if newer else max(boot, self._boot)
            held = identity if identity.gen >= self.identity.gen else self.identity
            self._file.save(held, boot, kg_nonce or self._kg_nonce)
            if held is identity:
                self.identity = copy.copy(identity)
            self._boot, self._kg_nonce = boot, kg_nonce or self._kg_nonce

    def close(self) -> None:
        """A connection ends; the others go on."""

    def shut(self) -> None:
        """All of them have ended."""
        self._file.close()

    async def renewed(self, held: int) -> Identity:
        """Roots of a newer generation than `held`: another connection's, or new ones."""
        async with self._asking:
            if self.identity.gen > held:
                return copy.copy(self.identity)
            if self._again is not None:
                return await self._again()
            nonce = new_nonce()
            boot = self._boot + 1
            salt = new_salt(boot, self._kg_nonce)
            client_id = f"sealmq-agent-{self.identity.client}"
            quarantine = Quarantine(self.identity, boot, salt, nonce, client_id)
            answer = await asked(quarantine, self.host, self.port, TRY_S)
            fresh = take_answer(self.identity, nonce, answer)
            await asyncio.to_thread(self.save, fresh, self._boot, answer[2:14])
            return copy.copy(fresh)

    def client(
        self,
        options: Options,
        on_notice: Callable[[Notice], None],
        on_state: Callable[[str], None] | None = None,
        on_release: Callable[[int], None] | None = None,
        on_lost: Callable[[Refused], None] | None = None,
    ) -> Client:
        """Not connected yet."""
        made: Client

        async def renew() -> Identity:
            return await self.renewed(made.identity.gen)

        made = Client(
            self.identity,
            self.host,
            self.port,
            state=self,
            provision=False,
            renew=renew,
            options=options,
            on_notice=on_notice,
            on_state=on_state,
            on_release=on_release,
            on_lost=on_lost,
        )
        return made
