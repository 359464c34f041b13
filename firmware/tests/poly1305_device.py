# Runs on MicroPython: `poly1305_device.py FILE` answers each line "KEY MESSAGE" (hex, whole blocks)
# with the tag.
import sys
from binascii import hexlify, unhexlify

from sealmq_device import poly1305

state = bytearray(poly1305.STATE_BYTES)
tag = bytearray(16)
with open(sys.argv[1]) as lines:
    for line in lines:
        key, message = (unhexlify(word) for word in line.split())
        poly1305.start(state, key)
        poly1305.blocks(state, message, 0, len(message) // 16)
        poly1305.finish(state, tag, 0)
        print(hexlify(tag).decode())
