"""`sealmq find`: sites that are announced by mDNS in this network."""

from __future__ import annotations

import argparse
import errno
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

from sealmq.plain import plain
from sealmq.site.reach import written

from .errors import FAILED, OK, OperatorError, UsageError

_EXAMPLES = """\
examples:
  sealmq find                                        all sites that are announced here
  sealmq find --enrolment panel.sealmq.json          where this client's site is said to be
  sealmq find --site 0a0b0c0d --json | jq -r '.found[].host'
  sealmq pub --enrolment panel.sealmq.json --host 192.168.1.5 --port 1883 -t t -m 1

A site is announced where [mdns] of its sealmq.toml has announce = true. What is found is a hint:
anybody can announce anything. Who goes there without the site's keys gets nothing but a client that
does not connect. Boards that were built or provisioned with --mediator mdns look by themselves.

exit codes: 0 found; 1 nothing was found
"""

_NO_ADDRESS = errno.ENODEV, errno.EADDRNOTAVAIL


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """Add the parser."""
    parser = sub.add_parser(
        "find",
        help="sites that are announced in this network, by mDNS",
        description="List the sites that are announced in this network, by mDNS.",
        epilog=_EXAMPLES,
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--site", dest="id", metavar="ID", help="only this site, by its id")
    which.add_argument(
        "--enrolment", metavar="FILE", type=Path, help="only the site of this client's enrolment"
    )
    parser.add_argument(
        "--seconds", type=float, default=3.0, metavar="N", help="listen so long (default: 3)"
    )
    parser.add_argument(
        "--interface", metavar="ADDRESS", help="where: an address of this host (default: all)"
    )
    parser.add_argument("--json", action="store_true", help="as JSON, for scripts")


def run(args: argparse.Namespace) -> int:
    """Listen and tell."""
    from sealmq.mdns import EXTRA

    if not 0 < args.seconds <= 60:
        raise UsageError(f"--seconds {args.seconds:g}", "above 0, at most 60")
    site = _site(args)
    if importlib.util.find_spec("zeroconf") is None:
        raise OperatorError(
            f"mDNS needs the extra {EXTRA}, which is not installed here",
            hint=f"make install EXTRAS={EXTRA}, or pip install 'sealmq[{EXTRA}]'",
        )
    from sealmq.mdns.find import find

    try:
        found = find(args.seconds, args.interface, site)
    except (OSError, RuntimeError, ValueError) as error:
        other = isinstance(error, OSError) and error.errno not in _NO_ADDRESS
        if args.interface is None or other:
            raise OperatorError(
                f"this host cannot listen for announcements: {error}", hint="has it a network?"
            ) from None
        raise OperatorError(
            f"--interface {plain(args.interface, 60)}: this host has no such address",
            hint="ip address shows which it has",
        ) from None
    if args.json:
        rows = [
            {"site": one.site, "name": one.name, "host": one.host, "port": one.port}
            for one in found
        ]
        print(json.dumps({"found": rows}))
    for one in () if args.json else found:
        print(f"{plain(one.name)}  site {one.site}  {written(one.host, one.port)}")
    if not found and not args.json:
        raise OperatorError(
            "no site is announced here" if site is None else f"site {site} is not announced here",
            hint="[mdns] announce = true in its sealmq.toml, and `sealmq up`; some networks pass "
            "no multicast",
        )
    return OK if found else FAILED


def _site(args: argparse.Namespace) -> str | None:
    if args.enrolment is not None:
        try:
            told = json.loads(args.enrolment.read_bytes()[:65536])
            wanted = told["site"]
        except (ValueError, TypeError, KeyError):
            raise OperatorError(f"{args.enrolment} is no enrolment file") from None
    else:
        wanted = args.id
    if wanted is not None and not re.fullmatch(r"[0-9a-fA-F]{8}", str(wanted)):
        raise UsageError(f"{plain(str(wanted), 40)} is no site's id", "8 hexadecimal digits")
    return None if wanted is None else str(wanted).lower()
