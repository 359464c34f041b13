"""`sealmq client add` and `client list`. A secret goes into a file of mode 0600, never on a screen.

`add` first changes sealmq.toml, then the key generator, then writes the file. Cut off anywhere, the
same command again finishes the work: what is there already is found, not made twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from sealmq.kg.core import list_clients
from sealmq.kg.errors import StoreBusy
from sealmq.kg.local import local
from sealmq.kg.store import KgStore
from sealmq.kglink import KgClient, KgUnavailable
from sealmq.site import values
from sealmq.site.config import KINDS, SUITES, Config, load
from sealmq.site.edit import add_client
from sealmq.site.layout import Layout, sync_folder

from .errors import OperatorError, UsageError

T = TypeVar("T")

_EXAMPLES = """\
examples:
  sealmq client add site thermometer --label sensors         writes ./thermometer.sealmq.json
  sealmq client add site panel --label control -o /media/stick/panel.json
  sealmq client add factory m1-temp-sensor --label m1-temp   again: its enrolment file once more
  sealmq client list site
  sealmq client list site --json
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
    """sealmq client add|list"""
    parser = sub.add_parser(
        "client",
        help="add a client and write its enrolment file; list clients",
        description="Add clients and list them.",
        epilog=_EXAMPLES,
    )
    verbs = parser.add_subparsers(dest="verb", metavar="add|list", required=True)
    adding = verbs.add_parser(
        "add", help="add a client", description="Add a client.", epilog=_ADD_EXAMPLES
    )
    adding.add_argument("site", metavar="SITE", help="the site's folder")
    adding.add_argument("name", metavar="NAME", help="the client's name")
    adding.add_argument("--label", required=True, help="its label in sealmq.toml")
    adding.add_argument("--kind", choices=KINDS, help="default: device")
    adding.add_argument("--suite", choices=tuple(SUITES), help="default: ccm")
    adding.add_argument("-o", "--output", metavar="FILE", help="default: ./NAME.sealmq.json")
    adding.add_argument("--key-file", metavar="FILE", help="instead of the one in sealmq.toml")
    adding.add_argument("--json", action="store_true", help="say what was made as JSON")
    listing = verbs.add_parser(
        "list", help="list clients", description="List the clients.", epilog=_LIST_EXAMPLES
    )
    listing.add_argument("site", metavar="SITE", help="the site's folder")
    listing.add_argument("--json", action="store_true", help="as JSON, for scripts")


def run(args: argparse.Namespace) -> int:
    """Add or list."""
    return _add(args) if args.verb == "add" else _list(args)


def _add(args: argparse.Namespace) -> int:
    layout = Layout.open(args.site)
    if not values.is_name(args.name):
        raise UsageError(f"{args.name!r} is no name", hint=values.NAME_RULE)
    output = _output(args, layout)

    def into_toml() -> tuple[Config, bool]:
        return add_client(layout, args.name, args.label, args.kind, args.suite)

    # The key generator is there, or its store is open, before anything is changed.
    async def over_socket(kg: KgClient) -> tuple[Config, bool, dict[str, Any]]:
        config, added = into_toml()
        await kg.reload()
        return config, added, await kg.enrol(args.name)

    def by_ourselves() -> tuple[Config, bool, dict[str, Any]]:
        key_file = Path(args.key_file).absolute() if args.key_file else None
        with local(layout, load(layout.config), key_file) as kg:
            config, added = into_toml()
            kg.apply(config)
            return config, added, kg.enrol(args.name)

    config, added, enrolment = _ask(layout, over_socket, by_ourselves)
    _write(output, enrolment)
    client = config.clients[args.name]
    if args.json:
        said = {"name": client.name, "number": enrolment["client"], "label": client.label}
        print(json.dumps(said | {"added": added, "file": str(output)}))
    else:
        print(f"{client.name}: number {enrolment['client']}, label {client.label}")
        print(f"enrolment file (secret, mode 0600): {output}")
    return 0


def _output(args: argparse.Namespace, layout: Layout) -> Path:
    if args.output == "-":
        raise UsageError("an enrolment holds a secret and is not printed", hint="-o FILE")
    path = Path(args.output or f"{args.name}.sealmq.json").absolute()
    if values.is_inside(path, layout.root):
        raise OperatorError(
            f"{path} lies inside the site, whose copy would then reveal the client's secret",
            hint="-o FILE, in a folder outside the site",
        )
    if path.exists() or path.is_symlink():
        raise OperatorError(f"{path} is there already", hint="remove it first, or give -o FILE")
    if not path.parent.is_dir():
        raise OperatorError(f"{path.parent} is no folder", hint=f"mkdir -p {path.parent}")
    return path


# The running key generator if there is one, else the store itself; never both.
def _ask(
    layout: Layout,
    over_socket: Callable[[KgClient], Coroutine[None, None, T]],
    by_ourselves: Callable[[], T],
) -> T:
    async def ask() -> T:
        async with await KgClient.connect(layout.kg_socket) as kg:
            return await over_socket(kg)

    try:
        return asyncio.run(ask())
    except KgUnavailable as error:
        try:
            return by_ourselves()
        except StoreBusy:
            raise OperatorError(
                f"the key generator runs, but: {error}", hint=f"sealmq status {layout.root}"
            ) from None


# The name appears when the file is whole and on disk; one that appeared meanwhile is not replaced.
def _write(path: Path, enrolment: dict[str, Any]) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o600)
            json.dump(enrolment, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            raise OperatorError(f"{path} is there already", hint="remove it first") from None
    finally:
        os.unlink(draft)
    sync_folder(path.parent)


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

    found = _ask(layout, over_socket, by_ourselves)
    clients = [_shown(row) for row in found] + _not_yet(layout, found)
    if args.json:
        print(json.dumps({"clients": clients}))
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
def _not_yet(layout: Layout, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    known = {row["name"] for row in found if not row["removed"]}
    return [
        {"number": None, "name": c.name, "label": c.label, "kind": c.kind, "state": "not yet known"}
        for c in load(layout.config).clients.values()
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
