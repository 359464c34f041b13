"""What connecting and publishing may cost, in instructions of 64-bit MicroPython under valgrind.

On 64-bit ARM there is no viper, so no such bound: the counts are not taken there.
"""

from __future__ import annotations

import bench_device
from bench_measures import Task, tasks
from bench_rows import Row, value
from real_micropython import VIPER

CONNECT = 360_000
TIMES_TLS = 120
# Of three sites the cheapest counts: where things come to lie in the heap makes some thousand more
# or less.
TRIES = 3


def measured(*measures: str, variant: str = "sealmq-ccm") -> list[Row]:
    """Rows of these measures at 64 bytes."""
    chosen: list[Task] = tasks(measures, [variant], [64])
    return bench_device.measure(chosen, 1)


def cost(rows: list[Row], measure: str, variant: str = "sealmq-ccm") -> float:
    found = value(rows, measure, variant)
    assert found is not None
    assert found > 0
    return found


if 64 in VIPER:

    def test_connect_to_the_first_accepted_publish() -> None:
        tls = measured("connect", variant="tls13-ecdsa")
        rows: list[Row] = []
        for _ in range(TRIES):
            rows = measured("connect")
            if cost(rows, "connect") < CONNECT:
                break
        assert cost(rows, "connect") < CONNECT
        assert cost(tls, "connect", "tls13-ecdsa") > TIMES_TLS * cost(rows, "connect")
        assert tls[0]["params"]["suite"] == "TLS1-3-AES-256-GCM-SHA384"
        assert tls[0]["params"]["verified"] is True

    def test_reconnect_and_publish() -> None:
        rows = measured("reconnect", "publish")
        assert cost(rows, "reconnect") < 260_000
        assert cost(rows, "publish") < 22_000
