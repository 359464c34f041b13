"""`sealmq purposes`: what data may be used for, and what it was used for. HivePBAC."""

from __future__ import annotations

import argparse
import importlib
import json
from typing import Any

from sealmq.cli.errors import OK

_EXAMPLES = """\
examples:
  sealmq purposes show factory                            all reservations, presubscriptions, ...
  sealmq purposes explain factory machine/1/temperature   who may read it, for which purpose, why
  sealmq purposes report factory -t 'machine/#' --since 7d   who got it, for what, by whose leave
  sealmq purposes history factory -t staff/badge             when it was withdrawn, and since then
  sealmq purposes set factory --client officer --mode fop   switch the mode, now

show, explain, report and history only read, whether the site is up or down. Reservations are made
with `sealmq reserve`, presubscriptions with `sealmq presubscribe`, or both in sealmq.toml.
"""
_SET_EXAMPLES = """\
examples:
  sealmq purposes set factory --client officer --mode fop
  sealmq purposes set factory --client officer --strict true
  sealmq purposes set factory --client officer --mode configured     again as sealmq.toml has it

hybrid, fos (filter on subscribe), fop (filter on publish): what each gives, and what it costs,
stands in gateway/PURPOSES.md. Only stewards may say it (stewards in sealmq.toml).

"""

CONFIGURED = "configured"
# The verbs with a module of their own.
_VERBS = ("show", "explain", "report", "history")


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """sealmq purposes show|explain|report|history|set"""
    from sealmq.cli.acting import CODES, add_timeout, add_who

    parser = sub.add_parser(
        "purposes",
        help="what data may be used for, and who got it for what",
        description="Purposes: what holds, why, and what was delivered for what.",
        epilog=_EXAMPLES,
    )
    verbs = parser.add_subparsers(
        dest="verb", metavar="show|explain|report|history|set", required=True, help="what to do"
    )
    for verb in _VERBS:
        _module(verb).add(verbs)
    setting = verbs.add_parser(
        "set",
        help="switch the mode or strictness of a site that is up",
        description="Change a setting of the site, as a steward. It counts at once, for what is "
        "subscribed too.",
        epilog=_SET_EXAMPLES + CODES,
    )
    add_who(setting)
    setting.add_argument(
        "--mode", choices=("hybrid", "fos", "fop", CONFIGURED), help="when subscriptions are judged"
    )
    setting.add_argument(
        "--strict",
        choices=("true", "false", CONFIGURED),
        help="whether what nobody has reserved is for nobody",
    )
    add_timeout(setting)
    setting.add_argument("--json", action="store_true", help="say what was done as JSON")


def run(args: argparse.Namespace) -> int:
    """Do it."""
    if args.verb in _VERBS:
        done: int = _module(args.verb).run(args)
        return done
    from sealmq.cli.acting import act, check_who, wrong
    from sealmq.cli.pub import seconds

    check_who(args)
    if args.mode is None and args.strict is None:
        raise wrong(args, "nothing to set", "--mode or --strict")
    args.timeout = seconds(args, args.timeout)
    return act(_set(args))


async def _set(args: argparse.Namespace) -> int:
    from sealmq.cli.acting import asking_client

    from ..client import Purposes

    async with await asking_client(args) as client:
        for name, value in (("mode", args.mode), ("strict", args.strict)):
            if value is not None:
                await Purposes(client).set(name, "" if value == CONFIGURED else value)
                if args.json:  # a line each: one may be refused after the other
                    print(json.dumps({"setting": name, "value": value}), flush=True)
                    continue
                print(f"{name}: {'as sealmq.toml has it' if value == CONFIGURED else value}")
    return OK


def _module(verb: str) -> Any:
    return importlib.import_module(f"{__package__}.{verb}")
