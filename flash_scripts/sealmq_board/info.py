"""`sealmq board info`: what a board is, whose it is, and which client it runs. No secret."""

from __future__ import annotations

import argparse
import json
from typing import Any

from .cli import alone
from .console import Console
from .enrolment import MDNS
from .on_it import OnIt, look
from .ports import add_patience, add_selectors, one

HELP = "what a board is, whose it is, and which client it runs"
EXAMPLES = """\
examples:
  sealmq board info --board 0001
  sealmq board info --port /dev/ttyUSB0 --json | jq -r .client.name
  sealmq board info --board 0001 --no-start --patience 3600      catch a board that sleeps, hold it

It asks MicroPython on the board, whose program is stopped for that and started again. A board that
sleeps is caught at its next wake. --no-start holds it awake, for mpremote say, until `sealmq board
reset`, or for an hour.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    add_selectors(parser)
    add_patience(parser)
    parser.add_argument(
        "--no-start", action="store_true", help="leave the board at its prompt (REPL)"
    )
    parser.add_argument("--json", action="store_true", help="one object")


def run(args: argparse.Namespace) -> int:
    """Ask, start it again, print."""
    port = one(args)
    there = look(port)
    if not args.no_start:
        with Console(port) as console:
            console.restart()
    found = facts(there)
    if args.json:
        print(json.dumps(found))
        return 0
    for name, text in _lines(there, found):
        print(f"{name + ':':<13}{text}")
    return 0


def facts(there: OnIt) -> dict[str, Any]:
    """What `--json` prints."""
    slots = there.slots
    active = slots.get("active", "")
    return {
        "board": there.name,
        "machine": there.about.get("machine", ""),
        "id": there.about.get("id", ""),
        "micropython": there.about.get("version", ""),
        "client": there.client or None,
        "wifi": bool(there.nvs.get("wifi")),
        "mediator": there.nvs.get("mediator", ""),
        "boot": there.nvs.get("boot", 0),
        "slot": active,
        "version": there.versions.get(active, ""),
        "trial": _trial(there),
        "rolled_back": slots.get("last") or None,
        "app": there.app,
        "free": there.free,
    }


def _trial(there: OnIt) -> dict[str, Any] | None:
    name = there.slots.get("trial")
    if not name:
        return None
    version = there.versions.get(name, "")
    return {"slot": name, "version": version, "tries": there.slots.get("tries", 0)}


def _lines(there: OnIt, found: dict[str, Any]) -> list[tuple[str, str]]:
    client = found["client"]
    lines = [
        ("board", f"{found['machine'] or '?'}, id {found['id'] or '?'}"),
        ("MicroPython", str(found["micropython"])),
        (
            "client",
            f"{there.called} (number {client['client']}, site {client['site']})"
            if client
            else "none: sealmq board provision",
        ),
        ("Wi-Fi", "known" if found["wifi"] else "not known"),
    ]
    if found["mediator"] == MDNS:
        lines.append(("mediator", "looked for by mDNS, then the enrolment's address"))
    elif found["mediator"]:
        lines.append(("mediator", f"{found['mediator']}, in place of the enrolment's"))
    lines.append(("slot", f"{found['slot']}, version {found['version']}" if found["slot"] else "-"))
    if trial := found["trial"]:
        text = f"slot {trial['slot']}, version {trial['version']}, {trial['tries']} starts left"
        lines.append(("on trial", text))
    if found["rolled_back"]:
        lines.append(("rolled back", f"slot {found['rolled_back']}"))
    app = found["app"] or {}
    if app.get("topic"):
        lines.append(("publishes", f"{app['topic']}, each {app.get('every')} s"))
    lines += [("starts", f"{found['boot']:,}"), ("free", f"{found['free']:,} bytes")]
    return lines


if __name__ == "__main__":
    alone(__spec__.name)
