# Runs on MicroPython under an instruction counter: N times one thing.
#   aead_cost.py N seal|open|new SUITE PAYLOAD AAD START
import sys

import micropython

from sealmq_device.aead import make

_TYPING = False
if _TYPING:
    from typing import Any

what = sys.argv[2]
times, suite, n, a, start = (int(sys.argv[i]) for i in (1, 3, 4, 5, 6))
key = bytes(range(32))
nonce = bytes(12)
aad = bytes(a)
buf = bytearray(start + n + 16)
aead = make(suite, key)
aead.seal_into(nonce, aad, buf, start, n)
packet = bytes(buf)


# Locals: looking up a global name would cost more than some of what is counted.
@micropython.native
def seal(aead: "Any", nonce: bytes, aad: bytes, buf: bytearray, start: int, n: int) -> None:
    for _ in range(times):
        aead.seal_into(nonce, aad, buf, start, n)


# Counts the copy of the packet, about 750 instructions, as well.
@micropython.native
def open_(aead: "Any", nonce: bytes, aad: bytes, buf: bytearray, start: int, n: int) -> None:
    for _ in range(times):
        buf[:] = packet
        aead.open_into(nonce, aad, buf, start, n)


@micropython.native
def new(make: "Any", suite: int, key: bytes) -> None:
    for _ in range(times):
        make(suite, key)


if what == "new":
    new(make, suite, key)
elif what == "open":
    open_(aead, nonce, aad, buf, start, n)
else:
    seal(aead, nonce, aad, buf, start, n)
