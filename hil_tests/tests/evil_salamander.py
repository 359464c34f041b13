"""A ChaCha20-Poly1305 ciphertext that verifies under two keys (RFC 8439 is not key-committing).

Poly1305 is a polynomial in the ciphertext's blocks: one free block is enough to make the tags of
two keys equal.
"""

from __future__ import annotations

from collections.abc import Sequence

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

_P = (1 << 130) - 5
_CLAMP = 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
_TOP = 1 << 128


def _stream(key: bytes, nonce: bytes, first: int, n: int) -> bytes:
    at = first.to_bytes(4, "little") + nonce
    return Cipher(ChaCha20(key, at), None).encryptor().update(bytes(n))


def _padded(raw: bytes) -> bytes:
    return raw + bytes(-len(raw) % 16)


def common_tag(
    keys: Sequence[bytes], nonce: bytes, aads: Sequence[bytes], plain: bytes, block: int
) -> bytes | None:
    """Ciphertext and tag that verify under keys[0] with aads[0] and keys[1] with aads[1].

    Under keys[0] it opens to `plain`, but for its 16-byte block of this number. None: no block fits
    this nonce; three of four do.
    """
    sealed = bytes(
        a ^ b for a, b in zip(plain, _stream(keys[0], nonce, 1, len(plain)), strict=True)
    )
    rs, offsets, factors = [], [], []
    for key, aad in zip(keys, aads, strict=True):
        one_time = _stream(key, nonce, 0, 32)
        r = int.from_bytes(one_time[:16], "little") & _CLAMP
        s = int.from_bytes(one_time[16:], "little")
        sizes = len(aad).to_bytes(8, "little") + len(sealed).to_bytes(8, "little")
        data = _padded(aad) + _padded(sealed) + sizes
        free = len(_padded(aad)) // 16 + block
        blocks = [data[i : i + 16] for i in range(0, len(data), 16)]
        total = 0
        for i, raw in enumerate(blocks):
            value = 0 if i == free else int.from_bytes(raw, "little") + _TOP
            total = (total + value) * r % _P
        rs.append(s)
        offsets.append(total)
        factors.append(pow(r, len(blocks) - free, _P))
    inverse = pow(factors[0] - factors[1], -1, _P)
    for carry in range(-5, 6):
        x = (offsets[1] - offsets[0] + rs[1] - rs[0] + carry * _TOP) * inverse % _P
        if not _TOP <= x < 2 * _TOP:
            continue
        tags = [((o + x * f) % _P + s) % _TOP for o, f, s in zip(offsets, factors, rs, strict=True)]
        if tags[0] == tags[1]:
            at = 16 * block
            fitted = sealed[:at] + (x - _TOP).to_bytes(16, "little") + sealed[at + 16 :]
            return fitted + tags[0].to_bytes(16, "little")
    return None
