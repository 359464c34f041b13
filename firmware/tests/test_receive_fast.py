"""The fast path of receive (receive_fast.py, open_fast.py): it has to do what the general one does.

A stream of packets, made once, is received twice, with the fast way and without: what the callback
got, what was refused, how, and what the reader remembers have to be the same. On CPython there is
none, so it stands for the general way there.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from device_script import INTERPRETERS, Board, board
from mqtt_frames import frame, text
from peer_connection import Connection
from peer_site import Site, make
from real_micropython import VIPER
from sealmq_spec import const
from sealmq_spec.envelope import nonce_m1, nonce_m3, put_m1, put_m3, tail_m1, tail_m3
from sealmq_spec.keys import inner_key, outer_key, topic_key
from sealmq_spec.records import Roots

every = pytest.mark.parametrize("interpreter", INTERPRETERS)
T = b"machine/1/temperature"

# Prints what came; `quick` is how many messages the general way did not see.
LISTEN = """
seen = []
def hear(m):
    seen.append(m)
c.set_callback(hear)
c.connect()
"""
RECEIVE = """
import binascii
c.publish("go", b"", qos=1)
while not c.notices:
    STEP
for m in seen:
    plain = m.payload
    say(m.topic, type(plain), len(plain), binascii.crc32(plain), m.label, m.sender, m.how, m.tlv)
say(sorted(c.refused.items()))
r = c._reads()
say(sorted((k, bytes(v).hex()) for k, v in r._windows.items()))
say(r.floor, r.floor_s2, [k for _, k in sorted((v.used, k) for k, v in r._roots.items())])
say("heard", c._heard)
c.disconnect()
"""
GENERAL = "c._heard = -10000\n"


class Stream:
    """Packets for one client, from senders and mediators as one likes."""

    def __init__(self, c: Connection) -> None:
        self.c = c
        self.site = c.site
        self.packets: list[bytes] = []
        self.pid = 0
        self.now = self.site.now_ms()

    def m1(
        self, topic: bytes, plain: bytes, ctr: int, roots: Roots | None = None, **other: Any
    ) -> bytes:
        s = self.site
        roots = roots or s.own
        sender = other.get("sender", 99)
        boot, salt = other.get("boot", 3), other.get("salt", 5).to_bytes(8, "big")
        now = self.now // 1000 - other.get("age", 0)
        buf = bytearray(27 + len(plain) + 16)
        put_m1(
            buf, 0, roots.suite, other.get("kind", const.LIVE), roots.epoch, sender, boot, salt,
            ctr, now, other.get("life", 0),
        )  # fmt: skip
        buf[27 : 27 + len(plain)] = plain
        key = inner_key(s.id, roots.suite, sender, boot, salt, roots.r_bar)
        aad = bytes(buf[:27]) + tail_m1(s.id, roots.label, topic)
        make(roots.suite, key).seal_into(nonce_m1(buf, 0), aad, buf, 27, len(plain))
        return bytes(buf)

    def m3(
        self,
        topic: bytes,
        m1: bytes,
        roots: Roots | None = None,
        tlv: bytes = b"\0",
        how: int = const.LIVE,
        **other: Any,
    ) -> bytearray:
        s = self.site
        roots = roots or s.own
        s.seq += 1
        inst = other.get("inst", 5)
        buf = bytearray(20 + len(tlv) + len(m1) + 16)
        s2 = self.now - other.get("late", 0)
        put_m3(buf, 0, roots.suite, 0, how, roots.label, roots.epoch, inst, s2, s.seq)
        buf[20:-16] = tlv + m1
        ek = topic_key(s.id, roots.suite, roots.label, roots.epoch, roots.r)
        key = outer_key(s.id, roots.suite, roots.label, roots.epoch, inst, ek)
        aad = bytes(buf[:20]) + tail_m3(s.id, topic)
        make(roots.suite, key).seal_into(nonce_m3(buf), aad, buf, 20, len(tlv) + len(m1))
        return buf

    def put(self, topic: bytes, payload: bytes | bytearray, first: int = 0x30) -> None:
        pid = b""
        if first & 6:
            self.pid += 1
            pid = self.pid.to_bytes(2, "big")
        self.packets.append(frame(first, text(topic) + pid + payload))

    def message(self, ctr: int, plain: bytes = b"21.5", topic: bytes = T, **other: Any) -> None:
        first = other.pop("first", 0x30)
        self.put(topic, self.m3(topic, self.m1(topic, plain, ctr, **other), **other), first)

    def usual(self, n: int = 8, start: int = 1) -> None:
        """What the fast way is made ready by."""
        for i in range(n):
            self.message(start + i)


def receive(
    b: Board, interpreter: str, made: Callable[[Stream], None], fast: bool, **how: object
) -> tuple[list[str], int]:
    """What a client says of a stream, and how many messages came the general way."""
    sent: list[bytes] = []

    def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
        c.send(0x40, c.publish_pid)
        if not sent:
            stream = Stream(c)
            made(stream)
            sent.extend(stream.packets)
        if how.get("pieces"):
            for packet in sent:
                for at in range(0, len(packet), 7):
                    c.sock.sendall(packet[at : at + 7])
        else:
            c.sock.sendall(b"".join(sent))
        c.notice(9, 0, 5, "end", "")
        return True

    b.peer.on_publish = on_publish
    step = "c.check_msg()" if how.get("check") else "c.wait_msg()"
    script = LISTEN + ("" if fast else GENERAL)
    script += RECEIVE.replace("STEP", step)
    said = b.run(interpreter, script)
    b.peer.events.clear()
    assert said[-1].startswith("heard ")
    return said[:-1], int(said[-1].split()[1])


def same(
    tmp_path: Path,
    interpreter: str,
    made: Callable[[Stream], None],
    general: int | None,
    **how: object,
) -> list[str]:
    """Both ways say the same. general: so many messages are opened by the general one, None: fewer
    than half of them."""
    with board(tmp_path) as b:
        b.provision()
        packets: list[bytes] = []

        def once(s: Stream) -> None:
            if not packets:
                made(s)
                packets.extend(s.packets)
            s.packets = list(packets)

        usual, _ = receive(b, interpreter, once, False, **how)
        fast, opened = receive(b, interpreter, once, True, **how)
        assert fast == usual
        if interpreter in [str(bits) for bits in VIPER]:
            assert 2 * opened < len(fast) if general is None else opened == general, opened
        return fast


@every
@pytest.mark.parametrize("how", ["wait", "check", "pieces"])
def test_sizes_alignments_and_qos(interpreter: str, how: str, tmp_path: Path) -> None:
    sizes = [*range(36), 63, 64, 65, 100, 255, 256, 500, 800]
    topics = [T + b"x" * n for n in range(5)] if how == "wait" else [T]
    if how != "wait":
        sizes = sizes[::4]

    def made(s: Stream) -> None:
        ctr = 0
        for topic in topics:
            for _ in range(6):
                ctr += 1
                s.message(ctr, b"21.5", topic)
        for n in sizes:
            for topic in topics:
                for first in (0x30, 0x33):
                    ctr += 1
                    s.message(ctr, os.urandom(n), topic, first=first)

    total = len(topics) * (6 + 2 * len(sizes))
    general = 5 + len(topics) - 1
    given: dict[str, object] = {how: True}
    said = same(tmp_path, interpreter, made, general, **given)
    assert len(said) == total + 3
    assert said[-3] == "[]"


@every
def test_a_changed_byte_anywhere_is_refused_alike(interpreter: str, tmp_path: Path) -> None:
    size = 80 + 20

    def made(s: Stream) -> None:
        s.usual()
        for i in range(size):
            payload = s.m3(T, s.m1(T, b"0123456789abcdef0123", 100 + i))
            payload[i] ^= 1 << i % 8
            s.put(T, payload)
        # Genuine, and what is inside changed below the outer tag.
        for i in range(20, 20 + 1 + 27 + 4 + 16):
            inner = bytearray(b"\0" + s.m1(T, b"21.5", 300 + i))
            inner[i - 20] ^= 4
            s.put(T, s.m3(T, bytes(inner[1:]), tlv=bytes(inner[:1])))
        # Under another topic of the same length, and none of ours.
        s.put(T[:-1] + b"f", s.m3(T, s.m1(T, b"21.5", 400)))
        s.put(T, b"x" * 90)
        s.usual(2, 401)

    said = same(tmp_path, interpreter, made, 5)
    assert "Unauthentic" in said[-3]
    assert len(said) == 8 + 2 + 3


@every
def test_replays_windows_ages_and_lives(interpreter: str, tmp_path: Path) -> None:
    def made(s: Stream) -> None:
        s.usual()
        for ctr in (100, 99, 99, 40, 37, 36, 68, 68, 37, 101, 133, 102, 102, 166, 230, 166, 167):
            s.message(ctr)
        s.message(1000, age=30)
        s.message(1001, age=62)
        s.message(1002, age=62, life=7)
        s.message(1003, age=200, life=7)
        s.message(1004, age=5000, life=255)
        s.message(1005, age=5000, life=40)
        s.message(1006, age=-30)
        s.message(1007, age=-70)
        s.message(1008, late=30000)
        s.message(1009, late=70000)
        s.message(1010, late=-70000)
        s.message(1011)
        s.message(1000)
        # Old in life that is cut short below a minute.
        s.message(1012, age=40, life=3)
        s.message(0xFFFFFF)
        s.message(0xFFFFFE)

    same(tmp_path, interpreter, made, 5)


@every
def test_what_is_not_plain_goes_the_general_way(interpreter: str, tmp_path: Path) -> None:
    def made(s: Stream) -> None:
        s.usual()
        m1 = s.m1(T, b"kept", 100, kind=const.RETAINED)
        s.put(T, s.m3(T, m1))
        s.put(T, s.m3(T, m1, how=const.RETAINED), 0x31)
        s.put(T, s.m3(T, s.m1(T, b"queued", 101), how=const.QUEUED))
        s.put(T, s.m3(T, s.m1(T, b"with tlv", 102), tlv=b"\x03\x21\x01x"))
        s.put(T, s.m3(T, s.m1(T, b"critical", 103), tlv=b"\x02\xa1\x00"))
        s.put(const.CONTROL, b"\x15 nothing that we know")
        s.put(b"@sm1/m/20", b"\x19nonsense")
        s.put(T, b"")
        s.message(104, os.urandom(1500))
        s.message(105, os.urandom(5000))  # over the limit
        s.put(T, s.m3(T, s.m1(T, b"no such label", 106), Roots(44, 1, 1, bytes(32), bytes(32))))
        s.usual(3, 110)

    said = same(tmp_path, interpreter, made, 10)
    assert "TooLarge" in said[-3]


@every
def test_topics_senders_labels_and_mediators_in_turn(interpreter: str, tmp_path: Path) -> None:
    def made(s: Stream) -> None:
        record = b"\x05" + s.site.record()
        s.put(const.CONTROL, s.c.down(record))
        s.usual()
        for i in range(4):
            for n in range(3):
                s.message(20 + 8 * i + n, b"topic", T + b"y" * n)
                s.message(200 + i, b"sender", T, sender=100 + n)
                s.message(200 + i, b"boot", T, boot=4 + n)
                s.message(200 + i, b"salt", T, salt=6 + n)
                s.message(24 + 8 * i + n, b"inst", T, inst=6 + n)
            lower = s.site.lower
            m1 = s.m1(T, b"lower", 400 + i, lower)
            s.put(T, s.m3(T, m1, lower))

    with board(tmp_path) as b:
        b.provision()
        said = []
        for fast in (False, True):
            said.append(receive(b, interpreter, made, fast))
        usual, quick = ([line for line in lines if not line.startswith("[((")] for lines, _ in said)
        assert usual == quick
        assert len(quick) == 8 + 64 + 2
        if interpreter in [str(bits) for bits in VIPER]:
            assert said[1][1] == 5 + 2 + 2 * (3 + 3 + 3 + 1) + 3


@every
def test_more_plans_than_are_held_and_windows_given_up(interpreter: str, tmp_path: Path) -> None:
    def made(s: Stream) -> None:
        s.usual()
        for i in range(2):
            for n in range(70):
                late = 40000 - 5000 * i - 70 * n
                s.message(10 + i, b"x", T, sender=200 + n, late=late, age=late // 1000)
        s.message(9)

    same(tmp_path, interpreter, made, 5 + 141)


@every
def test_a_new_epoch_a_reconnect_and_callbacks_that_publish(
    interpreter: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        said = b.run(
            interpreter,
            """
got = []
def hear(m):
    got.append(m)
    if m.payload[:1] == b"a":
        c.publish("t/b", b"b" + m.payload[1:], qos=1)
c.set_callback(hear)
c.connect()
c.subscribe("t/#", 1)
def turn(k):
    for n in range(k):
        c.publish("t/a", b"a%d" % n, qos=1)
    for _ in range(4 * k):
        if len(got) == 2 * k:
            break
        c.wait_msg()
    say(len(got), sorted(bytes(m.payload) for m in got)[-1], c.refused, c.check_msg())
    got.clear()
turn(12)
c.disconnect()
caught(c.check_msg)
c.connect()
c.subscribe("t/#", 1)
turn(12)
c.reader.plans.clear()
turn(12)
""",
        )
        assert said == [
            "24 b'b9' {} False",
            "OSError ENOTCONN",
            "24 b'b9' {} False",
            "24 b'b9' {} False",
        ]
        # 24 messages in each of the turns, each acknowledged once.
        assert len(b.peer.said("puback")) == 72


@every
def test_another_epoch_closes_what_was_prepared(interpreter: str, tmp_path: Path) -> None:
    site = Site()
    with board(tmp_path, site) as b:
        old = site.own

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            s = Stream(c)
            if topic == "go":
                s.usual()
            elif topic == "turn":
                site.new_epoch()
                own = site.own
                numbers = (own.label << 24 | own.epoch).to_bytes(6, "big")
                numbers += site.kseq.to_bytes(4, "big") + bytes(4)
                s.put(const.CONTROL, c.down(bytes((const.OP_EPOCH,)) + numbers))
            else:
                s.put(T, s.m3(T, s.m1(T, b"old", 21, old), old))
                s.message(22)
                s.put(T, s.m3(T, s.m1(T, b"old", 23, old), old))
            c.sock.sendall(frame(0x40, c.publish_pid) + b"".join(s.packets))
            return True

        b.peer.on_publish = on_publish
        said = b.run(
            interpreter,
            LISTEN
            + """
c.publish("go", b"", qos=1)
while len(seen) < 8:
    c.wait_msg()
c.publish("turn", b"", qos=1)
c.wait_msg()
c.publish("on", b"", qos=1)
while len(seen) + sum(c.refused.values()) < 11:
    c.wait_msg()
say(len(seen), c.refused, c.ident.own.epoch)
""",
        )
        assert said == ["9 {'WrongEpoch': 2} 2"]


@pytest.mark.parametrize("bits", VIPER)
def test_an_interrupted_cipher_and_a_lost_connection(bits: int, tmp_path: Path) -> None:
    with board(tmp_path) as b:

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            s = Stream(c)
            s.usual(10 if topic == "go" else 3, {"go": 1, "end": 20, "on": 30}[topic])
            packets = b"".join(s.packets)
            if topic == "end":
                packets = packets[:-1]
            c.sock.sendall(frame(0x40, c.publish_pid) + packets)
            if topic == "end":
                c.sock.close()
            return True

        b.peer.on_publish = on_publish
        said = b.run(
            str(bits),
            LISTEN
            + """
c.publish("go", b"", qos=1)
while len(seen) < 10:
    c.wait_msg()
for cache in (c.reader._outer, c.reader._inner):
    for cipher in cache.values():
        cipher._s[3][16] = 2
say(c._heard)
c.publish("end", b"", qos=1)
c.wait_msg(); c.wait_msg()
say(c._heard, len(seen), c.refused)
caught(c.wait_msg)
say(c.sock)
c.connect()
c.publish("on", b"", qos=1)
while len(seen) < 15:
    c.wait_msg()
c.ping()
say(c._heard, c.wait_msg(), c.check_msg(), len(seen), None in seen, c.refused)
""",
        )
        assert said == ["5", "6 12 {}", "OSError ECONNRESET", "None", "6 True False 15 False {}"]


@pytest.mark.parametrize("inside", ["c.check_msg()", "c.wait_msg()"])
@pytest.mark.parametrize("way", ["", GENERAL])
@pytest.mark.parametrize("bits", VIPER)
def test_what_a_callback_raises_after_it_looked_for_more_is_the_applications(
    bits: int, way: str, inside: str, tmp_path: Path
) -> None:
    with board(tmp_path) as b:

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            s = Stream(c)
            s.usual(10 if topic == "go" else 1, {"go": 1, "one": 20, "on": 30}[topic])
            c.sock.sendall(frame(0x40, c.publish_pid) + b"".join(s.packets))
            if topic == "one":
                c.notice(9, 0, 5, "end", "")
            return True

        b.peer.on_publish = on_publish
        said = b.run(
            str(bits),
            LISTEN
            + way
            + f"""
c.publish("go", b"", qos=1)
while len(seen) < 10:
    c.wait_msg()
def fail(m):
    {inside}
    c.check_msg()
    raise OSError(5)
c.set_callback(fail)
c.publish("one", b"", qos=1)
caught(c.wait_msg)
c.set_callback(hear)
c.publish("on", b"", qos=1)
while len(seen) < 11:
    c.wait_msg()
say(c.session.conn, len(seen), c.refused)
""",
        )
        assert said == ["OSError EIO", "1 11 {}"]


@pytest.mark.parametrize("bits", VIPER)
def test_nothing_is_left_behind(bits: int, tmp_path: Path) -> None:
    """What the callback does not keep is free again after a collection.

    The collector takes any word on the stack that looks like an address for one, so now and then it
    keeps what nothing needs: the last message was seen to outlive one collection. What each message
    leaves behind grows from round to round: 20 messages that keep a block each are 20 blocks.
    """
    rounds, each = 5, 20
    with board(tmp_path) as b:

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            s = Stream(c)
            s.usual(30 + rounds * each)
            c.sock.sendall(frame(0x40, c.publish_pid) + b"".join(s.packets))
            return True

        b.peer.on_publish = on_publish
        said = b.run(
            str(bits),
            f"""
import gc
c.set_callback(len)
c.connect()
c.publish("go", b"", qos=1)
for _ in range(30):
    c.wait_msg()
levels = [0] * {rounds + 1}
made = [0] * {rounds}
gc.collect(); levels[0] = gc.mem_alloc()
for i in range({rounds}):
    for _ in range({each}):
        c.wait_msg()
    made[i] = gc.mem_alloc() - levels[i]
    gc.collect(); levels[i + 1] = gc.mem_alloc()
say(max(levels) - min(levels), max(made), c._heard)
""",
        )
    (line,) = said
    kept, made, heard = line.split()
    block = 32 if bits == 64 else 16
    assert int(kept) < each * block, line
    assert int(made) < each * (400 if bits == 64 else 250), line
    assert heard == "5", line


@pytest.mark.parametrize("bits", VIPER)
def test_the_limit_holds_and_no_callback_is_needed(bits: int, tmp_path: Path) -> None:
    with board(tmp_path) as b:

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            s = Stream(c)
            s.usual(10)
            s.message(20, bytes(400))
            s.usual(2, 30)
            c.sock.sendall(frame(0x40, c.publish_pid) + b"".join(s.packets))
            return True

        b.peer.on_publish = on_publish
        said = b.run(
            str(bits),
            LISTEN
            + """
c.limit = 300
c.publish("go", b"", qos=1)
while len(seen) < 11:
    c.wait_msg()
c.set_callback(None)
say(c.wait_msg(), c.check_msg(), len(seen), c._heard, c.refused)
""",
        )
        assert said == ["True False 11 5 {'TooLarge': 1}"]


@every
def test_a_topics_place_is_not_anothers(interpreter: str, tmp_path: Path) -> None:
    """What stands ready for one sender's topic is never taken for another's, refused or not."""
    other = T[:-1] + b"f"

    def made(s: Stream) -> None:
        s.usual(7)
        s.message(8, topic=other)
        for i in range(3):
            for sender, topic in ((41, T), (42, T), (43, other)):
                s.message(1 + i, topic=topic, sender=sender)
        ctr = 20
        for size in (4, 4, 20, 600, 4, 600, 600, 20):
            for topic, wrong in ((T, other), (other, T)):
                for sender in (41, 42):
                    ctr += 6
                    plain = os.urandom(size)
                    s.message(ctr, plain, topic, sender=sender)
                    # Sealed for the one topic, in whole or inside only, and sent as the other.
                    s.put(wrong, s.m3(topic, s.m1(topic, plain, ctr + 1, sender=sender)))
                    s.message(ctr + 2, plain, topic, sender=sender)
                    s.put(wrong, s.m3(wrong, s.m1(topic, plain, ctr + 3, sender=sender)))
                    s.message(ctr + 4, plain, topic, sender=sender)
                    bad = s.m3(wrong, s.m1(wrong, plain, ctr + 5, sender=sender))
                    bad[-1] ^= 1
                    s.put(wrong, bad)

    said = same(tmp_path, interpreter, made, 14)
    assert len(said) == 8 + 9 + 8 * 4 * 3 + 3
    assert "Unauthentic" in said[-3]


@every
def test_a_message_of_a_topic_with_the_same_hash_is_refused(
    interpreter: str, tmp_path: Path
) -> None:
    """A mediator that passes a message of one topic on as one of another is not believed, also
    where what stands ready for both has one hash."""
    one, other = b"machine/Aa", b"machine/BB"

    def made(s: Stream) -> None:
        s.usual()
        for i in range(3):
            s.message(20 + i, topic=one, sender=41)
            s.message(20 + i, topic=other, sender=42)
        for i in range(3):
            s.put(other, s.m3(other, s.m1(one, b"21.5", 30 + i, sender=41)))
            s.message(30 + i, topic=other, sender=42)

    said = same(tmp_path, interpreter, made, 11)
    assert said[-3] == "[('Unauthentic', 3)]"


@every
@pytest.mark.parametrize("first", [1500, 4])
def test_long_messages_take_the_fast_path_too(interpreter: str, first: int, tmp_path: Path) -> None:
    sizes = [1024, 1025, 1100, 1987, 1988, 1989, 2031, 2032, 2033, 2100, 3500, 3900, 20, 3900]

    def made(s: Stream) -> None:
        for ctr in range(1, 7):
            s.message(ctr, os.urandom(first))
        for n, size in enumerate(sizes):
            s.message(10 + 2 * n, os.urandom(size))
            s.message(11 + 2 * n, os.urandom(size), first=0x33)

    # The buffer grows with each that is longer than any before.
    said = same(tmp_path, interpreter, made, {1500: 5 + 2, 4: 5 + 3}[first])
    assert len(said) == 6 + 2 * len(sizes) + 3


def changed_messages(s: Stream, rng: random.Random, count: int) -> None:
    """Messages as they come, and ones of which one thing is not as it was."""
    sizes = (0, 1, 4, 15, 16, 17, 60, 64, 100, 200, 400, 1000, 2500)
    topics = (T, T[:-1], T + b"abc")
    lower = s.site.lower
    ctr = 20
    for i in range(count):
        ctr += rng.choice((1, 1, 1, 2, 5, 40, 70))
        topic = rng.choice(topics) if i % 9 == 0 else T
        other: dict[str, Any] = {}
        what = rng.randrange(24)
        at = ctr
        if what == 0:
            at = max(1, ctr - rng.randrange(80))
        elif what == 1:
            other["kind"] = rng.randrange(4)
        elif what == 2:
            other["how"] = rng.randrange(4)
        elif what == 3:
            other["sender"] = rng.choice((98, 99, 100))
        elif what == 4:
            other["boot"] = rng.choice((2, 3, 4))
        elif what == 5:
            other["salt"] = rng.choice((4, 5))
        elif what == 6:
            other["inst"] = rng.choice((4, 5))
        elif what == 7:
            other["life"] = rng.randrange(256)
        elif what == 8:
            other["age"] = rng.choice((-80, -50, 20, 50, 80, 1 << 19))
            other["life"] = rng.choice((0, 5, 6, 7, 20, 31, 255))
        elif what == 9:
            other["late"] = rng.choice((-80000, -50000, 20000, 50000, 80000))
        elif what == 10:
            other["tlv"] = rng.choice((b"\x01\x21", b"\x03\x21\x01x", b"\x02\xa1\x00", b"\xff"))
        elif what == 11:
            other["roots"] = rng.choice((lower, Roots(44, 1, 1, bytes(32), bytes(32))))
        plain = rng.randbytes(rng.choice(sizes))
        sealed = rng.choice(topics) if what == 12 else topic
        inner = bytearray(s.m1(sealed, plain, at, **other))
        if what == 13:
            inner[rng.randrange(len(inner))] ^= 1 << rng.randrange(8)
        payload = s.m3(rng.choice(topics) if what == 14 else topic, bytes(inner), **other)
        if what in (15, 16, 17):
            payload[rng.randrange(len(payload))] ^= 1 << rng.randrange(8)
        elif what == 18:
            del payload[rng.randrange(len(payload)) :]
        elif what == 19:
            payload += rng.randbytes(rng.randrange(1, 20))
        s.put(topic, payload, rng.choice((0x30, 0x30, 0x32, 0x3A, 0x31)))


@every
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_whatever_comes_both_paths_say_the_same(
    interpreter: str, seed: int, tmp_path: Path
) -> None:
    def made(s: Stream) -> None:
        s.usual()
        s.put(b"@sm1/z/20/17", s.site.record())
        changed_messages(s, random.Random(seed), 1000)

    said = same(tmp_path, interpreter, made, None)
    assert len(said) > 400
    assert "Unauthentic" in said[-3]
    assert "Replay" in said[-3]
