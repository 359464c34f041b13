"""What comes at the worst moment: a callback that publishes while a message is being sealed, an
interrupt while counters begin anew, no memory for a packet, a peer that answers without end."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_script import INTERPRETERS, WIDTHS, board
from mqtt_frames import frame
from peer_connection import Connection
from sealmq_spec import const
from test_receive_fast import LISTEN, Stream

every = pytest.mark.parametrize("interpreter", INTERPRETERS)
on_boards = pytest.mark.parametrize("interpreter", WIDTHS)

# Ciphers that note what they seal: `repeats` is how often a key met a nonce again.
RECORDED = """
from sealmq_device import aead
sealed = {}
repeats = 0
class Recording:
    during = None
    def __init__(self, suite, key):
        self.suite = suite
        self.rekey(key)
    def rekey(self, key):
        self.key = bytes(key)
        self.aead = aead.make(self.suite, key)
        self.open_into = self.aead.open_into
    def seal_into(self, nonce, aad, buf, start, n):
        global repeats
        which = self.key, bytes(nonce)
        what = bytes(buf[start : start + n]), bytes(aad)
        repeats += sealed.setdefault(which, what) != what
        self.aead.seal_into(nonce, aad, buf, start, n)
        other = Recording.during
        if other:
            Recording.during = None
            other()
c = client(make=Recording)
c.connect()
s = c.session
def publish(plain):
    buf = bytearray(200)
    buf[37 : 37 + len(plain)] = plain
    s.seal_publish(buf, 0, len(plain), b"t", 0, 0, 0, c.mono())
publish(b"first")
"""
# As a Pin's interrupt or a Timer does: the callback runs as soon as the interpreter looks.
SCHEDULED = """
import micropython
def other(_):
    if s.ctr is counting:
        s.ctr = n
    ANOTHER
class Counting:
    def __add__(self, one):
        micropython.schedule(other, 0)
        return n + one
n = s.ctr
s.ctr = counting = Counting()
ONE
say(repeats, len(sealed) > 2, s.ctr - n)
"""


@on_boards
@pytest.mark.parametrize(
    ("one", "another"),
    [
        ('publish(b"one")', 'publish(b"another")'),
        ('publish(b"one")', 's.token("another")'),
        ('s.token("one")', 's.token("another")'),
        ('s.token("one")', 'publish(b"another")'),
    ],
)
def test_a_callback_never_gets_the_counter_of_what_it_interrupts(
    interpreter: str, one: str, another: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()
        script = SCHEDULED.replace("ONE", one).replace("ANOTHER", another)
        assert b.run(interpreter, RECORDED + script) == ["0 True 2"]


@every
def test_what_runs_between_the_layers_repeats_no_nonce(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        script = """
Recording.during = lambda: publish(b"another")
publish(b"one")
say(repeats, Recording.during)
"""
        assert b.run(interpreter, RECORDED + script) == ["0 None"]


@every
def test_a_boot_session_that_only_began_to_begin_repeats_no_nonce(
    interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()
        script = """
offset = s._offset
try:
    s.begin(s.boot + 1, "eight ch")  # no bytes
except Exception as error:
    say("interrupted")
s._offset = offset
for _ in range(3):
    publish(b"again")
say(repeats)
"""
        assert b.run(interpreter, RECORDED + script) == ["interrupted", "0"]


@on_boards
def test_a_packet_for_which_there_is_no_memory_ends_the_connection(
    interpreter: str, tmp_path: Path
) -> None:
    def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
        c.send(0x40, c.publish_pid)
        # What stands in it is no packet of the peer's.
        c.publish(b"t", b"\xd0\0" * 200_000)
        return True

    with board(tmp_path) as b:
        b.provision()
        b.peer.on_publish = on_publish
        said = b.run(
            interpreter,
            """
c = client(limit=500000)
c.set_callback(say)
c.connect()
c.publish("t", b"", qos=1)
try:
    c.wait_msg()
except MemoryError:
    say("no memory", c.sock)
""",
            heap="256k",
        )
        assert said == ["no memory None"]


@every
def test_answers_of_nobody_do_not_hold_a_client(interpreter: str, tmp_path: Path) -> None:
    def on_ask(c: Connection, request: bytes) -> bool:
        if c.gen == 0:
            return False
        for _ in range(300):
            c.publish(const.CONTROL, bytes((const.ANSWER,)) + bytes(200))
        c.tell(b"\x02" + bytes(11))
        return True

    with board(tmp_path) as b:
        b.provision()
        b.peer.on_ask = on_ask
        said = b.run(
            interpreter,
            """
c.connect()
now = c.mono()
def mono():
    global now
    now += 50
    return now
c.mono = mono
c.session.due = True
c.check_msg()
say(c.refused.pop("Unavailable", 0), sum(c.refused.values()) < 200, c.sock is not None)
""",
        )
        assert said == ["1 True True"]


@every
def test_a_packet_of_zeros_is_refused_by_the_fast_way_too(interpreter: str, tmp_path: Path) -> None:
    def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
        c.send(0x40, c.publish_pid)
        s = Stream(c)
        s.usual(10)
        s.message(11, how=const.RETAINED, kind=const.RETAINED)
        zeros = bytes(11) + s.now.to_bytes(6, "big") + bytes(83)
        c.sock.sendall(b"".join(s.packets) + frame(0x30, bytes(2) + zeros))
        return True

    with board(tmp_path) as b:
        b.provision()
        b.peer.on_publish = on_publish
        said = b.run(
            interpreter,
            LISTEN + 'c.publish("go", b"", qos=1)\nfor _ in range(12):\n    caught(c.wait_msg)\n'
            "say(len(seen), c.sock)\n",
        )
        assert said == ["Malformed  ", "11 None"]


@on_boards
@pytest.mark.parametrize("step", ["c.ping(); c.wait_msg()", "c.check_msg()"])
def test_ticks_that_come_round_make_nothing_fresh(
    interpreter: str, step: str, tmp_path: Path
) -> None:
    packets: list[bytes] = []

    def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
        c.send(0x40, c.publish_pid)
        s = Stream(c)
        if not packets:
            s.usual(12)
            c.sock.sendall(b"".join(s.packets))
            s.packets.clear()
            s.message(13)
            packets.extend(s.packets)
        else:
            c.sock.sendall(packets[0])
        return True

    with board(tmp_path) as b:
        b.provision()
        b.peer.on_publish = on_publish
        script = """
from sealmq_device import receive_fast
import time as real
class Ticks:
    off = 0
    def ticks_ms(self):
        return real.ticks_ms() + self.off & 0x3FFFFFFF
receive_fast.time = fake = Ticks()
c.publish("go", b"", qos=1)
while len(seen) < 12:
    c.wait_msg()
for _ in range(512):
    fake.off += (1 << 21) + 100
    c.session._offset += (1 << 21) + 100
    STEP
c.publish("withheld", b"", qos=1)
c.wait_msg()
say(len(seen), c.refused)
"""
        assert b.run(interpreter, LISTEN + script.replace("STEP", step)) == ["12 {'Stale': 1}"]
