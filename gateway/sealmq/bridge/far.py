"""Keys for a site that is no neighbour. No socket and no clock.

What two key generators tell each other (GATEWAY.md G11) is sealed for the other one; here it is
signed by its site, addressed by the fingerprint of the other, and handed from neighbour to
neighbour until it is there. Who passes it on can neither read nor change it. It passes a site once,
at most HOPS of them, and goes on only for a sender whose key the judge knows: so nobody floods
others in the name of sites that there are none of.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple

from sealmq import peerkeys
from sealmq.families.signatures import SIGNATURE_BYTES, is_signed, sign
from sealmq_spec.errors import Malformed, Unauthentic

from .crossing import HOPS
from .line import Own

HELLO, KEYS, TAKEN = range(3)
"""HELLO: who it is from, who asks for keys. TAKEN: of KEYS, by the number of these."""
MOST = 1 << 18
_DOMAIN = b"sealmq far 1"
_HEAD = struct.Struct(">B32sQBH")
_SEEN = 4096


class Packet(NamedTuple):
    """hops: sites that it has passed. to: a fingerprint, 32 bytes. number: the sender's. shown: the
    sender's certificate."""

    hops: int
    to: bytes
    number: int
    what: int
    shown: peerkeys.Shown
    body: bytes


def pack(own: Own, to: bytes, number: int, what: int, body: bytes = b"") -> bytes:
    """A packet of this site's, on its first way."""
    head = _HEAD.pack(1, to, number, what, len(own.der))
    raw = head + own.der + body
    return raw + sign(own.key, _DOMAIN + raw[1:])


def read(raw: bytes) -> Packet:
    """Malformed; Unauthentic: its sender has not signed it."""
    if not _HEAD.size + SIGNATURE_BYTES <= len(raw) <= MOST:
        raise Malformed(f"a packet of {len(raw)} bytes")
    hops, to, number, what, size = _HEAD.unpack_from(raw)
    if not 0 < hops <= HOPS:
        raise Malformed(f"hops: a packet has passed {hops} sites, at most {HOPS} are allowed")
    body = raw[_HEAD.size : -SIGNATURE_BYTES]
    try:
        shown = peerkeys.read(body[:size])
    except peerkeys.BadPeer as error:
        raise Malformed(str(error)) from None
    if not is_signed(shown.public, _DOMAIN + raw[1:-SIGNATURE_BYTES], raw[-SIGNATURE_BYTES:]):
        raise Unauthentic("a packet that its sender has not signed")
    return Packet(hops, to, number, what, shown, body[size:])


class Relay:
    """What becomes of packets that neighbours bring."""

    def __init__(self, fingerprint: bytes, knows: Callable[[str, bytes], bool]) -> None:
        self._own, self._knows = fingerprint, knows
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def take(self, raw: bytes) -> tuple[Packet | None, bytes]:
        """A packet for this site, and what goes on to all other neighbours (b"": nothing does).
        SealError: it is none; who has brought it should not have.
        """
        # Its number of hops is not signed, and says nothing of what it is.
        which = sha256(raw[1:]).digest()
        if which in self._seen:
            return None, b""
        packet = read(raw)
        shown, here = packet.shown, packet.to == self._own
        if sha256(shown.der).digest() == self._own:
            return None, b""
        if not here and (packet.hops >= HOPS or not self._knows(shown.name, shown.public)):
            return None, b""
        self._seen[which] = None
        if len(self._seen) > _SEEN:
            self._seen.popitem(last=False)
        return (packet, b"") if here else (None, bytes((packet.hops + 1,)) + raw[1:])
