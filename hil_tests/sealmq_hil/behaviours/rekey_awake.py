"""Its label gets a new epoch while it is connected: it goes on under that, in the same boot."""

from __future__ import annotations

import time

from ..behaviour import Behaviour
from ..bench import Bench


def _run(bench: Bench) -> None:
    before = bench.salts()
    old = bench.fresh(time.monotonic()).epoch
    with bench.stage("rekey"):
        bench.meet(bench.rekey_all)
    since = time.monotonic()
    with bench.stage("publish"):
        seen = bench.under(since, old)
    bench.same_boot(seen, before)


BEHAVIOUR = Behaviour("rekey-awake", "a new epoch while it is connected", _run)
