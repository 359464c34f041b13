"""From an erased board to a message that is read, by the plain command line of esptool."""

from __future__ import annotations

import time

from ..behaviour import Behaviour
from ..bench import Bench
from ..strategy import State


def _run(bench: Bench) -> None:
    with bench.stage("build") as stage:
        with bench.heavy:
            enrolment = bench.site.enrolment(bench.name)
            bundle = bench.tools.bundle(bench.board, enrolment, bench.topic)
        stage.bytes(bundle.nvs.stat().st_size + bundle.vfs.stat().st_size)
    with bench.stage("loader"):
        bench.strategy.transition(State.LOADER)
    with bench.stage("write") as stage:
        with bench.heavy:
            written = bench.tools.write(bench.board, bundle)
        bench.image = written.image
        stage.bytes(written.bytes)
    since = time.monotonic()
    with bench.stage("boot"):
        bench.serial.open()
        bench.board.loader(False)
        bench.serial.wait(r"^sealmq: boot ", since, bench.options.patience_s)
    with bench.stage("publish"):
        bench.fresh(since)


BEHAVIOUR = Behaviour(
    "flash", "esptool's own command line; it boots, provisions and publishes", _run, begins=None
)
