"""`sealmq purposes explain`: who may read a topic, for which purpose, and why. HivePBAC, IV."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sealmq.cli.errors import OK, UsageError

if TYPE_CHECKING:
    from ...decision import Decision
    from .view import PurposesView

_EXAMPLES = """\
examples:
  sealmq purposes explain factory machine/1/temperature
  sealmq purposes explain factory machine/1/temperature --json | jq '.purposes[] | select(.allowed)'

It shows the reservations that match the topic, what they come to together, and for each purpose
whether it is allowed and why; then who would get a message of the topic now: by presubscriptions,
and by the subscriptions that the broker keeps for clients that are away. Of one client: sealmq
explain SITE deliver --client NAME -t TOPIC --purpose PURPOSE.
"""


def add(verbs: argparse._SubParsersAction[Any]) -> None:
    """sealmq purposes explain SITE TOPIC"""
    parser = verbs.add_parser(
        "explain",
        help="who may read a topic, for which purposes, and why",
        description="Explain what a topic may be used for, and who would get it.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("site", metavar="SITE", help="the site's folder")
    parser.add_argument("topic", metavar="TOPIC", help="the topic")
    parser.add_argument("--json", action="store_true", help="as JSON, for scripts")


@dataclass(frozen=True, slots=True)
class Use:
    """Whether the topic may be used for a purpose, why, and by which reservation."""

    purpose: str
    allowed: bool
    why: str
    under: str


@dataclass(frozen=True, slots=True)
class Reader:
    """A subscription that reaches the topic, and what the policy says of a message to it."""

    client: str
    filter: str
    purpose: str
    source: str
    allowed: bool
    rule: str
    reason: str
    under: str


def run(args: argparse.Namespace) -> int:
    """Explain it."""
    from sealmq.site.layout import Layout
    from sealmq_spec.errors import SealError
    from sealmq_spec.topics import check_topic

    from .view import PurposesView

    try:
        check_topic(args.topic)
    except (SealError, UnicodeEncodeError) as error:
        hint = f"sealmq purposes show {args.site} FILTER shows what a filter reaches"
        raise UsageError(f"{args.topic!r} is no topic", str(error), hint=hint) from None
    layout = Layout.open(args.site)
    view = PurposesView(layout)
    found = _uses(view, args.topic), _readers(view, layout, args.topic)
    if args.json:
        print(json.dumps(_as_json(view, args.topic, *found)))
        return OK
    for line in _lines(view, args.topic, *found):
        print(line)
    return OK


def _uses(view: PurposesView, topic: str) -> list[Use]:
    """Each purpose that is known or named by a reservation of the topic."""
    from ..explain import why

    state = view.state
    eip = state.store.eip(topic)
    uses = []
    for purpose in sorted({*view.purposes(), *eip.aip, *eip.pip}):
        if not eip:
            said = "nobody has reserved the topic"
            uses.append(Use(purpose, not state.strict, said, ""))
            continue
        answer = state.judging.read(eip, purpose)
        under = "" if answer.under is None else answer.under.filter
        known = state.purposes.known(purpose)
        said = why(state, eip, purpose).partition(": ")[2] if known else "not in the tree"
        uses.append(Use(purpose, answer.allow, said, under))
    return uses


def _readers(view: PurposesView, layout: Any, topic: str) -> list[Reader]:
    from sealmq_spec.errors import SealError
    from sealmq_spec.topics import matches

    from ...shared import inner

    subs = [(p.client, p.filter, "presubscription") for p in view.presubscriptions()]
    subs += [(client, raw, f"kept session {i}") for client, i, raw in view.kept(layout)]
    readers = []
    for client, raw, source in subs:
        named = view.access(raw)
        filt, purpose = named if named is not None else (raw, "")
        try:
            reached = matches(inner(filt), topic)
        except SealError:
            continue
        if reached:
            purpose = purpose or view.state.presub(client, inner(filt))
            decision = _ask(view, client, raw, topic)
            said = decision.rule, decision.reason, dict(decision.audit).get("under", "")
            readers.append(Reader(client, filt, purpose, source, decision.allow, *said))
    return readers


def _ask(view: PurposesView, client: str, raw: str, topic: str) -> Decision:
    """What the mediator would say of a message to this subscription."""
    now_ms = time.time_ns() // 1_000_000
    engine = view.view.engine
    conn = engine.connection(engine.who(client))
    try:
        connect = conn.connect(now_ms)
        return view.view.deliver(conn, topic, raw, now_ms) if connect.allow else connect
    finally:
        conn.close(now_ms)


def _openers(view: PurposesView, topic: str) -> list[str]:
    """Clients whose label opens the topic's messages."""
    known = view.view.topics.get(topic)
    if known is None:
        return []
    config = view.view.config
    return [
        name
        for name, client in config.clients.items()
        if not client.disabled and config.dominates(client.label, known.label)
    ]


def _lines(view: PurposesView, topic: str, uses: list[Use], readers: list[Reader]) -> list[str]:
    from sealmq.cli.tables import table
    from sealmq.plain import plain

    from .show import RESERVED, reserved

    state, known = view.state, view.view.topics.get(topic)
    eip = state.store.eip(topic)
    strict = "strict" if state.strict else "open"
    label = "no label yet" if known is None else f"label {known.label}"
    if topic.startswith("@"):
        label = "each message has its own site's label"
    lines = [f"{plain(topic)}: {label}; mode {state.mode}, {strict}", ""]
    made = view.matching(topic)
    lines.append("reservations that match" + ("" if made else ": none"))
    if made:
        lines += table(RESERVED, [reserved(m) for m in made], "  ")
    if eip:
        not_for = f", not for {', '.join(sorted(eip.pip))}" if eip.pip else ""
        lines += ["", plain(f"together: for {', '.join(sorted(eip.aip)) or 'nothing'}{not_for}")]
    else:
        lines += ["", "nobody has reserved it: " + ("for nobody" if state.strict else "for all")]
    if uses:
        rows = [(u.purpose, "yes" if u.allowed else "NO", u.under, u.why) for u in uses]
        lines += ["", *table(("PURPOSE", "ALLOWED", "UNDER", "WHY"), rows)]
    # Only the mediator's memory has the others; whoever tries it beside a `sealmq sub` misses that.
    known_here = "presubscriptions and kept sessions; clean sessions are not known here"
    lines += ["", f"who would get it now ({known_here})" + ("" if readers else ": nobody")]
    if readers:
        titles = ("CLIENT", "FILTER", "FOR", "FROM", "GETS IT", "WHY")
        lines += table(titles, [_reader(r) for r in readers], "  ")
    openers = _openers(view, topic)
    if openers:
        lines.append(plain(f"can open it, with an allowed purpose: {', '.join(openers)}"))
    return lines


def _reader(r: Reader) -> tuple[str, ...]:
    gets = "yes" if r.allowed else "NO"
    why = f"under {r.under}" if r.allowed and r.under else f"{r.rule}: {r.reason}"
    return r.client, r.filter, r.purpose, r.source, gets, why


def _as_json(
    view: PurposesView, topic: str, uses: list[Use], readers: list[Reader]
) -> dict[str, Any]:
    from .show import made_json

    state, known = view.state, view.view.topics.get(topic)
    eip = state.store.eip(topic)
    return {
        "topic": topic,
        "label": None if known is None else known.label,
        "mode": state.mode,
        "strict": state.strict,
        "reservations": [made_json(m) for m in view.matching(topic)],
        "aip": sorted(eip.aip),
        "pip": sorted(eip.pip),
        "purposes": [asdict(use) for use in uses],
        "readers": [asdict(reader) for reader in readers],
        "can_open": _openers(view, topic),
    }
