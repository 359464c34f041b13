"""`sealmq reopen SITE`: let a site go on whose mediator's store was lost."""

from __future__ import annotations

import argparse
import json
from typing import Any

from sealmq.families import registry

from . import keygen

_EXAMPLES = """\
examples:
  sealmq status site            does it say that the site is closed, and why?
  sealmq topic list site        the labels that the mediator's store holds now
  sealmq reopen site

A site is closed when the mediator's store was lost: deleted, replaced by hand, or left out of a
restore. What is then not known:
{what}.
While it is closed nothing is delivered, no topic gets a label, and no command to a policy family
changes anything. Before you reopen it, put into sealmq.toml what must hold:
{mend}.
Afterwards whoever publishes first on a topic without a label labels it, as on a new site. Clients
provision anew by themselves.
"""


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """sealmq reopen SITE"""
    lost = [m.lost for m in registry.manifests() if m.lost and m.lost.what]
    parser = sub.add_parser(
        "reopen",
        help="let a site go on whose store was lost",
        description="Open a closed site again.",
        epilog=_EXAMPLES.format(
            what=", ".join(each.what for each in lost), mend=", ".join(each.mend for each in lost)
        ),
    )
    parser.add_argument("site", metavar="SITE", help="the site's folder")
    keygen.add_key_file(parser)
    parser.add_argument("--json", action="store_true", help="say what was done as JSON")


def run(args: argparse.Namespace) -> int:
    """Reopen it, whether it is up or not."""
    from sealmq.kg.local import opened
    from sealmq.kglink import KgClient
    from sealmq.site.config import load
    from sealmq.site.layout import Layout

    layout = Layout.open(args.site)

    async def over_socket(kg: KgClient) -> bool:
        return await kg.reopen()

    def by_ourselves() -> bool:
        config = load(layout.config)
        with opened(layout, config, keygen.key_file(args)) as kg:
            kg.apply(config)
            return kg.reopen()

    reopened = keygen.ask(layout, over_socket, by_ourselves)
    if args.json:
        print(json.dumps({"reopened": reopened}))
    elif reopened:
        print("the site is open again; who publishes first on a topic without a label labels it")
        print("clients come back by themselves; now make a backup")
    else:
        print("the site was not closed; nothing was changed")
    return 0
