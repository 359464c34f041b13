# What ccm_long.py does to single words and bytes, in viper. ccm_bytes.py has the same without.
import micropython

_TYPING = micropython.const(0)
if _TYPING:
    # Viper takes `object` for "any Python object", and so shall the type checker.
    from typing import Any as object

    from viper_types import ptr8, ptr32


# How many bytes buf[start] lies behind the beginning of a word.
@micropython.viper
def offset(buf: ptr8, start: int) -> int:
    return (int(buf) + start) & 3


# `blocks` counter blocks like `a`, numbered from `first`.
@micropython.viper
def counters(out: ptr32, a: ptr32, first: int, blocks: int) -> object:
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


# XORs stream into buf[at:at+n]; both are equally far from a word's beginning.
@micropython.viper
def xor(buf: ptr8, at: int, stream: ptr8, n: int) -> object:
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
def differ(tag: ptr8, buf: ptr8, at: int) -> int:
    d = 0
    i = 0
    while i < 16:
        d |= tag[i] ^ buf[at + i]
        i += 1
    return d


# buf[start:start+n] = zeros.
@micropython.viper
def wipe(buf: ptr8, start: int, n: int) -> object:
    b = int(buf) + start
    end = b + n
    while b < end:
        ptr8(b)[0] = 0
        b += 1
