# Runs on MicroPython: cryptolib fails in the middle of a message; the next one must be right all
# the same, because nobody knows how far CBC's IV came. Prints both messages.
from binascii import hexlify

from sealmq_device import ccm
from sealmq_device.ccm import Ccm


def broken(*_: object) -> None:
    raise OSError("hardware")


aead = Ccm(bytes(32))
buf = bytearray(64 + 16)
aead.seal_into(bytes(12), b"first", buf, 0, 64)
print(hexlify(buf).decode())
whole = ccm._shared
ccm._shared = whole[:4] + (broken,)
try:
    aead.seal_into(bytes(12), b"lost", bytearray(32), 0, 16)
    print("not raised")
except OSError:
    pass
ccm._shared = whole
buf = bytearray(64 + 16)
aead.seal_into(bytes(12), b"second", buf, 0, 64)
print(hexlify(buf).decode())
