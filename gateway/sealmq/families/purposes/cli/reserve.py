"""`sealmq reserve`: say, as a client, what data may be used for. HivePBAC, section III."""

from __future__ import annotations

import argparse
import json
from typing import Any

from sealmq.cli.errors import OK

_EXAMPLES = """\
examples:
  sealmq reserve factory --client m1-temp-sensor -t machine/1/temperature --aip service
  sealmq reserve factory --client officer -t 'machine/#' --aip service --pip analytics
  sealmq reserve factory --client officer -t staff/badge --none           nobody may use it
  sealmq reserve factory --client officer -t 'machine/#' --remove         take the reservation back
  sealmq reserve --enrolment officer.sealmq.json -t 'machine/#' --aip service

--aip allows a purpose and all below it, --pip prohibits one and all below it; a prohibition goes
first. Where several reservations match a topic, all of them count together. A filter has one
reservation of clients: a new one takes its place; those of sealmq.toml stay beside it. Who may
reserve what: `sealmq purposes show SITE`, and gateway/PURPOSES.md.

"""


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """sealmq reserve"""
    from sealmq.cli.acting import CODES, add_timeout, add_who

    parser = sub.add_parser(
        "reserve",
        help="say for which purposes data may be used",
        description="Reserve topics for purposes, as a client. It counts from the next delivery.",
        epilog=_EXAMPLES + CODES,
    )
    add_who(parser)
    parser.add_argument(
        "-t",
        "--topic",
        metavar="FILTER",
        action="append",
        help="the topic or filter; may be repeated",
    )
    parser.add_argument(
        "--aip",
        metavar="PURPOSE",
        action="append",
        default=[],
        help="a purpose that is allowed; may be repeated",
    )
    parser.add_argument(
        "--pip",
        metavar="PURPOSE",
        action="append",
        default=[],
        help="a purpose that is prohibited; may be repeated",
    )
    parser.add_argument("--none", action="store_true", help="allow no purpose at all")
    parser.add_argument(
        "--remove", action="store_true", help="take away what clients have reserved there"
    )
    add_timeout(parser)
    parser.add_argument("--json", action="store_true", help="say what was done as JSON")


def run(args: argparse.Namespace) -> int:
    """Reserve, or take it away."""
    from sealmq.cli.acting import act, check_who

    check_who(args)
    _check(args)
    return act(_reserve(args))


def _check(args: argparse.Namespace) -> None:
    from sealmq.cli.acting import check_values, wrong
    from sealmq.cli.pub import seconds
    from sealmq_spec.purposes import check_purpose
    from sealmq_spec.topics import check_filter

    if not args.topic:
        raise wrong(args, "no topic", "at least one -t FILTER")
    chosen = [word for word in ("aip", "none", "remove") if getattr(args, word)]
    if args.remove and (args.aip or args.pip or args.none):
        raise wrong(args, "--remove with purposes", "what is taken away has none")
    if args.none and args.aip:
        raise wrong(args, "--none with --aip", "either no purpose is allowed, or these are")
    if not chosen:
        # Forgetting --aip must not shut everybody out.
        right = "--aip PURPOSE, or --none to allow nothing, or --remove to take it away"
        raise wrong(args, "no allowed purpose", right)
    for name in ("aip", "pip"):
        twice = {p for p in getattr(args, name) if getattr(args, name).count(p) > 1}
        if twice:
            raise wrong(args, f"--{name} {min(twice)} twice", "name each once")
    check_values(args, (check_filter, args.topic), (check_purpose, [*args.aip, *args.pip]))
    args.timeout = seconds(args, args.timeout)


async def _reserve(args: argparse.Namespace) -> int:
    from sealmq.cli.acting import asking_client
    from sealmq.plain import plain

    from ..client import Purposes

    async with await asking_client(args) as client:
        purposes = Purposes(client)
        for filt in args.topic:
            if args.remove:
                await purposes.release(filt)
                said = "no reservation of clients any more"
            else:
                await purposes.reserve(filt, args.aip, args.pip)
                said = in_words(args.aip, args.pip)
            if args.json:  # a line each: one may be refused after others
                told = None if args.remove else {"aip": args.aip, "pip": args.pip}
                print(json.dumps({"filter": filt, "reserved": told}), flush=True)
            else:
                print(plain(f"{filt}: {said}"))
    return OK


def in_words(aip: list[str], pip: list[str]) -> str:
    """What a reservation says."""
    allowed = f"for {', '.join(aip)}" if aip else "for nothing"
    return f"{allowed}, not for {', '.join(pip)}" if pip else allowed
