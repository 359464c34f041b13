# Run by MicroPython: as bench_wake_sealmq.py, with umqtt.simple.
#     -m bench_wake_plain PORT
import sys

import ffi
from umqtt.simple import MQTTClient

c = MQTTClient(b"wake", "127.0.0.1", int(sys.argv[1]))
c.connect()
c.publish(
    b"machine/1/temperature",
    b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    False,
    1,
)
c.disconnect()
ffi.open("libc.so.6").func("v", "_exit", "i")(0)
