# Poly1305 (RFC 8439, section 2.5) in viper over whole 16-byte blocks, on 32 and 64 bits.
#
# Ten limbs of 13 bits: a product of two limbs, times 5, summed five times, fits 32 unsigned bits;
# after five terms the carry is taken out. uint: its right shift brings in zeros.
#
# A state is 64 words: 0 to 9 the sum h; 16 to 34 the factors 5 r_1 ... 5 r_9, r_0 ... r_9, in which
# each limb of the product starts one place later; 36 to 45 room for finish; 48 to 51 the pad s.
import micropython

_TYPING = micropython.const(0)
if _TYPING:
    # Viper takes `object` for "any Python object", and so shall the type checker.
    from typing import Any as object

    from viper_types import ptr8, ptr32, uint

STATE_BYTES = micropython.const(256)


# key: 32 bytes, r and s.
@micropython.viper
def start(state: ptr32, key: ptr8) -> object:
    i = 0
    while i < 10:
        state[i] = 0
        i += 1
    pad = ptr8(int(state) + 192)
    i = 0
    while i < 16:
        pad[i] = key[16 + i]
        i += 1
    # r without the bits that the RFC clears, 13 bits at a time.
    t0 = key[0] | key[1] << 8
    t1 = key[2] | key[3] << 8
    t2 = key[4] | key[5] << 8
    t3 = key[6] | key[7] << 8
    t4 = key[8] | key[9] << 8
    t5 = key[10] | key[11] << 8
    t6 = key[12] | key[13] << 8
    t7 = key[14] | key[15] << 8
    r = ptr32(int(state) + 100)
    r[0] = t0 & 0x1FFF
    r[1] = (t0 >> 13 | t1 << 3) & 0x1FFF
    r[2] = (t1 >> 10 | t2 << 6) & 0x1F03
    r[3] = (t2 >> 7 | t3 << 9) & 0x1FFF
    r[4] = (t3 >> 4 | t4 << 12) & 0x00FF
    r[5] = t4 >> 1 & 0x1FFE
    r[6] = (t4 >> 14 | t5 << 2) & 0x1FFF
    r[7] = (t5 >> 11 | t6 << 5) & 0x1F81
    r[8] = (t6 >> 8 | t7 << 8) & 0x1FFF
    r[9] = t7 >> 5 & 0x007F
    i = 1
    while i < 10:
        state[15 + i] = 5 * r[i]
        i += 1


# Adds `count` blocks of 16 bytes at data[at:] to the sum.
@micropython.viper
def blocks(state: ptr32, data: ptr8, at: int, count: int) -> object:
    base = int(state)
    m = int(data) + at
    end = m + (count << 4)
    while m < end:
        b = ptr8(m)
        m += 16
        t0 = b[0] | b[1] << 8
        t1 = b[2] | b[3] << 8
        t2 = b[4] | b[5] << 8
        t3 = b[6] | b[7] << 8
        t4 = b[8] | b[9] << 8
        t5 = b[10] | b[11] << 8
        t6 = b[12] | b[13] << 8
        t7 = b[14] | b[15] << 8
        h0 = uint(state[0] + (t0 & 0x1FFF))
        h1 = uint(state[1] + ((t0 >> 13 | t1 << 3) & 0x1FFF))
        h2 = uint(state[2] + ((t1 >> 10 | t2 << 6) & 0x1FFF))
        h3 = uint(state[3] + ((t2 >> 7 | t3 << 9) & 0x1FFF))
        h4 = uint(state[4] + ((t3 >> 4 | t4 << 12) & 0x1FFF))
        h5 = uint(state[5] + (t4 >> 1 & 0x1FFF))
        h6 = uint(state[6] + ((t4 >> 14 | t5 << 2) & 0x1FFF))
        h7 = uint(state[7] + ((t5 >> 11 | t6 << 5) & 0x1FFF))
        h8 = uint(state[8] + ((t6 >> 8 | t7 << 8) & 0x1FFF))
        h9 = uint(state[9] + (t7 >> 5 | 0x800))
        c = uint(0)
        k = 0
        while k < 40:
            t = ptr32(base + 64 + k)
            d = (
                c
                + h0 * uint(t[9])
                + h1 * uint(t[8])
                + h2 * uint(t[7])
                + h3 * uint(t[6])
                + h4 * uint(t[5])
            )
            c = d >> 13
            d = (
                (d & uint(0x1FFF))
                + h5 * uint(t[4])
                + h6 * uint(t[3])
                + h7 * uint(t[2])
                + h8 * uint(t[1])
                + h9 * uint(t[0])
            )
            c += d >> 13
            ptr32(base + k)[0] = d & uint(0x1FFF)
            k += 4
        c = uint(state[0]) + c * uint(5)
        state[0] = c & uint(0x1FFF)
        state[1] = uint(state[1]) + (c >> 13)


# Writes the tag's 16 bytes to out[at:]; the state is used up.
@micropython.viper
def finish(state: ptr32, out: ptr8, at: int) -> object:
    # Carry fully, twice round the ring of limbs.
    i = 1
    c = 0
    n = 0
    while n < 20:
        c += state[i]
        state[i] = c & 0x1FFF
        c >>= 13
        i += 1
        n += 1
        if i == 10:
            i = 0
            c *= 5
    # h - p = h + 5 - 2**130: take it unless it is negative. No branch depends on h.
    c = 5
    i = 0
    while i < 10:
        c += state[i]
        state[36 + i] = c & 0x1FFF
        c >>= 13
        i += 1
    mask = 0 - c
    # Repack 13-bit limbs into bytes and add the pad, byte by byte.
    acc = 0
    bits = 0
    i = 0
    n = 0
    c = 0
    pad = ptr8(int(state) + 192)
    while n < 16:
        if bits < 8:
            limb = state[i] ^ ((state[i] ^ state[36 + i]) & mask)
            acc |= limb << bits
            bits += 13
            i += 1
        c += (acc & 0xFF) + pad[n]
        out[at + n] = c
        c >>= 8
        acc >>= 8
        bits -= 8
        n += 1
