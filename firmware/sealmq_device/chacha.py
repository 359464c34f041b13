# ChaCha20-Poly1305 (RFC 8439) for MicroPython, all in viper: five to ten times the cost of AES-CCM
# where AES is in hardware.
#
# Every ChaCha works in one shared buffer. That is safe because no Python code of others runs inside
# seal_into or open_into: no await, no scheduled callback, no other thread under the interpreter's
# lock. Never call them from a hard interrupt handler. They allocate nothing.
import micropython

from .aead import refuse
from .chacha20 import block
from .poly1305 import blocks, finish
from .poly1305 import start as start_sum

_TYPING = micropython.const(0)
if _TYPING:
    # Viper takes `object` for "any Python object", and so shall the type checker.
    from typing import Any as object

    from viper_types import ptr8, ptr32

_stream = bytearray(64)
_sum = bytearray(256)  # poly1305's state
_part = bytearray(16)
_first = b"expand 32-byte k" + bytes(48)

# Looking up a built-in name costs 420 instructions, a name of this module 100.
_len = len
_bytearray = bytearray


class ChaCha:
    # key: 32 bytes.
    @micropython.viper
    def __init__(self, key: object):
        if int(_len(key)) != 32:
            raise ValueError("a ChaCha20 key has 32 bytes")
        # The block function's input; 16 bytes of counter and nonce change with each message.
        state = _bytearray(_first)
        o = ptr8(state)
        p = ptr8(key)
        i = 0
        while i < 32:
            o[16 + i] = p[i]
            i += 1
        self._state = state

    # Encrypts buf[start:start+n] in place and writes the tag to the 16 bytes after it.
    # nonce: 12 bytes. aad: 0 to 65279 bytes. ValueError when a length is wrong.
    @micropython.viper
    def seal_into(self, nonce: object, aad: object, buf: object, start: int, n: int) -> object:
        state = self._state
        a = int(_begin(state, nonce, aad, buf, start, n))
        _xor(state, buf, start, n)
        _mac(aad, a, buf, start, n)
        finish(_sum, buf, start + n)

    # The reverse; nothing is decrypted before the tag has verified. When it does not: False, and
    # buf[start:start+n] is zero.
    @micropython.viper
    def open_into(self, nonce: object, aad: object, buf: object, start: int, n: int) -> bool:
        state = self._state
        a = int(_begin(state, nonce, aad, buf, start, n))
        _mac(aad, a, buf, start, n)
        finish(_sum, _part, 0)
        if int(_differ(_part, buf, start + n)):
            _wipe(buf, start, n)
            return False
        _xor(state, buf, start, n)
        return True


# Checks the lengths and keys the MAC with the block of counter 0; the associated data's length.
@micropython.viper
def _begin(state: object, nonce: object, aad: object, buf: object, start: int, n: int) -> int:
    a = int(_len(aad))
    room = int(_len(buf)) - 16 - start
    # n is bounded as for CCM, far below the RFC's bound.
    if start < 0 or n < 0 or n > room or n > 0xFFFFFF or a > 65279 or int(_len(nonce)) != 12:
        refuse(nonce, aad, buf, start, n)
    s = ptr32(state)
    s[12] = 0
    o = ptr8(int(s) + 52)
    p = ptr8(nonce)
    i = 0
    while i < 12:
        o[i] = p[i]
        i += 1
    block(state, _stream)
    start_sum(_sum, _stream)
    return a


# XORs key stream, from counter 1 on, into buf[start:start+n].
@micropython.viper
def _xor(state: object, buf: ptr8, start: int, n: int) -> object:
    s = ptr32(state)
    b = int(buf) + start
    end = b + n
    k = ptr8(_stream)
    while b < end:
        s[12] = s[12] + 1
        block(state, _stream)
        i = 0
        stop = end - b
        if stop >= 64:
            stop = 64
            if b & 3 == 0:
                q = ptr32(k)
                w = ptr32(b)
                while i < 16:
                    w[i] = w[i] ^ q[i]
                    i += 1
                i = 64
        o = ptr8(b)
        while i < stop:
            o[i] = o[i] ^ k[i]
            i += 1
        b += stop


# The MAC's input: associated data and ciphertext, each padded to whole blocks, and their lengths.
@micropython.viper
def _mac(aad: object, a: int, buf: object, start: int, n: int) -> object:
    if a:
        blocks(_sum, aad, 0, a >> 4)
        if a & 15:
            _rest(aad, a & -16, a & 15)
            blocks(_sum, _part, 0, 1)
    if n:
        blocks(_sum, buf, start, n >> 4)
        if n & 15:
            _rest(buf, start + (n & -16), n & 15)
            blocks(_sum, _part, 0, 1)
    o = ptr32(_part)
    o[0] = a
    o[1] = 0
    o[2] = n
    o[3] = 0
    blocks(_sum, _part, 0, 1)


# _part = data[at:at+n] and zeros.
@micropython.viper
def _rest(data: ptr8, at: int, n: int) -> object:
    o = ptr8(_part)
    i = 0
    while i < 16:
        o[i] = data[at + i] if i < n else 0
        i += 1


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
    i = 0
    while i < n:
        buf[start + i] = 0
        i += 1
