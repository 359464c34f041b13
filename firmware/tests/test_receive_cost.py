"""What receiving a message of 64 bytes may cost, in instructions of 64-bit MicroPython under
valgrind: without the fast way (hearing.py) it is some ten times that.

On 64-bit ARM there is no viper, so no such bound: the counts are not taken there.
"""

from __future__ import annotations

import pytest

import bench_device
from bench_measures import tasks
from bench_rows import value
from real_micropython import VIPER

# At most 1.3 of umqtt's receive without any protection, and so much of it over TLS 1.3. The aim is
# 0.8 of that, where it is; TLS itself differs by a hundredth from run to run.
TIMES = {"plain": 1.3, "tls13-ecdsa": 0.82}
# What the TLS library takes is no work of ours and does not change from day to day.
THEIRS = pytest.mark.parametrize(
    "theirs", [["plain"], pytest.param(["tls13-ecdsa"], marks=pytest.mark.full)], ids="".join
)

if 64 in VIPER:

    @THEIRS
    def test_a_message_like_earlier_ones(theirs: list[str]) -> None:
        rows = bench_device.measure(tasks(["receive"], [*theirs, "sealmq-ccm"], [64]), 2)
        ours = value(rows, "receive", "sealmq-ccm")
        assert ours is not None
        assert ours > 0
        for variant in theirs:
            cost = value(rows, "receive", variant)
            assert cost is not None
            assert ours < TIMES[variant] * cost, variant
