"""Publishing again and again: publish_fast.py sends what the shared session would have sent,
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
    sizes += [494, 495, 496, 497, 700, 963, 964, 1023, 1024, 1025, 2048, 3900]
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
data = bytearray(i * 7 + 1 & 255 for i in range(4000))
view = memoryview(data)
for n in {sizes}:
    msgs = bytes(view[:n]), bytearray(view[:n])
    for qos in (0, 1):
        c.publish(T, msgs[0], qos=qos)
        before, wrote = general, writes
        for msg in msgs:
            c.publish(T, msg, qos=qos)
        assert general - before == (0 if fast else 2), (n, general - before)
        for at in range(4):
            msg = view[at : at + n]  # no view is 0 bytes off a word's beginning for certain
            if fast:
                c._hand[14] = type(msg)
            c.publish(T, msg, qos=qos)
            if fast:
                c._hand[14] = bytes
        assert general - before == (0 if fast else 6), (n, general - before)
        assert writes - wrote == 6
""",
        )
        assert said == []
        data = bytes(i * 7 + 1 & 255 for i in range(4000))
        want = [b"x"] * 48
        for n in sizes:
            want += 2 * [data[at : at + n] for at in (0, 0, 0, 0, 1, 2, 3)]
        got = messages(b)
        assert [m[1] for m in got] == want
        assert [m[3] for m in got] == list(range(1, len(want) + 1))
        assert {(m[0], m[4], m[5]) for m in got} == {("machine/1/temperature", const.LIVE, 0)}
        assert [m[2] for m in got[48:]] == ([0] * 7 + [2] * 7) * len(sizes)


# The packets that publish_fast.py writes, each beside what the shared session makes of the same
# counter and time.
EQUAL = """
connect()
often(); often(qos=1)
s = c.session
held = []
c.sock.write = lambda buf, at, n: held.append(bytes(buf[at : at + n])) or n
c._hand[4] = c.sock.write
c._settle = lambda ctr, *words: ctr
def equal(topic, msg, retain=False, qos=0, life=0):
    before = general
    for _ in range(4):  # prepared, and of this length
        c.publish(topic, msg, retain, qos, life)
        if before == general:
            break
        before = general
    else:
        raise ValueError("not prepared for %d bytes" % len(msg))
    packet = held.pop()
    held.clear()
    raw = topic.encode()
    n = len(msg)
    m2 = packet[len(packet) - n - 69 :]
    if m2[2:5] != s.ctr.to_bytes(3, "big"):
        raise ValueError("where is m2?")
    made = bytearray(n + 69)
    made[37 : 37 + n] = msg
    flags = qos << 1 | retain
    kind = (const.RETAINED if n else const.CLEAR) if retain else const.LIVE
    s.ctr -= 1
    mono = int.from_bytes(m2[5:9], "big") * 1000 - s._offset
    s.seal_publish(made, 0, n, raw, flags, kind, life, mono)
    rest = len(raw).to_bytes(2, "big") + raw + (c.pid.to_bytes(2, "big") if qos else b"") + made
    if packet != link.packet(0x30 | flags, rest):
        raise ValueError("%d bytes, topic %s, retain %d, qos %d" % (n, topic, retain, qos))
from sealmq_device import link
from sealmq_spec import const
data = bytes(i * 7 + 1 & 255 for i in range(LIMIT))
"""


@FAST
@pytest.mark.parametrize(
    ("suite", "limit", "sizes"),
    [
        (const.CCM, 5000, "list(range(600)) + list(range(940, 1100))"),
        (const.CCM, 17000, "(4095, 4096, 4097, 16383, 16384, 16385)"),
        (const.CHACHA, 5000, "(0, 1, 15, 16, 17, 63, 64, 65, 500, 1024, 4096)"),
    ],
    ids=["every-length", "long", "chacha"],
)
def test_it_seals_what_the_shared_session_seals(
    suite: int, limit: int, sizes: str, interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path, Site(suite)) as b:
        client = f"c = client(limit={limit})\n"
        script = f"""
for n in {sizes}:
    equal(T, data[:n])
    if n < 70 or n > 450:
        equal(T, data[:n], qos=1)
        equal("a", data[:n], True, n & 1, n & 31)
for topic in ("l" * 74, "l" * 75, "l" * 300, "\u00fc"):
    for n in (0, 16, 64, 480, 500):
        equal(topic, data[:n], n == 16, 1, 255)
say("equal")
"""
        said = b.run(
            interpreter, INSIDE + client + COUNT + EQUAL.replace("LIMIT", str(limit)) + script
        )
        assert said[-1] == "equal"


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
def test_retained_clearing_and_long_lived_messages_go_the_same_way(
    interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        said = b.run(
            interpreter,
            COUNT
            + """
connect()
often(); often(qos=1)
sent = ((b"kept", True, 1, 0), (b"", True, 1, 0), (b"long", False, 0, 5), (b"ever", True, 0, 255))
for _ in range(2):
    for msg, retain, qos, life in sent:
        c.publish(T, msg, retain, qos, life)
before = general
for msg, retain, qos, life in sent:
    c.publish(T, msg, retain, qos, life)
say(general - before)
""",
        )
        assert said == ["0"]
        assert [(m[1], m[2], m[4], m[5]) for m in messages(b)[-4:]] == [
            (b"kept", 3, const.RETAINED, 0),
            (b"", 3, const.CLEAR, 0),
            (b"long", 0, const.LIVE, 5),
            (b"ever", 1, const.RETAINED, 255),
        ]


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
def test_what_is_kept_to_be_sent_again_is_what_was_sent_after_a_longer_message(
    interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        script = """
connect()
often()
for i in range(20 * 12):
    c.publish("t/%d" % (i % 20), b"x", qos=1)
c.session.ctr |= 1  # no other topics now
longer = ["t/%d" % i for i in range(20) if not c._hand[5][2].get("t/%d" % i)]
known = ["t/%d" % i for i in range(20) if c._hand[5][2].get("t/%d" % i)]
c.publish(longer[0], bytes(900), qos=1)
def lost(*_):
    raise OSError(104)
c.sock.readinto = lost
before = general
caught(c.publish, known[0], b"x", qos=1)
(pid, raw), = c.unacked.values()
say(known[0].encode() in raw, len(raw) < 200)
"""
        said = b.run(interpreter, INSIDE + COUNT + script)
        assert said == ["OSError ECONNRESET", "True True"]


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
clock = c._hand[8]
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
msgs = [bytes(64), bytearray(64), b"", b"21.5", bytes(400), bytes(1024), bytes(3900)]
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
        assert len(messages(b)) == 2 * 7 * (12 + 400)


@FAST
def test_loaded_late(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        said = b.run(
            interpreter,
            COUNT
            + """
def loaded():
    return "sealmq_device.publish_fast" in sys.modules
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
