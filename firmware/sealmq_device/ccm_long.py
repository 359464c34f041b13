# AES-256-CCM for messages that do not fit ccm.py's shared buffer: in pieces, at any length.
#
# Everything here belongs to one call (objects, 2 KiB of buffers), so calls may overlap.
import micropython
from cryptolib import aes
from micropython import const

_TYPING = const(0)
if _TYPING:
    # Viper takes `object` for "any Python object", and so shall the type checker.
    from typing import Any as object

    from viper_types import ptr8, ptr32

_PIECE = const(1024)  # whole blocks


# The arguments of Ccm.seal_into and Ccm.open_into, lengths checked; True unless opening failed.
def crypt(
    key: bytes, nonce: bytes, aad: bytes, buf: bytearray, start: int, n: int, opening: bool
) -> bool:
    if n > 0xFFFFFF:
        raise ValueError("n %d: at most 16777215 bytes in one message" % n)
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
            _wipe(buf, start, n)
        raise
    if not opening:
        view[end : end + 16] = mac.last
        return True
    if _differ(mac.last, buf, end):
        _wipe(buf, start, n)
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
        self._to = room[_PIECE + _offset(buf, start) :]

    # XORs the next `size` bytes of key stream into the buffer at `at`.
    def xor(self, at: int, size: int) -> None:
        blocks = (size + 15) >> 4
        _counters(self._in, self._a, self._next, blocks)
        self._next += blocks
        self._ecb.encrypt(self._in[: blocks * 16], self._to)
        _xor(self._buf, at, self._to, size)

    # XORs the first block, which no payload uses, into `block`.
    def first(self, block: bytearray) -> None:
        out = bytearray(16)
        self._ecb.encrypt(self._a, out)
        _xor(block, 0, out, 16)


@micropython.viper
def _offset(buf: ptr8, start: int) -> int:
    return (int(buf) + start) & 3


@micropython.viper
def _counters(out: ptr32, a: ptr32, first: int, blocks: int) -> object:
    d = int(out)
    while blocks:
        o = ptr32(d)
        o[0] = a[0]
        o[1] = a[1]
        o[2] = a[2]
        o[3] = a[3]
        b = ptr8(d)
        b[13] = first >> 16
        b[14] = first >> 8
        b[15] = first
        first += 1
        blocks -= 1
        d += 16


# Both sides are equally far from a word's start.
@micropython.viper
def _xor(buf: ptr8, at: int, stream: ptr8, n: int) -> object:
    b = int(buf) + at
    s = int(stream)
    end = b + n
    while b < end:
        if b & 3 == 0:
            stop = end - 15
            while b < stop:
                o = ptr32(b)
                q = ptr32(s)
                o[0] = o[0] ^ q[0]
                o[1] = o[1] ^ q[1]
                o[2] = o[2] ^ q[2]
                o[3] = o[3] ^ q[3]
                b += 16
                s += 16
            if b >= end:
                break
        ptr8(b)[0] = ptr8(b)[0] ^ ptr8(s)[0]
        b += 1
        s += 1


# Constant-time: 0 when the 16 bytes of `tag` stand at buf[at:].
@micropython.viper
def _differ(tag: ptr8, buf: ptr8, at: int) -> int:
    d = 0
    i = 0
    while i < 16:
        d |= tag[i] ^ buf[at + i]
        i += 1
    return d


@micropython.viper
def _wipe(buf: ptr8, start: int, n: int) -> object:
    b = int(buf) + start
    end = b + n
    while b < end:
        ptr8(b)[0] = 0
        b += 1
