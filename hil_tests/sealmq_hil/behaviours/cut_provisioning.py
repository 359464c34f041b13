"""Power cuts while a board stores new keys: its label was rekeyed while it was off."""

from __future__ import annotations

from ..behaviour import Behaviour
from ..bench import Bench
from ..board import POWER
from ..cutting import Cutting


def _run(bench: Bench) -> None:
    count = bench.options.cuts // 3
    cutting = Cutting(bench, before=lambda: bench.meet(bench.rekey_all))
    with bench.stage("measure-plain") as stage:
        plain = Cutting(bench).measure()
        stage.count(plain)
    with bench.stage("measure") as stage:
        changes = cutting.measure()
        stage.count(changes)
    cutting.all(count, min(plain, changes - 1), changes)


BEHAVIOUR = Behaviour(
    "cut-provisioning",
    "power cuts while the keys of a new epoch are stored",
    _run,
    needs=frozenset({POWER}),
)
