"""Its secret is replaced: the old one lets nobody in, the new enrolment brings it back."""

from __future__ import annotations

import time

from ..behaviour import Behaviour
from ..bench import Bench
from ..results import now_ms


def _run(bench: Bench) -> None:
    at_ms = now_ms()
    with bench.stage("rotate"):
        bench.meet(lambda: bench.site.clients_all("rotate"))
        enrolment = bench.site.enrolment(bench.name)
        bench.refused(at_ms)
    with bench.stage("provision"), bench.serial.away(), bench.heavy:
        bench.tools.provision(bench.board, enrolment, bench.topic)
    before, since = bench.salts(), time.monotonic()
    with bench.stage("publish"):
        bench.board.reset()
        bench.fresh(since, not_in=before)


BEHAVIOUR = Behaviour("rotate", "put out with its old secret, back with the new one", _run)
