"""`sealmq blinded`: who has what, what is asked for, and who publishes where."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sealmq.cli import keygen, settled
from sealmq.cli.errors import FAILED, OK, OperatorError, UsageError

_EXAMPLES = """\
examples:
  sealmq blinded show streaming
  sealmq blinded grant streaming --customer miner --has 'type = company & service = datamining'
  sealmq blinded update streaming --policy stream/b --let 'type = company & service = billing'
  sealmq blinded event streaming --client jingfang -t stream/b/4 --session 'period = Q4'
  sealmq blinded revoke streaming --customer X
  sealmq blinded explain streaming --client miner -t stream/b/1
  sealmq blinded simulate streaming --json | jq -c .receivers

The key generator keeps all of it, sealed; mediators get filters and match them. A change counts
from the next message on, and nothing is encrypted anew. gateway/BLINDED.md goes through it.
"""
_CODES = settled.CODES


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """sealmq blinded VERB"""
    parser = sub.add_parser(
        "blinded",
        help="policies that mediators match and cannot read",
        description="Policies that nobody on the way can read: who has which attributes, what "
        "policies ask for, and who publishes where.",
        epilog=_EXAMPLES,
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, help="what to do")

    def verb(name: str, words: str, epilog: str, site: bool = True) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = verbs.add_parser(
            name, help=words, description=f"{words[0].upper()}{words[1:]}.", epilog=epilog
        )
        if site:
            made.add_argument("site", metavar="SITE", help="the site's folder")
            keygen.add_key_file(made)
        made.add_argument("--json", action="store_true", help="as JSON, for scripts")
        return made

    def changes(name: str, words: str, example: str) -> argparse.ArgumentParser:
        made = verb(name, words, f"examples:\n{example}\n{_CODES}")
        settled.add_wait(made)
        return made

    p = changes(
        "grant",
        "say which attributes a customer has, and what it wants",
        "  sealmq blinded grant streaming --customer Z --has 'type = individual & consumer = Z'\n"
        "  sealmq blinded grant streaming --customer miner \\\n"
        "      --has 'type = company & service = datamining' --wants 'period in {Q1, Q2}'\n",
    )
    p.add_argument("--customer", metavar="NAME", required=True, help="a client of the site")
    p.add_argument(
        "--has",
        metavar="ATTRIBUTES",
        action="append",
        required=True,
        help="NAME = VALUE & ...; again for another conjunction, of which one must do",
    )
    p.add_argument(
        "--wants",
        metavar="POLICY",
        action="append",
        help="its own policy, of an event's attributes (default: takes all it may have)",
    )
    p = changes(
        "event",
        "let a client publish somewhere, under a policy id",
        "  sealmq blinded event streaming --client jingfang -t stream/b/4 \\\n"
        "      --session 'period = Q4'\n",
    )
    p.add_argument("--client", metavar="NAME", required=True, help="who publishes")
    p.add_argument("-t", "--topic", required=True, help="the topic; all below it, too")
    p.add_argument(
        "--session",
        metavar="ATTRIBUTES",
        default="",
        help="what these events have beside what their type has",
    )
    p.add_argument(
        "--sealed",
        action="store_true",
        help="readers need the grant's key, which those get who match",
    )
    p = changes(
        "update",
        "say what a policy asks for, or what events of a type have",
        "  sealmq blinded update streaming --policy stream/b --let 'service = billing' \\\n"
        "      --let 'service = audit & level >= 3'\n"
        "  sealmq blinded update streaming --type stream/b --has 'class = statistics'\n",
    )
    one = p.add_mutually_exclusive_group(required=True)
    one.add_argument("--policy", metavar="PREFIX", help="of all topics below, but for longer ones")
    one.add_argument("--type", metavar="PREFIX", help="of all topics below, but for longer ones")
    p.add_argument(
        "--let",
        metavar="POLICY",
        action="append",
        help="a conjunction; again for another, of which one must hold",
    )
    p.add_argument("--has", metavar="ATTRIBUTES", action="append", help="of the type")
    p = changes(
        "revoke",
        "take back what a customer has, an event grant, a policy or a type",
        "  sealmq blinded revoke streaming --customer X\n"
        "  sealmq blinded revoke streaming --id be07412c5d93fa68\n",
    )
    one = p.add_mutually_exclusive_group(required=True)
    one.add_argument("--customer", metavar="NAME", help="all of it")
    one.add_argument("--id", metavar="ID", dest="event", help="an event grant's policy id")
    one.add_argument(
        "--policy", metavar="PREFIX", help="a shorter prefix then says whom events are for"
    )
    one.add_argument("--type", metavar="PREFIX", help="a shorter prefix says what events have")
    p = changes(
        "put",
        "put a whole text in the place of what is kept",
        "  sealmq blinded show streaming > all.toml; $EDITOR all.toml\n"
        "  sealmq blinded put streaming all.toml\n",
    )
    p.add_argument("file", metavar="FILE", help="as `show` gives it (-: stdin)")
    verb("show", "print what is kept", "examples:\n  sealmq blinded show streaming\n")
    p = verb(
        "explain",
        "say whether a reader gets what is published somewhere, and why",
        "examples:\n  sealmq blinded explain streaming --client miner -t stream/b/1\n"
        "\nexit codes: 0 the reader gets it, 1 not\n",
    )
    p.add_argument("--client", metavar="NAME", required=True, help="the reader")
    p.add_argument("-t", "--topic", required=True, help="the event's topic")
    p.add_argument("--id", metavar="ID", help="its policy id, where several are granted")
    p = verb(
        "simulate",
        "say who would receive which events",
        "examples:\n  sealmq blinded simulate streaming --json | jq -c .receivers\n"
        "\nLines are JSON objects; those that change something are taken for the rest:\n"
        '  {"subscribe": "stream/#", "client": "X"}\n'
        '  {"publish": "stream/a/1", "client": "jingfang"}\n'
        '  {"update": {"policy": "stream/b", "let": ["service = billing"]}}\n'
        '  {"grant": {"customer": "Z", "has": ["consumer = Z"]}}\n'
        '  {"revoke": {"customer": "X"}}\n',
    )
    p.add_argument("--events", metavar="FILE", help="lines (default: SITE/events.jsonl; -: stdin)")
    p = verb(
        "leakage",
        "measure what filters give away to whoever matches them",
        "examples:\n  sealmq blinded leakage\n  sealmq blinded leakage --trials 1000 --json\n\n"
        "mask, positions: which part of an attribute's bits can be named. link, whole,\n"
        "dictionary: how often an attacker is right who says whether two customers' attributes,\n"
        "or all of them, are the same, or whether a customer has an attribute; 0.5 is chance.\n"
        "band: within so much of 0.5 nothing is shown. A site has `scoped` by default.\n",
        site=False,
    )
    p.add_argument("--trials", metavar="N", type=int, default=300, help="pairs of each sort")


def run(args: argparse.Namespace) -> int:
    """Do it."""
    does: dict[str, Callable[[argparse.Namespace], int]] = {
        "show": _show, "explain": _explain, "simulate": _simulate, "leakage": _leakage,
    }  # fmt: skip
    return does.get(args.verb, _change)(args)


# --- what is kept --------------------------------------------------------------------------------


class _Site:
    def __init__(self, args: argparse.Namespace) -> None:
        from sealmq.site.config import load
        from sealmq.site.layout import Layout

        from .. import settings

        self.layout = Layout.open(args.site)
        self.config = load(self.layout.config)
        self._key_file = keygen.key_file(args)
        self._family = settings.NAME
        if self._family not in self.config.policy.order:
            raise OperatorError(
                "this site judges without blinded policies",
                hint=f'[policy] order = ["labels", "blinded"] in {self.layout.config}',
            )

    def text(self) -> str:
        def alone() -> str:
            from sealmq.kg.local import opened

            with opened(self.layout, self.config, self._key_file) as kg:
                return kg.kept(self._family).decode()

        return keygen.ask(self.layout, lambda kg: kg.kept(self._family), alone)

    def put(self, text: str) -> Any:
        def alone() -> Any:
            from sealmq.kg.local import opened

            with opened(self.layout, self.config, self._key_file) as kg:
                return kg.keep(self._family, text.encode("utf-8", "surrogatepass"))

        return keygen.ask(self.layout, lambda kg: kg.keep(self._family, text), alone)


def _refused(error: Any) -> OperatorError:
    return OperatorError(str(error), hint=getattr(error, "hint", None) or None)


def _change(args: argparse.Namespace) -> int:
    from sealmq.kg.errors import KgRefusal
    from sealmq.kglink import KgError
    from sealmq.site.edit import locked

    from .. import plain

    seconds = settled.wait_s(args)
    said: dict[str, Any] = {}
    site = _Site(args)
    try:
        with locked(site.layout):
            text = _changed(args, site, said)
            done = site.put(text)
    except (plain.BadPlain, KgError, KgRefusal) as error:
        raise _refused(error) from None
    found = settled.settle(site.layout, seconds, done.kseq)
    if args.json:
        print(json.dumps({**said, "changed": done.changed, "settled": found.to_json()}))
    elif "id" in said:
        print(said["id"])
    elif not done.changed:
        print("nothing has changed")
    again = f"sealmq blinded {args.verb} ... once more"
    settled.check(found, "it is kept", again)
    return OK


def _changed(args: argparse.Namespace, site: _Site, said: dict[str, Any]) -> str:
    from .. import edit

    if args.verb == "put":
        return _read(args.file)
    text = site.text()
    if args.verb in ("grant", "event"):
        name = args.customer if args.verb == "grant" else args.client
        if name not in site.config.clients:
            raise OperatorError(f"there is no client {name}", hint="sealmq client list SITE")
    if args.verb == "grant":
        return edit.grant(text, args.customer, args.has, args.wants)
    if args.verb == "event":
        said["id"] = secrets.token_hex(8)
        return edit.event(text, said["id"], args.client, args.topic, args.session, args.sealed)
    if args.verb == "update":
        what = "policy" if args.policy is not None else "type"
        words = args.let if what == "policy" else args.has
        if not words or (args.has if what == "policy" else args.let):
            raise UsageError("a policy needs --let, a type --has", "and not the other one")
        return edit.update(text, what, getattr(args, what), words)
    what = next(w for w in ("customer", "event", "policy", "type") if getattr(args, w) is not None)
    return edit.revoke(text, what, getattr(args, what))


def _show(args: argparse.Namespace) -> int:
    text = _told(_Site(args))
    if args.json:
        import tomllib

        print(json.dumps(tomllib.loads(text)))
    else:
        print(text, end="" if text.endswith("\n") or not text else "\n")
    return OK


def _told(site: _Site) -> str:
    from sealmq.kg.errors import KgRefusal
    from sealmq.kglink import KgError

    try:
        return site.text()
    except (KgError, KgRefusal) as error:
        raise _refused(error) from None


def _read(path: str) -> str:
    try:
        if path == "-":
            return sys.stdin.read()
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = getattr(error, "strerror", None) or "it is no UTF-8"
        raise OperatorError(f"{path} cannot be read: {what}") from None


# --- what comes of it ----------------------------------------------------------------------------


def _explain(args: argparse.Namespace) -> int:
    from .. import bloom, edit, kg_part, plain
    from ..coded import EVENT, read_event
    from ..family import match

    site = _Site(args)
    text = _told(site)
    made = plain.read(text)
    ids = sorted(one.id for one in edit.covering(made, args.topic))
    if args.id is not None:
        ids = [one for one in ids if one == args.id]
    events = {one.id: one for one in made.events}
    if not ids:
        what = "there is no such event grant"
        if args.id in events:
            what = f"the event grant {args.id} is not for {args.topic}"
        raise OperatorError(what, hint=f"sealmq blinded show {args.site}")
    rows = dict(kg_part.rows(site.config, kg_part.take(
        site.config, b"", text.encode(), secrets.token_bytes)))  # fmt: skip
    answers = []
    for ident in ids:
        event = events[ident]
        kind = made.kind(event)
        let, wanted = match(rows, read_event(rows[EVENT + ident]).kind, args.client)
        above = _above(site.config, args.client, event.client)
        answers.append({
            "policy_id": ident, "publisher": event.client, "policy": kind.policy,
            "type": kind.type, "session": dict(event.session), "let": let, "wanted": wanted,
            "label": above, "receives": let and wanted and above, "sealed": event.sealed,
        })  # fmt: skip
    if args.json:
        print(json.dumps({
            "client": args.client, "topic": args.topic, "answers": answers,
            "wrong_at_most": bloom.foreign(bloom.MOST_ONES),
        }))  # fmt: skip
    else:
        for one in answers:
            print(
                f"{one['policy_id']} of {one['publisher']}: "
                f"{'received' if one['receives'] else 'not received'} by {args.client}"
            )
            print(
                f"  the policy of {one['policy']} "
                f"{'lets' if one['let'] else 'does not let'} the client have it"
            )
            print(f"  the client's own policy {'takes' if one['wanted'] else 'does not take'} it")
            print(f"  its label is {'' if one['label'] else 'not '}at or above the publisher's")
        print(
            "an attribute that is not there is taken for one with less than "
            f"{bloom.foreign(bloom.MOST_ONES):.0e}"
        )
    return OK if any(one["receives"] for one in answers) else FAILED


# Labels come first in every order: what they do not let somebody read nobody gets.
def _above(config: Any, reader: str, publisher: str) -> bool:
    there = config.clients
    both = reader in there and publisher in there
    return both and config.dominates(there[reader].label, there[publisher].label)


def _simulate(args: argparse.Namespace) -> int:
    from sealmq.cli.policy_view import View
    from sealmq.plain import plain

    from ...api import FamilyConfigError
    from ..simulate import BadLine, Simulation

    site = _Site(args)
    path = args.events or str(site.layout.root / "events.jsonl")
    lines = _read(path).splitlines()
    view = View(site.layout)
    now_ms = time.time_ns() // 1_000_000
    try:
        made = Simulation(view.engine, site.config, _told(site), secrets.token_bytes, now_ms)
    except FamilyConfigError as error:
        raise _refused(error) from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            answer = made.line(line)
        except BadLine as error:
            raise OperatorError(f"{path}, line {number}: {error}") from None
        if answer is None:
            continue
        if args.json:
            print(json.dumps(answer))
        elif "refused" in answer:
            who = answer.get("topic", answer.get("client"))
            print(plain(f"{who}: refused, {answer['reason']}"))
        else:
            print(plain(f"{answer['topic']}: {', '.join(answer['receivers']) or 'nobody'}"))
    return OK


def _leakage(args: argparse.Namespace) -> int:
    from .. import leakage

    if not 10 <= args.trials <= 100_000:
        raise UsageError(f"--trials {args.trials}", "it is 10 to 100000")
    found = [
        leakage.measure(encoding, args.trials, secrets.token_bytes)
        for encoding in ("paper", "scoped")
    ]
    if args.json:
        for one in found:
            print(json.dumps(one._asdict()))
        return OK
    names = found[0]._fields
    print("".join(name.ljust(12) for name in names))
    for one in found:
        print(one.encoding.ljust(12) + "".join(f"{value:.3f}".ljust(12) for value in one[1:]))
    return OK
