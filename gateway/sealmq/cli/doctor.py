"""`sealmq doctor SITE`: prove that enforcement is live, by trying what must fail.

`sealmq doctor --broker URL --as FILE`: the same at somebody's present broker, without a site.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import signal
import sys
from pathlib import Path
from textwrap import fill
from typing import Any

from sealmq.families import registry

from .errors import FAILED, OK, OperatorError, UsageError

NOTHING_TRIED = 2
SOME_UNTRIED = 3

_EXAMPLES = """\
examples:
  sealmq doctor factory
  sealmq doctor factory --json | jq -r '.tries[] | select(.ok == false) | .name'
  sealmq doctor --broker mqtt://localhost --as accounts.toml
  sealmq doctor --broker mqtts://broker.example --address 192.0.2.7 --as accounts.toml
  sealmq doctor --broker mqtt://localhost --as accounts.toml \\
    --revoke-command ./take-anns-rights --restore-command ./give-them-back

It makes clients and topics of its own (names that begin with sealmq-doctor), tries with them what
an attacker would, at the broker and at the mediator, and takes them out again. Nobody else's topics
and keys are touched. Run it as the site's owner or as root, on the gateway.
{families}
--broker: a broker of any kind, with accounts of its own; gateway/DOCTOR.md has the file. What that
does not allow an account must fail: reading and publishing across the access list, by #, by a
shared subscription, by a will; $SYS; entering without a name; a client id that is another's; and
what is left after a revocation. It says what is OPEN and how Mosquitto and EMQX close it. It writes
on the topics of the file alone, clears what it retained, and ends after --seconds or --messages. An
address that is not this machine's own is tried where --address says it.

Each try holds, FAILED, or could not be tried, with the reason; "ok" and "healthy" of --json are
then true, false or null.

exit codes: 0 all of it holds; 1 something FAILED, and this site or broker is open there; 2 nothing
could be tried; 3 nothing failed, and something could not be tried (say, the advertised address from
here, a peer's line that is down, or revoking without --revoke-command)
"""


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """sealmq doctor SITE"""
    does = [manifest.doctor.does for manifest in registry.manifests() if manifest.doctor]
    parser = sub.add_parser(
        "doctor",
        help="try what must fail, and report whether it does",
        description="Try what must fail at a site that is up, or at somebody's broker, and report "
        "whether it does.",
        epilog=_EXAMPLES.format(families="".join(f"{fill(words, 100)}\n" for words in does)),
    )
    parser.add_argument("site", metavar="SITE", nargs="?", help="the folder of a site that is up")
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")
    broker = parser.add_argument_group("somebody's broker, in place of a site")
    _of_broker = broker.add_argument
    _of_broker("--broker", metavar="URL", help="mqtt://HOST[:PORT] or mqtts://HOST[:PORT]")
    _of_broker("--as", metavar="FILE", type=Path, dest="accounts", help="accounts and their rights")
    _of_broker(
        "--address",
        action="append",
        default=[],
        help="an address of that host, not this machine's, that may be tried; may be repeated",
    )
    _of_broker("--cafile", metavar="FILE", type=Path, help="the CA of its certificate (mqtts)")
    _of_broker("--cert", metavar="FILE", type=Path, help="a client's certificate (mqtts)")
    _of_broker("--key", metavar="FILE", type=Path, help="and its key, which nobody else can read")
    _of_broker(
        "--revoke-command",
        metavar="COMMAND",
        help="takes the rights of `revoke` of the file away while the doctor watches; no shell",
    )
    _of_broker("--restore-command", metavar="COMMAND", help="gives them back at the end")
    _of_broker(
        "--revoke-by-hand",
        action="store_true",
        help="wait until you have done it (10 minutes)",
    )
    _of_broker(
        "--seconds", metavar="N", type=float, default=120.0, help="for all of it (default: 120)"
    )
    _of_broker(
        "--answer", metavar="N", type=float, default=5.0, help="seconds for an answer (default: 5)"
    )
    _of_broker(
        "--messages", metavar="N", type=int, default=2000, help="sent and taken (default: 2000)"
    )


def run(args: argparse.Namespace) -> int:
    """Try, print, and tell by the exit code."""
    from sealmq.broker.errors import BrokerError
    from sealmq.doctor.errors import DoctorError
    from sealmq.doctor.result import healthy
    from sealmq.kglink import KgError
    from sealmq.site.errors import SiteError

    _check(args)

    async def visit() -> list[Any]:
        # Killed or not, nothing of ours stays in the policy, or at the broker.
        work = _at_site(args.site) if args.broker is None else _at_broker(args)
        visiting = asyncio.create_task(work, name="doctor")
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, visiting.cancel)
        return await visiting

    try:
        results = asyncio.run(visit())
    except asyncio.CancelledError:
        raise OperatorError("ended by SIGTERM", code=NOTHING_TRIED) from None
    except (DoctorError, KgError, SiteError, BrokerError) as error:
        hint = getattr(error, "hint", None)
        raise OperatorError(str(error), hint=hint, code=NOTHING_TRIED) from None
    found = healthy(results)
    if args.json:
        print(json.dumps({"healthy": found, "tries": [r.to_json() for r in results]}))
    else:
        _print(results, "site" if args.broker is None else "broker")
        _print_cures(results)
    return {True: OK, False: FAILED, None: SOME_UNTRIED}[found]


def _check(args: argparse.Namespace) -> None:
    if args.broker is None:
        if args.site is None or args.accounts is not None:
            raise UsageError(
                "neither a site nor a broker",
                "SITE, or --broker URL --as FILE",
                hint="sealmq doctor --help",
            )
        return
    if args.site is not None or args.accounts is None:
        raise UsageError(
            "a site and a broker" if args.site is not None else "a broker without accounts",
            "SITE, or --broker URL --as FILE",
            hint="gateway/DOCTOR.md has an example of FILE",
        )
    if not all(math.isfinite(n) and 0 < n <= 3600 for n in (args.seconds, args.answer)):
        raise UsageError("--seconds and --answer", "more than 0 and at most 3600")
    if not 0 < args.messages <= 1_000_000:
        raise UsageError(f"--messages {args.messages}", "1 to 1000000")
    if args.revoke_by_hand and args.revoke_command:
        raise UsageError("--revoke-by-hand and --revoke-command", "one of them")


async def _at_site(site: str) -> list[Any]:
    from sealmq.doctor.checkup import examine
    from sealmq.site.layout import Layout

    return list(await examine(Layout.open(site)))


async def _at_broker(args: argparse.Namespace) -> list[Any]:
    from sealmq.doctor.accounts import load
    from sealmq.doctor.foreign import examine
    from sealmq.doctor.probe import Limits
    from sealmq.doctor.reach import reach
    from sealmq.doctor.revoking import Revoking

    try:
        revoking = Revoking.of(args.revoke_command, args.restore_command, args.revoke_by_hand)
    except ValueError as error:
        raise UsageError(f"the revoking command: {error}") from None
    accounts = load(args.accounts)
    where = await reach(args.broker, args.address, args.cafile, args.cert, args.key)
    if where.exposed:
        words = "the accounts' passwords cross a network in plain: mqtt:// (mqtts:// seals them)"
        print(f"sealmq: warning: {words}", file=sys.stderr)
    limits = Limits(args.seconds, args.answer, args.messages)
    return list(await examine(where, accounts, limits, revoking))


def _print(results: list[Any], of: str) -> None:
    from rich.console import Console
    from rich.text import Text

    from sealmq.plain import plain

    colours = {True: "green", False: "bold red", None: "yellow"}
    console = Console(highlight=False, soft_wrap=True)
    wide = max(len(plain(result.name)) for result in results)
    for result in results:
        word = Text(result.word, colours[result.ok])
        name = plain(result.name).ljust(wide + 2)
        console.print(Text.assemble(name, word, "  ", plain(result.reason)))
    failed = sum(result.ok is False for result in results)
    untried = sum(result.ok is None for result in results)
    if failed:
        console.print(Text(f"{failed} of {len(results)} FAILED: this {of} is open", "bold red"))
    if untried:
        text = f"{untried} of {len(results)} could not be tried, and nothing is known of that"
        console.print(Text(text, "yellow"))
    if not failed and not untried:
        console.print(f"{len(results)} tries: what must fail does")


def _print_cures(results: list[Any]) -> None:
    """How each is closed that is open at somebody's broker, once."""
    from sealmq.doctor.cures import CURES, TITLES

    for rule in dict.fromkeys(r.rule for r in results if r.ok is False and hasattr(r, "rule")):
        print(f"\n{TITLES[rule]}: closed by")
        for program, words in CURES[rule].items():
            print(fill(f"{program}: {words}", 100, initial_indent="  ", subsequent_indent="    "))
