# ChaCha20-Poly1305 (RFC 8439) in plain integers, for an interpreter without viper; chacha.py is the
# one for devices. Not constant-time: for test and demo programs on a host.
import struct

from .ccm_plain import check, differ, wipe, xor

_MASK = 0xFFFFFFFF
_P = (1 << 130) - 5
_CLAMP = 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
_ROUNDS = (
    (0, 4, 8, 12),
    (1, 5, 9, 13),
    (2, 6, 10, 14),
    (3, 7, 11, 15),
    (0, 5, 10, 15),
    (1, 6, 11, 12),
    (2, 7, 8, 13),
    (3, 4, 9, 14),
)


class ChaCha:
    # key: 32 bytes.
    def __init__(self, key: bytes) -> None:
        if len(key) != 32:
            raise ValueError("a ChaCha20 key has 32 bytes")
        self._key = bytes(key)

    # Encrypts buf[start:start+n] in place and writes the tag to the 16 bytes after it.
    # nonce: 12 bytes. aad: 0 to 65279 bytes. ValueError when a length is wrong.
    def seal_into(self, nonce: bytes, aad: bytes, buf: bytearray, start: int, n: int) -> None:
        check(nonce, aad, buf, start, n)
        self._xor(nonce, buf, start, n)
        buf[start + n : start + n + 16] = self._tag(nonce, aad, buf, start, n)

    # The reverse; nothing is decrypted before the tag has verified. When it does not: False, and
    # buf[start:start+n] is zero.
    def open_into(self, nonce: bytes, aad: bytes, buf: bytearray, start: int, n: int) -> bool:
        check(nonce, aad, buf, start, n)
        if differ(self._tag(nonce, aad, buf, start, n), buf, start + n):
            wipe(buf, start, n)
            return False
        self._xor(nonce, buf, start, n)
        return True

    def _xor(self, nonce: bytes, buf: bytearray, start: int, n: int) -> None:
        for at in range(0, n, 64):
            stream = _block(self._key, at // 64 + 1, nonce)
            piece = memoryview(buf)[start + at : start + min(at + 64, n)]
            piece[:] = xor(bytes(piece), stream)

    def _tag(self, nonce: bytes, aad: bytes, buf: bytearray, start: int, n: int) -> bytes:
        key = _block(self._key, 0, nonce)
        r = int.from_bytes(key[:16], "little") & _CLAMP
        view = memoryview(buf)[start : start + n]
        h = _sum(0, r, memoryview(aad))
        h = _sum(h, r, view)
        h = _sum(h, r, memoryview(struct.pack("<QQ", len(aad), n)))
        h += int.from_bytes(key[16:32], "little")
        return (h & ((1 << 128) - 1)).to_bytes(16, "little")


# Poly1305's sum `h` continued over data, padded with zeros to whole blocks.
def _sum(h: int, r: int, data: memoryview) -> int:
    for at in range(0, len(data), 16):
        h = (h + int.from_bytes(data[at : at + 16], "little") + (1 << 128)) * r % _P
    return h


def _block(key: bytes, counter: int, nonce: bytes) -> bytes:
    state = struct.unpack("<16I", b"expand 32-byte k" + key + struct.pack("<I", counter) + nonce)
    x = list(state)
    for _ in range(10):
        for a, b, c, d in _ROUNDS:
            x[a] = (x[a] + x[b]) & _MASK
            t = x[d] ^ x[a]
            x[d] = (t << 16 | t >> 16) & _MASK
            x[c] = (x[c] + x[d]) & _MASK
            t = x[b] ^ x[c]
            x[b] = (t << 12 | t >> 20) & _MASK
            x[a] = (x[a] + x[b]) & _MASK
            t = x[d] ^ x[a]
            x[d] = (t << 8 | t >> 24) & _MASK
            x[c] = (x[c] + x[d]) & _MASK
            t = x[b] ^ x[c]
            x[b] = (t << 7 | t >> 25) & _MASK
    return struct.pack("<16I", *[(p + q) & _MASK for p, q in zip(x, state)])
