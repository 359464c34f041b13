"""What connecting and publishing may cost, in instructions of 64-bit MicroPython under valgrind.

On 64-bit ARM there is no viper, so no such bound: the counts are not taken there.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import bench_device
from bench_measures import tasks
from bench_rows import Row, value
from real_micropython import VIPER

# A connect over TLS 1.3 with ECDSA takes 138 times that.
CONNECT = 307_000
TIMES_TLS = 138
# A wake over TLS takes ten times that; the whole process is counted.
WAKE = 4_500_000
# Of three sites the cheapest counts: where things come to lie in the heap makes some thousand more
# or less.
TRIES = 3


def measured(measures: Sequence[str], variants: Sequence[str]) -> list[Row]:
    """Rows of these measures at 64 bytes."""
    return bench_device.measure(tasks(measures, variants, [64]), 1)


def cost(rows: list[Row], measure: str, variant: str = "sealmq-ccm") -> float:
    found = value(rows, measure, variant)
    assert found is not None
    assert found > 0
    return found


if 64 in VIPER:

    def test_what_connecting_publishing_and_waking_may_cost() -> None:
        measures = ["connect", "reconnect", "publish", "wake_publish_sleep"]
        rows = measured(measures, ["sealmq-ccm"])
        connect = cost(rows, "connect")
        for _ in range(TRIES - 1):
            if connect < CONNECT:
                break
            connect = cost(measured(["connect"], ["sealmq-ccm"]), "connect")
        assert connect < CONNECT
        assert cost(rows, "reconnect") < 220_000
        assert cost(rows, "publish") < 16_500
        assert cost(rows, "wake_publish_sleep") < WAKE

    # What the TLS library takes is no work of ours and does not change from day to day.
    @pytest.mark.full
    def test_tls_takes_so_many_times_as_much_to_connect() -> None:
        rows = measured(["connect"], ["tls13-ecdsa", "sealmq-ccm"])
        tls = next(row for row in rows if row["variant"] == "tls13-ecdsa")
        assert tls["params"]["suite"] == "TLS1-3-AES-256-GCM-SHA384"
        assert tls["params"]["verified"] is True
        assert tls["value"] > TIMES_TLS * cost(rows, "connect")
