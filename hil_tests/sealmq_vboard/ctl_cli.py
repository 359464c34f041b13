"""`sealmq vboard ctl` and `report`: a running board's power, buttons, faults, and how it stands."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from .control import ask
from .errors import OK, BoardError
from .limits import NOT_MODELLED
from .stubs import missing

_ON_OFF = {"power": "the supply", "download": "IO0: what a reset leads to", "wifi": "the network"}
_EPILOG = """\
examples:
  sealmq vboard ctl /tmp/one power off
  sealmq vboard ctl /tmp/one download on       then esptool can talk to it
  sealmq vboard ctl /tmp/one cut --after 20    the power fails before the 21st write from now on
  sealmq vboard ctl /tmp/one cut --after 20 --inside     ... in the middle of it
  sealmq vboard ctl /tmp/one clock +3600 --ppm -40
  sealmq vboard ctl /tmp/one fault 513 fail    sector 513 (of 4096 bytes) is worn out
  sealmq vboard ctl /tmp/one status --json
"""


def add(sub: argparse._SubParsersAction[Any]) -> None:
    ctl = sub.add_parser(
        "ctl",
        help="power, reset, power cuts, Wi-Fi, clock, flash faults, status of a running board",
        description="do something to a running board; a write is a page programmed (at most "
        "256 bytes) or a sector erased, by the program or by the loader",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    ctl.add_argument("folder", type=Path, metavar="DIR")
    what = ctl.add_subparsers(dest="do", metavar="WHAT", required=True)
    for name, text in _ON_OFF.items():
        switch = what.add_parser(name, help=f"{text}: on, off")
        switch.add_argument("on", choices=("on", "off"))
    what.add_parser("reset", help="the reset button")
    cut = what.add_parser("cut", help="let the power fail at a write to the flash")
    cut.add_argument("--after", type=int, metavar="N", help="so many writes are still done whole")
    cut.add_argument("--inside", action="store_true", help="the next one is done in part")
    cut.add_argument("--seed", type=int, default=0, help="which part")
    cut.add_argument("--off", action="store_true", help="no cut any more")
    clock = what.add_parser("clock", help="move the board's clock, or make it run fast or slow")
    clock.add_argument("move", nargs="?", type=float, metavar="+SECONDS")
    clock.add_argument("--ppm", type=int, help="its rate; 0: right")
    fault = what.add_parser("fault", help="wear out a sector of the flash")
    fault.add_argument("sector", type=int)
    fault.add_argument("how", choices=("fail", "stuck", "none"))
    status = what.add_parser("status", help="how the board stands")
    status.add_argument("--json", action="store_true")
    ctl.set_defaults(run=_ctl)
    report = sub.add_parser(
        "report",
        help="how the board stands, what it does not model and what its stubs lack",
        description="how the board stands, if it runs; what it does not model; what its stubs lack",
        epilog="example: sealmq vboard report /tmp/one",
    )
    report.add_argument("folder", type=Path, metavar="DIR")
    report.add_argument("--json", action="store_true")
    report.set_defaults(run=_report)


def _ctl(args: argparse.Namespace) -> int:
    request: dict[str, Any] = {"do": args.do}
    if args.do in _ON_OFF:
        request["on"] = args.on == "on"
    elif args.do == "cut":
        if args.off == (args.after is not None):
            raise BoardError("cut needs --after N, or --off", code=2)
        request |= {"after": args.after, "inside": args.inside, "seed": args.seed}
    elif args.do == "clock":
        if args.move is None and args.ppm is None:
            raise BoardError("clock needs +SECONDS or --ppm N", code=2)
        request |= {"move": args.move, "ppm": args.ppm}
    elif args.do == "fault":
        request |= {"sector": args.sector, "how": args.how}
    found = ask(args.folder, request)
    if args.do == "status":
        print(json.dumps(found) if args.json else "\n".join(_lines(found)))
    return OK


def _report(args: argparse.Namespace) -> int:
    try:
        found: dict[str, Any] | None = ask(args.folder, {"do": "status"})
    except BoardError:
        found = None
    lacking = missing()
    if args.json:
        print(json.dumps({"status": found, "not_modelled": NOT_MODELLED, "missing": lacking}))
        return OK
    print("\n".join(_lines(found) if found else [f"{args.folder} does not run"]))
    print("not modelled:")
    for line in NOT_MODELLED:
        print(f"  {line}")
    print("raise NotImplementedError, where a board has them:")
    for module, names in lacking.items():
        print(f"  {module}: {' '.join(names)}")
    return OK


def _lines(found: dict[str, Any]) -> list[str]:
    flash, child = found["flash"], found["child"]
    lines = [
        f"chip {found['chip']}, MAC {found['mac']}, {found['bits']}-bit interpreter",
        f"mode {found['mode']}{' (asleep)' if child['asleep'] else ''}, boots {found['boots']}",
        f"Wi-Fi {'on' if child['wifi_on'] else 'off'}, clock {child['clock_ppm']:+d} ppm",
        f"flash: {flash['programs']} programs ({flash['bytes_programmed']} bytes), "
        f"{flash['erases']} erases, {flash['set_bits_refused']} that wanted to set bits",
    ]
    if child["heap_free_at_start"] is not None:
        lines.append(f"heap: {child['heap_free_at_start']} bytes free when the program started")
    if flash["cut_armed"]:
        lines.append(f"a power cut is armed, after {flash['cut_armed']['after']} more writes")
    for cut in found["cuts"]:
        done = f"{cut['done']} of {cut['length']} bytes done" if cut["inside"] else "before it"
        where = f"{cut['partition'] or 'no partition'} at {cut['offset']:#x}"
        lines.append(f"power cut: {cut['what']} by the {cut['by']}, {where}, {done}")
    return lines
