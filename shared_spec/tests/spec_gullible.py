"""A backend that believes every tag: the runner of the vectors must notice."""

from __future__ import annotations

from spec_cipher import Cipher


class Gullible(Cipher):
    """Decrypts without checking."""

    def open_into(
        self, nonce: bytes | bytearray, aad: bytes | bytearray, buf: bytearray, start: int, n: int
    ) -> bool:
        """True whatever comes."""
        super().open_into(nonce, aad, buf, start, n)
        return True


def make(suite: int, key: bytes) -> Gullible:
    """The cipher of a suite."""
    return Gullible(suite, key)
