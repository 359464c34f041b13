"""Cipher backends for the tests of the protocol package."""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, ChaCha20Poly1305


class Cipher:
    """The port of sealmq_spec.aead over `cryptography`."""

    def __init__(self, suite: int, key: bytes) -> None:
        self.suite = suite
        self.key = bytes(key)
        self.cipher = AESCCM(self.key) if suite == 1 else ChaCha20Poly1305(self.key)

    def seal_into(
        self, nonce: bytes | bytearray, aad: bytes | bytearray, buf: bytearray, start: int, n: int
    ) -> None:
        """Encrypts buf[start:start+n], tag behind it."""
        end = start + n
        sealed = self.cipher.encrypt(bytes(nonce), bytes(buf[start:end]), bytes(aad))
        buf[start : end + 16] = sealed

    def open_into(
        self, nonce: bytes | bytearray, aad: bytes | bytearray, buf: bytearray, start: int, n: int
    ) -> bool:
        """The reverse; False wipes the n bytes."""
        end = start + n
        try:
            plain = self.cipher.decrypt(bytes(nonce), bytes(buf[start : end + 16]), bytes(aad))
        except InvalidTag:
            buf[start:end] = bytes(n)
            return False
        buf[start:end] = plain
        return True


def make(suite: int, key: bytes) -> Cipher:
    """The cipher of a suite."""
    if suite not in (1, 2):
        raise ValueError(f"suite {suite}")
    return Cipher(suite, key)


class Recorder:
    """Makes ciphers that remember every (key, nonce) they sealed under, with what they sealed."""

    def __init__(self) -> None:
        self.used: dict[tuple[bytes, bytes], tuple[bytes, bytes]] = {}
        self.seals = 0

    def make(self, suite: int, key: bytes) -> Cipher:
        """Like the module's make."""
        recorder = self

        class Recording(Cipher):
            def seal_into(
                self,
                nonce: bytes | bytearray,
                aad: bytes | bytearray,
                buf: bytearray,
                start: int,
                n: int,
            ) -> None:
                pair = (self.key, bytes(nonce))
                what = (bytes(aad), bytes(buf[start : start + n]))
                if recorder.used.setdefault(pair, what) != what:
                    raise AssertionError(f"nonce {bytes(nonce).hex()} twice under one key")
                recorder.seals += 1
                super().seal_into(nonce, aad, buf, start, n)

        return Recording(suite, key)
