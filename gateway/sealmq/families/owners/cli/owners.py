"""`sealmq owners`: owners of events say who receives them. Opyrchal, Prakash and Agrawal.

A verb is one row of the table: what it is for, its examples, its options, and what it does. Four
modules do it: `saying` sends a client's command, `reading` answers from the site's files, `then`
looks into the audit log, `confirming` writes into a stopped site's store.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

Parser = argparse.ArgumentParser

_EXAMPLES = """\
examples:
  sealmq owners types campus                                  event types, and whose events are
  sealmq owners assert campus --client Alice --to Bob --action RECEIVE
  sealmq owners who-can campus --client Alice -t loc/Alice/ATL/133
  sealmq owners retract campus --client Alice --id 6f2b1c0a9d3e
  sealmq owners simulate campus --events campus/events.jsonl

Private by default: nobody receives an event unless assertions that lead back to the site's policy
say so. gateway/OWNERS.md goes through all of it.
"""
_ASKED = """
With --client or --enrolment the gateway answers what that client may know. Without, it is answered
from sealmq.toml and the store, whether the site is up or down.
"""
_MAKES = """
Who receives is named with --to, everybody as '*'. Without --owner it is about the client's own
events; about another's it may speak who has that owner's CHANGE_POLICY. --if is a condition on
levels of the topic, sealed attributes and attributes of the site. --keynote takes one assertion in
the paper's own text instead.
"""


def _makes(p: Parser) -> None:
    p.add_argument(
        "--to",
        metavar="NAME",
        action="append",
        help="whom it lets; may be repeated; '*': everybody",
    )
    p.add_argument(
        "--action",
        metavar="ACTION",
        action="append",
        help="AUTHENTICATE, ADVERTISE, PUBLISH, SUBSCRIBE, RECEIVE, CHANGE_POLICY or EMERGENCY; "
        "may be repeated",
    )
    p.add_argument("--owner", metavar="NAME", help="whose events (default: the client's own)")
    p.add_argument("--app", metavar="NAME", help="of this application alone")
    p.add_argument("--type", metavar="NAME", help="of this event type alone")
    p.add_argument("--if", dest="condition", metavar="CONDITION", help="only while this is met")
    p.add_argument("--keynote", metavar="FILE", help="an assertion in KeyNote's text (-: stdin)")
    _signs(p)


def _modifies(p: Parser) -> None:
    _one(p)
    _makes(p)


def _signs(p: Parser) -> None:
    p.add_argument("--key", metavar="FILE", help="sign it with this private key")


def _one(p: Parser) -> None:
    p.add_argument("--id", metavar="ID", required=True, help="which one: sealmq owners list")


def _ids(p: Parser) -> None:
    p.add_argument(
        "--id", metavar="ID", action="append", required=True, help="which one; may be repeated"
    )


def _confirms(p: Parser) -> None:
    p.add_argument(
        "--id", metavar="ID", action="append", default=[],
        help="which one; may be repeated; of a type APP/TYPE",
    )  # fmt: skip
    p.add_argument("--all", action="store_true", help="all that wait")
    p.add_argument("--by", metavar="NAME", help="all that this client has made (the operator)")


def _lists(p: Parser) -> None:
    p.add_argument("--owner", metavar="NAME", help="about this owner's events ('*': about all)")
    p.add_argument("--by", metavar="NAME", help="made by this client")


def _event(p: Parser) -> None:
    p.add_argument("-t", "--topic", required=True, help="the event's topic")
    p.add_argument(
        "--action", metavar="ACTION", default="RECEIVE", help="what is done (default: RECEIVE)"
    )
    p.add_argument(
        "--attribute",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a sealed attribute of the event; may be repeated",
    )
    p.add_argument("--sender", metavar="NAME", help="who publishes it")


def _explains(p: Parser) -> None:
    _event(p)
    p.add_argument("--for", dest="reader", metavar="NAME", help="who does it (default: the client)")


def _simulates(p: Parser) -> None:
    p.add_argument("--events", metavar="FILE", required=True, help="lines of JSON (-: stdin)")
    p.add_argument(
        "--all", action="store_true", help="also what becomes of subscriptions and commands"
    )


def _advertises(p: Parser) -> None:
    p.add_argument("--app", metavar="NAME", required=True, help="the application")
    p.add_argument("--type", metavar="NAME", required=True, help="the event type")
    p.add_argument(
        "-t", "--topic", metavar="PATTERN", required=True, help="loc/{user}/{building}/{room:int}"
    )
    p.add_argument(
        "--owner", metavar="WHOSE", required=True, help="a level, attribute:NAME, or sender"
    )
    p.add_argument("--control", metavar="WHEN", help="none, subscribe, receive (default) or both")
    p.add_argument("--admin", metavar="NAME", help="who else may withdraw it")
    p.add_argument(
        "--attribute",
        metavar="NAME=KIND",
        action="append",
        default=[],
        help="a sealed attribute: text, int or bool; may be repeated",
    )
    p.add_argument(
        "--derives",
        metavar="NAME=LEVEL",
        action="append",
        default=[],
        help="an attribute of the site that each event tells of its owner; may be repeated",
    )
    p.add_argument(
        "--granularity", metavar="HOW", help="label (default), or matching_set: to each link"
    )
    p.add_argument("--signed", action="store_true", help="assertions about it have to be signed")


def _withdraws(p: Parser) -> None:
    p.add_argument("--app", metavar="NAME", required=True, help="the application")
    p.add_argument("--type", metavar="NAME", required=True, help="the event type")


def _consents(p: Parser) -> None:
    p.add_argument("--address", metavar="URL", required=True, help="where the contract lies")
    p.add_argument("--withdraw", action="store_true", help="take the consent back")


def _contracts(p: Parser) -> None:
    p.add_argument("--owner", metavar="NAME", help="those that this owner asks for")


def _keys(p: Parser) -> None:
    p.add_argument("--new", metavar="FILE", help="make a private key there, and put it on record")
    p.add_argument("--use", metavar="FILE", help="put the key of this file on record")
    p.add_argument("--none", action="store_true", help="have no key on record any more")
    p.add_argument("--key", metavar="FILE", help="the private key that is on record now, if any")


def _verifies(p: Parser) -> None:
    p.add_argument("file", metavar="FILE", help="what --json of assert or list gave (-: stdin)")
    p.add_argument("--public", metavar="HEX", help="the owner's public key, from the owner")


def _breaks(p: Parser) -> None:
    p.add_argument("--owner", metavar="NAME", required=True, help="whose events")
    p.add_argument("--reason", metavar="TEXT", required=True, help="why: the owner is told")
    p.add_argument("--minutes", metavar="N", type=int, required=True, help="for how long")


def _closes(p: Parser) -> None:
    p.add_argument("--owner", metavar="NAME", help="whose events (default: the client's own)")
    p.add_argument("--of", metavar="NAME", help="who has opened them (default: the client)")


def _openings(p: Parser) -> None:
    p.add_argument("--seen", action="store_true", help="say that they are seen: nobody tells again")


def _appoints(p: Parser) -> None:
    p.add_argument(
        "--mediator", metavar="N", type=int, required=True, help="its number; 0: any mediator"
    )


def _could(p: Parser) -> None:
    p.add_argument("--client", metavar="NAME", required=True, help="who would have received it")
    p.add_argument("-t", "--topic", required=True, help="the event's topic")
    p.add_argument(
        "--at", metavar="TIME", required=True, help="2026-01-31T12:00, or 3h: so long ago"
    )
    p.add_argument("--sender", metavar="NAME", help="who published it")
    p.add_argument(
        "--attribute",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a sealed attribute of the event; may be repeated",
    )


class _Verb(NamedTuple):
    """`who`: "client" says it, "either" may ask, a "site" is read, or "nobody" is asked."""

    help: str
    examples: str
    options: Callable[[Parser], None]
    who: str
    does: str


def _none(p: Parser) -> None:
    pass


_VERBS: dict[str, _Verb] = {
    "assert": _Verb(
        "let somebody do something with your events",
        "  sealmq owners assert campus --client Alice --to Bob --action RECEIVE\n"
        "  sealmq owners assert campus --client Alice --to '*' --action RECEIVE \\\n"
        "      --if 'building == \"EECS\" && extTime == \"WORK_DAY\"'\n"
        "  sealmq owners assert campus --client Bob --owner Alice --to Tom --action RECEIVE\n"
        "  sealmq owners assert campus --client Alice --to Bob --action RECEIVE --key alice.pem\n"
        "  sealmq owners assert campus --client Alice --keynote alice.kn\n" + _MAKES,
        _makes, "client", "saying",
    ),
    "retract": _Verb(
        "take an assertion back",
        "  sealmq owners retract campus --client Alice --id 6f2b1c0a9d3e\n\n"
        "Its author may, the owner of the events, and who may change the policy of all of them.\n"
        "It counts from the next delivery, also for what is subscribed already.\n",
        _ids, "client", "saying",
    ),
    "confirm": _Verb(
        "let what a backup has put back count again",
        "  sealmq owners confirm campus --client Alice --all       hers, by herself\n"
        "  sealmq owners confirm campus --client Alice --id 6f2b1c0a9d3e\n"
        "  sealmq owners confirm campus                            what waits, and for whom\n"
        "  sealmq owners confirm campus --by Bob                   by the operator, for Bob\n\n"
        "After `sealmq restore` no assertion, advertised type or signed contract of before\n"
        "counts: nobody knows what was taken back since the backup. Its author confirms it, or\n"
        "retracts it; a contract is signed again. The operator confirms for those who cannot,\n"
        "while the site is stopped, and should ask them: what they had taken back is open again.\n",
        _confirms, "either", "confirming",
    ),
    "modify": _Verb(
        "put another assertion in the place of one, in one step",
        "  sealmq owners modify campus --client Alice --id 6f2b1c0a9d3e --to Bob --to Eve \\\n"
        "      --action RECEIVE\n" + _MAKES,
        _modifies, "client", "saying",
    ),
    "list": _Verb(
        "assertions",
        "  sealmq owners list campus                          all of them\n"
        "  sealmq owners list campus --client Alice           hers, and those about her events\n"
        "  sealmq owners list campus --owner Bob --json\n" + _ASKED,
        _lists, "either", "reading",
    ),
    "who-can": _Verb(
        "who may receive an event",
        "  sealmq owners who-can campus -t loc/Bob/GGBR/1005\n"
        "  sealmq owners who-can campus --client Bob -t loc/Bob/GGBR/1005 --action RECEIVE\n"
        "  sealmq owners who-can campus -t car/Bob --attribute speed=57\n" + _ASKED,
        _event, "either", "reading",
    ),
    "explain": _Verb(
        "whether somebody may, and by which assertions",
        "  sealmq owners explain campus -t loc/Bob/GGBR/1005 --for Alice\n"
        "  sealmq owners explain campus --client Alice -t loc/Bob/GGBR/1005\n" + _ASKED,
        _explains, "either", "reading",
    ),
    "simulate": _Verb(
        "who would receive which events",
        "  sealmq owners simulate campus --events campus/events.jsonl\n"
        "  sealmq owners simulate campus --events campus/events.jsonl --json | jq .receivers\n\n"
        "Lines are JSON objects, in order of time; nothing of the site is changed or counted:\n"
        '  {"at": "2026-03-02T10:00:00Z"}                   the time from now on, UTC\n'
        '  {"subscribe": "loc/+/EECS/+", "client": "Alice", "where": "room == \\"2246\\""}\n'
        '  {"unsubscribe": "loc/+/EECS/+", "client": "Alice"}\n'
        '  {"publish": "loc/Eve/EECS/1005", "client": "location_publisher"}\n'
        '  {"set": "extCollaborator", "value": "true", "owner": "Nick", "subscriber": "Eve"}\n'
        '  {"command": {"do": "assert", "licensees": ["Bob"], "actions": ["RECEIVE"]},\n'
        '   "client": "Alice"}\n',
        _simulates, "site", "reading",
    ),
    "advertise": _Verb(
        "introduce an event type",
        "  sealmq owners advertise campus --client location_admin --app LOC_APP --type BADGE \\\n"
        "      -t 'badge/{user}/{door}' --owner user --control both\n\n"
        "Whoever has ADVERTISE for the application may. The operator's stand in sealmq.toml.\n",
        _advertises, "client", "saying",
    ),
    "withdraw": _Verb(
        "withdraw an event type that was advertised",
        "  sealmq owners withdraw campus --client location_admin --app LOC_APP --type BADGE\n",
        _withdraws, "client", "saying",
    ),
    "types": _Verb(
        "event types",
        "  sealmq owners types campus\n"
        "  sealmq owners types campus --client Alice --json\n" + _ASKED,
        _none, "either", "reading",
    ),
    "sign": _Verb(
        "consent to a contract, or take the consent back",
        "  sealmq owners sign campus --client Eve --address https://example.org/terms\n"
        "  sealmq owners sign campus --client Eve --address https://example.org/terms --withdraw\n",
        _consents, "client", "saying",
    ),
    "contracts": _Verb(
        "contracts that are asked for, and which are signed",
        "  sealmq owners contracts campus --client Eve --owner Bob\n",
        _contracts, "client", "saying",
    ),
    "key": _Verb(
        "the key with which a client signs its assertions",
        "  sealmq owners key campus --client Alice --new alice.pem\n"
        "  sealmq owners key campus --client Alice --new newer.pem --key alice.pem\n"
        "  sealmq owners key campus --client Alice --none --key alice.pem\n\n"
        "The private key stays in the file (Ed25519, PKCS #8, mode 0600); the gateway gets the\n"
        "public one. From then on it takes none of Alice's assertions without a signature.\n",
        _keys, "client", "saying",
    ),
    "verify": _Verb(
        "check a signed assertion, without a gateway",
        "  sealmq owners verify grant.json --public 8f1c...\n"
        "  sealmq owners list campus --client Alice --json | jq '.assertions[0]' > grant.json\n\n"
        "Without --public it says which key has signed: ask the owner whether it is theirs.\n",
        _verifies, "nobody", "reading",
    ),
    "break-glass": _Verb(
        "open an owner's events in an emergency",
        "  sealmq owners break-glass campus --client Eve --owner Bob --minutes 30 \\\n"
        "      --reason 'Bob does not answer the door'\n\n"
        "The owner must have granted EMERGENCY beforehand. It is audited, and the owner is told.\n",
        _breaks, "client", "saying",
    ),
    "close-glass": _Verb(
        "end an emergency before its time",
        "  sealmq owners close-glass campus --client Eve --owner Bob\n"
        "  sealmq owners close-glass campus --client Bob --of Eve\n",
        _closes, "client", "saying",
    ),
    "openings": _Verb(
        "who has opened the client's events, or whose it has opened",
        "  sealmq owners openings campus --client Bob\n"
        "  sealmq owners openings campus --client Bob --seen\n",
        _openings, "client", "saying",
    ),
    "appoint": _Verb(
        "have one mediator alone handle the client's events",
        "  sealmq owners appoint campus --client Alice --mediator 2\n"
        "  sealmq owners appoint campus --client Alice --mediator 0     any\n",
        _appoints, "client", "saying",
    ),
    "could": _Verb(
        "could a client have received an event then?",
        "  sealmq owners could campus --client Eve -t loc/Bob/GGBR/1005 --at 2026-01-31T12:00\n"
        "  sealmq owners could campus --client Eve -t loc/Bob/GGBR/1005 --at 3h --json\n\n"
        "It takes what the audit log says of assertions and attributes until then, and says what\n"
        "is not known. Exit code 0: yes, 1: no, 3: not known.\n",
        _could, "site", "then",
    ),
}  # fmt: skip


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """sealmq owners VERB"""
    from sealmq.cli.acting import CODES, add_timeout, add_who

    parser = sub.add_parser(
        "owners",
        help="owners of events say who receives them",
        description="Owner policies: who may receive whose events, and why.",
        epilog=_EXAMPLES,
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, help="what to do")
    for name, verb in _VERBS.items():
        connects = verb.who in ("client", "either")
        made = verbs.add_parser(
            name,
            help=verb.help,
            description=f"{verb.help[0].upper()}{verb.help[1:].rstrip('?')}"
            + ("?" if verb.help.endswith("?") else "."),
            epilog=f"examples:\n{verb.examples}" + (f"\n{CODES}" if connects else ""),
        )
        if connects:
            add_who(made)
            add_timeout(made)
        elif verb.who == "site":
            made.add_argument("site", metavar="SITE", help="the site's folder")
        verb.options(made)
        made.add_argument("--json", action="store_true", help="as JSON, for scripts")


def run(args: argparse.Namespace) -> int:
    """Do it."""
    from sealmq.cli.acting import check_who
    from sealmq.cli.pub import seconds

    verb = _VERBS[args.verb]
    does = verb.does
    if verb.who == "either" and (args.client or args.enrolment or not args.site):
        does = "saying"
    if does == "saying":
        check_who(args)
        args.timeout = seconds(args, args.timeout)
    done: int = importlib.import_module(f"{__package__}.{does}").run(args)
    return done
