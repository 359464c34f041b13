"""Publishing again and again: what the fast publish sends is what the general one would have sent,
and it gives way when anything stands against another message like the last. A scripted peer opens
all.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from device_script import INTERPRETERS, Board, board
from peer_connection import Connection
from peer_site import Site
from real_micropython import VIPER
from sealmq_spec import const
from sealmq_spec.envelope import get_m1
from test_client_handover import TOLD, epoch_on_ping, refuse_old

every = pytest.mark.parametrize("interpreter", INTERPRETERS)
suites = pytest.mark.parametrize("suite", [const.CCM, const.CHACHA])
FAST = pytest.mark.parametrize("interpreter", [str(bits) for bits in VIPER])

# `general` counts the messages that the general publish sends, `writes` the packets. `often` does a
# thing until it is prepared for.
COUNT = """
from sealmq_device import client as module
general = writes = 0
send = c._send
def counted(*words):
    global general
    general += 1
    return send(*words)
c._send = counted
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


@every
@suites
def test_sizes_and_alignments(suite: int, interpreter: str, tmp_path: Path) -> None:
    sizes = [*range(101), 111, 112, 113, 127, 128, 129, 240, 256, 257, 479, 480, 481]
    sizes += [494, 495, 496, 497, 700, 1023, 1024, 1025]
    if suite == const.CHACHA:
        sizes = [0, 1, 2, 3, 15, 16, 17, 19, 20, 21, 63, 64, 65, 83, 84, 85, 400, 1024, 1025]
    with board(tmp_path, Site(suite)) as b:
        said = b.run(
            interpreter,
            COUNT
            + f"""
connect()
often(); often(qos=1)
if fast:
    from sealmq_device.twofold import send as put
    from time import ticks_ms as ticks
data = bytearray(i * 7 + 1 & 255 for i in range(1032))
view = memoryview(data)
for n in {sizes}:
    msgs = bytes(view[:n]), bytearray(view[:n])
    for qos in (0, 1):
        c.publish(T, msgs[0], qos=qos)
        before, wrote = general, writes
        for msg in msgs:
            c.publish(T, msg, qos=qos)
        assert general - before == (0 if fast and n <= 1024 else 2), (n, general - before)
        for at in range(4):
            msg = view[at : at + n]  # no view is 0 bytes off a word's beginning for certain
            if fast and n <= 1024:
                assert put(c._quick[2], c._quick[4], msg, n, ticks()) == c.session.ctr
                if qos:
                    c._settle(c.session.ctr)
            else:
                c.publish(T, msg, qos=qos)
        assert writes - wrote == 6
""",
        )
        assert said == []
        data = bytes(i * 7 + 1 & 255 for i in range(1032))
        want = [b"x"] * 48
        for n in sizes:
            want += 2 * [data[at : at + n] for at in (0, 0, 0, 0, 1, 2, 3)]
        got = messages(b)
        assert [m[1] for m in got] == want
        assert [m[3] for m in got] == list(range(1, len(want) + 1))
        assert {(m[0], m[4], m[5]) for m in got} == {("machine/1/temperature", const.LIVE, 0)}
        assert [m[2] for m in got[48:]] == ([0] * 7 + [2] * 7) * len(sizes)


@every
def test_topics_take_turns_with_all_else(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        said = b.run(
            interpreter,
            COUNT
            + """
connect()
topics = [T, b"machine/1/temperature", "a", "\\u00fc" * 9, "l" * 74, "l" * 75, "l" * 300]
for topic in topics:
    for qos in (0, 1):
        often(topic, topic if isinstance(topic, bytes) else topic.encode(), qos)
before = general
for topic in topics:
    for qos in (0, 1, 1, 0):
        c.publish(topic, topic if isinstance(topic, bytes) else topic.encode(), qos=qos)
say(general - before == (0 if fast else 28))
c.publish(T, b"kept", True)
c.publish(T, b"now")
c.publish(T, "text \\u00fc", False, 1)
c.publish(T, b"long", qos=0, life=5)
c.publish(T, b"now", qos=0)
c.publish(T, b"", True, 1)
c.publish(T, b"for ever", True, 1, 255)
c.publish(T, b"now", False, 1, 0)
c.publish("".join(("mach", "ine/1/temp", "erature")), b"equal")
for call in (lambda: c.publish(T, b"", qos=2), lambda: c.publish(T, b"", life=32),
        lambda: c.publish(T, bytes(5000)), lambda: c.publish("a/+", b"")):
    caught(call)
try:
    c.publish(T, 5)
except TypeError:
    say("TypeError")
c.publish(T, b"last")
""",
        )
        assert said == ["True", "Misuse  ", "Misuse  ", "TooLarge  ", "Malformed  ", "TypeError"]
        got = messages(b)
        names = ["machine/1/temperature"] * 2 + ["a", "ü" * 9, "l" * 74, "l" * 75, "l" * 300]
        assert [m[3] for m in got] == list(range(1, len(got) + 1))
        assert all(m[0].encode() == m[1] for m in got[:-10])
        assert [(m[0], m[2]) for m in got[-38:-10]] == [(n, q) for n in names for q in (0, 2, 2, 0)]
        live, kept, clear = const.LIVE, const.RETAINED, const.CLEAR
        assert [(m[1].decode(), m[2], m[4], m[5]) for m in got[-10:]] == [
            ("kept", 1, kept, 0),
            ("now", 0, live, 0),
            ("text ü", 2, live, 0),
            ("long", 0, live, 5),
            ("now", 0, live, 0),
            ("", 3, clear, 0),
            ("for ever", 3, kept, 255),
            ("now", 2, live, 0),
            ("equal", 0, live, 0),
            ("last", 0, live, 0),
        ]


@every
def test_a_new_connection_a_new_session_a_new_clock(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        times = told_times(b)
        script = """
connect()
often()
settle()
c.disconnect()
caught(c.publish, T, b"none")
connect()
before = general
often()
say(general - before if fast else 2)
settle(); c.disconnect(); c._begin(); connect()
c.publish(T, b"x")
often()
say(c.session.ctr)
c.ping(); c.wait_msg()  # with the third the peer's clock goes ahead
c.session._sent = c.mono()
c._send_control(c.session.ask_time(bytes(range(16)), c.mono()))
c.wait_msg()
often()
"""

        pings: list[int] = []

        def on_ping(c: Connection) -> bool:
            pings.append(1)
            b.peer.site.clock_error_ms = 40_000 if len(pings) > 2 else 0
            return False

        b.peer.on_ping = on_ping
        start = int(time.time())
        said = b.run(interpreter, COUNT + script)
        end = int(time.time()) + 1
        assert said == ["OSError ENOTCONN", "2", "25"]
        assert [e[1] for e in b.peer.said("connected")] == [1, 1, 2]
        assert [m[3] for m in messages(b)] == [*range(1, 49), *range(1, 26), *range(27, 51)]
        assert start - 1 <= times[0] <= times[72] <= end
        assert start + 39 <= times[73] <= times[-1] <= end + 40
        assert times == sorted(times)


@FAST
def test_the_clock_goes_on(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        times = told_times(b)
        said = b.run(
            interpreter,
            COUNT
            + """
connect()
often()
before = general
from struct import pack_into, unpack_from
clock = c._quick[10]
for late in (0, 1, 999, 1000, 60500, 998000):
    s, ms, ticks, age = unpack_from("<4I", clock)
    pack_into("<I", clock, 8, ticks - late & 0x3FFFFFFF)
    c.publish(T, b"x")
say(general - before)
for late in (1100000, 0x3FFFFFFF):
    s, ms, ticks, age = unpack_from("<4I", clock)
    pack_into("<I", clock, 8, ticks - late & 0x3FFFFFFF)
    c.publish(T, b"x")
s, ms, ticks, age = unpack_from("<4I", clock)
pack_into("<I", clock, 12, 3601)
c.publish(T, b"x")
c.publish(T, b"x")
say(general - before)
""",
        )
        assert said == ["0", "3"]
        now = times[23]
        ahead = [t - now for t in times[24:30]]
        for got, want in zip(ahead, (0, 0, 1, 2, 62, 1060), strict=True):
            assert abs(got - want) <= 1
        # What was too long ago for the fast one's clock is asked of the client's.
        assert all(0 <= t - now <= 2 for t in times[30:])


@every
def test_refused_while_it_waits(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.peer.denied = {"d": (5, "labels.writer", "not you")}
        script = """
connect()
for _ in range(24):
    try:
        c.publish("d", b"1", qos=1)
    except errors.Denied:
        pass
caught(c.publish, "d", b"1", qos=1)
often("e", b"2", 1)
say(c.publish("d", b"1"), c.publish("e", b"2", qos=1), c.unacked, len(c.notices))
"""
        said = b.run(interpreter, COUNT + script)
        assert said == ["Denied labels.writer not you", "50 51 {} 8"]


@every
@pytest.mark.parametrize("qos", [0, 1])
def test_a_new_epoch(qos: int, interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        epoch_on_ping(b)
        came = refuse_old(b)
        script = f"connect()\noften(qos={qos})\n{TOLD}\noften(qos={qos})\nsay(c.notices, c.boot)\n"
        said = b.run(interpreter, COUNT + script.replace("c.boot", "c.session.boot"))
        assert said == ["[] 1"]
        assert [epoch for epoch, _ in came] == [1] * 24 + [2] * 24
        assert [m[3] for m in messages(b)] == [*range(1, 25), *range(25, 49)]


@every
def test_refused_for_its_epoch_and_published_anew(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        came = refuse_old(b)

        def on_ping(c: Connection) -> bool:
            c.site.new_epoch()
            return False

        b.peer.on_ping = on_ping
        script = "connect()\noften(qos=1)\nc.ping()\nc.wait_msg()\nsay(c.publish(T, b'y', qos=1))\n"
        said = b.run(interpreter, COUNT + script + "often(qos=1)\nsay(c.unacked, c._again)\n")
        assert said == ["26", "{} False"]
        assert [epoch for epoch, _ in came] == [1] * 25 + [2] * 25


@every
def test_a_clock_that_is_ahead_ends_the_session(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            if topic == "stale":
                c.notice(1, ctr, 3, "time", "ahead")
            return False

        b.peer.on_publish = on_publish
        script = """
connect()
often("stale")
while not c._astray:
    c.wait_msg()
say(c.session.boot)
c.publish("stale", b"x")
say(c.session.boot, c.session.ctr)
"""
        assert b.run(interpreter, COUNT + script) == ["1", "2 1"]


@every
@pytest.mark.parametrize("qos", [0, 1])
def test_the_counters_end(qos: int, interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        script = f"""
connect()
often(qos={qos})
c.session.ctr = 0xFFFFF0
for _ in range(20):
    c.publish(T, b"x", qos={qos})
"""
        assert b.run(interpreter, COUNT + script) == []
        got = [m[3] for m in messages(b)][24:]
        # With QoS 0 the new connection may be served before the end of the old one.
        assert (got if qos else sorted(got, key=lambda ctr: ctr < 9)) == [
            *range(0xFFFFF1, 0xFFFFFF),
            *range(1, 7),
        ]
        assert [e[1] for e in b.peer.said("connected")] == [1, 2]


FAILURES = """
connect()
often(msg=b"before", qos=QOS)
settle()
kept, c.sock.fails = c.sock, FAILS
try:
    c.publish(T, b"lost", qos=QOS)
except BaseException as error:
    say(type(error).__name__, c.session.ctr, c.sock, list(c.unacked))
if QOS:
    say(c.unacked[25][1] == kept.held, c._awaited, c._denied)
caught(c.publish, T, b"no socket", qos=QOS)
connect()
c.resend()
often(msg=b"after", qos=QOS)
"""


@every
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("fails", ["OSError(104)", "KeyboardInterrupt()", "MemoryError()"])
def test_whatever_ends_a_write_closes_the_socket(
    fails: str, qos: int, interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        said = b.run(interpreter, COUNT + FAILURES.replace("QOS", str(qos)).replace("FAILS", fails))
        name = fails.partition("(")[0].replace("OSError", "ConnectionResetError")
        assert said[0].replace("OSError", "ConnectionResetError") == (
            f"{name} 25 None {[25] * qos}"
        )
        assert said[1:] == ["True 0 None"] * qos + ["OSError ENOTCONN"]
        want = [b"before"] * 24 + [b"lost"] * qos + [b"after"] * 24
        assert [m[1] for m in messages(b)] == want
        assert [m[3] for m in messages(b)] == [*range(1, 25), *[25] * qos, *range(26, 50)]


@every
def test_what_is_not_all_written_is_an_error(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        script = """
for warm in (False, True):
    for answer in (None, 3):
        c.disconnect()
        connect()
        if warm:
            often()
        c.sock.write = lambda buf, at, n: answer
        if warm and fast:
            c._quick[4] = c.sock.write
        caught(c.publish, T, b"x")
        say(c.sock)
"""
        said = b.run(interpreter, COUNT + script)
        assert said == ["OSError ETIMEDOUT", "None"] * 4


# `where`: which cipher object raises, in place of what it was to do or behind it.
INTERRUPTED = """
class Raises:
    def __init__(self, cipher, early):
        self.cipher, self.early = cipher, early
    def encrypt(self, a, b):
        if not self.early:
            self.cipher.encrypt(a, b)
        raise KeyboardInterrupt
s = c.session
connect()
often()
for qos in (0, 1):
    often(qos=qos)
    for layer in (s._inner, s._publish):
        for mode in (0, 1):
            for early in (False, True):
                ctr, wrote, whole = s.ctr, writes, layer._s[mode]
                layer._s[mode] = Raises(whole, early)
                try:
                    c.publish(T, b"never", qos=qos)
                except KeyboardInterrupt:
                    assert s.ctr == ctr + 1 and writes == wrote and c.sock and not c.unacked
                if mode:
                    layer._s[mode] = whole
                before = general
                for _ in range(4):
                    c.publish(T, b"and on", qos=qos)
                say(s.ctr - ctr, general - before)
"""


@FAST
def test_an_interrupted_cipher(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        said = b.run(interpreter, COUNT + INTERRUPTED)
        # CBC's IV is unknown then, so it is made anew; ECB has none.
        assert said == ["5 1", "5 1", "5 0", "5 0"] * 4
        got = messages(b)
        assert b"never" not in {m[1] for m in got}
        assert len({m[3] for m in got}) == len(got) == 72 + 64


@FAST
@suites
def test_nothing_is_allocated(suite: int, interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path, Site(suite)) as b:
        said = b.run(
            interpreter,
            """
import gc, micropython
c.connect()
T = "machine/1/temperature"
msgs = [bytes(64), bytearray(64), b"", b"21.5", bytes(400)]
def some(n, qos):
    for _ in range(n):
        for msg in msgs:
            c.publish(T, msg, False, qos)
for qos in (0, 1):
    some(12, qos)
    gc.collect(); gc.disable()
    before = gc.mem_alloc()
    some(200, qos)
    say(gc.mem_alloc() - before)
    gc.enable(); gc.collect()
    micropython.heap_lock()
    some(200, qos)
    micropython.heap_unlock()
""",
        )
        assert said == ["0", "0"]
        assert len(messages(b)) == 2 * (60 + 2000)


@FAST
def test_loaded_late(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        said = b.run(
            interpreter,
            COUNT
            + """
def loaded():
    return "sealmq_device.quick" in sys.modules
for _ in range(20):  # of each connection one message
    connect(); c.publish(T, b"x", qos=1); c.disconnect()
connect()
for i in range(8):
    c.publish(T, b"x")
say(loaded())
often()
say(loaded())
before = general
for _ in range(3):
    connect()
    for i in range(4):
        c.publish(T, b"x")
        say(general - before)
""",
        )
        assert said == ["False", "True", *"122234445666"]


@every
def test_a_publish_of_the_application_stays(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        said = b.run(
            interpreter,
            """
class Mine(Client):
    def publish(self, topic, msg, retain=False, qos=0, life=0):
        return super().publish("mine/" + topic, msg, retain, qos, life)
c = Mine(sys.argv[1])
c.connect()
for _ in range(30):
    c.publish("t", b"x")
""",
        )
        assert said == []
        assert {m[0] for m in messages(b)} == {"mine/t"}
