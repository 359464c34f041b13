"""`sealmq topic list`: every labelled topic, who labelled it and when."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from sealmq.plain import plain
from sealmq.site.layout import Layout

from .errors import OK
from .policy_view import Topic, View

_EXAMPLES = """\
examples:
  sealmq topic list factory
  sealmq topic list factory --json | jq -r '.topics[] | select(.fixed | not) | .topic'
"""
_LIST_EXAMPLES = """\
examples:
  sealmq topic list factory
  sealmq topic list factory --json | jq '.topics | length'

A label is fixed by a line of [topics] in sealmq.toml, or it is that of the client who published on
the topic first.
"""


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """sealmq topic list"""
    parser = sub.add_parser(
        "topic",
        help="list topics, their labels and where these come from",
        description="Topics and their labels.",
        epilog=_EXAMPLES,
    )
    verbs = parser.add_subparsers(dest="verb", metavar="list", required=True, help="what to do")
    listing = verbs.add_parser(
        "list",
        help="list labelled topics",
        description="List every topic that has a label.",
        epilog=_LIST_EXAMPLES,
    )
    listing.add_argument("site", metavar="SITE", help="the site's folder")
    listing.add_argument("--json", action="store_true", help="as JSON, for scripts")


def run(args: argparse.Namespace) -> int:
    """List."""
    topics = list(View(Layout.open(args.site)).topics.values())
    if args.json:
        print(json.dumps({"topics": [asdict(topic) for topic in topics]}))
        return OK
    rows = [("TOPIC", "LABEL", "FROM", "SINCE"), *(_row(topic) for topic in topics)]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    for row in rows:
        print("  ".join(word.ljust(w) for word, w in zip(row, widths, strict=True)).rstrip())
    return OK


def _row(topic: Topic) -> tuple[str, str, str, str]:
    if topic.client is None or topic.at_ms is None:
        return plain(topic.topic), topic.label, "sealmq.toml", "-"
    since = datetime.fromtimestamp(topic.at_ms / 1000, UTC)
    return plain(topic.topic), topic.label, topic.client, f"{since:%Y-%m-%d %H:%M:%SZ}"
