# Runs on MicroPython under an instruction counter: N times one thing, on a connection on which the
# same was published before.
#   publish_cost.py ENROLMENT publish|seals,QOS,SIZE,N
import sys

import micropython

from sealmq_device import Client

TOPIC = "machine/1/temperature"


@micropython.native
def unwritten(out: bytearray, at: int, n: int) -> int:
    return n


def main(path: str, what: str, qos: int, size: int, times: int) -> None:
    topic, payload = TOPIC, bytes(size)
    c = Client(path, limit=size + 200)
    c.connect()
    for _ in range(24):
        c.publish(topic, payload, False, qos)
    if what == "seals":
        from sealmq_device.publish_fast import seal

        hand = c._hand
        hand[4] = unwritten
        for _ in range(times):
            seal(0, 0, hand, topic, payload, 0)
    else:
        for _ in range(times):
            c.publish(topic, payload, False, qos)


words = sys.argv[2].split(",")
main(sys.argv[1], words[0], int(words[1]), int(words[2]), int(words[3]))
