"""What the tests of frequent publishing share: a script's beginning, and what came of it."""

from __future__ import annotations

from typing import Any

from device_script import Board
from peer_connection import Connection
from real_micropython import VIPER
from sealmq_spec.envelope import get_m1

# Before a script that looks at what merging the modules renames: device_script.py then takes these
# as they are.
INSIDE = "import sealmq_device.client\n"

# `general` counts the messages that the general publish sends, `writes` the packets. `often` does a
# thing until it is prepared for.
COUNT = """
general = writes = 0
seal = c._seal
def counted(*words):
    global general
    general += 1
    return seal(*words)
c._seal = counted
class Sock:
    def __init__(self, sock):
        self.sock = sock
        self.fails = self.held = None
        self.settimeout, self.readinto, self.close = sock.settimeout, sock.readinto, sock.close
    def write(self, buf, at, n):
        global writes
        writes += 1
        if self.fails:
            self.held = bytes(buf[at : at + n])
            fails, self.fails = self.fails, None
            raise fails
        return self.sock.write(buf, at, n)
def connect():
    c.connect()
    c.sock = Sock(c.sock)
T = "machine/1/temperature"
def often(topic=T, msg=b"x", qos=0):
    for _ in range(24):
        c.publish(topic, msg, qos=qos)
def settle():  # what was published is seen
    c.ping()
    c.wait_msg()
fast = sys.implementation.name == "micropython" and VIPER
""".replace("VIPER", str(bool(VIPER)))


def messages(b: Board) -> list[tuple[Any, ...]]:
    """(topic, payload, flags, ctr, class, life) of what came."""
    return b.peer.said("publish")


def told_times(b: Board) -> list[int]:
    """From now on the time in each message, in seconds."""
    times: list[int] = []

    def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
        times.append(get_m1(m1, 0, len(m1))[8])
        return False

    b.peer.on_publish = on_publish
    return times
