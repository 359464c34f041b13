"""What the control interface can ask of a board: one JSON object there, one back.

    {"do": "power", "on": true|false}
    {"do": "download", "on": true|false}    IO0 held low; resets the board
    {"do": "reset"}                         the EN button
    {"do": "cut", "after": N, "inside": false, "seed": 0}    "after" null: disarm
    {"do": "fault", "sector": N, "how": "fail"|"stuck"|"none"}
    {"do": "status"}

Anything else is the interpreter's (child.py). The answer is {"ok": true, …}, or {"ok": false,
"error": text}.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from . import partitions
from .flash import SECTOR, Misuse
from .limits import NOT_MODELLED
from .soc import Soc


def obey(soc: Soc, request: dict[str, Any]) -> dict[str, Any]:
    try:
        return _obey(soc, request)
    except Misuse as error:
        return {"ok": False, "error": str(error)}
    except (KeyError, ValueError, TypeError) as error:
        return {"ok": False, "error": f"request {request}: {error!r}"}


def _obey(soc: Soc, request: dict[str, Any]) -> dict[str, Any]:
    do = request.get("do")
    if do == "power":
        soc.power(bool(request["on"]))
    elif do == "download":
        soc.download = bool(request["on"])
        if soc.mode != "off":
            soc.reset()
    elif do == "reset":
        if soc.mode == "off":
            return {"ok": False, "error": "the board is off"}
        soc.reset()
    elif do == "cut":
        _cut(soc, request)
    elif do == "fault":
        how = request["how"]
        soc.flash.fault(int(request["sector"]), None if how == "none" else how)
    elif do == "status":
        return {"ok": True, **status(soc)}
    else:
        return soc.child.ctl(request)
    return {"ok": True, "mode": soc.mode}


def _cut(soc: Soc, request: dict[str, Any]) -> None:
    if request["after"] is None:
        soc.flash.disarm_cut()
        return
    soc.flash.arm_cut(
        int(request["after"]),
        inside=bool(request.get("inside")),
        seed=int(request.get("seed", 0)),
    )


def status(soc: Soc) -> dict[str, Any]:
    flash = soc.flash
    return {
        "mode": soc.mode,
        "download": soc.download,
        "boots": soc.boots,
        "flash": {
            **asdict(flash.counts),
            "sector": SECTOR,
            "wear": {at: times for at, times in enumerate(flash.wear) if times},
            "faults": flash.faults,
            "cut_armed": asdict(flash.armed) if flash.armed else None,
            "last_cut": flash.last_cut,
        },
        "cuts": [{**cut, **partitions.place(flash.path, cut["at"])} for cut in soc.cuts],
        "child": soc.child.status(),
        "refused": dict(soc.loader.refused),
        "not_modelled": list(NOT_MODELLED),
    }
