"""`sealmq explain`: may this client, and by which rule. The mediator's own engine answers."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from sealmq.families.engine import Conn, Decision
from sealmq.site import values
from sealmq.site.layout import Layout

from .errors import FAILED, OK, UsageError
from .policy_view import View, plain

_EXAMPLES = """\
examples:
  sealmq explain factory publish --client m1-temp-sensor -t machine/1/arm/angle
  sealmq explain factory deliver --client monitor -t machine/1/temperature
  sealmq explain factory publish --client m1-temp-sensor -t machine/1/humidity --json

`deliver` asks about a message that is published on the topic now. Exit code 0: allowed, 1: denied,
2: wrong usage. The answer comes from sealmq.toml and the store, whether the site is up or down.
"""


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """sealmq explain SITE publish|deliver"""
    parser = sub.add_parser(
        "explain",
        help="may a client publish or read there, and by which rule",
        description="Say whether a client may publish on a topic, or have its messages delivered, "
        "and by which rule.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("site", metavar="SITE", help="the site's folder")
    parser.add_argument("question", choices=("publish", "deliver"), help="what is asked")
    parser.add_argument("--client", required=True, metavar="NAME", help="the client's name")
    parser.add_argument("-t", "--topic", required=True, help="the topic")
    parser.add_argument("--json", action="store_true", help="as JSON, for scripts")


def run(args: argparse.Namespace) -> int:
    """Print the answer; 0 allowed, 1 denied."""
    if args.question == "deliver" and ("+" in args.topic or "#" in args.topic):
        raise UsageError(
            f"{args.topic!r} is a filter",
            "each delivery has one topic",
            hint="name a topic; sealmq topic list SITE shows them",
        )
    view = View(Layout.open(args.site))
    conn = view.engine.connection(view.engine.who(args.client))
    decision = _ask(view, conn, args.question, args.topic)
    lines = view.engine.explain(conn, decision)
    if args.json:
        print(json.dumps(_answer(view, args, decision, lines)))
    else:
        for line in _words(view, args, decision, lines):
            print(plain(line))
    return OK if decision.allow else FAILED


def _ask(view: View, conn: Conn, question: str, topic: str) -> Decision:
    now_ms = time.time_ns() // 1_000_000
    # Without a connection there is nothing to ask.
    connect = conn.connect(now_ms)
    if not connect.allow:
        return connect
    if question == "publish":
        return conn.publish(topic, 0, False, 0, now_ms)
    known = view.topics.get(topic)
    return conn.deliver(topic, known.label if known is not None else "", 0, now_ms)


def _words(view: View, args: argparse.Namespace, decision: Decision, lines: list[str]) -> list[str]:
    verb = "publish on" if args.question == "publish" else "read"
    can = "may" if decision.allow else "may not"
    word = "allowed" if decision.allow else "denied"
    if decision.overridden:
        word = "allowed, but only because the policy is off"
    first = f"{word}: {args.client} {can} {verb} {args.topic}"
    if decision.reason:
        first += f" ({decision.reason})"
    said = f" ({decision.reason})"
    sentences = [line.removesuffix(said).removesuffix(".") for line in lines]
    if args.client not in view.config.clients:
        sentences.append(values.near(args.client, view.config.clients))
    return [first, f"rule {'. '.join(sentences)}"]


def _answer(
    view: View, args: argparse.Namespace, decision: Decision, lines: list[str]
) -> dict[str, Any]:
    client = view.config.clients.get(args.client)
    topic = view.topics.get(args.topic)
    return {
        "question": args.question,
        "client": args.client,
        "topic": args.topic,
        "allowed": decision.allow,
        "rule": decision.rule,
        "reason": decision.reason,
        "family": decision.family,
        "enforced": not decision.overridden,
        "client_label": None if client is None else client.label,
        "topic_label": None if topic is None else topic.label,
        "becomes": decision.label,
        "rules": [vote.rule for vote in decision.votes],
        "lines": lines,
    }
