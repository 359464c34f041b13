"""What a client of the site says or asks: the command of its options, its answer shown."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from sealmq.cli.acting import TIMED_OUT, act, asking_client, wrong
from sealmq.cli.errors import OK, OperatorError
from sealmq_spec.errors import Denied, SealError

from ...pace import A_SECOND, BURST
from ..client import Owners, new_key, read_key
from .shown import show

_MOST_TEXT = 8192


def run(args: argparse.Namespace) -> int:
    """Say it, and show the answer."""
    if args.verb == "key":
        return _key(args)
    key = read_key(args.key) if getattr(args, "key", None) else b""
    return act(_say(args, command(args), key))


async def _confirm(owners: Owners, args: argparse.Namespace) -> int:
    """All that it can; what is refused is told at the end."""
    refused: SealError | None = None
    for number, id in enumerate(args.id or await owners.suspended()):
        if number > BURST // 2:
            await asyncio.sleep(1 / A_SECOND)
        try:
            show(args, await owners.say("confirm", id=id))
        except Denied as error:
            refused = error
    if refused is not None:
        raise refused
    return OK


async def openings(owners: Owners, args: argparse.Namespace) -> int:
    """With --seen what was shown is seen, and no more."""
    answer = await owners.say("openings")
    show(args, answer)
    if args.seen and answer["openings"]:
        # Of those of the last one's time some may have had no room.
        last = max(one["at_ms"] for one in answer["openings"])
        said = await owners.say("seen", to=last - 1 if answer["left_out"] else last)
        if args.json:
            show(args, said)
    return OK


async def _say(args: argparse.Namespace, commands: list[dict[str, Any]], key: bytes) -> int:
    async with await asking_client(args) as client:
        owners = Owners(client, key)
        if args.verb == "confirm":
            return await _confirm(owners, args)
        if args.verb == "openings":
            return await openings(owners, args)
        for said in commands:
            if args.verb == "list":
                found = await owners.assertions(said["owner"], said["by"])
                answer: dict[str, Any] = {"assertions": found, "left_out": 0}
            else:
                answer = await owners.say(said.pop("do"), **said)
            show(args, answer)
    return OK


def command(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The commands of these options; what cannot be said is told here. OperatorError."""
    verb = args.verb
    if verb in ("assert", "modify"):
        return [{"do": verb, **_assertion(args)}]
    if verb == "retract":
        return [{"do": verb, "id": id} for id in args.id]
    if verb == "confirm":
        if args.by or bool(args.id) == args.all:
            raise wrong(args, "a client confirms what it has made itself", "--id ID, or --all")
        return []
    said: dict[str, Any] = {"do": verb}
    if verb == "list":
        said |= {"owner": args.owner or "", "by": args.by or ""}
    elif verb in ("who-can", "explain"):
        said |= event(args)
    elif verb == "advertise":
        said |= _type(args)
    elif verb == "withdraw":
        said |= {"app": args.app, "type": args.type}
    elif verb == "sign":
        said |= {"address": args.address, "withdraw": args.withdraw}
    elif verb == "contracts":
        said |= _given(owner=args.owner)
    elif verb == "break-glass":
        said |= {"owner": args.owner, "reason": args.reason, "minutes": args.minutes}
    elif verb == "close-glass":
        said |= _given(owner=args.owner, client=args.of)
    elif verb == "appoint":
        said |= {"mediator": args.mediator}
    return [said]


def _given(**values: object) -> dict[str, Any]:
    """Those that were given."""
    return {key: value for key, value in values.items() if value not in (None, [], {}, "")}


def _assertion(args: argparse.Namespace) -> dict[str, Any]:
    id = _given(id=getattr(args, "id", None))
    words = _given(
        licensees=args.to,
        owner=args.owner,
        app=args.app,
        type=args.type,
        actions=args.action,
        condition=args.condition,
    )
    if args.keynote:
        if words:
            raise wrong(args, "--keynote with other words", "the text says all of it")
        return id | {"keynote": text_of(args.keynote)}
    if not args.to:
        raise wrong(args, "nobody is let do anything", "--to NAME; everybody: --to '*'")
    if not args.action:
        raise wrong(args, "it lets nobody do anything", "--action RECEIVE, or another")
    return id | words


def event(args: argparse.Namespace) -> dict[str, Any]:
    """The event that a question is about."""
    from .. import events
    from ..client import items

    try:
        found = items(args.attribute)
    except SealError as error:
        raise wrong(args, str(error), "NAME=VALUE, as speed=57") from None
    attributes = json.loads(found[events.TLV]) if found else {}
    return {"action": args.action, "topic": args.topic} | _given(
        attributes=attributes, sender=args.sender, client=getattr(args, "reader", None)
    )


def _type(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "app": args.app,
        "type": args.type,
        "topic": args.topic,
        "owner": args.owner,
    } | _given(
        control=args.control,
        admin=args.admin,
        granularity=args.granularity,
        attributes=_pairs(args, "attribute"),
        derives=_pairs(args, "derives"),
        signed=args.signed or None,
    )


def _pairs(args: argparse.Namespace, option: str) -> dict[str, str]:
    found = {}
    for text in getattr(args, option):
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise wrong(args, f"--{option} {text}", "NAME=WORD")
        found[name] = value
    return found


def text_of(file: str) -> str:
    """A text file, or what comes on stdin. OperatorError, OSError."""
    data = sys.stdin.buffer.read(1 << 20) if file == "-" else Path(file).read_bytes()
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise OperatorError(f"{file} is no UTF-8 text") from None


def _key(args: argparse.Namespace) -> int:
    if len([word for word in (args.new, args.use, args.none) if word]) != 1:
        raise wrong(args, "which key", "one of --new FILE, --use FILE, --none")
    old = read_key(args.key) if args.key else b""
    if not args.new:
        return act(_change(args, old, read_key(args.use) if args.use else b""))
    # Before anybody is asked: a key on record whose private one is nowhere would be no key.
    new = new_key(args.new)
    try:
        return act(_change(args, old, new))
    except OperatorError as error:
        if error.code == TIMED_OUT:  # it may be on record now
            print(f"sealmq: the key stays in {args.new}; try --use {args.new}", file=sys.stderr)
        else:
            Path(args.new).unlink(missing_ok=True)
        raise


async def _change(args: argparse.Namespace, old: bytes, new: bytes) -> int:
    async with await asking_client(args) as client:
        show(args, await Owners(client, old).change_key(new))
    return OK
