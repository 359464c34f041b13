# Runs on MicroPython: `primitives_device.py FILE` answers each line of FILE with one line of hex.
#   viper|plain KEY COUNTER NONCE    one block of ChaCha20's key stream; COUNTER in decimal
#   sha DATA                         SHA-256 of the interpreter, as the key schedule calls it
#   pieces DATA                      the same, given piece by piece    (hex, "-" for none)
import struct
import sys
from binascii import hexlify, unhexlify
from hashlib import sha256

from sealmq_spec.keys import f

_TYPING = False
if _TYPING:
    from typing import Any


def stream(op: str, key: bytes, counter: int, nonce: bytes) -> "Any":
    if op == "plain":
        from sealmq_device import chacha_plain

        return chacha_plain._block(key, counter, nonce)
    from sealmq_device import chacha20

    out = bytearray(64)
    state = bytearray(b"expand 32-byte k" + key + struct.pack("<I", counter) + nonce)
    chacha20.block(state, out)
    return out


def pieces(data: bytes) -> bytes:
    digest = sha256()
    for at in range(0, len(data), 61):
        digest.update(data[at : at + 61])
    return digest.digest()


def answer(line: str) -> "Any":
    op, *words = line.split()
    first = b"" if words[0] == "-" else unhexlify(words[0])
    if op == "sha":
        return f(first[:2], first[2:])
    if op == "pieces":
        return pieces(first)
    return stream(op, first, int(words[1]), unhexlify(words[2]))


with open(sys.argv[1]) as lines:
    for line in lines:
        print(hexlify(answer(line)).decode())
