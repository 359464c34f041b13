"""Anybody whom a board has found by mDNS sends a byte at a time, each just before the board gives
up: the connect ends soon all the same, as a watchdog wants it. The clock is the test's."""

from __future__ import annotations

from pathlib import Path

import pytest

from aio_script import AIO
from device_script import INTERPRETERS, board

every = pytest.mark.parametrize("interpreter", INTERPRETERS)

CONNACK = b"\x20\x02\x00\x00"
# What comes behind CONNACK, zeros without end after it.
SAYS = {
    "packet": b"\x30\xa0\x1f",
    "large": b"\x30\xff\xff\x7f",
    "endless": b"",
}

# now: ms. A socket that says `raw`, of which a byte comes within each wait.
TRICKLE = """
now = [0]
class Trickle:
    raw = RAW
    at = 0
    t = None
    def settimeout(self, t):
        self.t = t
    def write(self, buf, at=0, n=None):
        return n
    def byte(self):
        self.at += 1
        return self.raw[self.at - 1] if self.at <= len(self.raw) else PAD[self.at % len(PAD)]
    def recv(self, n):
        now[0] += 1000 * self.t - 1
        if now[0] > 10_000_000:
            raise RuntimeError("held")
        return bytes((self.byte(),))
    def readinto(self, buf):
        for i in range(len(buf)):
            buf[i] = self.recv(1)[0]
        return len(buf)
    def close(self):
        pass
"""


@every
@pytest.mark.parametrize("provisioned", [True, False], ids=["session", "quarantine"])
@pytest.mark.parametrize("what", SAYS)
def test_a_connect_is_not_held(
    interpreter: str, provisioned: bool, what: str, tmp_path: Path
) -> None:
    pad = b"\x00" if SAYS[what] else b"\xd0\x00"
    trickle = TRICKLE.replace("RAW", repr(CONNACK + SAYS[what])).replace("PAD", repr(pad))
    with board(tmp_path) as b:
        if provisioned:
            b.provision()
        said = b.run(
            interpreter,
            trickle
            + """
c = client(timeout=5)
c.mono = lambda: now[0]
def opened():
    c.sock = Trickle()
    c.sock.settimeout(c.timeout)
c._open = opened
from sealmq_device.finding import Places
class Found(Places):
    def _next(self):
        yield from ()
c._places = Found(c, c.ident.site)
try:
    c.connect()
except (OSError, errors.SealError) as error:
    # What firmware/README.md says of a watchdog.
    say(now[0] <= 30 * 5000, c.sock)
""",
        )
        assert said == ["True None"]


@every
@pytest.mark.parametrize("what", SAYS)
def test_nor_is_one_of_asyncio(interpreter: str, what: str, tmp_path: Path) -> None:
    pad = b"\x00" if SAYS[what] else b"\xd0\x00"
    trickle = TRICKLE.replace("RAW", repr(CONNACK + SAYS[what])).replace("PAD", repr(pad))
    with board(tmp_path) as b:
        b.provision()
        said = b.run(
            interpreter,
            trickle
            + """
from sealmq_device import tasks
class Slow(Trickle):
    ready = False
    def readinto(self, buf):
        if not self.ready:
            return None
        self.ready = False
        buf[0] = self.byte()
        return 1
c = client(timeout=5)
c.core.mono = lambda: now[0]
class Wire:
    rest = b""
    sock = Slow()
    def write(self, buf, at, n):
        return n
    def close(self):
        pass
async def opened():
    c.core.sock = Wire()
# As the task does that watches.
async def waits(sock):
    now[0] += 4999
    if now[0] > 10_000_000:
        raise RuntimeError("held")
    c._look()
    sock.ready = True
tasks.readable = waits
c._open = opened
async def main():
    try:
        await c.connect()
    except (OSError, errors.SealError) as error:
        say(now[0] <= 30 * 5000, c.core.sock)
asyncio.run(main())
""",
            AIO,
        )
        assert said == ["True None"]
