"""`sealmq client`: the parsers of all its verbs; `add` and `list` (the others: leave.py).

`add` first changes sealmq.toml, then the key generator, then writes the file. Cut off anywhere, the
same command again finishes the work: what is there already is found, not made twice.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from sealmq.kg.core import list_clients
from sealmq.kg.local import local
from sealmq.kg.store import KgStore
from sealmq.kglink import KgClient
from sealmq.site import values
from sealmq.site.canary import is_canary
from sealmq.site.config import KINDS, SUITES, Config, load
from sealmq.site.edit import add_client, set_rotations
from sealmq.site.layout import Layout

from . import enrolment, in_force, leave, settled
from .errors import UsageError
from .keygen import add_key_file, ask, key_file

_EXAMPLES = """\
examples:
  sealmq client add site thermometer --label sensors         writes ./thermometer.sealmq.json
  sealmq client add site panel --label control -o /media/stick/panel.json
  sealmq client add factory m1-temp-sensor --label m1-temp   again: its enrolment file once more
  sealmq client list site
  sealmq client list site --json
  sealmq client disable site thermometer                     out, and its keys open nothing new
  sealmq client enable site thermometer
  sealmq client rotate site thermometer                      a new secret, when the old one is known
"""
_ADD_EXAMPLES = """\
examples:
  sealmq client add site thermometer --label sensors
  sealmq client add site panel --label control --kind app -o /media/stick/panel.json

The enrolment file holds the client's secret (mode 0600). Bring it to the client, then delete it.
For a client that is there with the same label the file is written again. It works whether the site
is up or down; when it is up the client can connect at once.
"""
_LIST_EXAMPLES = """\
examples:
  sealmq client list site
  sealmq client list site --json | jq -r '.clients[].name'
"""


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """sealmq client add|list|disable|enable|rotate"""
    parser = sub.add_parser(
        "client",
        help="add a client and write its enrolment file; list, disable, enable, rotate",
        description="Add clients, list them, take them out, give them new secrets.",
        epilog=_EXAMPLES,
    )
    verbs = parser.add_subparsers(
        dest="verb", metavar="add|list|disable|enable|rotate", required=True
    )
    adding = verbs.add_parser(
        "add", help="add a client", description="Add a client.", epilog=_ADD_EXAMPLES
    )
    adding.add_argument("site", metavar="SITE", help="the site's folder")
    adding.add_argument("name", metavar="NAME", help="the client's name")
    adding.add_argument("--label", required=True, help="its label in sealmq.toml")
    adding.add_argument("--kind", choices=KINDS, help="default: device")
    adding.add_argument("--suite", choices=tuple(SUITES), help="default: ccm")
    adding.add_argument("-o", "--output", metavar="FILE", help="default: ./NAME.sealmq.json")
    add_key_file(adding)
    adding.add_argument("--json", action="store_true", help="say what was made as JSON")
    listing = verbs.add_parser(
        "list", help="list clients", description="List the clients.", epilog=_LIST_EXAMPLES
    )
    listing.add_argument("site", metavar="SITE", help="the site's folder")
    listing.add_argument("--json", action="store_true", help="as JSON, for scripts")
    for verb, told, epilog in (
        ("disable", "take a client out", leave.DISABLE_EXAMPLES),
        ("enable", "let a disabled client in again", leave.ENABLE_EXAMPLES),
        ("rotate", "give a client a new secret", leave.ROTATE_EXAMPLES),
    ):
        more = verbs.add_parser(verb, help=told, description=told.capitalize() + ".", epilog=epilog)
        more.add_argument("site", metavar="SITE", help="the site's folder")
        more.add_argument("name", metavar="NAME", help="the client's name")
        if verb == "rotate":
            more.add_argument("-o", "--output", metavar="FILE", help="default: ./NAME.sealmq.json")
        add_key_file(more)
        settled.add_wait(more)
        more.add_argument("--json", action="store_true", help="say what was done as JSON")


def run(args: argparse.Namespace) -> int:
    """Do what the verb says."""
    verbs = {
        "add": _add,
        "list": _list,
        "disable": leave.disable,
        "enable": leave.enable,
        "rotate": leave.rotate,
    }
    return verbs[args.verb](args)


def _add(args: argparse.Namespace) -> int:
    layout = Layout.open(args.site)
    if not values.is_name(args.name):
        raise UsageError(f"{args.name!r} is no name", hint=values.NAME_RULE)
    output = enrolment.path_for(args.name, args.output, layout)

    def into_toml() -> tuple[Config, bool]:
        return add_client(layout, args.name, args.label, args.kind, args.suite)

    # The key generator is there, or its store is open, before anything is changed.
    async def over_socket(kg: KgClient) -> tuple[Config, bool, dict[str, Any]]:
        config, added = into_toml()
        await kg.reload()
        config = _noted(layout, config, await kg.clients(), args.name)
        return config, added, await kg.enrol(args.name)

    def by_ourselves() -> tuple[Config, bool, dict[str, Any]]:
        with local(layout, load(layout.config), key_file(args)) as kg:
            config, added = into_toml()
            kg.apply(config)
            config = _noted(layout, config, kg.clients(), args.name)
            return config, added, kg.enrol(args.name)

    with enrolment.reserve(output) as room:
        config, added, drawn = ask(layout, over_socket, by_ourselves)
        again = f"sealmq client add {args.site} {args.name} --label {args.label}"
        enrolment.write(room, drawn, again)
    client = config.clients[args.name]
    if args.json:
        said = {"name": client.name, "number": drawn["client"], "label": client.label}
        print(json.dumps(said | {"added": added, "file": str(output)}))
    else:
        print(f"{client.name}: number {drawn['client']}, label {client.label}")
        print(f"enrolment file (secret, mode 0600): {output}")
    return 0


# One that was removed and comes back has another secret. sealmq.toml has to say so, or a backup
# from before would bring the old one back.
def _noted(layout: Layout, config: Config, rows: list[dict[str, Any]], name: str) -> Config:
    rotation = next(row["rotation"] for row in rows if row["name"] == name)
    if rotation <= config.clients[name].rotation:
        return config
    return set_rotations(layout, {name: rotation})


def _list(args: argparse.Namespace) -> int:
    layout = Layout.open(args.site)

    async def over_socket(kg: KgClient) -> list[dict[str, Any]]:
        return await kg.clients()

    def by_ourselves() -> list[dict[str, Any]]:
        store = KgStore.open_readonly(layout.kg_db)
        try:
            return list_clients(store)
        finally:
            store.close()

    found = ask(layout, over_socket, by_ourselves)
    # The doctor's own leave no trace; their numbers wait for its next visit.
    found = [row for row in found if not (row["removed"] and is_canary(row["name"]))]
    config = in_force.policy(layout)
    clients = [_shown(row) for row in found] + _not_yet(config, found)
    if args.json:
        print(json.dumps({"site": config.site.id.hex(), "clients": clients}))
        return 0
    _table(clients)
    return 0


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    suites = {number: name for name, number in SUITES.items()}
    if row["removed"]:
        state = "removed"
    elif row["disabled"]:
        state = "disabled"
    else:
        state = "provisioned" if row["gen"] else "new"
    return row | {"suite": suites[row["suite"]], "state": state}


# What sealmq.toml says and the key generator has not seen: it was edited while the site was down.
def _not_yet(config: Config, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    known = {row["name"] for row in found if not row["removed"]}
    return [
        {"number": None, "name": c.name, "label": c.label, "kind": c.kind, "state": "not yet known"}
        for c in config.clients.values()
        if c.name not in known
    ]


def _table(clients: list[dict[str, Any]]) -> None:
    titles = ("NUMBER", "NAME", "LABEL", "KIND", "STATE")
    lines = [
        tuple(
            str(row[title.lower()] if row[title.lower()] is not None else "-") for title in titles
        )
        for row in clients
    ]
    widths = [max(len(line[i]) for line in [titles, *lines]) for i in range(len(titles))]
    for line in [titles, *lines]:
        print("  ".join(word.ljust(w) for word, w in zip(line, widths, strict=True)).rstrip())
