"""Its label gets a new epoch while it has no power: it publishes under that when it is back."""

from __future__ import annotations

import time

from ..behaviour import Behaviour
from ..bench import Bench
from ..board import POWER


def _run(bench: Bench) -> None:
    old = bench.fresh(time.monotonic()).epoch
    with bench.stage("rekey"):
        bench.board.power(False)
        bench.meet(bench.rekey_all)
    since = time.monotonic()
    with bench.stage("publish"):
        bench.board.power(True)
        bench.under(since, old)


BEHAVIOUR = Behaviour(
    "rekey-asleep", "a new epoch while it has no power", _run, needs=frozenset({POWER})
)
