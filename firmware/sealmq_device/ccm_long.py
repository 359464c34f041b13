# AES-256-CCM for messages that do not fit ccm.py's shared buffer, in pieces, at any length; and for
# all messages where there is no viper for ccm.py.
#
# Everything here belongs to one call (objects, 2 KiB of buffers), so calls may overlap.
from cryptolib import aes
from micropython import const

try:
    from .ccm_words import counters, differ, offset, wipe, xor
except (SyntaxError, NotImplementedError):
    from .ccm_bytes import counters, differ, offset, wipe, xor

_PIECE = const(1024)  # whole blocks


# The port of sealmq_spec.aead; ccm.py's class of this name is the one for devices.
class Ccm:
    def __init__(self, key: bytes) -> None:
        if len(key) != 32:
            raise ValueError("an AES-256 key has 32 bytes")
        self._key = bytes(key)

    def seal_into(self, nonce: bytes, aad: bytes, buf: bytearray, start: int, n: int) -> None:
        check(nonce, aad, buf, start, n)
        crypt(self._key, nonce, aad, buf, start, n, False)

    def open_into(self, nonce: bytes, aad: bytes, buf: bytearray, start: int, n: int) -> bool:
        check(nonce, aad, buf, start, n)
        return crypt(self._key, nonce, aad, buf, start, n, True)


# ValueError when a length is wrong.
def check(nonce: bytes, aad: bytes, buf: bytearray, start: int, n: int) -> None:
    room = len(buf) - 16 - start
    if start < 0 or not 0 <= n <= room or n > 0xFFFFFF or len(aad) > 65279 or len(nonce) != 12:
        raise ValueError(
            "nonce %d (12), associated data %d (<= 65279), buffer %d, start %d, n %d (<= 16777215)"
            % (len(nonce), len(aad), len(buf), start, n)
        )


# What both do, lengths checked; True unless opening failed.
def crypt(
    key: bytes, nonce: bytes, aad: bytes, buf: bytearray, start: int, n: int, opening: bool
) -> bool:
    end = start + n
    # One allocation: scratch, then key stream.
    room = memoryview(bytearray(2 * _PIECE + 4))
    mac = _Mac(key, nonce, len(aad), n, room)
    stream = _Stream(key, nonce, buf, start, room)
    view = memoryview(buf)
    try:
        mac.associated(aad)
        at = start
        while at < end:
            size = min(_PIECE, end - at)
            if opening:
                stream.xor(at, size)
                mac.update(view[at : at + size])
            else:
                mac.update(view[at : at + size])
                stream.xor(at, size)
            at += size
        stream.first(mac.last)
    except Exception:
        if opening:
            wipe(buf, start, n)
        raise
    if not opening:
        view[end : end + 16] = mac.last
        return True
    if differ(mac.last, buf, end):
        wipe(buf, start, n)
        return False
    return True


class _Mac:
    # last: CBC's last block so far.
    def __init__(self, key: bytes, nonce: bytes, a: int, n: int, room: "memoryview") -> None:
        self._cbc = aes(key, 2, bytes(16))
        self._out = room
        self._a = a
        self.last = bytearray(16)
        flags = b"\x7a" if a else b"\x3a"
        self.update(flags + bytes(nonce) + bytes((n >> 16, n >> 8 & 0xFF, n & 0xFF)))

    # Associated data behind its length.
    def associated(self, aad: bytes) -> None:
        if not self._a:
            return
        view = memoryview(aad)
        self.update(bytes((self._a >> 8, self._a & 0xFF)) + bytes(view[:14]))
        for at in range(14, self._a, _PIECE):
            self.update(view[at : at + _PIECE])

    # At most _PIECE bytes, padded with zeros to whole blocks: only the last may need it.
    def update(self, data: "bytes | memoryview") -> None:
        whole = len(data) & -16
        if whole:
            self._cbc.encrypt(data[:whole], self._out)
            self.last[:] = self._out[whole - 16 : whole]
        if whole < len(data):
            block = bytearray(16)
            block[: len(data) - whole] = data[whole:]
            self._cbc.encrypt(block, self.last)


class _Stream:
    def __init__(
        self, key: bytes, nonce: bytes, buf: bytearray, start: int, room: "memoryview"
    ) -> None:
        self._ecb = aes(key, 1)
        self._buf = buf
        # A_i = flags, nonce, 24-bit counter.
        self._a = bytearray(b"\x02" + bytes(nonce) + b"\0\0\0")
        self._next = 1
        self._in = room
        # The key stream gets the payload's offset from a word's start, so that words can be XORed.
        self._to = room[_PIECE + offset(buf, start) :]

    # XORs the next `size` bytes of key stream into the buffer at `at`.
    def xor(self, at: int, size: int) -> None:
        blocks = (size + 15) >> 4
        counters(self._in, self._a, self._next, blocks)
        self._next += blocks
        self._ecb.encrypt(self._in[: blocks * 16], self._to)
        xor(self._buf, at, self._to, size)

    # XORs the first block, which no payload uses, into `block`.
    def first(self, block: bytearray) -> None:
        out = bytearray(16)
        self._ecb.encrypt(self._a, out)
        xor(block, 0, out, 16)
