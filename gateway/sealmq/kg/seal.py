"""Secrets at rest: sealed before they reach SQL, so no file of the store ever holds one in clear.

A blob is `0x01 ‖ 28 random bytes ‖ ciphertext ‖ tag`. 16 of the random bytes derive a key for this
one blob (HKDF-SHA256, RFC 5869), 12 are its nonce (AES-256-GCM): 2^-112 a pair, so the number of
writes does not matter. Associated data names site, table, column and row: blobs cannot be swapped.
"""

from __future__ import annotations

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from .errors import StoreBroken

_FORM = b"\x01"
_SALT = 16
_NONCE = 12
_HEAD = 1 + _SALT + _NONCE
_TAG = 16


class Vault:
    """The role key of the key generator (32 bytes), and what it seals for one site (4 bytes)."""

    __slots__ = ("_key", "_site")

    def __init__(self, key: bytes, site: bytes) -> None:
        if len(key) != 32 or len(site) != 4:
            raise ValueError("a key has 32 bytes, a site 4")
        self._key, self._site = key, site

    def __repr__(self) -> str:
        return "<Vault>"

    def seal(self, column: str, row: tuple[int, ...], secret: bytes) -> bytes:
        """`column`: "table.column". `row`: what identifies the row and must not change."""
        random = os.urandom(_SALT + _NONCE)
        cipher = self._cipher(random[:_SALT])
        sealed = cipher.encrypt(random[_SALT:], secret, self._where(column, row))
        return _FORM + random + sealed

    def open(self, column: str, row: tuple[int, ...], blob: bytes) -> bytes:
        """StoreBroken when the blob is not what this vault sealed for exactly this place."""
        if len(blob) < _HEAD + _TAG or blob[:1] != _FORM:
            raise StoreBroken(f"{column} of {row}: {len(blob)} bytes that are no sealed value")
        cipher = self._cipher(blob[1 : 1 + _SALT])
        try:
            return cipher.decrypt(blob[1 + _SALT : _HEAD], blob[_HEAD:], self._where(column, row))
        except InvalidTag:
            raise StoreBroken(
                f"{column} of {row} does not open: another key, or a changed file",
                "restore the site's state folder and its key file from the same backup",
            ) from None

    def _cipher(self, salt: bytes) -> AESGCM:
        kdf = HKDF(algorithm=SHA256(), length=32, salt=salt, info=b"sealmq kg store 1")
        return AESGCM(kdf.derive(self._key))

    def _where(self, column: str, row: tuple[int, ...]) -> bytes:
        name = column.encode()
        return self._site + bytes((len(name),)) + name + b"".join(n.to_bytes(8, "big") for n in row)
