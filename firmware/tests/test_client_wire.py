"""What a broken or hostile peer may write: bounded reads, typed errors, no hang, no assert."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_script import INTERPRETERS, PRELUDE, Board, board
from mqtt_frames import frame, text
from peer_connection import Connection

every = pytest.mark.parametrize("interpreter", INTERPRETERS)


def answer_pings_with(b: Board, raw: bytes, close: bool = False) -> None:
    """What comes when the client pings."""

    def on_ping(c: Connection) -> bool:
        c.sock.sendall(raw)
        if close:
            c.sock.close()
        return True

    b.peer.on_ping = on_ping


@every
@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\x00",
        b"\x10\x02\x00\x00",
        b"\x20\x02\x00\x00",
        b"\x41\x02\x00\x01",
        b"\x40\x03\x00\x01\x00",
        b"\x40\x00",
        b"\x90\x04\x00\x01\x00\x00",
        b"\xd0\x01\x00",
        b"\xf0\x00",
        b"\x30\x80\x80\x80\x80\x01",
        b"\x30\xff\xff\xff\xff\x7f",
        b"\x30\x00",
        b"\x30\x01\x00",
        b"\x30\x02\x00\x00",
        b"\x30\x03\x00\x05t",
        b"\x32\x03\x00\x01t",
        b"\x34\x05\x00\x01t\x00\x01",
        b"\x36\x05\x00\x01t\x00\x01",
    ],
    ids=bytes.hex,
)
def test_what_is_no_mqtt_ends_the_connection(interpreter: str, raw: bytes, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        answer_pings_with(b, raw + bytes(20))
        script = "c.connect()\nc.ping()\ncaught(c.wait_msg)\nsay(c.sock)\ncaught(c.check_msg)"
        assert b.run(interpreter, script) == ["Malformed  ", "None", "OSError ENOTCONN"]


@every
@pytest.mark.parametrize("cut", [1, 2, 3, 5, 9])
def test_a_connection_that_ends_within_a_packet(interpreter: str, cut: int, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        answer_pings_with(b, frame(0x30, text(b"topic") + bytes(200))[:cut], close=True)
        script = "c.connect()\nc.ping()\ncaught(c.wait_msg)\nsay(c.sock)"
        assert b.run(interpreter, script) == ["OSError ECONNRESET", "None"]


@every
def test_a_packet_that_stops_coming_times_out(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        answer_pings_with(b, frame(0x30, text(b"topic") + bytes(200))[:50])
        script = "c = client(timeout=1)\nc.connect()\nc.ping()\ncaught(c.wait_msg)\nsay(c.sock)"
        assert b.run(interpreter, script) == ["OSError ETIMEDOUT", "None"]


@every
@pytest.mark.parametrize("qos", [0, 1])
def test_an_oversized_packet_is_thrown_away_and_acknowledged(
    interpreter: str, qos: int, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()
        pid = b"\x12\x34" if qos else b""
        raw = frame(0x30 | qos << 1, text(b"t" * 600) + pid + bytes(200_000))
        answer_pings_with(b, raw + b"\xd0\x00")
        said = b.run(
            interpreter,
            """
import gc
c = client(limit=1000)
c.connect()
c.ping()
gc.collect()
say(c.wait_msg(), c.refused, type(c.last_refused).__name__)
say(c.wait_msg(), c.publish("t", b"x", qos=1))
c.disconnect()
""",
        )
        assert said == ["True {'TooLarge': 1} TooLarge", "True 1"]
        assert b.peer.said("puback") == [(0x1234,)] * qos


@every
def test_an_oversized_packet_while_a_puback_is_awaited(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            c.publish(b"t", bytes(5000), 1)
            return False

        b.peer.on_publish = on_publish
        script = "c = client(limit=1000)\nc.connect()\nsay(c.publish('t', b'x', qos=1), c.refused)"
        assert b.run(interpreter, script) == ["1 {'TooLarge': 1}"]


@every
@pytest.mark.parametrize("first", [b"\x30\x03\x00\x05t", b"\x30\x00", b"\xb0\x00"])
def test_an_oversized_length_with_a_bad_topic(
    interpreter: str, first: bytes, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()
        answer_pings_with(b, b"\x30\xff\xff\x03\xff\xff" + bytes(100) + first, close=True)
        script = "c.connect()\nc.ping()\ncaught(c.wait_msg)\nsay(c.sock)"
        assert b.run(interpreter, script)[1:] == ["None"]


@every
@pytest.mark.parametrize("between", [b"\xd0\x00", b"\xd0\x00" * 3, b"\x40\x02\x77\x77"])
def test_other_packets_in_front_of_a_puback(
    interpreter: str, between: bytes, tmp_path: Path
) -> None:
    with board(tmp_path) as b:
        b.provision()

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            c.sock.sendall(between)
            return False

        b.peer.on_publish = on_publish
        b.peer.on_ping = lambda c: False
        said = b.run(
            interpreter,
            """
got = []
c.set_callback(got.append)
c.connect()
c.subscribe("t", 1)
say(c.publish("t", b"x", qos=1), c.publish("t", b"y", qos=1))
c.ping()
while len(got) < 2 or c.check_msg():
    c.check_msg()
say(len(got), c.publish("t", b"z", qos=1))
c.disconnect()
""",
        )
        assert said == ["2 3", "2 4"]


@every
def test_bytes_that_trickle(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            raw = b"\xd0\x00" + frame(0x32, text(b"t") + b"\x00\x09" + c.m3(b"t", m1, c.site.own))
            for byte in raw + b"\x40\x02\x00\x01":
                c.sock.sendall(bytes((byte,)))
                b.peer.settle_after(0.001)
            return True

        b.peer.on_publish = on_publish
        said = b.run(
            interpreter,
            """
c.set_callback(lambda m: say(m.payload == b"x"))
c.connect()
say(c.publish("t", b"x", qos=1), c.check_msg())
c.disconnect()
""",
        )
        assert said == ["True", "1 True"]
        assert b.peer.said("puback") == [(9,)]


@every
def test_no_puback_within_the_timeout(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        b.peer.on_publish = lambda c, topic, m1, ctr, qos: True
        script = "c = client(timeout=1)\nc.connect()\ncaught(c.publish, 't', b'x', qos=1)\n"
        assert b.run(interpreter, script + "say(list(c.unacked), c.sock)") == [
            "OSError ETIMEDOUT",
            "[1] None",
        ]


@every
def test_pings_for_ever_instead_of_a_puback(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()

        def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
            for _ in range(50):
                c.send(0xD0, b"")
                b.peer.settle_after(0.05)
            return True

        b.peer.on_publish = on_publish
        script = "c = client(timeout=1)\nc.connect()\ncaught(c.publish, 't', b'x', qos=1)\n"
        assert b.run(interpreter, script) == ["OSError ETIMEDOUT"]


@every
@pytest.mark.parametrize("code", [2, 3, 127, 129, 255])
def test_a_suback_with_another_code(interpreter: str, code: int, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()

        def on_subscribe(c: Connection, filt: str, ctr: int) -> bool:
            c.send(0x90, b"\x00\x07\x00")  # nobody waits for that one
            c.send(0x90, b"\x00\x01" + bytes((code,)))
            return True

        b.peer.on_subscribe = on_subscribe
        script = "c.set_callback(say)\nc.connect()\ncaught(c.subscribe, 't', 1)\nsay(c.sock)"
        assert b.run(interpreter, script) == ["Malformed  ", "None"]


@every
def test_one_write_a_packet(interpreter: str, tmp_path: Path) -> None:
    with board(tmp_path) as b:
        b.provision()
        said = b.run(
            interpreter,
            """
class Counting:
    def __init__(self, sock):
        self.sock = sock
        self.writes = 0
    def write(self, *args):
        self.writes += 1
        return self.sock.write(*args)
    def readinto(self, *args):
        return self.sock.readinto(*args)
    def recv(self, n):
        return self.sock.recv(n)
    def settimeout(self, t):
        self.sock.settimeout(t)
    def close(self):
        self.sock.close()
opened = c._open
def counting():
    opened()
    c.sock = Counting(c.sock)
c._open = counting
c.set_callback(lambda m: None)
c.connect()
say(c.sock.writes)
for act in (lambda: c.publish("t", b"x"), lambda: c.publish("t", bytes(500), qos=1), c.ping,
            lambda: c.subscribe("t/#"), lambda: c.unsubscribe("t/#")):
    before = c.sock.writes
    act()
    say(c.sock.writes - before)
""",
        )
        assert said == ["1"] * 6


@every
@pytest.mark.parametrize(
    ("constant", "number"), [("TCP_NODELAY = 0x40", 0x40), ("pass", 1)], ids=["lwip", "none"]
)
def test_small_packets_go_at_once_by_the_ports_own_number(
    interpreter: str, constant: str, number: int, tmp_path: Path
) -> None:
    """lwIP's number is another one than BSD's; a port without a constant has BSD's."""
    prelude = f"""
import sys
import socket as real
class Socket:
    def __init__(self, *args):
        self.sock = real.socket(*args)
    def __getattr__(self, name):
        return getattr(self.sock, name)
    def setsockopt(self, *args):
        print(args)
class Net:
    socket = Socket
    SOCK_STREAM = real.SOCK_STREAM
    getaddrinfo = staticmethod(real.getaddrinfo)
    {constant}
sys.modules["socket"] = Net
"""
    with board(tmp_path) as b:
        b.provision()
        said = b.run(interpreter, "c.connect()", prelude + PRELUDE)
        assert said == [f"(6, {number}, 1)"]
