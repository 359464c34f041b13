"""Answers from the site's files, and from none: whether the gateway is up or not."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from sealmq.attributes.sources import TimeSource
from sealmq.cli.errors import FAILED, OK, OperatorError
from sealmq.plain import plain

from ...api import Later, Verdict
from ...ask import Who
from ...attributes import Attribute
from .. import signing
from ..assertions import Assertion, BadAssertion
from ..chains import about
from ..family import Owners
from ..names import EVERYBODY
from ..signing import document
from .saying import event, text_of
from .shown import in_words, show


def run(args: argparse.Namespace) -> int:
    """Answer it."""
    if args.verb == "verify":
        return _verify(args)
    site = Site(args.site)
    if args.verb == "simulate":
        return _simulate(args, site)
    if args.verb == "list":
        answer: Mapping[str, Any] = {"assertions": site.assertions(args), "left_out": 0}
    else:
        answer = site.ask(args, {"do": args.verb} | (event(args) if args.verb != "types" else {}))
    show(args, answer)
    return OK


class Site:
    """A site's policy, as the mediator would judge by it now."""

    def __init__(self, folder: str) -> None:
        from sealmq.cli.policy_view import View
        from sealmq.site.layout import Layout

        layout = Layout.open(folder)
        self.view = View(layout)
        self.now_ms = time.time_ns() // 1_000_000
        found = [one for one in self.view.engine.order if isinstance(one, Owners)]
        if not found:
            raise OperatorError(
                "this site judges without owners",
                hint=f'[policy] order = ["labels", "owners"] in {layout.config}',
            )
        self.family = found[0]
        self.state = self.family.state
        self.state.tells_all = True
        self.id = self.view.config.site.id.hex()

    def assertions(self, args: argparse.Namespace) -> list[dict[str, Any]]:
        """All that count or wait to be confirmed, or those about an owner, or of a client."""
        state = self.state
        found = [
            made if state.is_suspended(made) else state.counting(id)
            for id, made in sorted(state.assertions.items())
        ]
        return [
            self._shown(made)
            for made in filter(None, found)
            if args.owner in (None, about(made)) and args.by in (None, made.authorizer)
        ]

    def _shown(self, made: Assertion) -> dict[str, Any]:
        shown = {"id": made.id, "at_ms": made.at_ms, **made.fields}
        if self.state.is_suspended(made):
            shown["suspended"] = True
        if made.signature:
            shown |= document(made, self.id, self.state.key_of(made.authorizer))
        return shown

    def ask(self, args: argparse.Namespace, said: dict[str, Any]) -> Mapping[str, Any]:
        """What the owner of the event would be answered. OperatorError."""
        who = Who(self._owner(said), 0, "", self.id, "*")
        if said["do"] == "explain" and "client" not in said:
            raise OperatorError("explain whose right?", "--for NAME", hint="sealmq owners --help")
        got = self.family.command(who, json.dumps(said).encode(), self.now_ms)
        while isinstance(got, Later):
            got = got.go_on() or got
        if isinstance(got, Verdict):
            raise OperatorError(plain(f"{got.rule}: {got.reason}"))
        answer: dict[str, Any] = json.loads(got.reply or b"{}")
        if said["do"] != "types":
            self._warn(who.client)
        return answer

    def _warn(self, owner: str) -> None:
        """What conditions about the owner's events ask for, and no file says."""
        index, attributes = self.state.index, self.view.config.attributes
        names = {
            name
            for made in (*index.about(owner), *index.about(EVERYBODY))
            for name in made.condition.names
            if name in attributes and attributes[name].source in ("events", "count")
        }
        if names:
            told = f"{', '.join(sorted(names))}: the running mediator alone knows it"
            print(plain(f"sealmq: {told}; ask it with --client NAME"), file=sys.stderr)

    def _owner(self, said: Mapping[str, Any]) -> str:
        path = str(said.get("topic", "")).split("/")
        kind = self.state.types.of(path)
        values = None if kind is None else kind.values(path)
        if kind is None or values is None:
            return "nobody"
        return kind.owner_of(values, said.get("attributes", {}), said.get("sender", "")) or "nobody"

    def zones(self, now: Callable[[], int]) -> Callable[[], list[Attribute]]:
        """What tells the zones of calendars as they are at another time (Unix ms), if they are
        others than before."""
        sources = [
            TimeSource(name, settings.zone, lambda: now() * 1_000_000)
            for name, settings in self.view.config.attributes.items()
            if settings.source in ("time", "calendar")
        ]
        return lambda: [row for one in sources for row in (one.look() or {}).values()]


def _simulate(args: argparse.Namespace, site: Site) -> int:
    from ..simulate import BadLine, Simulation

    run = Simulation(site.view.engine, site.state, site.now_ms)
    zones = site.zones(lambda: run.now_ms)
    lines = text_of(args.events).splitlines()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            answer = run.line(line)
            site.view.engine.take_attributes(zones())
        except BadLine as error:
            raise OperatorError(
                plain(f"{args.events}, line {number}: {error}"),
                hint="sealmq owners simulate --help",
            ) from None
        if answer is None:
            continue
        if "receivers" in answer or args.all:
            print(json.dumps(answer) if args.json else plain(_event(answer)))
        elif "refused" in answer:
            told = f"line {number}: {answer['client']}: {answer['reason']}"
            print(plain(f"sealmq: {told}"), file=sys.stderr)
    return OK


def _event(answer: Mapping[str, Any]) -> str:
    if "receivers" not in answer:
        said = answer.get("reason") or json.dumps(answer.get("answer", {}))
        return f"{answer['client']}: {said}"
    if "refused" in answer:
        return f"{answer['topic']}: not published, {answer['reason']}"
    return f"{answer['topic']}: {', '.join(answer['receivers']) or 'nobody'}"


def _verify(args: argparse.Namespace) -> int:
    try:
        found = json.loads(text_of(args.file))
    except (ValueError, RecursionError):
        raise OperatorError(
            f"{args.file} holds no JSON", hint="sealmq owners list --json | jq '.assertions[0]'"
        ) from None
    if isinstance(found, dict) and isinstance(found.get("assertion"), dict):
        found = found["assertion"]
    try:
        public = bytes.fromhex(args.public) if args.public else None
    except ValueError:
        raise OperatorError("--public is no key", "64 hex digits") from None
    try:
        if not isinstance(found, dict):
            raise BadAssertion("", "it is no JSON object")
        made = signing.verify(found, public)
    except BadAssertion as error:
        if args.json:
            print(json.dumps({"valid": False, "reason": str(error)}))
            return FAILED
        raise OperatorError(plain(f"not valid: {error}")) from None
    named = found["public"]
    if args.json:
        print(json.dumps({"valid": True, "public": named, **made.fields}))
        return OK
    print(f"valid: {in_words(made.fields)}")
    if public is None:
        print(plain(f"signed by {named}: ask {made.authorizer} whether that is the key"))
    return OK
