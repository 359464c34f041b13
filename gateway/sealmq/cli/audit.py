"""`sealmq audit verify SITE`: whether the audit log stands as it was written."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import FAILED, OK, OperatorError
from .keygen import add_key_file, key_file

if TYPE_CHECKING:
    from sealmq.audit.verify import Report

_EXAMPLES = """\
examples:
  sealmq audit verify factory
  sealmq audit verify factory --json | jq -r '.roles[].faults[].segment'
  ssh gateway sealmq audit verify factory --save - > anchor.json     keep it elsewhere
  sealmq audit verify factory --anchor anchor.json

Each line of the log is sealed with a key that is used once and forgotten, so that who takes a
process of the site over can rewrite nothing that it wrote before. A line that was changed, put in,
taken out or moved, and a segment that is missing, are named; the exit code is then 1. What a
process that was killed has left is told, and is no fault. Who has the site's key file can make
every seal: against root, keep an anchor (--save) on another machine, and compare with it.
"""
_ANCHOR = "sealmq-audit-anchor"


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """Add the parser."""
    parser = sub.add_parser("audit", help="is the audit log as it was written?", epilog=_EXAMPLES)
    inner = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    verify = inner.add_parser(
        "verify", help="name what was changed, put in or taken out", epilog=_EXAMPLES
    )
    verify.add_argument("site", metavar="SITE", help="the site's folder")
    add_key_file(verify)
    verify.add_argument("--json", action="store_true", help="print JSON, for scripts")
    verify.add_argument(
        "--save",
        metavar="FILE",
        help="write what the closed segments hold now to a new file, or to stdout (-) instead of "
        "all else; nothing is written if there is a fault",
    )
    verify.add_argument(
        "--anchor", metavar="FILE", type=Path, help="compare with what --save wrote earlier"
    )


def run(args: argparse.Namespace) -> int:
    """Read all of it, and tell."""
    from sealmq.audit import verify
    from sealmq.site import masterkey
    from sealmq.site.config import load
    from sealmq.site.layout import Layout, border_role

    if args.json and args.save == "-":
        raise OperatorError("--json and --save - both go to stdout", hint="--save FILE")
    layout = Layout.open(args.site)
    config = load(layout.config)
    site = config.site.id.hex()
    earlier = _anchor(args.anchor, site) if args.anchor is not None else {}
    key = masterkey.role_keys(layout, config, key_file(args)).audit
    now_ms = time.time_ns() // 1_000_000
    # A border's whole log may be gone.
    borders = [border_role(name) for name in config.borders]
    borders += [name for name in earlier if name.startswith(border_role("")) and "/" not in name]
    writers = layout.writers() | dict.fromkeys(borders, "border")
    reports = [
        verify.verify(layout.audit(name), role, key, config.audit.keep_ms, now_ms)
        for name, role in writers.items()
    ]
    for report in reports:
        verify.differs(report, earlier.get(report.name, {}))
    bad = any(report.faults for report in reports)
    if args.save is not None and not bad:
        _save(args.save, verify.anchor(site, now_ms, reports))
    if args.json:
        print(json.dumps({"sound": not bad, "roles": [_json(report) for report in reports]}))
    elif args.save != "-" or bad:
        # What --save - writes is an anchor, and is none if there is a fault.
        with contextlib.redirect_stdout(sys.stderr if args.save == "-" else sys.stdout):
            for report in reports:
                _print(report)
    return FAILED if bad else OK


def _json(report: Report) -> dict[str, Any]:
    found = asdict(report)
    del found["heads"], found["expired"]
    return found


def _print(report: Report) -> None:
    from sealmq.plain import plain

    if not report.segments and not report.faults:
        return
    count = len(report.faults) + report.left_out
    said = f"{count} faults" if count else "as it was written"
    print(f"{report.name}: {report.segments} segments, {report.lines} lines: {said}")
    for fault in report.faults:
        print(f"  FAULT {plain(str(fault), 600)}")
    if report.left_out:
        print(f"  and {report.left_out} more")
    if report.unsealed:
        older = f"{report.unsealed} segments are older than the seals"
        print(f"  note: {older}: nothing vouches for them")
    for note in report.notes:
        print(f"  note: {plain(note, 600)}")


def _save(name: str, made: dict[str, Any]) -> None:
    text = json.dumps(made) + "\n"
    if name == "-":
        print(text, end="")
        return
    try:
        with Path(name).open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise OperatorError(
            f"{name} is there already",
            hint="an anchor is never overwritten: what it says of the past is what it is for",
        ) from None


def _anchor(path: Path, site: str) -> dict[str, dict[str, Any]]:
    hint = "`sealmq audit verify SITE --save FILE` writes one"
    try:
        made = json.loads(path.read_bytes())
    except ValueError:
        raise OperatorError(f"{path} is no JSON", hint=hint) from None
    roles = made.get("roles") if isinstance(made, dict) and made.get(_ANCHOR) == 1 else None
    if not isinstance(roles, dict) or not all(isinstance(one, dict) for one in roles.values()):
        raise OperatorError(f"{path} is no anchor of an audit log", hint=hint)
    if made.get("site") != site:
        raise OperatorError(
            f"{path} is the anchor of site {str(made.get('site'))[:20]}", f"this one is {site}"
        )
    return roles
