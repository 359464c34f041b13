"""The host's cipher backend: AES-256-CCM and ChaCha20-Poly1305 of `cryptography`, behind the port
of `sealmq_spec.aead`.

`seal` and `open` work on bytes for the mediator's hot path; `seal_into` and `open_into` work in
place, as on the device.
"""

from __future__ import annotations

from collections.abc import Callable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, ChaCha20Poly1305

from sealmq_spec.const import CCM, CHACHA, TAG

Readable = bytes | bytearray | memoryview
Seal = Callable[[bytes, Readable, bytes], bytes]
"""Ciphertext and tag of data: (nonce, data, associated data)."""
Open = Callable[[bytes, Readable, bytes], bytes]
"""The reverse; InvalidTag for what does not verify."""


class Aead:
    """One key of one suite (SPEC.md 1.2). Nonces are 12 bytes, tags 16."""

    __slots__ = ("decrypt", "seal")

    def __init__(self, cipher: AESCCM | ChaCha20Poly1305) -> None:
        self.seal: Seal = cipher.encrypt
        self.decrypt: Open = cipher.decrypt

    def __repr__(self) -> str:
        return "<Aead>"

    def open(self, nonce: bytes, data: Readable, aad: bytes) -> bytes | None:
        """Plaintext of ciphertext and tag, or None when they do not verify."""
        if len(data) < TAG:
            return None
        try:
            return self.decrypt(nonce, data, aad)
        except InvalidTag:
            return None

    def seal_into(self, nonce: bytes, aad: bytes, buf: bytearray, start: int, n: int) -> None:
        """Encrypts buf[start:start+n] in place and writes the tag behind it."""
        end = start + n
        buf[start : end + TAG] = self.seal(nonce, memoryview(buf)[start:end], aad)

    def open_into(self, nonce: bytes, aad: bytes, buf: bytearray, start: int, n: int) -> bool:
        """Decrypts in place; on failure wipes the n bytes and gives False."""
        plain = self.open(nonce, memoryview(buf)[start : start + n + TAG], aad)
        buf[start : start + n] = bytes(n) if plain is None else plain
        return plain is not None


def make(suite: int, key: bytes) -> Aead:
    """The cipher of `suite` under a 32-byte key; ValueError for any other number or length."""
    if len(key) != 32:
        raise ValueError(f"a key has 32 bytes, this one {len(key)}")
    if suite == CCM:
        return Aead(AESCCM(key, tag_length=TAG))
    if suite == CHACHA:
        return Aead(ChaCha20Poly1305(key))
    raise ValueError(f"suite {suite} is not known (1 AES-256-CCM, 2 ChaCha20-Poly1305)")
