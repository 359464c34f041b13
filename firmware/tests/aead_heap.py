# Runs on MicroPython: seals and opens with the heap locked, so that any allocation raises. Prints
# what it did last.
import sys

import micropython

from sealmq_device.aead import make

suite = int(sys.argv[1])
sizes = (
    (0, 0),
    (0, 60),
    (1, 13),
    (64, 46),
    (107, 60),
    (256, 0),
    (1000, 100),
    (1088, 238),
    (1023, 1400),
    (4097, 60),
    (40000, 46),
)
both = (make(suite, bytes(range(32))), make(suite, bytes(range(1, 33))))
nonce = bytes(12)
aads = [bytes(a) for _, a in sizes]
bufs = [bytearray(3 + n + 16) for n, _ in sizes]
bad = bytearray(3 + 64 + 16)


def work() -> None:
    i = 0
    while i < len(sizes):
        n = sizes[i][0]
        start = i & 3
        buf = bufs[i]
        for aead in both:
            aead.seal_into(nonce, aads[i], buf, start, n)
            if not aead.open_into(nonce, aads[i], buf, start, n):
                raise ValueError
            if aead.open_into(nonce, nonce, bad, start, 64):
                raise ValueError
        i += 1


work()  # cryptolib's objects and the views of each length are made once
micropython.heap_lock()
work()
micropython.heap_unlock()
print("nothing allocated")
