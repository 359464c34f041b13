"""What receiving a message may cost, in instructions of 64-bit MicroPython under valgrind, beside
umqtt over TLS 1.3 and without protection; and what it leaves to the collector.

On 64-bit ARM there is no viper, so no such bound: the counts are not taken there.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import bench_device
from bench_measures import tasks
from bench_rows import value
from device_script import board
from mqtt_frames import frame
from peer_connection import Connection
from real_micropython import VIPER
from test_receive_fast import LISTEN, Stream

# At most so much of umqtt's receive over TLS 1.3 in the same interpreter, by bytes of payload; and
# of one of 64 bytes with the collector and the holes of the heap as they come.
TIMES = {64: 0.8, 256: 1.0, 1024: 1.5, 4096: 1.5, 16384: 1.5}
STEADY = 0.65
# What TLS takes in this interpreter, rounded, so that the usual tests need not count it. All sizes
# are counted beside TLS, in `make test-full`.
TLS = {64: 23_700, 1024: 70_300}
TLS_STEADY = 38_900

if 64 in VIPER:

    def test_a_message_like_earlier_ones() -> None:
        chosen = tasks(["receive"], ["sealmq-ccm"], list(TLS))
        chosen += tasks(["receive_steady"], ["sealmq-ccm"])
        rows = bench_device.measure(chosen, 2)
        for size, theirs in TLS.items():
            ours = value(rows, "receive", "sealmq-ccm", size)
            assert ours is not None
            assert 0 < ours < TIMES[size] * theirs, size
        ours = value(rows, "receive_steady", "sealmq-ccm")
        assert ours is not None
        assert 0 < ours < STEADY * TLS_STEADY

    @pytest.mark.full
    def test_a_message_like_earlier_ones_beside_tls() -> None:
        variants = ["tls13-ecdsa", "sealmq-ccm"]
        chosen = tasks(["receive"], variants, list(TIMES)) + tasks(["receive_steady"], variants)
        rows = bench_device.measure(chosen, 2)
        bars = [("receive", size, times) for size, times in TIMES.items()]
        for measure, size, times in [*bars, ("receive_steady", 64, STEADY)]:
            ours = value(rows, measure, "sealmq-ccm", size)
            theirs = value(rows, measure, "tls13-ecdsa", size)
            assert ours is not None
            assert theirs is not None
            assert 0 < ours < times * theirs, (measure, size)


@pytest.mark.parametrize("size", [0, 64, 1024, 3900])
@pytest.mark.parametrize("bits", VIPER)
def test_nothing_is_left_to_the_collector_but_the_message(
    bits: int, size: int, tmp_path: Path
) -> None:
    rounds = 40

    def on_publish(c: Connection, topic: str, m1: bytes, ctr: int, qos: int) -> bool:
        s = Stream(c)
        for i in range(20 + rounds):
            s.message(1 + i, bytes(size), first=0x33)
        c.sock.sendall(frame(0x40, c.publish_pid) + b"".join(s.packets))
        return True

    with board(tmp_path) as b:
        b.peer.on_publish = on_publish
        said = b.run(
            str(bits),
            LISTEN
            + f"""
import gc
kept = [None] * {20 + rounds}
def keep(m, at=[0]):
    kept[at[0]] = m
    at[0] += 1
c.set_callback(keep)
c.publish("go", b"", qos=1)
for _ in range(20):
    c.wait_msg()
gc.collect(); gc.disable()
before = gc.mem_alloc()
for _ in range({rounds}):
    c.wait_msg()
made = gc.mem_alloc()
gc.enable(); gc.collect()
say((made - gc.mem_alloc()) // {rounds}, kept[-1].payload == bytes({size}), c.refused)
""",
        )
    left, *rest = said[0].split(" ", 1)
    assert int(left) <= 0, said
    assert rest == ["True {}"]
