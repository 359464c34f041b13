# What ccm_long.py does to single words and bytes, for an interpreter without viper (ccm_words.py).


# XOR takes any place: bytes need no alignment.
def offset(buf: bytearray, start: int) -> int:
    return 0


# `blocks` counter blocks like `a`, numbered from `first`.
def counters(out: memoryview, a: bytearray, first: int, blocks: int) -> None:
    head = bytes(a[:13])
    for i in range(blocks):
        out[16 * i : 16 * i + 16] = head + (first + i).to_bytes(3, "big")


# XORs stream into buf[at:at+n], as one big integer.
def xor(buf: bytearray, at: int, stream: "bytes | bytearray | memoryview", n: int) -> None:
    view = memoryview(buf)[at : at + n]
    word = int.from_bytes(view, "big") ^ int.from_bytes(stream[:n], "big")
    view[:] = word.to_bytes(n, "big")


# Constant-time: 0 when the 16 bytes of `tag` stand at buf[at:].
def differ(tag: "bytes | bytearray", buf: bytearray, at: int) -> int:
    d = 0
    for i in range(16):
        d |= tag[i] ^ buf[at + i]
    return d


# buf[start:start+n] = zeros.
def wipe(buf: bytearray, start: int, n: int) -> None:
    for i in range(start, start + n):
        buf[i] = 0
