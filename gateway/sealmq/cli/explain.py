"""`sealmq explain`: may this client, and by which rule. The mediator's own engine answers."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from typing import Any

from sealmq.families import conditions, hours, registry
from sealmq.families.ask import ATTRIBUTE, FOREVER, NEVER
from sealmq.families.attributes import Attribute as Told
from sealmq.families.attributes import UnknownAttribute, names_in, shown
from sealmq.families.duties import OnlyFrom
from sealmq.families.engine import Conn, Decision
from sealmq.families.shared import PUBLIC, reaching
from sealmq.near import near
from sealmq.plain import plain
from sealmq.run import ready
from sealmq.site.layout import Layout
from sealmq.site.model import Attribute
from sealmq_spec.errors import SealError
from sealmq_spec.topics import check_filter

from . import acting
from .errors import FAILED, OK, UsageError
from .policy_view import View

_EXAMPLES = """\
examples:
  sealmq explain factory publish --client m1-temp-sensor -t machine/1/arm/angle
  sealmq explain factory deliver --client monitor -t machine/1/temperature
  sealmq explain factory deliver --client monitor -t machine/1/temperature --filter 'machine/#'
  sealmq explain factory deliver --client monitor -t machine/1/temperature --from m1-temp-sensor
  sealmq explain factory publish --client m1-temp-sensor -t machine/1/humidity --json
{examples}
`deliver` asks about a message that is published on the topic now, and comes to a subscription of
--filter (default: the topic), with what is said there. Exit code 0: allowed, 1: denied, 2: wrong
usage. The answer comes from sealmq.toml, the store and what attributes are now ([attributes.NAME]),
whether the site is up or down.
"""


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """sealmq explain SITE publish|subscribe|deliver"""
    parser = sub.add_parser(
        "explain",
        help="may a client publish or read there, and by which rule",
        description="Say whether a client may publish on a topic, subscribe to it, or have its "
        "messages delivered, and by which rule.",
        epilog=_EXAMPLES.format(examples=acting.said_examples("explain")),
    )
    parser.add_argument("site", metavar="SITE", help="the site's folder")
    parser.add_argument(
        "question", choices=("publish", "subscribe", "deliver"), help="what is asked"
    )
    parser.add_argument("--client", required=True, metavar="NAME", help="the client's name")
    parser.add_argument("-t", "--topic", required=True, help="the topic (subscribe: a filter)")
    acting.add_said(parser)
    parser.add_argument(
        "--filter", metavar="FILTER", help="deliver: what the client has subscribed to"
    )
    parser.add_argument(
        "--from", dest="sender", metavar="NAME", help="deliver: the client that publishes it"
    )
    parser.add_argument("--json", action="store_true", help="as JSON, for scripts")


def run(args: argparse.Namespace) -> int:
    """Print the answer; 0 allowed, 1 denied."""
    if args.question == "deliver" and ("+" in args.topic or "#" in args.topic):
        raise UsageError(
            f"{args.topic!r} is a filter",
            "each delivery has one topic",
            hint="name a topic; sealmq topic list SITE shows them",
        )
    args.said = acting.said(args)
    if args.question == "publish" and (args.said or args.filter is not None):
        options = [m.says.option for m in registry.manifests() if m.says]
        words = " or ".join(f"--{option}" for option in (*options, "filter"))
        raise UsageError(f"publish with {words}", "they are a subscription's")
    if args.question != "deliver" and args.sender is not None:
        raise UsageError(f"{args.question} with --from", "it says whose message is delivered")
    if args.question == "subscribe" and args.filter is not None:
        raise UsageError("subscribe with --filter", "the filter stands behind -t")
    layout = Layout.open(args.site)
    view = View(layout)
    if other := ready.other_order(layout, view.config.policy.order):
        print(f"sealmq: warning: {other}; this goes by that of sealmq.toml", file=sys.stderr)
    if args.sender is not None and args.sender not in view.config.clients:
        raise UsageError(
            f"--from {args.sender}",
            "there is no such client",
            hint=near(args.sender, view.config.clients),
        )
    conn = view.engine.connection(view.engine.who(args.client))
    decision = _ask(view, conn, args)
    lines = [*view.engine.explain(conn, decision), *_brought(view, args)]
    lines += _rests_on(view, decision)
    if args.json:
        print(json.dumps(_answer(view, args, decision, lines)))
    else:
        for line in _words(view, args, decision, lines):
            print(plain(line))
    return OK if decision.allow else FAILED


def _ask(view: View, conn: Conn, args: argparse.Namespace) -> Decision:
    now_ms = _now_ms()
    # Without a connection there is nothing to ask.
    connect = conn.connect(now_ms)
    if not connect.allow:
        return connect
    if args.question == "publish":
        return conn.publish(args.topic, 0, False, 0, now_ms)
    raw = _subscription(view, args)
    if args.question == "subscribe":
        return conn.subscribe(raw, 0, now_ms)
    says = any(registry.manifest(name).says for name in view.config.policy.order)
    asked = raw != args.topic or says
    decision = view.deliver(conn, args.topic, raw if asked else None, now_ms)
    return decision if args.sender is None else conn.for_sender(decision, args.sender)


def _subscription(view: View, args: argparse.Namespace) -> str:
    """What the client subscribes to, as it is sent."""
    filt = str(args.topic if args.filter is None else args.filter)
    try:
        check_filter(filt)
        if args.filter is not None and not reaching(filt)(args.topic):
            raise UsageError(f"{filt!r} does not match {args.topic!r}", "nothing would come")
        for option, (manifest, _, _) in args.said.items():
            if manifest.name not in view.config.policy.order:
                raise UsageError(f"a {option}", f"this site judges without {manifest.name}")
        said = {option: value for option, (_, _, value) in args.said.items()}
        for encode in registry.encodings(said):
            filt = encode(filt)
        return filt
    except (SealError, UnicodeEncodeError) as error:
        raise UsageError(str(error)) from None


def _brought(view: View, args: argparse.Namespace) -> list[str]:
    """Of a peer's topic: which labels its messages may bring, or that there is none."""
    begins = args.topic.startswith("@") and not args.topic.startswith(PUBLIC)
    if args.question == "publish" or not begins:
        return []
    said = ". ".join(filter(None, acting.no_peer_s(args, view.config, args.topic)))
    labels = view.labels(args.topic) if args.question == "deliver" else ()
    if len(labels) > 1:
        said = f"messages there have {' or '.join(labels)}; one that is allowed is enough"
    return [said] if said else []


def _rests_on(view: View, decision: Decision) -> list[str]:
    """The attributes that were looked at, and until when the answer holds."""
    lines = []
    for name, subject in _attributes(decision):
        lines.append(f"attribute {named(name, subject)}: {said(view, name, subject)}")
        if name in view.failing:
            lines.append(
                f"the source of {name} says nothing now ({view.failing[name]}); a mediator that "
                "runs goes on with what it said before"
            )
    if lines and NEVER < decision.until < FOREVER:
        lines.append(f"another answer may come from {_written(decision.until)} on")
    return lines


def named(name: str, subject: str) -> str:
    """An attribute, for a person."""
    return f"{name} of {shown(subject)}" if subject else name


def said(view: View, name: str, subject: str) -> str:
    """What it is now, until when, and who says so, for a person. Nothing counts by asking."""
    settings = view.config.attributes.get(name)
    held = _held(view, name, subject)
    if held is None:
        return _why_unknown(settings)
    if settings is not None and settings.window_ms:
        return f"{held.value} within {settings.window_ms // 1000} s"
    over = ", which is over" * (held.until <= _now_ms())
    until = f", until {_written(held.until)}{over}"
    if settings is None or not settings.zone:
        by = view.engine.pushed.told_by(name, subject)
        return f"{conditions.show(held.value)}{until}" + f", told by {by}" * bool(by)
    zone = view.engine.attributes.held(name, "")
    local = None if zone is None else hours.local_time(zone.value, _now_ms())
    now = f"{'unknown' if local is None else local.words} in {settings.zone}"
    return now if settings.hours is None else f"{held.value} ({now}){until}"


# What a mediator holds in its memory alone is not known here.
def _why_unknown(settings: Attribute | None) -> str:
    if settings is not None and settings.family:
        return "unknown here: a mediator that runs knows what it derived from events"
    if settings is not None and settings.by:
        return f"unknown: nobody of {', '.join(settings.by)} has told it"
    return "unknown"


# As conditions get it, over or not: of a calendar a name, of a count a number.
def _held(view: View, name: str, subject: str) -> Told | None:
    attributes, now_ms = view.engine.attributes, _now_ms()
    settings = view.config.attributes.get(name)
    try:
        if settings is not None and settings.window_ms:
            client = names_in(subject)[-1] if subject else ""
            return Told(name, subject, view.engine.counts.read(name, subject, client, now_ms), 0)
        if settings is not None and settings.hours is not None:
            return attributes.read(name, subject, now_ms)
    except UnknownAttribute:
        return None
    return attributes.held(name, subject)


def _attributes(decision: Decision) -> list[tuple[str, str]]:
    return [(dep[1], dep[2]) for dep in decision.deps if dep[0] == ATTRIBUTE]


def _senders(decision: Decision) -> list[str] | None:
    named = [duty.senders for duty in decision.duties if isinstance(duty, OnlyFrom)]
    return sorted(frozenset.intersection(*named)) if named else None


def _written(ms: int) -> str:
    try:
        when = datetime.datetime.fromtimestamp(ms // 1000, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return "the end of time"
    return when.isoformat().replace("+00:00", "Z")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _words(view: View, args: argparse.Namespace, decision: Decision, lines: list[str]) -> list[str]:
    verb = {"publish": "publish on", "subscribe": "subscribe to"}.get(args.question, "read")
    can = "may" if decision.allow else "may not"
    word = "allowed" if decision.allow else "denied"
    if decision.overridden:
        word = "allowed, but only because the policy is off"
    by = f" from {args.sender}" if args.sender is not None else ""
    first = f"{word}: {args.client} {can} {verb} {args.topic}{by}"
    told = _told(args, decision)
    options = (m.says.option for m in registry.manifests() if m.says)
    first += "".join(f" for {told[option]}" for option in options if told.get(option))
    if decision.reason:
        first += f" ({decision.reason})"
    said = f" ({decision.reason})"
    sentences = [line.removesuffix(said).removesuffix(".") for line in lines]
    if args.client not in view.config.clients:
        sentences.append(near(args.client, view.config.clients))
    if len(decision.votes) < 2:
        return [first, f"rule {'. '.join(sentences)}"]
    # Of several families the one that decided comes first.
    sentences.sort(key=lambda line: not line.startswith(f"{decision.rule}: "))
    return [first, f"rule {sentences[0]}", *(f"  {line}" for line in sentences[1:])]


def _told(args: argparse.Namespace, decision: Decision) -> dict[str, str]:
    """What was said with the subscription, and what the decision says in the audit's fields."""
    return dict(decision.audit) | {option: value for option, (_, _, value) in args.said.items()}


def _answer(
    view: View, args: argparse.Namespace, decision: Decision, lines: list[str]
) -> dict[str, Any]:
    client = view.config.clients.get(args.client)
    topic = view.topics.get(args.topic)
    told = _told(args, decision)
    fields = [field.name for manifest in registry.manifests() for field in manifest.audit]
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
        "from": args.sender,
        "senders": _senders(decision),
        "asked": decision.question,
        "attributes": [
            {
                "name": name,
                "subject": subject,
                "value": None if held is None else held.value,
                "until": held.until or None if held is not None else None,
            }
            for name, subject in _attributes(decision)
            for held in [_held(view, name, subject)]
        ],
        "until": decision.until if NEVER < decision.until < FOREVER else None,
        **{name: told.get(name) or None for name in fields},
        "rules": [vote.rule for vote in decision.votes],
        "lines": lines,
    }
