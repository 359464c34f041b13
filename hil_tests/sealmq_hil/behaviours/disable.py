"""It is disabled: it is put out and not let in; enabled again, it comes back by itself."""

from __future__ import annotations

import time

from ..behaviour import Behaviour
from ..bench import Bench
from ..results import now_ms


def _run(bench: Bench) -> None:
    at_ms = now_ms()
    site = bench.site
    try:
        with bench.stage("disable"):
            bench.meet(lambda: site.clients_all("disable"))
            bench.refused(at_ms)
    finally:
        # What comes behind needs it, whatever this was.
        with bench.stage("enable"):
            bench.meet(lambda: site.clients_all("enable"))
    before, since = bench.salts(), time.monotonic()
    with bench.stage("publish"):
        # Who is refused asks once a minute; a start asks at once.
        bench.board.reset()
        bench.fresh(since, not_in=before)


BEHAVIOUR = Behaviour("disable", "put out and refused; enabled, it is back", _run)
