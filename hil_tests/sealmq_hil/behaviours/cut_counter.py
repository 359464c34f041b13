"""Power cuts while a start writes its boot counter; the next start publishes, no nonce repeats.

Of a virtual board each change of the flash is counted, and half of the cuts fall inside of one. Of
a real one the power goes at a time behind its start.
"""

from __future__ import annotations

from ..behaviour import Behaviour
from ..bench import Bench
from ..board import POWER
from ..cutting import Cutting


def _run(bench: Bench) -> None:
    count = bench.options.cuts - bench.options.cuts // 3
    cutting = Cutting(bench)
    with bench.stage("measure") as stage:
        changes = cutting.measure()
        stage.count(changes)
    cutting.all(count, 0, changes)


BEHAVIOUR = Behaviour(
    "cut-counter",
    "power cuts while the boot counter is written",
    _run,
    needs=frozenset({POWER}),
)
