# Run by MicroPython: hex of what text64.py makes of 1, 2, 3 ... bytes, each in a buffer of ones.
import sys

from sealmq_device.text64 import put_b64u

raw = bytes.fromhex(sys.argv[1])
for n in range(1, len(raw) + 1):
    buf = bytearray(b"\xff" * 80)
    buf[3 : 3 + n] = raw[:n]
    put_b64u(buf, 3, n)
    print(buf.hex())
