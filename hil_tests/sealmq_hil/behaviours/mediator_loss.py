"""The mediator is killed; the boards connect and publish again by themselves."""

from __future__ import annotations

import time

from ..behaviour import Behaviour
from ..bench import Bench


def _run(bench: Bench) -> None:
    before = bench.salts()
    with bench.stage("lose"):
        bench.meet(bench.site.kill_mediator)
    since = time.monotonic()
    with bench.stage("recover"):
        seen = bench.fresh(since)
    bench.same_boot(seen, before)


BEHAVIOUR = Behaviour(
    "mediator-loss", "connects and publishes again behind a killed mediator", _run
)
