# Runs in MicroPython: a client that is to find its mediator, on this host. Prints a line for each
# attempt: how it ended and which port it went to. `finding_device.py ENROLMENT TIMES MESSAGE`,
# started by tests.
# mypy: ignore-errors
import socket
import sys

from sealmq_device import Client, finding  # noqa: TID251 - this file runs in MicroPython
from sealmq_spec.errors import SealError


# Multicast goes where the site of a test announces itself: by the loopback.
class Loopback:
    AF_INET = socket.AF_INET
    SOCK_DGRAM = socket.SOCK_DGRAM
    getaddrinfo = socket.getaddrinfo

    def socket(self, *words):
        made = socket.socket(*words)
        made.setsockopt(0, 32, b"\x7f\0\0\1")
        return made


finding.net = Loopback()
client = Client(sys.argv[1], timeout=5)
for _ in range(int(sys.argv[2])):
    try:
        client.connect()
        client.publish("machine/1/temperature", sys.argv[3], qos=1)
        client.disconnect()
        print("up", client.port)
    except (OSError, SealError) as error:
        print(type(error).__name__, client.port)
