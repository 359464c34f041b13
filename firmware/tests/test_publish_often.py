"""Publishing again and again: what the fast publish sends is what the general one would have sent,
nothing is allocated, and nobody pays for it who does not use it. A scripted peer opens all.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from device_script import INTERPRETERS, board
from peer_site import Site
from publish_script import COUNT, INSIDE, messages, told_times
from real_micropython import VIPER
from sealmq_spec import const

every = pytest.mark.parametrize("interpreter", INTERPRETERS)
suites = pytest.mark.parametrize("suite", [const.CCM, const.CHACHA])
FAST = pytest.mark.parametrize("interpreter", [str(bits) for bits in VIPER])


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
            INSIDE
            + COUNT
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
view = memoryview(b"0123456789")
topics = [T, b"machine/1/temperature", "a", "\\u00fc" * 9, "l" * 74, "l" * 75, "l" * 300]
for topic in topics:
    for qos in (0, 1):
        often(topic, topic if isinstance(topic, bytes) else topic.encode(), qos)
before = general
for topic in topics:
    for qos in (0, 1, 1, 0):
        c.publish(topic, topic if isinstance(topic, bytes) else topic.encode(), qos=qos)
say(general - before == (0 if fast else 28))
before = general
c.publish(T, "text of its own")
c.publish(T, "text of its own")
c.publish(T, "text of its own")
say(general - before == (1 if fast else 3))
for qos in (0, 1):
    for msg, retain, life in ((b"kept", True, 0), (b"", True, 0), (b"kept", True, 255),
            (b"long", False, 5), ("text \u00fc", False, 0), (view[1:5], False, 0)):
        c.publish(T, bytes(len(msg)), qos=qos)
        c.publish(T, msg, retain, qos, life)
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
        assert said == [
            "True",
            "True",
            "Misuse  ",
            "Misuse  ",
            "TooLarge  ",
            "Malformed  ",
            "TypeError",
        ]
        got = messages(b)
        names = ["machine/1/temperature"] * 2 + ["a", "ü" * 9, "l" * 74, "l" * 75, "l" * 300]
        assert [m[3] for m in got] == list(range(1, len(got) + 1))
        assert all(m[0].encode() == m[1] for m in got[:-30])
        assert [(m[0], m[2]) for m in got[-58:-30]] == [(n, q) for n in names for q in (0, 2, 2, 0)]
        live, kept, clear = const.LIVE, const.RETAINED, const.CLEAR
        special = [("kept", 1, kept, 0), ("", 1, clear, 0), ("kept", 1, kept, 255)]
        special += [("long", 0, live, 5), ("text ü", 0, live, 0), ("1234", 0, live, 0)]
        want = [(text, flags | qos, *rest) for qos in (0, 2) for text, flags, *rest in special]
        assert [(m[1].decode(), m[2], m[4], m[5]) for m in got[-26:-2:2]] == want
        assert all(not any(m[1]) and m[2] in (0, 2) and m[4:] == (live, 0) for m in got[-27:-3:2])
        assert [m[1:3] for m in got[-3:]] == [(b"now", 2), (b"equal", 0), (b"last", 0)]


@FAST
def test_more_topics_than_it_keeps(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        said = b.run(
            interpreter,
            COUNT
            + """
connect()
often()
for i in range(20 * 12):
    c.publish("t/%d" % (i % 20), b"x")
before = general
for i in range(20):
    c.publish("t/%d" % i, b"x")
say(general - before)
""",
        )
        assert 4 <= int(said[0]) <= 8
        assert [m[0] for m in messages(b)[24:]] == [f"t/{i % 20}" for i in range(20 * 13)]


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
for late in (1100000, 0x3F000000):
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
msgs = [bytes(64), bytearray(64), b"", b"21.5", bytes(400), bytes(1024)]
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
        assert len(messages(b)) == 2 * (72 + 2400)


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
