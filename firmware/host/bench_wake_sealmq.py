# Run by MicroPython: a board that wakes to say one thing, with the device client, for
# bench_device.py.
#     -m bench_wake_sealmq ENROLMENT
# It imports, connects, publishes with QoS 1, disconnects; then it would sleep.
import sys

import ffi

from sealmq_device import Client

c = Client(sys.argv[1])
c.connect()
c.publish(
    "machine/1/temperature",
    b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    False,
    1,
)
c.disconnect()
ffi.open("libc.so.6").func("v", "_exit", "i")(0)
