# Runs on MicroPython under an instruction counter: N times one thing, on a connection on which the
# same was published before.
#   publish_cost.py ENROLMENT publish|seals,QOS,N
import sys

from sealmq_device import Client

TOPIC = "machine/1/temperature"
PAYLOAD = b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"


def main(path: str, what: str, qos: int, times: int) -> None:
    topic, payload = TOPIC, PAYLOAD
    c = Client(path)
    c.connect()
    for _ in range(24):
        c.publish(topic, payload, False, qos)
    if what == "seals":
        from sealmq_device.quick import seals

        both = seals(c)
        for _ in range(times):
            both(payload)
    else:
        for _ in range(times):
            c.publish(topic, payload, False, qos)


words = sys.argv[2].split(",")
main(sys.argv[1], words[0], int(words[1]), int(words[2]))
