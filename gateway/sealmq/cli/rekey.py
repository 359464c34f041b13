"""`sealmq rekey SITE --label L`: new epochs for labels, whoever is at them."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from typing import Any

from sealmq.kg.core import list_labels
from sealmq.kg.ops import MAX_HANDOVER_S
from sealmq.kg.rekey import picked
from sealmq.kg.store import KgStore
from sealmq.kglink import Applied, KgClient
from sealmq.site.layout import Layout

from . import in_force, keygen, settled
from .errors import UsageError

_EXAMPLES = (
    """\
examples:
  sealmq rekey site --label sensors                   the old roots serve 60 s longer
  sealmq rekey site --label monitor --below           and all labels below it
  sealmq rekey site --label a --label b --handover 0  the old roots end at once
  sealmq rekey site --label monitor --below --dry-run

Clients at these labels get the new roots by themselves; no honest message is lost. A client that is
to lose its keys is `sealmq client disable`d or `rotate`d: that rekeys what has to be.
A label gets at most 256 new epochs a day in this way.

"""
    + settled.CODES
)


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """sealmq rekey SITE --label LABEL"""
    parser = sub.add_parser(
        "rekey",
        help="new roots for labels, with a hand-over",
        description="Give labels a new epoch: new roots for all that is sealed from now on.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("site", metavar="SITE", help="the site's folder")
    parser.add_argument(
        "--label", action="append", required=True, metavar="LABEL", help="may be given repeatedly"
    )
    parser.add_argument("--below", action="store_true", help="all labels below these as well")
    parser.add_argument(
        "--handover",
        type=_seconds,
        default=60,
        metavar="SECONDS",
        help="how long live messages under the old roots are still taken (default: %(default)s)",
    )
    parser.add_argument("--dry-run", action="store_true", help="list the labels, change nothing")
    keygen.add_key_file(parser)
    settled.add_wait(parser)
    parser.add_argument("--json", action="store_true", help="as JSON, for scripts")


def _seconds(text: str) -> int:
    if not text.isdecimal() or int(text) > MAX_HANDOVER_S:
        raise UsageError(f"--handover {text}", f"it is 0 to {MAX_HANDOVER_S} seconds")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Rekey, and say which labels."""
    layout, wait_s = Layout.open(args.site), settled.wait_s(args)
    config = in_force.policy(layout)
    names = picked(config, args.label, args.below)
    if args.dry_run:
        return _dry(args, layout, names)

    async def over_socket(kg: KgClient) -> Applied:
        return await kg.rekey(names, args.handover)

    def by_ourselves() -> Applied:
        from sealmq.kg.local import opened

        with opened(layout, config, keygen.key_file(args)) as kg:
            before = kg.apply(config)
            done = kg.rekey(names, args.handover, False)
            return replace(done, notes=before.notes + done.notes)

    done = keygen.ask(layout, over_socket, by_ourselves)
    found = settled.settle(layout, wait_s, done.kseq)
    if args.json:
        print(json.dumps(keygen.as_json(done) | found.to_json()))
    else:
        keygen.say_epochs(done)
    settled.check(found, "the labels have new epochs", f"sealmq status {args.site}")
    return 0


def _dry(args: argparse.Namespace, layout: Layout, names: list[str]) -> int:
    async def over_socket(kg: KgClient) -> list[dict[str, Any]]:
        return await kg.labels()

    def by_ourselves() -> list[dict[str, Any]]:
        store = KgStore.open_readonly(layout.kg_db)
        try:
            return list_labels(store)
        finally:
            store.close()

    have = {row["name"]: row["epoch"] for row in keygen.ask(layout, over_socket, by_ourselves)}
    until = int(time.time()) + args.handover
    would = [{"label": name, "epoch": have.get(name, 0) + 1, "until": until} for name in names]
    if args.json:
        print(json.dumps({"dry_run": True, "epochs": would}))
        return 0
    print(f"would get new epochs ({len(would)}); nothing was changed:")
    width = max(len(name) for name in names)
    for row in would:
        print(f"  {str(row['label']).ljust(width)}  {row['epoch']}")
    return 0
