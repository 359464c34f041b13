"""SPEC.md written out a second time, for the vectors only: plain, slow, and without sealmq_spec.

Packets are built from field lists in the order of the document's tables. Ciphers come from
`cryptography`.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, replace

from cryptography.hazmat.primitives.ciphers.aead import AESCCM, ChaCha20Poly1305

SEED = "SealMQ vectors 1"


def rnd(name: str, size: int) -> bytes:
    """`size` bytes that depend on the seed and `name` alone: the order of cases does not count."""
    out = b""
    while len(out) < size:
        out += hashlib.sha256(f"{SEED}/{name}/{len(out)}".encode()).digest()
    return out[:size]


def u(value: int, size: int) -> bytes:
    """Section 1: unsigned, big-endian."""
    return value.to_bytes(size, "big")


def b64u(raw: bytes) -> bytes:
    """Section 1: base64url without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


def xor(a: bytes, b: bytes) -> bytes:
    """a ⊕ b of equal lengths."""
    return bytes(x ^ y for x, y in zip(a, b, strict=True))


def F(t: str, site: bytes, ctx: bytes, key: bytes) -> bytes:
    """Section 2: F(T, ctx; K) = SHA-256(T ‖ site ‖ ctx ‖ K), one compression."""
    message = t.encode() + site + ctx + key
    if len(t) != 2 or len(site) != 4 or len(key) != 32 or len(message) > 55:
        raise ValueError("F: a part has the wrong size")
    return hashlib.sha256(message).digest()


def seal(suite: int, key: bytes, nonce: bytes, plain: bytes, aad: bytes) -> bytes:
    """Section 1.2: ciphertext ‖ tag."""
    if suite == 1:
        return AESCCM(key, tag_length=16).encrypt(nonce, plain, aad)
    if suite == 2:
        return ChaCha20Poly1305(key).encrypt(nonce, plain, aad)
    raise ValueError(suite)


def tag(suite: int, key: bytes, nonce: bytes, aad: bytes) -> bytes:
    """Section 1.2: TAG(K, nonce, A)."""
    return seal(suite, key, nonce, b"", aad)


def tlv(*items: tuple[int, bytes]) -> bytes:
    """Section 3.4."""
    body = b"".join(u(t, 1) + u(len(v), 1) + v for t, v in items)
    if len(body) <= 127:
        return u(len(body), 1) + body
    return u(0x8000 | len(body), 2) + body


def lentopic(topic: bytes) -> bytes:
    """u16 len ‖ topic."""
    return u(len(topic), 2) + topic


def link_key(
    site: bytes, use: int, suite: int, mediator: int, boot: int, salt: bytes, km: bytes
) -> bytes:
    """Section 2: link key; use 1 publish, 2 control, 3 down, 4 delivery."""
    return F("l1", site, u(16 * use + suite, 1) + u(mediator, 3) + u(boot, 3) + salt, km)


@dataclass(frozen=True)
class Roots:
    """R and R̄ of one (label, epoch), with its suite."""

    label: int
    epoch: int
    suite: int
    r: bytes
    r_bar: bytes

    def ek(self, site: bytes) -> bytes:
        """Section 2: topic key."""
        return F("e1", site, u(self.suite, 1) + u(self.label, 3) + u(self.epoch, 3), self.r)

    def outer(self, site: bytes, inst: int) -> bytes:
        """Section 2: outer key O."""
        ctx = u(self.suite, 1) + u(self.label, 3) + u(self.epoch, 3) + u(inst, 3)
        return F("o1", site, ctx, self.ek(site))

    def inner(self, site: bytes, sender: int, boot: int, salt: bytes) -> bytes:
        """Section 2: inner key I."""
        return F("i1", site, u(self.suite, 1) + u(sender, 3) + u(boot, 3) + salt, self.r_bar)

    def record_key(self, site: bytes) -> bytes:
        """Section 2: record key."""
        return F("r1", site, u(self.suite, 1) + u(self.label, 3) + u(self.epoch, 3), self.r_bar)


def roots(label: int, epoch: int, suite: int) -> Roots:
    """Roots that any case may use: drawn from the seed by label and epoch."""
    name = f"label {label} epoch {epoch}"
    return Roots(label, epoch, suite, rnd(name + " R", 32), rnd(name + " R-bar", 32))


@dataclass(frozen=True)
class Grant:
    """G of one epoch of a grant, with its suite; until: Unix seconds, 0 for no end."""

    number: int = 5
    epoch: int = 3
    suite: int = 1
    until: int = 0
    g: bytes = rnd("G", 32)

    def outer(self, site: bytes, inst: int) -> bytes:
        """Section 2: grant key."""
        ctx = u(self.suite, 1) + u(self.number, 3) + u(self.epoch, 3) + u(inst, 3)
        return F("g1", site, ctx, self.g)

    def but(self, **changes: object) -> Grant:
        """The same with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Order:
    """inst ‖ ms ‖ seq."""

    inst: int
    ms: int
    seq: int

    @property
    def raw(self) -> bytes:
        """The 12 bytes that are also the nonce."""
        return u(self.inst, 3) + u(self.ms, 6) + u(self.seq, 3)


@dataclass(frozen=True)
class Client:
    """A client's boot session with everything that its keys depend on."""

    site: bytes
    client: int
    mediator: int
    gen: int
    boot: int
    salt: bytes
    suite: int
    ps: bytes
    km: bytes
    own: Roots

    def key(self, use: int) -> bytes:
        """The link key of this boot session for one use."""
        return link_key(self.site, use, self.suite, self.mediator, self.boot, self.salt, self.km)

    def but(self, **changes: object) -> Client:
        """The same client with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]


def client(suite: int = 1, label_suite: int = 0, name: str = "sensor") -> Client:
    """The client that most cases use."""
    return Client(
        site=rnd("site", 4),
        client=7,
        mediator=1,
        gen=3,
        boot=41,
        salt=rnd(name + " salt", 8),
        suite=suite,
        ps=rnd(name + " ps", 32),
        km=rnd(name + " km", 32),
        own=roots(16, 5, label_suite or suite),
    )
