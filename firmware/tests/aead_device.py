# Runs on MicroPython: `aead_device.py FILE` answers each line of FILE with one line.
# (suites 11 and 12 are 1 and 2 without viper)
#   seal|open SUITE KEY NONCE AAD BUFFER START N    bytes in hex, "-" for none
# Answers: what the call returned, or the error's name, and the buffer afterwards.
import sys
from binascii import hexlify, unhexlify

from sealmq_device.aead import make

_TYPING = False
if _TYPING:
    from typing import Any

# One object a key for the whole run: what a message leaves behind in it meets the next one.
keys: "dict[tuple[int, bytes], Any]" = {}


def backend(suite: int, key: bytes) -> "Any":
    if suite < 10:
        return make(suite, key)
    from sealmq_device import ccm_plain, chacha_plain

    return (chacha_plain.ChaCha if suite == 12 else ccm_plain.Ccm)(key)


def data(text: str) -> bytes:
    return b"" if text == "-" else unhexlify(text)


def answer(line: str) -> str:
    op, suite, key, nonce, aad, text, start, n = line.split()
    which = (int(suite), data(key))
    buf = bytearray(data(text))
    try:
        if which not in keys:
            keys[which] = backend(which[0], which[1])
        aead = keys[which]
        call = aead.seal_into if op == "seal" else aead.open_into
        got = call(data(nonce), data(aad), buf, int(start), int(n))
    except Exception as error:
        got = type(error).__name__
    return "%s %s" % (got, hexlify(buf).decode() or "-")


with open(sys.argv[1]) as lines:
    for line in lines:
        print(answer(line))
