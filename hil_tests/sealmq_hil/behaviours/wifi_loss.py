"""The Wi-Fi goes, the board notices; it comes back, and so does the board."""

from __future__ import annotations

import time

from ..behaviour import Behaviour
from ..bench import Bench
from ..board import WIFI


def _run(bench: Bench) -> None:
    before = bench.salts()
    since = time.monotonic()
    with bench.stage("lose"):
        bench.board.wifi(False)
        bench.serial.wait(r"^sealmq: down", since, bench.options.patience_s)
        # Boards of one access point lose it together, and none may bring it back too early.
        bench.meet()
    since = time.monotonic()
    with bench.stage("recover"):
        bench.board.wifi(True)
        seen = bench.fresh(since)
    bench.same_boot(seen, before)


BEHAVIOUR = Behaviour(
    "wifi-loss", "says that it is down, and publishes again", _run, needs=frozenset({WIFI})
)
