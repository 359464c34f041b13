"""What receiving a message of 64 bytes may cost, in instructions of 64-bit MicroPython under
valgrind: without the fast way (hearing.py) it is some ten times that.

On 64-bit ARM there is no viper, so no such bound: the counts are not taken there.
"""

from __future__ import annotations

import bench_device
from bench_measures import tasks
from bench_rows import value
from real_micropython import VIPER

# At most 1.3 of umqtt's receive without any protection, and so much of it over TLS 1.3. The aim is
# 0.8 of that, where it is; TLS itself differs by a hundredth from run to run.
TIMES = {"plain": 1.3, "tls13-ecdsa": 0.82}

if 64 in VIPER:

    def test_a_message_like_earlier_ones() -> None:
        rows = bench_device.measure(tasks(["receive"], [*TIMES, "sealmq-ccm"], [64]), 2)
        ours = value(rows, "receive", "sealmq-ccm")
        assert ours is not None
        assert ours > 0
        for variant, times in TIMES.items():
            theirs = value(rows, "receive", variant)
            assert theirs is not None
            assert ours < times * theirs, variant
