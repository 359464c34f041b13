"""The power goes while it publishes; back on, it publishes in a boot session of its own."""

from __future__ import annotations

import time

from ..behaviour import Behaviour
from ..bench import Bench
from ..board import POWER


def _run(bench: Bench) -> None:
    with bench.stage("lose"):
        bench.board.power(False)
        bench.silent()
    before, since = bench.salts(), time.monotonic()
    with bench.stage("recover"):
        bench.board.power(True)
        bench.fresh(since, not_in=before)


BEHAVIOUR = Behaviour(
    "power-loss", "publishes again, under a salt of its own", _run, needs=frozenset({POWER})
)
