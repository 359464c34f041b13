"""How answers are shown: tables for people, the answer itself for scripts."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sealmq.cli.tables import moment, table
from sealmq.plain import plain

Answer = Mapping[str, Any]


def show(args: argparse.Namespace, answer: Answer) -> None:
    """Print it."""
    if args.json:
        print(json.dumps(answer))
        return
    for line in _LINES[args.verb](answer):
        print(line)


def in_words(made: Answer) -> str:
    """An assertion in a line."""
    whose = "everybody's events" if made["owner"] == "*" else f"{made['owner']}'s events"
    of = "/".join(word for word in (made.get("app"), made.get("type")) if word)
    who = "everybody" if made["licensees"] == ["*"] else ", ".join(made["licensees"])
    text = f"{made['authorizer']} lets {who} {', '.join(made['actions'])} {whose}"
    text += f" of {of}" if of else ""
    return plain(text + (f" while {made['condition']}" if made["condition"] else ""))


def _made(answer: Answer) -> Sequence[str]:
    return [f"{answer['id']}: {in_words(answer['assertion'])}"]


def _retracted(answer: Answer) -> Sequence[str]:
    return [plain(f"{answer['id']}: retracted")]


def _confirmed(answer: Answer) -> Sequence[str]:
    return [plain(f"{answer['id']}: confirmed")]


_TITLES = ("ID", "WHO", "LETS", "DO", "WITH EVENTS OF", "TYPE", "SINCE", "KEY", "WHILE")


def _assertions(answer: Answer) -> Sequence[str]:
    if not answer["assertions"]:
        return ["no assertion"]
    rows = [
        (
            made["id"],
            made["authorizer"],
            ", ".join(made["licensees"]),
            "all" if len(made["actions"]) == 7 else ", ".join(made["actions"]),
            "all owners" if made["owner"] == "*" else made["owner"],
            "/".join(word for word in (made["app"], made["type"]) if word) or "-",
            _since(made),
            made.get("public", "")[:16] or "-",
            made["condition"] or "-",
        )
        for made in answer["assertions"]
    ]
    return table(_TITLES, rows)


def _since(made: Answer) -> str:
    if made.get("suspended"):
        return "unconfirmed"
    return moment(made["at_ms"]) if made["at_ms"] else "sealmq.toml"


def _who(answer: Answer) -> Sequence[str]:
    what = f"{answer['action']} this event of {answer['owner']}"
    who = ", ".join(answer["who"])
    said = plain(f"may {what}: {who}" if who else f"nobody may {what}")
    return [said, *_veiled(answer), *_left_out(answer)]


def _veiled(answer: Answer) -> Sequence[str]:
    if not answer.get("veiled"):
        return []
    return ["it may rest on what the site knows of others, which this client is not told"]


def _explained(answer: Answer) -> Sequence[str]:
    may = "may" if answer["allow"] else "may not"
    said = f"{answer['client']} {may} {answer['action']} this event of {answer['owner']}"
    lines = [plain(f"{said} ({answer['type']})"), *_veiled(answer)]
    titles = ("WHO HOLDS IT", "ACTION", "BY", "OF", "TO", "WHILE")
    rows = [
        (
            link["holds"],
            link["action"],
            link["id"],
            link["authorizer"],
            ", ".join(link["licensees"]),
            link["condition"] or "-",
        )
        for link in answer["chain"]
    ]
    return [*lines, *(["", *table(titles, rows)] if rows else []), *_left_out(answer)]


def _types(answer: Answer) -> Sequence[str]:
    if not answer["types"]:
        return ["no event type"]
    titles = ("APPLICATION", "TYPE", "TOPIC", "OWNER", "CONTROL", "SEALED", "ADMIN", "BY")
    rows = [
        (
            one["app"],
            one["type"],
            one["topic"],
            one["owner"],
            one["control"],
            ", ".join(
                [
                    *(f"{name}:{kind}" for name, kind in one["attributes"].items()),
                    *(["matching_set"] if one["granularity"] == "matching_set" else []),
                    *(["signed"] if one["signed"] else []),
                ]
            )
            or "-",
            one["admin"] or "-",
            f"{one['by']}, unconfirmed" if one.get("suspended") else one["by"] or "sealmq.toml",
        )
        for one in answer["types"]
    ]
    return [*table(titles, rows), *_left_out(answer)]


def _advertised(answer: Answer) -> Sequence[str]:
    return _types({"types": [answer["type"]]})


def _withdrawn(answer: Answer) -> Sequence[str]:
    return [plain(f"{answer['app']}/{answer['type']}: withdrawn")]


def _signed(answer: Answer) -> Sequence[str]:
    return [
        plain(f"{answer['address']}: {'signed' if answer['signed'] else 'not signed any more'}")
    ]


def _contracts(answer: Answer) -> Sequence[str]:
    if not answer["contracts"]:
        return ["no contract"]
    rows = [(one["address"], "yes" if one["signed"] else "NO") for one in answer["contracts"]]
    return [*table(("CONTRACT", "SIGNED"), rows), *_left_out(answer)]


def _key(answer: Answer) -> Sequence[str]:
    if not answer["public"]:
        return ["no key on record"]
    return [f"on record: {answer['public']}", "give it to whoever is to verify what you sign"]


def _broken(answer: Answer) -> Sequence[str]:
    until = moment(answer["until_ms"])
    return [plain(f"{answer['owner']}'s events are open until {until}; {answer['owner']} is told")]


def _closed(answer: Answer) -> Sequence[str]:
    return [plain(f"{answer['owner']}'s events are closed to {answer['client']} again")]


def _openings(answer: Answer) -> Sequence[str]:
    if not answer["openings"]:
        return ["nobody has opened anything"]
    titles = ("EVENTS OF", "OPENED BY", "AT", "UNTIL", "SEEN", "REASON")
    rows = [
        (
            one["owner"],
            one["client"],
            moment(one["at_ms"]),
            moment(one["until_ms"]),
            "yes" if one["seen"] else "no",
            one["reason"],
        )
        for one in answer["openings"]
    ]
    return [*table(titles, rows), *_left_out(answer)]


def _appointed(answer: Answer) -> Sequence[str]:
    number = answer["mediator"]
    return [
        f"mediator {number} alone handles its events" if number else "any mediator handles them"
    ]


def _left_out(answer: Answer) -> Sequence[str]:
    left = answer.get("left_out", 0)
    return [f"and {left} more, for which there was no room"] if left else []


_LINES: Mapping[str, Callable[[Answer], Sequence[str]]] = {
    "assert": _made,
    "modify": _made,
    "retract": _retracted,
    "confirm": _confirmed,
    "list": _assertions,
    "who-can": _who,
    "explain": _explained,
    "types": _types,
    "advertise": _advertised,
    "withdraw": _withdrawn,
    "sign": _signed,
    "contracts": _contracts,
    "key": _key,
    "break-glass": _broken,
    "close-glass": _closed,
    "openings": _openings,
    "appoint": _appointed,
}
