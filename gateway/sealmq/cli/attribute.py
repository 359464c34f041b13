"""`sealmq attribute set|unset|list`: what a client tells of attributes ([attributes.NAME] by)."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from typing import Any

from sealmq.families.attributes import names_in
from sealmq.near import near
from sealmq.plain import plain
from sealmq.site.layout import Layout

from . import acting, explain
from .errors import OK, UsageError
from .policy_view import View
from .pub import seconds

_EXAMPLES = """\
examples:
  sealmq attribute set factory --client hr --name contract --of bob --value signed
  sealmq attribute set factory --client hr --name contract --of bob --value signed --valid 60
  sealmq attribute set factory --client hr --name collaborator --of alice/bob --value true
  sealmq attribute set --enrolment hr.enrolment --name shift --value early
  sealmq attribute unset factory --client hr --name contract --of bob
  sealmq attribute list factory --client hr
  sealmq attribute list factory                          as the operator: those of all sources

The client tells it, as `by` in [attributes.NAME] of sealmq.toml lets it. --of is a client, or a
pair OWNER/SUBSCRIBER; without it the attribute is of the site itself. The values true and false,
and whole numbers, are that; --text takes them as text. When the command returns it is in force
everywhere, until its validity is over or it is told otherwise.

"""
_WORDS = {"true": True, "false": False}
# No source takes a number with more digits.
_DIGITS = 40


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """sealmq attribute set|unset|list"""
    parser = sub.add_parser(
        "attribute",
        help="tell what an attribute of a client is, as one of its sources",
        description="Tell the value of an attribute, take it away, or list what was told.",
        epilog=_EXAMPLES + acting.CODES,
    )
    verbs = parser.add_subparsers(
        dest="verb", metavar="set|unset|list", required=True, help="what to do"
    )
    for verb, told in (
        ("set", "tell a value"),
        ("unset", "take a value away"),
        ("list", "list what the client may tell; without a client what all sources say"),
    ):
        more = verbs.add_parser(
            verb, help=told, description=f"{told.capitalize()}.", epilog=_EXAMPLES + acting.CODES
        )
        acting.add_who(more)
        if verb == "list":
            more.add_argument("--name", metavar="NAME", help="only this attribute")
        else:
            more.add_argument("--name", metavar="NAME", required=True, help="the attribute")
            more.add_argument(
                "--of", metavar="SUBJECT", default="",
                help="whose: a client, or OWNER/SUBSCRIBER (default: the site's)",
            )  # fmt: skip
        if verb == "set":
            more.add_argument(
                "--value", metavar="VALUE", required=True, help="its value from now on"
            )
            more.add_argument(
                "--valid", type=int, metavar="SECONDS",
                help="for how long (default: as long as the site allows)",
            )  # fmt: skip
            more.add_argument("--text", action="store_true", help="the value is text")
        acting.add_timeout(more)
        more.add_argument("--json", action="store_true", help="as JSON, for scripts")


def run(args: argparse.Namespace) -> int:
    """Ask as the client."""
    if args.verb == "list" and args.site and not args.client and not args.enrolment:
        return _all(args)
    acting.check_who(args)
    args.timeout = seconds(args, args.timeout)
    return acting.act({"set": _set, "unset": _unset, "list": _list}[args.verb](args))


async def _set(args: argparse.Namespace) -> int:
    value: str | int | bool = args.value
    if not args.text:
        value = _WORDS.get(args.value, args.value)
        if isinstance(value, str) and value.removeprefix("-").isdecimal() and value.isascii():
            if len(value) > _DIGITS:
                raise acting.wrong(args, f"a number of {len(value)} digits", "--text takes a text")
            value = int(value)
    async with await acting.asking_client(args) as client:
        await client.set_attribute(
            args.name, _subject(args.of), value, valid_s=args.valid, within=args.timeout
        )
    return _told(args, value)


async def _unset(args: argparse.Namespace) -> int:
    async with await acting.asking_client(args) as client:
        await client.set_attribute(args.name, _subject(args.of), None, within=args.timeout)
    return _told(args, None)


def _told(args: argparse.Namespace, value: str | int | bool | None) -> int:
    """In force; where nothing went wrong, only a script is told more."""
    if args.json:
        subject = [name for name in args.of.split("/") if name]
        print(json.dumps({"name": args.name, "subject": subject, "value": value}))
    return OK


async def _list(args: argparse.Namespace) -> int:
    async with await acting.asking_client(args) as client:
        rows = await client.attributes(args.name, within=args.timeout)
    if args.json:
        keys = ("name", "subject", "value", "until_ms", "by")
        print(json.dumps({"told": [dict(zip(keys, row, strict=True)) for row in rows]}))
        return OK
    for name, subject, value, until, by in rows:
        of = "/".join(subject) or "the site"
        end = datetime.fromtimestamp(until // 1000, UTC).isoformat().replace("+00:00", "Z")
        print(plain(f"{name} of {of}: {json.dumps(value)}, until {end}, told by {by}"))
    return OK


# Of files and the store, whether the site is up or down.
def _all(args: argparse.Namespace) -> int:
    view = View(Layout.open(args.site))
    if args.name is not None and args.name not in view.config.attributes:
        raise UsageError(
            f"an attribute {args.name}",
            "there is none",
            hint=near(args.name, view.config.attributes),
        )
    keys = {(row.name, row.subject) for row in view.engine.attributes.all()}
    keys |= {*view.engine.counts.keys()}
    rows = []
    for name, settings in view.config.attributes.items():
        if args.name in (None, name):
            subjects = sorted(subject for of, subject in keys if of == name)
            rows += [(name, settings.source, subject) for subject in subjects or [""]]
    if args.json:
        told = [
            {
                "name": name,
                "source": source,
                "subject": names_in(subject),
                "said": explain.said(view, name, subject),
            }
            for name, source, subject in rows
        ]
        print(json.dumps({"attributes": told, "failing": view.failing}))
        return OK
    for name, source, subject in rows:
        said = explain.said(view, name, subject)
        print(plain(f"{explain.named(name, subject)} ({source}): {said}"))
    for name, why in view.failing.items():
        print(plain(f"the source of {name} says nothing now: {why}"))
    return OK


def _subject(text: str) -> str | tuple[str, str]:
    owner, slash, subscriber = text.partition("/")
    return (owner, subscriber) if slash else text
