"""`sealmq presubscribe`: purposes for clients that know nothing of them. HivePBAC, section V-B."""

from __future__ import annotations

import argparse
import json
from typing import Any

from sealmq.cli.errors import OK

_EXAMPLES = """\
examples:
  sealmq presubscribe factory --client officer --for m1-arm-operator -t '#' --purpose service
  sealmq presubscribe factory --client officer --for m1-arm-operator -t '#' --remove
  sealmq presubscribe factory --client monitor -t 'machine/#' --purpose service       for itself

It says for which purpose a client reads when it subscribes to exactly this filter and names no
purpose. It counts at once, also for what is subscribed already. For others only stewards may say it
(stewards in sealmq.toml).

"""


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """sealmq presubscribe"""
    from sealmq.cli.acting import CODES, add_timeout, add_who

    parser = sub.add_parser(
        "presubscribe",
        help="say for which purpose a client that cannot say it subscribes",
        description="Give the subscriptions of a client a purpose, when it names none itself.",
        epilog=_EXAMPLES + CODES,
    )
    add_who(parser)
    parser.add_argument(
        "--for", dest="who", metavar="CLIENT", help="the client that subscribes (default: itself)"
    )
    parser.add_argument(
        "-t",
        "--topic",
        metavar="FILTER",
        action="append",
        help="the filter that it subscribes to; may be repeated",
    )
    parser.add_argument("--purpose", metavar="PURPOSE", help="what the data is for")
    parser.add_argument("--remove", action="store_true", help="take the presubscription away")
    add_timeout(parser)
    parser.add_argument("--json", action="store_true", help="say what was done as JSON")


def run(args: argparse.Namespace) -> int:
    """Say it, or take it away."""
    from sealmq.cli.acting import act, check_who

    check_who(args)
    _check(args)
    return act(_presubscribe(args))


def _check(args: argparse.Namespace) -> None:
    from sealmq.cli.acting import check_values, wrong
    from sealmq.cli.pub import seconds
    from sealmq_spec.purposes import check_name, check_purpose
    from sealmq_spec.topics import check_filter

    if not args.topic:
        raise wrong(args, "no topic", "at least one -t FILTER")
    if args.purpose is None and not args.remove:
        raise wrong(args, "no purpose", "--purpose PURPOSE, or --remove")
    if args.purpose is not None and args.remove:
        raise wrong(args, "--purpose with --remove", "all of it is taken away")
    check_values(
        args,
        (check_filter, args.topic),
        (check_purpose, [args.purpose]),
        (check_name, [args.who]),
    )
    args.timeout = seconds(args, args.timeout)


async def _presubscribe(args: argparse.Namespace) -> int:
    from sealmq.cli.acting import asking_client
    from sealmq.plain import plain

    from ..client import Purposes

    async with await asking_client(args) as client:
        who = args.who or client.identity.name
        for filt in args.topic:
            await Purposes(client).presubscribe(who, filt, None if args.remove else args.purpose)
            said = "no purpose any more" if args.remove else f"for {args.purpose}"
            if args.json:  # a line each: one may be refused after others
                told = {"client": who, "filter": filt, "purpose": args.purpose}
                print(json.dumps(told), flush=True)
            else:
                print(plain(f"{who} on {filt}: {said}"))
    return OK
