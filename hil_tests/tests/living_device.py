# Runs in MicroPython: a client that lives, which publishes what its standard input says, a line
# each, and prints what became of it. `living_device.py ENROLMENT TOPIC`, started by tests.
# mypy: ignore-errors
import sys
from select import POLLIN, poll

from sealmq_device import Client  # noqa: TID251 - this file runs in MicroPython
from sealmq_device.living import Living  # noqa: TID251
from sealmq_device.outbox import Outbox  # noqa: TID251

living = Living(Client(sys.argv[1], keepalive=4, timeout=5), outbox=Outbox(queue_len=200))
living.outbox.prove_ms = 100
living.outbox.on_outcome = lambda item, how, error: print(item.msg.decode(), how)
living.on_change = lambda up, error: print("up" if up else "down", repr(error))
living.backoff.most = 2000

lines = poll()
lines.register(sys.stdin, POLLIN)
open_ = True
while open_ or len(living.outbox):
    while open_ and lines.poll(0):
        word = sys.stdin.readline().strip()
        if word:
            living.publish(sys.argv[2], word, qos=1, life=12)
        else:
            open_ = False
    living.turn(50)
living.disconnect()
print("end", living.outbox.counts)
