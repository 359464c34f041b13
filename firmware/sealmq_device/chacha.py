# ChaCha20-Poly1305 (RFC 8439) for MicroPython, all in viper: five to ten times the cost of AES-CCM
# where AES is in hardware.
#
# Every ChaCha works in one shared buffer. That is safe because no Python code of others runs inside
# seal_into or open_into: no await, no scheduled callback, no other thread under the interpreter's
# lock. Never call them from a hard interrupt handler. They allocate nothing.
import micropython

from . import chacha20, poly1305

_TYPING = micropython.const(0)
if _TYPING:
    # Viper takes `object` for "any Python object", and so shall the type checker.
    from typing import Any as object

    from viper_types import ptr8, ptr32

_LONGEST = micropython.const(0xFFFFFF)  # the same bound as CCM's, far below the RFC's

_state = bytearray(64)  # constants, key, counter, nonce
_stream = bytearray(64)
_sum = bytearray(256)
_block = bytearray(16)


class ChaCha:
    # key: 32 bytes.
    def __init__(self, key: bytes) -> None:
        if len(key) != 32:
            raise ValueError("a ChaCha20 key has 32 bytes")
        self._key = bytes(key)

    # Encrypts buf[start:start+n] in place and writes the tag to the 16 bytes behind it.
    # nonce: 12 bytes. aad: 0 to 65279 bytes. ValueError when a length is wrong.
    @micropython.viper
    def seal_into(self, nonce: object, aad: object, buf: object, start: int, n: int) -> object:
        _check(nonce, aad, buf, start, n)
        _begin(self._key, nonce)
        _xor(buf, start, n)
        _mac(aad, len(aad), buf, start, n)
        poly1305.finish(_sum, buf, start + n)

    # The reverse; nothing is decrypted before the tag has verified. When it does not: False, and
    # buf[start:start+n] is zero.
    @micropython.viper
    def open_into(self, nonce: object, aad: object, buf: object, start: int, n: int) -> bool:
        _check(nonce, aad, buf, start, n)
        _begin(self._key, nonce)
        _mac(aad, len(aad), buf, start, n)
        poly1305.finish(_sum, _block, 0)
        if int(_differ(_block, buf, start + n)):
            _wipe(buf, start, n)
            return False
        _xor(buf, start, n)
        return True


def _check(nonce: bytes, aad: bytes, buf: bytearray, start: int, n: int) -> None:
    room = len(buf) - 16
    if (
        len(nonce) != 12
        or len(aad) > 65279
        or start < 0
        or not 0 <= n <= min(room - start, _LONGEST)
    ):
        raise ValueError(
            "nonce %d (12), associated data %d (<= 65279), buffer %d, start %d, n %d"
            % (len(nonce), len(aad), len(buf), start, n)
        )


# The state with counter 0, whose block keys the MAC.
@micropython.viper
def _begin(key: ptr8, nonce: ptr8) -> object:
    s = ptr8(_state)
    word = ptr8(b"expand 32-byte k")
    i = 0
    while i < 16:
        s[i] = word[i]
        i += 1
    i = 0
    while i < 32:
        s[16 + i] = key[i]
        i += 1
    i = 0
    while i < 12:
        s[52 + i] = nonce[i]
        i += 1
    ptr32(_state)[12] = 0
    chacha20.block(_state, _stream)
    poly1305.start(_sum, _stream)


# XORs key stream, from counter 1 on, into buf[start:start+n].
@micropython.viper
def _xor(buf: ptr8, start: int, n: int) -> object:
    counter = ptr32(ptr32(_state))
    b = int(buf) + start
    end = b + n
    k = ptr8(_stream)
    while b < end:
        counter[12] = counter[12] + 1
        chacha20.block(_state, _stream)
        stop = end - b
        if stop >= 64:
            stop = 64
            if b & 3 == 0:
                q = ptr32(k)
                o = ptr32(b)
                i = 0
                while i < 16:
                    o[i] = o[i] ^ q[i]
                    i += 1
                b += 64
                continue
        o8 = ptr8(b)
        i = 0
        while i < stop:
            o8[i] = o8[i] ^ k[i]
            i += 1
        b += stop


# The MAC's input: associated data and ciphertext, each padded to whole blocks, and their lengths.
@micropython.viper
def _mac(aad: object, a: int, buf: object, start: int, n: int) -> object:
    poly1305.blocks(_sum, aad, 0, a >> 4)
    if a & 15:
        _rest(aad, a & -16, a & 15)
        poly1305.blocks(_sum, _block, 0, 1)
    poly1305.blocks(_sum, buf, start, n >> 4)
    if n & 15:
        _rest(buf, start + (n & -16), n & 15)
        poly1305.blocks(_sum, _block, 0, 1)
    o = ptr32(_block)
    o[0] = a
    o[1] = 0
    o[2] = n
    o[3] = 0
    poly1305.blocks(_sum, _block, 0, 1)


# _block = data[at:at+n] and zeros.
@micropython.viper
def _rest(data: ptr8, at: int, n: int) -> object:
    o = ptr8(_block)
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
