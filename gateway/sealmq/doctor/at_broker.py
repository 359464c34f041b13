"""Tries at the broker's own address: it must let in mediators and nobody else (SPEC.md 1.1)."""

from __future__ import annotations

import os
import secrets
import ssl
import tempfile
from dataclasses import replace
from pathlib import Path

from sealmq.broker import issuing
from sealmq.broker.asking import QUEUE, SET
from sealmq.broker.credentials import PROBE_PREFIX
from sealmq.broker.errors import Closed, Unreachable, Untrusted
from sealmq.broker.peer import Peer
from sealmq.broker.target import Target
from sealmq_spec.const import USER

from .result import Failed, Untried

_WAIT_S = 10.0
REACHES = "whoever reaches it sees topics and ciphertext, and can take messages away or forge"


class AtBroker:
    """`at`: where it is; tls: it takes TLS with a certificate of its CA only; queue: see Ready."""

    def __init__(self, at: Target, tls: bool, queue: int | None = None) -> None:
        self._at, self.tls, self._queue = at, tls, queue

    async def anonymous(self) -> str:
        """Nobody."""
        return await self._enter(None, None)

    async def guesses(self) -> str:
        """A mediator's name with another password, or a certificate of another CA."""
        if self.tls:
            return await self._enter(None, None, _other_certificate())
        return await self._enter("mediator", secrets.token_urlsafe(32))

    async def client(self, password: str) -> str:
        """An enrolled client, with the very proof that opens the mediator to it."""
        return await self._enter(USER.decode(), password)

    async def queue(self) -> str:
        """What it keeps for the mediator while readers are slow, as `sealmq up` has found out."""
        kept = self._queue
        if kept is None:
            raise Untried("this `sealmq up` has not asked it; start the site again")
        words = (
            f"it keeps {kept} messages or more for a connection that takes none; all readers of a "
            f"worker share one, so publishers wait while {kept // 2} may be out"
        )
        if kept < QUEUE:
            return f"{words}. {SET}"
        return words

    async def plain(self) -> str:
        """The same port without TLS."""
        return await self._enter(None, None, None, tls=False)

    async def _enter(
        self,
        user: str | None,
        password: str | None,
        context: ssl.SSLContext | None = None,
        tls: bool | None = None,
    ) -> str:
        target = replace(self._at, user=user, password=password)
        if context is None and (self.tls if tls is None else tls):
            context = _no_certificate()
        name = PROBE_PREFIX + os.urandom(4).hex()
        try:
            async with Peer(target, name, timeout_s=_WAIT_S, context=context) as peer:
                if peer.code:
                    return f"CONNACK {peer.code}"
        except Untrusted as error:
            return f"no CONNACK: {error}"
        except Closed:
            return "hung up on"
        except Unreachable as error:  # no connection, no answer: that says nothing about who may
            raise Untried(str(error)) from None
        raise Failed(f"it is let in at {target.address}: {REACHES}")


# The doctor is an attacker here: whom it speaks to is of no interest.
def _no_certificate() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _other_certificate() -> ssl.SSLContext:
    context = _no_certificate()
    pair = issuing.client(issuing.new_ca("another"), "mediator")
    with tempfile.TemporaryDirectory() as folder:
        both = Path(folder) / "pem"
        both.touch(0o600)
        both.write_bytes(pair.key_pem + pair.cert_pem)
        context.load_cert_chain(both)
    return context
