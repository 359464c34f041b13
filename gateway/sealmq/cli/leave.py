"""`sealmq client disable|enable|rotate`: who is out, and whose secret is another one.

sealmq.toml is changed first, then the key generator makes its keys so. Cut off anywhere, the same
command again finishes the work.
"""

from __future__ import annotations

import argparse
import json
from typing import Any, NamedTuple

from sealmq.kg.local import opened
from sealmq.kglink import Applied, KgClient
from sealmq.near import near
from sealmq.site.config import NONE, Config, load
from sealmq.site.edit import raise_rotation, set_client_disabled
from sealmq.site.errors import ConfigError
from sealmq.site.layout import Layout

from . import enrolment, keygen
from .errors import OperatorError

DISABLE_EXAMPLES = """\
examples:
  sealmq client disable site monitor
  sealmq client disable site monitor --json | jq -r '.epochs[].label'

Its connections end, and its label and all labels below get new epochs, so that what it holds opens
nothing that is sealed from now on. What it could read before it can still read, if it kept it.
Several at once: `disabled = true` in sealmq.toml for each, then one `sealmq reload SITE`.
"""
ENABLE_EXAMPLES = """\
examples:
  sealmq client enable site monitor

It provisions anew by itself; its enrolment is good as before. If its secret may be known to others,
`sealmq client rotate` is what you want.
"""
ROTATE_EXAMPLES = """\
examples:
  sealmq client rotate site monitor                  writes ./monitor.sealmq.json
  sealmq client rotate site monitor -o /media/stick/monitor.json

For a client whose secret may be known to others. What it holds becomes worthless as with `disable`;
with the new enrolment file (mode 0600) it comes back. Bring it to the client, then delete it.
"""


class _Done(NamedTuple):
    config: Config
    edited: bool
    was: dict[str, Any]
    done: Applied
    enrolment: dict[str, Any]


def disable(args: argparse.Namespace) -> int:
    """Take a client out."""
    return _switch(args, True)


def enable(args: argparse.Namespace) -> int:
    """Let it in again."""
    return _switch(args, False)


def _switch(args: argparse.Namespace, out: bool) -> int:
    layout = Layout.open(args.site)
    word = "disabled" if out else "enabled"
    client = _client(layout, args.name)
    if client.label == NONE:
        raise OperatorError(
            f"{args.name} has label none: it is out already",
            hint="a client with another label can be enabled; edit its line in sealmq.toml",
        )

    async def over_socket(kg: KgClient) -> _Done:
        was = _row(await kg.clients(), args.name)
        config, edited = set_client_disabled(layout, args.name, out)
        return _Done(config, edited, was, await kg.reload(), {})

    def by_ourselves() -> _Done:
        with opened(layout, load(layout.config), keygen.key_file(args)) as kg:
            was = _row(kg.clients(), args.name)
            config, edited = set_client_disabled(layout, args.name, out)
            return _Done(config, edited, was, kg.apply(config), {})

    done = keygen.ask(layout, over_socket, by_ourselves)
    if not done.edited and done.was.get("disabled", out) == out:
        verb = "enable" if out else "disable"
        raise OperatorError(
            f"{args.name} is {word} already", hint=f"sealmq client {verb} {args.site} {args.name}"
        )
    if args.json:
        print(json.dumps({"name": args.name, "disabled": out} | keygen.as_json(done.done)))
        return 0
    print(f"{args.name} is {word}")
    if out or done.done.epochs:
        keygen.say_epochs(done.done)
    return 0


def rotate(args: argparse.Namespace) -> int:
    """A new secret, and its enrolment file."""
    layout = Layout.open(args.site)
    client = _client(layout, args.name)
    path = enrolment.path_for(args.name, args.output, layout)

    async def over_socket(kg: KgClient) -> _Done:
        was = _row(await kg.clients(), args.name)
        config = raise_rotation(layout, args.name, was.get("rotation", 0))
        return _Done(config, True, was, await kg.reload(), await kg.enrol(args.name))

    def by_ourselves() -> _Done:
        with opened(layout, load(layout.config), keygen.key_file(args)) as kg:
            was = _row(kg.clients(), args.name)
            config = raise_rotation(layout, args.name, was.get("rotation", 0))
            done = kg.apply(config)
            return _Done(config, True, was, done, kg.enrol(args.name))

    with enrolment.reserve(path) as room:
        done = keygen.ask(layout, over_socket, by_ourselves)
        again = f"sealmq client add {args.site} {args.name} --label {client.label}"
        enrolment.write(room, done.enrolment, again)
    if args.json:
        said = {"name": args.name, "file": str(path), "disabled": done.was.get("disabled", False)}
        print(json.dumps(said | keygen.as_json(done.done)))
        return 0
    print(f"{args.name} has a new secret; the old one is worthless")
    print(f"enrolment file (secret, mode 0600): {path}")
    keygen.say_epochs(done.done)
    if client.disabled:
        print(f"it stays disabled; to let it in: sealmq client enable {args.site} {args.name}")
    return 0


def _client(layout: Layout, name: str) -> Any:
    clients = load(layout.config).clients
    if name not in clients:
        raise ConfigError(f"there is no client {name!r}", near(name, clients), key="clients")
    return clients[name]


# What the key generator knows of it; nothing if it has not heard of it yet.
def _row(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next((row for row in rows if row["name"] == name and not row["removed"]), {})
