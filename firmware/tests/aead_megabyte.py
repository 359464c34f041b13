# Runs on MicroPython: one message of 1 MiB sealed and opened again, off a word's start. Prints the
# SHA-256 of the buffer after each, and what opening returned.
import sys
from binascii import hexlify
from hashlib import sha256

from sealmq_device.aead import make

N = 1 << 20
aead = make(int(sys.argv[1]), bytes(range(32)))
buf = bytearray(3 + N + 16)
aead.seal_into(bytes(12), b"aad", buf, 3, N)
print(hexlify(sha256(buf).digest()).decode())
print(aead.open_into(bytes(12), b"aad", buf, 3, N))
print(hexlify(sha256(memoryview(buf)[: 3 + N]).digest()).decode())
