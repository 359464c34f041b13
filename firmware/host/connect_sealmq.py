# Run by MicroPython: connections of a client, for counting instructions.
#     connect_sealmq.py ENROLMENT boots,reconnects,publishes,qos
# A first client does everything once, so that what is counted afterwards is no first use of the
# interpreter or of the host's libraries. Then `boots` boot sessions connect and publish once each,
# the last of them connects again `reconnects` times, and publishes `publishes` times. The process
# ends without the interpreter's own shutdown, which sweeps the heap and has no place on a board.
import gc
import sys

import ffi

from sealmq_device import Client

TOPIC = "machine/1/temperature"
PAYLOAD = b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"


_exit = ffi.open("libc.so.6").func("v", "_exit", "i")


def main(path: str, boots: int, reconnects: int, publishes: int, qos: int) -> None:
    gc.disable()
    c = Client(path)
    c.connect()
    for _ in range(3):
        c.publish(TOPIC, PAYLOAD, False, 1)
    c.publish(TOPIC, PAYLOAD)
    c.disconnect()
    c.connect()
    c.disconnect()
    c = Client(path)
    for _ in range(boots):
        c.connect()
        c.publish(TOPIC, PAYLOAD, False, 1)
    for _ in range(reconnects):
        c.disconnect()
        c.connect()
        c.publish(TOPIC, PAYLOAD, False, 1)
    for _ in range(publishes):
        c.publish(TOPIC, PAYLOAD, False, qos)
    if c.refused or c.notices:
        raise ValueError("something was refused")


# One word: a second word that is new to the interpreter costs 15,000 instructions to read.
main(sys.argv[1], *[int(number) for number in sys.argv[2].split(",")])
_exit(0)
