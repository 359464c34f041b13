"""The broker is killed; the boards publish again by themselves when it is back."""

from __future__ import annotations

import time

from ..behaviour import Behaviour
from ..bench import Bench


def _run(bench: Bench) -> None:
    before = bench.salts()
    with bench.stage("lose"):
        bench.meet(lambda: bench.site.lose_broker(bench.options.broker_away_s))
    since = time.monotonic()
    with bench.stage("recover"):
        seen = bench.fresh(since)
    bench.same_boot(seen, before)


BEHAVIOUR = Behaviour("broker-loss", "publishes again when a killed broker is back", _run)
