# The ChaCha20 block function (RFC 8439, section 2.3) in viper, the same code for 32 and 64 bits.
#
# Words live in native registers. On 64 bits what overflows above bit 31 is never cleared: addition,
# XOR and left shifts do not bring it down, and each right shift is masked. The loop's body is one
# round of four columns: twice that is more than a branch spans on an ESP32.
import micropython

_TYPING = micropython.const(0)
if _TYPING:
    # Viper takes `object` for "any Python object", and so shall the type checker.
    from typing import Any as object

    from viper_types import ptr32


# state: 16 words (constants, key, counter, nonce). out: 16 words of key stream. Allocates nothing.
@micropython.viper
def block(state: ptr32, out: ptr32) -> object:
    x0 = state[0]
    x1 = state[1]
    x2 = state[2]
    x3 = state[3]
    x4 = state[4]
    x5 = state[5]
    x6 = state[6]
    x7 = state[7]
    x8 = state[8]
    x9 = state[9]
    x10 = state[10]
    x11 = state[11]
    x12 = state[12]
    x13 = state[13]
    x14 = state[14]
    x15 = state[15]
    n = 20
    while n:
        n -= 1
        x0 += x4
        x12 ^= x0
        x12 = x12 << 16 | x12 >> 16 & 0xFFFF
        x8 += x12
        x4 ^= x8
        x4 = x4 << 12 | x4 >> 20 & 0xFFF
        x0 += x4
        x12 ^= x0
        x12 = x12 << 8 | x12 >> 24 & 0xFF
        x8 += x12
        x4 ^= x8
        x4 = x4 << 7 | x4 >> 25 & 0x7F
        x1 += x5
        x13 ^= x1
        x13 = x13 << 16 | x13 >> 16 & 0xFFFF
        x9 += x13
        x5 ^= x9
        x5 = x5 << 12 | x5 >> 20 & 0xFFF
        x1 += x5
        x13 ^= x1
        x13 = x13 << 8 | x13 >> 24 & 0xFF
        x9 += x13
        x5 ^= x9
        x5 = x5 << 7 | x5 >> 25 & 0x7F
        x2 += x6
        x14 ^= x2
        x14 = x14 << 16 | x14 >> 16 & 0xFFFF
        x10 += x14
        x6 ^= x10
        x6 = x6 << 12 | x6 >> 20 & 0xFFF
        x2 += x6
        x14 ^= x2
        x14 = x14 << 8 | x14 >> 24 & 0xFF
        x10 += x14
        x6 ^= x10
        x6 = x6 << 7 | x6 >> 25 & 0x7F
        x3 += x7
        x15 ^= x3
        x15 = x15 << 16 | x15 >> 16 & 0xFFFF
        x11 += x15
        x7 ^= x11
        x7 = x7 << 12 | x7 >> 20 & 0xFFF
        x3 += x7
        x15 ^= x3
        x15 = x15 << 8 | x15 >> 24 & 0xFF
        x11 += x15
        x7 ^= x11
        x7 = x7 << 7 | x7 >> 25 & 0x7F
        # Diagonals become columns, or the other way round.
        t = x8
        x8 = x10
        x10 = t
        t = x9
        x9 = x11
        x11 = t
        if n & 1:
            t = x4
            x4 = x5
            x5 = x6
            x6 = x7
            x7 = t
            t = x15
            x15 = x14
            x14 = x13
            x13 = x12
            x12 = t
        else:
            t = x7
            x7 = x6
            x6 = x5
            x5 = x4
            x4 = t
            t = x12
            x12 = x13
            x13 = x14
            x14 = x15
            x15 = t
    out[0] = x0 + state[0]
    out[1] = x1 + state[1]
    out[2] = x2 + state[2]
    out[3] = x3 + state[3]
    out[4] = x4 + state[4]
    out[5] = x5 + state[5]
    out[6] = x6 + state[6]
    out[7] = x7 + state[7]
    out[8] = x8 + state[8]
    out[9] = x9 + state[9]
    out[10] = x10 + state[10]
    out[11] = x11 + state[11]
    out[12] = x12 + state[12]
    out[13] = x13 + state[13]
    out[14] = x14 + state[14]
    out[15] = x15 + state[15]
