"""A board that has MicroPython alone gets client and secret over its REPL, without flashing.

Where the flash can be cut, that is done twice: the first run ends in a power cut somewhere.
"""

from __future__ import annotations

import time

from ..behaviour import Behaviour
from ..bench import Bench
from ..board import CUT
from ..errors import Failed
from ..strategy import State
from ..tools import partition

# Changes of the flash among which the first run is cut; the whole takes several hundred.
_FIRST, _LAST = 5, 150


def _run(bench: Bench) -> None:
    enrolment = bench.site.enrolment(bench.name)
    if CUT in bench.board.means:
        with bench.stage("cut") as stage:
            after = bench.dice.randrange(_FIRST, _LAST)
            bench.board.arm(after, inside=True, seed=bench.dice.getrandbits(32))
            with bench.serial.away(), bench.heavy:
                said = _fails(bench)
            place = bench.board.place()
            if place is None:
                raise Failed(f"not cut at change {after + 1} of its flash, and yet: {said}")
            stage.cut(place, partition(place.address))
            bench.board.power(True)
    before, since = bench.salts(), time.monotonic()
    with bench.stage("provision"), bench.serial.away(), bench.heavy:
        bench.tools.provision(bench.board, enrolment, bench.topic)
    with bench.stage("publish"):
        bench.fresh(since, not_in=before)


# What it said. mpremote waits for a board for ever; somebody who sees it dark presses Ctrl-C.
def _fails(bench: Bench) -> str:
    enrolment, gone = bench.site.enrolment(bench.name), bench.board.place
    try:
        bench.tools.provision(bench.board, enrolment, bench.topic, given_up=gone)
    except Failed as error:
        return str(error)
    raise Failed("it is told to be provisioned, and its power was to be cut meanwhile")


BEHAVIOUR = Behaviour(
    "provision",
    "over MicroPython, without flashing; again behind a power cut",
    _run,
    begins=State.FLASHED,
)
