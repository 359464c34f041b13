"""Who connects: a CONNECT's user name and password, judged before anything else (SPEC.md 4.1).
Sans-IO.
"""

from __future__ import annotations

from typing import NamedTuple

from sealmq.mqtt import Connect
from sealmq.mqtt.five import Connect5
from sealmq_spec.const import FRESH_TOKENS, MAX_CLIENT_ID, USER, WANT_KG_TIME
from sealmq_spec.control import split_proof
from sealmq_spec.errors import Denied, Malformed, Unauthentic, Unsupported

from .boots import BootSession, BootSessions
from .denied import DeniedByRule
from .keyring import Client, Keyring


class Claim(NamedTuple):
    """What a password claims; nothing of it is verified yet."""

    suite: int
    flags: int
    gen: int
    client: int
    boot: int
    salt: bytes
    conn: int
    low: int
    tag: bytes

    @property
    def quarantine(self) -> bool:
        """A client without link root, on its way to the key generator."""
        return self.gen == 0

    @property
    def wants_kg_time(self) -> bool:
        """Flag bit 0."""
        return bool(self.flags & WANT_KG_TIME)

    @property
    def token_low(self) -> int:
        """The lowest counter of a token: `low` where flag bit 1 says that it covers tokens too."""
        return self.low if self.flags & FRESH_TOKENS else 0


def claim_of(packet: Connect | Connect5) -> Claim:
    """The claim of a CONNECT; raises Malformed or Unsupported."""
    if packet.username is None or packet.username.encode() != USER or packet.password is None:
        raise Malformed("CONNECT without user name 'sealmq1' and a proof as password")
    if not 1 <= len(packet.client_id.encode()) <= MAX_CLIENT_ID:
        raise Malformed(
            f"client id of {len(packet.client_id.encode())} bytes, 1 to {MAX_CLIENT_ID}"
        )
    claim = Claim(*split_proof(packet.password))
    if claim.quarantine and packet.will is not None:
        raise Malformed("a will in quarantine")
    return claim


class Newest(NamedTuple):
    """What the store remembers of a client's newest CONNECT."""

    gen: int
    boot: int
    salt: bytes
    conn: int


def verify(
    packet: Connect,
    claim: Claim,
    ring: Keyring,
    mediator: int,
    links: BootSessions,
    last: Newest | None,
) -> tuple[Client, BootSession]:
    """The client and its boot session when the proof verifies;
    raises SealError otherwise. Changes nothing.
    """
    client = ring.clients.get(claim.client)
    if client is None:
        raise Denied(f"client number {claim.client} is not known")
    if client.disabled:
        raise Denied(f"client {client.name} is disabled")
    if claim.suite != client.suite:
        raise Unsupported(f"suite {claim.suite}, the link's is {client.suite}")
    if client.ended_before(claim.gen, last.gen if last is not None else 0):
        raise DeniedByRule(
            f"generation {claim.gen} of {client.name} has ended: its keys are of before a "
            "`client rotate`, disable or newer keys, or it is forged",
            "mediator.connect.ended",
        )
    if claim.gen not in client.links:
        raise Unauthentic(f"provisioning generation {claim.gen} of {client.name} is not valid")
    link = links.find(claim.client, claim.gen, claim.boot, claim.salt)
    if link is None:
        link = BootSession(ring.site, mediator, client, claim.gen, claim.boot, claim.salt)
    link.check_connect(claim.conn, packet.raw, claim.tag)
    return client, link


def is_behind(claim: Claim, last: Newest | None) -> bool:
    """Whether (gen, boot, conn) fails to rise above the newest one, or an equal boot has another
    salt.
    """
    if last is None:
        return False
    if (claim.gen, claim.boot) == (last.gen, last.boot) and claim.salt != last.salt:
        return True
    return (claim.gen, claim.boot, claim.conn) <= (last.gen, last.boot, last.conn)
