"""Each kind of fault, done to a place. All block until the fault is over; what comes then (restart,
reconnect, recovery) is the site's own business."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from . import power
from .place import Place, send
from .schedule import Round


def strike(place: Place, fault: Round) -> list[str]:
    """Do it; gives what is worth a line in the result."""
    return _DO[fault.kind](place, fault)


def prepare(place: Place, fault: Round) -> None:
    """Before the round's load begins."""
    if fault.kind == "power-cut":
        power.arm(place)


def _kill(role: str) -> Callable[[Place, Round], list[str]]:
    def kill(place: Place, fault: Round) -> list[str]:
        pid = place.await_pid(role)
        send(pid, signal.SIGKILL)
        place.gone({role: pid})
        if role == "broker" and place.external is not None:
            place.external.start()
        return []

    return kill


def _kill_supervisor(place: Place, fault: Round) -> list[str]:
    pids = place.pids()
    send(place.await_pid("supervisor"), signal.SIGKILL)
    if place.external is not None:
        pids.pop("broker", None)
    # Its processes hear of it (SIGTERM) and end; until then they hold the site's lock.
    place.gone(pids)
    place.launch()
    return []


def _broker_gone(place: Place, fault: Round) -> list[str]:
    pid = place.await_pid("broker")
    send(pid, signal.SIGSTOP)
    try:
        time.sleep(fault.hold)
    finally:
        send(pid, signal.SIGCONT)
    return []


def _disk_full(place: Place, fault: Round) -> list[str]:
    place.shim.full(True)
    try:
        time.sleep(fault.hold)
    finally:
        place.shim.full(False)
    return []


def _slow_store(place: Place, fault: Round) -> list[str]:
    place.shim.slow(int(fault.amount))
    try:
        time.sleep(fault.hold)
    finally:
        place.shim.slow(0)
    return []


def _locked_store(place: Place, fault: Round) -> list[str]:
    held = place.lock("mediator.db" if fault.seed % 3 else "kg.db")
    try:
        time.sleep(fault.hold)
    finally:
        held.rollback()
        held.close()
    return []


def _clock_jump(place: Place, fault: Round) -> list[str]:
    jump = fault.amount - place.shim.shift
    place.shim.clock(fault.amount)
    return [f"the clock jumped by {jump:+.1f} s"]


def _power_cut(place: Place, fault: Round) -> list[str]:
    place.kill_all(place.pids())
    lenient = [place.disk / "broker", place.path / "state" / "broker"]
    told = power.roll_back(place.shim, lenient)
    place.shim.record(False)
    if place.external is not None:
        place.external.start()
    place.launch()
    return told


_DO: dict[str, Callable[[Place, Round], list[str]]] = {
    "kill-kg": _kill("kg"),
    "kill-mediator": _kill("mediator"),
    "kill-broker": _kill("broker"),
    "kill-supervisor": _kill_supervisor,
    "broker-gone": _broker_gone,
    "disk-full": _disk_full,
    "slow-store": _slow_store,
    "locked-store": _locked_store,
    "clock-jump": _clock_jump,
    "power-cut": _power_cut,
}
