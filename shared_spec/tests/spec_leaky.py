"""A backend that leaves bytes behind when a tag fails: the runner of the vectors must notice."""

from __future__ import annotations

from spec_cipher import Cipher


class Leaky(Cipher):
    """Writes something that is not zeros where the plaintext would be."""

    def open_into(
        self, nonce: bytes | bytearray, aad: bytes | bytearray, buf: bytearray, start: int, n: int
    ) -> bool:
        """As Cipher's, but does not wipe."""
        good = super().open_into(nonce, aad, buf, start, n)
        if not good:
            buf[start : start + n] = b"x" * n
        return good


def make(suite: int, key: bytes) -> Leaky:
    """The cipher of a suite."""
    return Leaky(suite, key)
