"""`sealmq topic list|relabel|forget`: labelled topics, and the operator's word about their labels.

A label is fixed in [topics] of sealmq.toml, or learned from the first publisher. What is learned is
the mediator's; it forgets a topic whose label sealmq.toml says is `none`, once (Chen and Wilson,
section 3.2), so `forget` writes that and takes it out again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from sealmq.families.manifest import Made, MadeRow
from sealmq.kglink import Applied, KgClient, KgUnavailable
from sealmq.near import near
from sealmq.plain import plain
from sealmq.site.config import NONE, load
from sealmq.site.edit import set_topic
from sealmq.site.layout import Layout

from . import depends, settled
from .errors import OK, OperatorError, UsageError
from .policy_view import Topic, View

_EXAMPLES = """\
examples:
  sealmq topic list factory
  sealmq topic list factory --label sensors
  sealmq topic list factory --json | jq -r '.topics[] | select(.fixed | not) | .topic'
  sealmq topic relabel factory hall/temperature control
  sealmq topic forget factory hall/temperature
"""
_LIST_EXAMPLES = """\
examples:
  sealmq topic list factory
  sealmq topic list factory --label sensors
  sealmq topic list factory --json | jq '.topics | length'

A label is fixed by a line of [topics] in sealmq.toml, or it is that of the client who published on
the topic first.
"""
_RELABEL_EXAMPLES = (
    """\
examples:
  sealmq topic relabel factory hall/temperature control
  sealmq topic relabel factory hall/new sensors             before anybody has published there

It fixes the label in [topics] of sealmq.toml, whatever the topic had. From then on clients of that
label publish there, and readers at or above it read it; what is retained there under the old label
goes only to readers of both. A client's reservation that hangs on the old label does not count.

"""
    + settled.CODES
)
_FORGET_EXAMPLES = (
    """\
examples:
  sealmq topic forget factory hall/temperature

The topic has no label any more, neither a learned one nor a line in [topics], and counts towards no
client's limit. Whoever publishes there next labels it anew, if [[creation]] lets him. A retained
message stays for readers of its own label until somebody publishes over it. Reservations stay: one
that hangs on the old label counts until the topic has another one. The site has to be up.

"""
    + settled.CODES
)


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """sealmq topic list|relabel|forget"""
    parser = sub.add_parser(
        "topic",
        help="list topics and their labels; give a topic another label, or none",
        description="Topics and their labels.",
        epilog=_EXAMPLES,
    )
    verbs = parser.add_subparsers(
        dest="verb", metavar="list|relabel|forget", required=True, help="what to do"
    )
    listing = verbs.add_parser(
        "list",
        help="list labelled topics",
        description="List every topic that has a label.",
        epilog=_LIST_EXAMPLES,
    )
    listing.add_argument("site", metavar="SITE", help="the site's folder")
    listing.add_argument("--label", help="only topics that have this label")
    listing.add_argument("--json", action="store_true", help="as JSON, for scripts")
    for verb, told, epilog in (
        ("relabel", "fix a topic's label", _RELABEL_EXAMPLES),
        ("forget", "take a topic's label away, so that it is labelled anew", _FORGET_EXAMPLES),
    ):
        more = verbs.add_parser(verb, help=told, description=told.capitalize() + ".", epilog=epilog)
        more.add_argument("site", metavar="SITE", help="the site's folder")
        more.add_argument("topic", metavar="TOPIC", help="the topic, without wildcards")
        if verb == "relabel":
            more.add_argument("label", metavar="LABEL", help="its label from now on")
        settled.add_wait(more)
        more.add_argument("--json", action="store_true", help="say what was done as JSON")


def run(args: argparse.Namespace) -> int:
    """Do what the verb says."""
    return {"list": _list, "relabel": _relabel, "forget": _forget}[args.verb](args)


def _list(args: argparse.Namespace) -> int:
    topics = list(View(Layout.open(args.site)).topics.values())
    topics = [topic for topic in topics if args.label in (None, topic.label)]
    if args.json:
        print(json.dumps({"topics": [asdict(topic) for topic in topics]}))
        return OK
    rows = [("TOPIC", "LABEL", "FROM", "SINCE"), *(_row(topic) for topic in topics)]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    for row in rows:
        print("  ".join(word.ljust(w) for word, w in zip(row, widths, strict=True)).rstrip())
    return OK


def _relabel(args: argparse.Namespace) -> int:
    layout, wait_s = Layout.open(args.site), settled.wait_s(args)
    if args.label == NONE:
        raise UsageError(
            "a topic with label none", "that is no label", hint="sealmq topic forget SITE TOPIC"
        )
    load(layout.config)  # what is wrong there is told before anything is changed
    was = View(layout).topics.get(args.topic)
    config = set_topic(layout, args.topic, args.label)
    done = _taken_over(layout)
    found = settled.settle(layout, wait_s, done.kseq if done else 0, config.digest)
    idle = depends.idle(layout, args.topic, args.label)
    if args.json:
        told = {"topic": args.topic, "label": args.label, "was": was.label if was else None}
        print(json.dumps(told | _idle_json(idle) | found.to_json()))
    else:
        before = f", not {was.label} any more" if was and was.label != args.label else ""
        print(plain(f"{args.topic} has label {args.label}{before}"))
        for kind, row in _each(idle):
            print(plain(f"the {kind.idle} of {row.by} there does not count: it hangs on label "
                        f"{row.label}"))  # fmt: skip
    again = f"sealmq topic relabel {args.site} {args.topic} {args.label}"
    settled.check(found, f"{plain(args.topic)} has label {args.label}", plain(again))
    return OK


def _forget(args: argparse.Namespace) -> int:
    layout, wait_s = Layout.open(args.site), settled.wait_s(args)
    config = load(layout.config)
    view = View(layout)
    was = view.topics.get(args.topic)
    begun = config.topics.get(args.topic) == NONE  # cut off before, or written by hand
    if was is None and not begun:
        raise OperatorError(
            f"{plain(args.topic)} has no label",
            hint=near(args.topic, view.topics) if view.topics else "nobody has published yet",
        )
    if _taken_over(layout) is None:
        raise OperatorError(
            "the site is not up, and only a mediator forgets", hint=f"sealmq up {args.site}"
        )
    # A `none` that stands there already has been heeded: it counts anew only once it was out.
    for label in (*((None,) if begun else ()), NONE, None):
        config = set_topic(layout, args.topic, label)
        done = _taken_over(layout)
        found = settled.settle(layout, wait_s, done.kseq if done else 0, config.digest)
        if not (found.ok and found.confirmed):
            raise OperatorError(
                f"no mediator has confirmed it: whether {plain(args.topic)} is forgotten is not "
                "known yet",
                hint=plain(f"ask again: sealmq topic forget {args.site} {args.topic}"),
                code=settled.NOT_KNOWN,
            )
    idle = depends.idle(layout, args.topic, None)
    if args.json:
        told = {"topic": args.topic, "was": was.label if was else None}
        print(json.dumps(told | _idle_json(idle) | {"known": True}))
        return OK
    label = f" (it had {was.label})" if was else ""
    print(plain(f"{args.topic} has no label any more{label}: who publishes there next labels it"))
    for kind, row in _each(idle):
        print(plain(f"the {kind.idle} of {row.by} there stays, and counts until the topic has "
                    f"another label than {row.label}"))  # fmt: skip
    return OK


def _each(idle: dict[Made, list[MadeRow]]) -> Iterator[tuple[Made, MadeRow]]:
    return ((kind, row) for kind, rows in idle.items() for row in rows)


def _idle_json(idle: dict[Made, list[MadeRow]]) -> dict[str, list[dict[str, str]]]:
    return {
        kind.key: [{"by": row.by, "label": row.label} for row in rows]
        for kind, rows in idle.items()
    }


def _taken_over(layout: Layout) -> Applied | None:
    """The running site reads sealmq.toml again; None where none runs."""

    async def reload() -> Applied:
        async with await KgClient.connect(layout.kg_socket) as kg:
            return await kg.reload()

    try:
        return asyncio.run(reload())
    except KgUnavailable:
        return None


def _row(topic: Topic) -> tuple[str, str, str, str]:
    if topic.client is None or topic.at_ms is None:
        return plain(topic.topic), topic.label, "sealmq.toml", "-"
    since = datetime.fromtimestamp(topic.at_ms / 1000, UTC)
    return plain(topic.topic), topic.label, topic.client, f"{since:%Y-%m-%d %H:%M:%SZ}"
