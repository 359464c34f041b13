"""`sealmq doctor SITE`: prove that enforcement is live, by trying what must fail."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
from textwrap import fill
from typing import Any

from sealmq.families import registry

from .errors import FAILED, OK, OperatorError

NOTHING_TRIED = 2
SOME_UNTRIED = 3

_EXAMPLES = """\
examples:
  sealmq doctor factory
  sealmq doctor factory --json | jq -r '.tries[] | select(.ok == false) | .name'

It makes clients and topics of its own (names that begin with sealmq-doctor), tries with them what
an attacker would, at the broker and at the mediator, and takes them out again. Nobody else's topics
and keys are touched. Run it as the site's owner or as root, on the gateway.
{families}
Each try holds, FAILED, or could not be tried, with the reason; "ok" and "healthy" of --json are
then true, false or null.

exit codes: 0 all of it holds; 1 something FAILED, and this site is open there; 2 nothing could be
tried; 3 nothing failed, and something could not be tried (say, the advertised address from here)
"""


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """sealmq doctor SITE"""
    does = [manifest.doctor.does for manifest in registry.manifests() if manifest.doctor]
    parser = sub.add_parser(
        "doctor",
        help="try what must fail, and report whether it does",
        epilog=_EXAMPLES.format(families="".join(f"{fill(words, 100)}\n" for words in does)),
    )
    parser.add_argument("site", metavar="SITE", help="the folder of a site that is up")
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")


def run(args: argparse.Namespace) -> int:
    """Try, print, and tell by the exit code."""
    from sealmq.doctor.checkup import examine
    from sealmq.doctor.errors import DoctorError
    from sealmq.doctor.result import healthy
    from sealmq.kglink import KgError
    from sealmq.site.errors import SiteError
    from sealmq.site.layout import Layout

    async def visit() -> list[Any]:
        # Killed or not, nothing of ours stays in the policy.
        visiting = asyncio.create_task(examine(Layout.open(args.site)), name="doctor")
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, visiting.cancel)
        return await visiting

    try:
        results = asyncio.run(visit())
    except asyncio.CancelledError:
        raise OperatorError("ended by SIGTERM", code=NOTHING_TRIED) from None
    except (DoctorError, KgError, SiteError) as error:
        hint = getattr(error, "hint", None)
        raise OperatorError(str(error), hint=hint, code=NOTHING_TRIED) from None
    found = healthy(results)
    if args.json:
        print(json.dumps({"healthy": found, "tries": [r.to_json() for r in results]}))
    else:
        _print(results)
    return {True: OK, False: FAILED, None: SOME_UNTRIED}[found]


def _print(results: list[Any]) -> None:
    from rich.console import Console
    from rich.text import Text

    from sealmq.plain import plain

    words = {
        True: Text("holds ", "green"),
        False: Text("FAILED", "bold red"),
        None: Text("could not be tried:", "yellow"),
    }
    console = Console(highlight=False, soft_wrap=True)
    wide = max(len(result.name) for result in results)
    for result in results:
        word = words[result.ok]
        console.print(Text.assemble(result.name.ljust(wide + 2), word, "  ", plain(result.reason)))
    failed = sum(result.ok is False for result in results)
    untried = sum(result.ok is None for result in results)
    if failed:
        console.print(Text(f"{failed} of {len(results)} FAILED: this site is open", "bold red"))
    if untried:
        text = f"{untried} of {len(results)} could not be tried, and nothing is known of that"
        console.print(Text(text, "yellow"))
    if not failed and not untried:
        console.print(f"{len(results)} tries: what must fail does")
