"""`sealmq owners could`: a decision of the past, from the audit log, the store and sealmq.toml."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from sealmq.audit.reading import Log
from sealmq.cli.errors import FAILED, OK, UsageError
from sealmq.cli.tables import moment, moment_of
from sealmq.plain import plain
from sealmq.site.layout import Layout
from sealmq_spec.errors import SealError
from sealmq_spec.topics import check_topic

from ...attributes import Attributes
from .. import archive, explain
from .reading import Site
from .saying import event

NOT_KNOWN = 3


def run(args: argparse.Namespace) -> int:
    """Say whether it could."""
    site = Site(args.site)
    at_ms = moment_of(args.at, site.now_ms)
    try:
        check_topic(args.topic)
    except (SealError, UnicodeEncodeError) as error:
        raise UsageError(f"{args.topic!r} is no topic", str(error)) from None
    if at_ms > site.now_ms:
        raise UsageError(f"{args.at} is still to come", "sealmq owners simulate asks about that")
    args.action = "RECEIVE"
    said = event(args)
    attributes = Attributes()
    attributes.declare(site.view.config.attributes)
    for row in site.zones(lambda: at_ms)():
        attributes.take(row)
    log = Log(Layout.open(args.site).audit("mediator"), "mediator")
    then = archive.Archive(at_ms, attributes, log.begins_ms)
    then.feed(log.records(archive.EVENTS))
    config = site.view.config
    answer = archive.could(
        then,
        config,
        site.view.records,
        args.client,
        args.topic,
        said.get("attributes", {}),
        args.sender or "",
    )
    notes = _notes(args, site, then, log)
    if args.json:
        print(json.dumps(_as_json(args, at_ms, answer, notes)))
    else:
        for line in _lines(args, at_ms, answer):
            print(line)
        for note in notes:
            print(plain(f"sealmq: {note}"), file=sys.stderr)
    return {"yes": OK, "no": FAILED, "unknown": NOT_KNOWN}[answer.word]


def _notes(args: argparse.Namespace, site: Site, then: archive.Archive, log: Log) -> list[str]:
    """What the answer does not know."""
    said = ["whether it had a subscription, and the keys of the topic's label, is not looked at"]
    if log.begins_ms is None:
        said.append("there is no audit log yet")
    elif log.begins_ms > then.at_ms:
        said.append(f"the log begins at {moment(log.begins_ms)}; before that the store alone knows")
    if then.lost:
        said.append(f"{then.lost} records are lost or were only counted")
    if log.told.unreadable:
        said.append(f"{log.told.unreadable} lines of the log cannot be read, and are left out")
    if then.reloads:
        times = "once" if then.reloads == 1 else f"{then.reloads} times"
        said.append(f"sealmq.toml was read {times} since then; it counts as it stands now")
    if args.client not in site.view.config.clients:
        said.append(f"{args.client} is no client now")
    return said + [f"cannot be read any more: {what}" for what in then.unread]


def _lines(args: argparse.Namespace, at_ms: int, answer: archive.Answer) -> list[str]:
    words = {"yes": "could have received", "no": "could not have received", "unknown": "may have"}
    verb = words[answer.word]
    about = f"{args.topic} at {moment(at_ms)}: {answer.reason}"
    if answer.rests_on:
        about += f": {', '.join(answer.rests_on)}"
    verb = f"{verb} received" if answer.word == "unknown" else verb
    return [
        plain(f"{answer.word}: {args.client} {verb} {about}"),
        *dict.fromkeys(plain(f"  {explain.words_of(made)}") for _, made in answer.chain),
    ]


def _as_json(
    args: argparse.Namespace, at_ms: int, answer: archive.Answer, notes: list[str]
) -> dict[str, Any]:
    return {
        "client": args.client,
        "topic": args.topic,
        "at_ms": at_ms,
        "answer": answer.word,
        "reason": answer.reason,
        "rests_on": list(answer.rests_on),
        "chain": [explain.link(key, made) for key, made in answer.chain],
        "notes": notes,
    }
