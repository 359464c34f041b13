"""What receiving a message of 64 bytes may cost, in instructions of 64-bit MicroPython under
valgrind: without the fast way (hearing.py) it is some ten times that.

On 64-bit ARM there is no viper, so no such bound: the counts are not taken there.
"""

from __future__ import annotations

import bench_device
from bench_measures import tasks
from bench_rows import value
from real_micropython import VIPER

# At most 1.6 of umqtt's receive without any protection.
TIMES_PLAIN = 1.6

if 64 in VIPER:

    def test_a_message_like_earlier_ones() -> None:
        rows = bench_device.measure(tasks(["receive"], ["plain", "sealmq-ccm"], [64]), 1)
        plain, ours = value(rows, "receive", "plain"), value(rows, "receive", "sealmq-ccm")
        assert plain is not None
        assert ours is not None
        assert 0 < ours < TIMES_PLAIN * plain
