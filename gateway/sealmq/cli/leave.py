"""`sealmq client disable|enable|rotate|remove`: who is out, and whose secret is another one.

sealmq.toml is changed first, then the key generator makes its keys so, then every mediator confirms
that it goes by them. Cut off anywhere, the same command again finishes the work. Putting somebody
out does not wait for a right sealmq.toml: while it is wrong, or the key generator refuses what it
says, the key generator keeps him out. Clients that [peers] and [borders] make have no line of their
own: for them only the key generator says who is out.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from typing import Any, NamedTuple

from sealmq.kg.errors import Bad
from sealmq.kglink import Applied, KgBad, KgClient
from sealmq.kinds import OF_THE_SITE
from sealmq.near import near
from sealmq.site import uses
from sealmq.site.config import NONE, Client, Config, load
from sealmq.site.edit import raise_rotation, remove_client, set_client_disabled
from sealmq.site.errors import ConfigError
from sealmq.site.layout import Layout

from . import enrolment, handout, in_force, keygen, settled
from .errors import OperatorError

DISABLE_EXAMPLES = (
    """\
examples:
  sealmq client disable site monitor
  sealmq client disable site monitor --json | jq -r '.epochs[].label'

Its connections end, and its label and all labels below get new epochs, so that what it holds opens
nothing that is sealed from now on. What it could read before it can still read, if it kept it.
Several at once: `disabled = true` in sealmq.toml for each, then one `sealmq reload SITE`. It works
while sealmq.toml is wrong, too: the client stays out when the file is put right. So it does for a
client that [peers] or [borders] makes, which has no line of its own.

"""
    + settled.CODES
)
ENABLE_EXAMPLES = (
    """\
examples:
  sealmq client enable site monitor

It provisions anew by itself; its enrolment is good as before. If its secret may be known to others,
`sealmq client rotate` is what you want.

"""
    + settled.CODES
)
ROTATE_EXAMPLES = (
    """\
examples:
  sealmq client rotate site monitor                  writes ./monitor.sealmq.json
  sealmq client rotate site monitor -o /media/stick/monitor.json

For a client whose secret may be known to others. What it holds becomes worthless as with `disable`;
with the new enrolment file (mode 0600) it comes back. Bring it to the client, then delete it.

"""
    + settled.CODES
)

REMOVE_EXAMPLES = (
    """\
examples:
  sealmq client remove site old-panel

As with `disable` its connections end and what it holds opens nothing new; its line in sealmq.toml
goes as well, and a client that is added under its name later has another secret. What names it
elsewhere in sealmq.toml has to go first. Topics that it has labelled keep their labels.
If the key generator refuses what sealmq.toml says otherwise, the line is gone, the client is out as
with `disable`, and its keys wait: put the file right, and the same command again removes them.

"""
    + settled.CODES
)


class _Done(NamedTuple):
    edited: bool
    was: dict[str, Any]
    done: Applied
    enrolment: dict[str, Any]


# done: None where the key generator has nothing of it. refused: why the keys wait.
class _Removed(NamedTuple):
    done: Applied | None
    refused: Bad | KgBad | None


def disable(args: argparse.Namespace) -> int:
    """Take a client out."""
    layout, wait_s = Layout.open(args.site), settled.wait_s(args)
    config, fault = in_force.policy_and_fault(layout)
    if fault is not None:
        in_force.warn(fault)
    _may_switch(config, args.name)
    has_line = fault is None and _has_line(config, args.name)

    # What the key generator refuses of a file that is right in itself keeps nobody in either.
    async def over_socket(kg: KgClient) -> _Done:
        was, edited = _row(await kg.clients(), args.name), False
        if has_line:
            edited = set_client_disabled(layout, args.name, True)[1]
            try:
                return _Done(edited, was, await kg.reload(), {})
            except KgBad as error:
                in_force.warn(error)
        return _Done(edited, was, await kg.hold(args.name, True), {})

    def by_ourselves() -> _Done:
        from sealmq.kg.local import opened

        with opened(layout, config, keygen.key_file(args)) as kg:
            was, edited = _row(kg.clients(), args.name), False
            if has_line:
                now, edited = set_client_disabled(layout, args.name, True)
                try:
                    return _Done(edited, was, kg.apply(now), {})
                except Bad as error:
                    in_force.warn(error)
            return _Done(edited, was, kg.hold(args.name, True), {})

    return _switched(args, layout, wait_s, True, keygen.ask(layout, over_socket, by_ourselves))


def enable(args: argparse.Namespace) -> int:
    """Let it in again."""
    layout, wait_s = Layout.open(args.site), settled.wait_s(args)
    config = load(layout.config)
    _may_switch(config, args.name)

    # Whom the key generator holds out is let in by what the file says from now on.
    async def over_socket(kg: KgClient) -> _Done:
        was = _row(await kg.clients(), args.name)
        if not _has_line(config, args.name):
            return _Done(False, was, await kg.hold(args.name, False), {})
        done = set_client_disabled(layout, args.name, False)[1]
        if was:
            await kg.hold(args.name, False)
        return _Done(done, was, await kg.reload(), {})

    def by_ourselves() -> _Done:
        from sealmq.kg.local import opened

        with opened(layout, config, keygen.key_file(args)) as kg:
            was = _row(kg.clients(), args.name)
            if not _has_line(config, args.name):
                return _Done(False, was, kg.hold(args.name, False), {})
            now, done = set_client_disabled(layout, args.name, False)
            if was:
                kg.hold(args.name, False)
            return _Done(done, was, kg.apply(now), {})

    return _switched(args, layout, wait_s, False, keygen.ask(layout, over_socket, by_ourselves))


def _may_switch(config: Config, name: str) -> None:
    if _client(config, name).label == NONE:
        raise OperatorError(
            f"{name} has label none: it is out already",
            hint="a client with another label can be enabled; edit its line in sealmq.toml",
        )


# What [peers] and [borders] make has none, and cannot be disabled in the file.
def _has_line(config: Config, name: str) -> bool:
    return config.clients[name].kind not in OF_THE_SITE


def _switched(
    args: argparse.Namespace, layout: Layout, wait_s: float, out: bool, done: _Done
) -> int:
    word, verb = ("disabled", "disable") if out else ("enabled", "enable")
    already = not done.edited and done.was.get("disabled", not out) == out
    found = settled.settle(layout, wait_s, done.done.kseq)
    if args.json:
        said = {"name": args.name, "disabled": out} | keygen.as_json(done.done)
        print(json.dumps(said | found.to_json()))
    else:
        print(f"{args.name} is {word}" + (" already" if already else ""))
        if done.done.epochs or (out and not already):
            keygen.say_epochs(done.done)
    settled.check(found, f"{args.name} is {word}", f"sealmq client {verb} {args.site} {args.name}")
    return 0


def remove(args: argparse.Namespace) -> int:
    """Take it out for good."""
    from . import depends

    layout, wait_s = Layout.open(args.site), settled.wait_s(args)
    config = load(layout.config)
    named = uses.of_client(tomllib.loads(config.text), args.name)
    if named and args.name in config.clients:
        raise OperatorError(
            f"{args.name} is named elsewhere in sealmq.toml: {uses.words(named)}",
            "a client that is not there cannot be",
            hint="take that out first; to have it out at once: sealmq client disable "
            f"{args.site} {args.name}",
        )
    left = depends.on_client(layout, args.name)

    # Whose line is gone already, and whose keys are not, an earlier run has left behind.
    async def over_socket(kg: KgClient) -> _Removed:
        there = _row(await kg.clients(), args.name)
        _without_line(layout, args.name, there)
        try:
            return _Removed(await kg.reload(), None)
        except KgBad as error:
            return _Removed(await kg.hold(args.name, True) if there else None, error)

    def by_ourselves() -> _Removed:
        from sealmq.kg.local import opened

        with opened(layout, config, keygen.key_file(args)) as kg:
            there = _row(kg.clients(), args.name)
            now = _without_line(layout, args.name, there)
            try:
                return _Removed(kg.apply(now), None)
            except Bad as error:
                return _Removed(kg.hold(args.name, True) if there else None, error)

    done, refused = keygen.ask(layout, over_socket, by_ourselves)
    if refused is not None or done is None:
        raise _keys_wait(args, layout, wait_s, done, refused)
    found = settled.settle(layout, wait_s, done.kseq)
    if args.json:
        said = {"name": args.name, "removed": True, "made": left.to_json()}
        print(json.dumps(said | keygen.as_json(done) | found.to_json()))
    else:
        print(f"{args.name} is removed")
        keygen.say_epochs(done)
        for line in left.words():
            print(f"it has left {line}")
    # It is in no file any more, so the same command cannot ask again.
    settled.check(found, f"{args.name} is removed", f"sealmq reload {args.site}")
    return 0


# What sealmq.toml says without its line; ConfigError if nobody knows such a client.
def _without_line(layout: Layout, name: str, there: dict[str, Any]) -> Config:
    now = load(layout.config)
    return now if there and name not in now.clients else remove_client(layout, name)


# It is out of the file, and the key generator refuses that file. done: it holds the client out.
def _keys_wait(
    args: argparse.Namespace,
    layout: Layout,
    wait_s: float,
    done: Applied | None,
    error: Bad | KgBad | None,
) -> OperatorError:
    what = f"the line of {args.name} in sealmq.toml is gone, but the key generator refuses the file"
    hint = None if error is None else error.hint
    if done is None:
        return OperatorError(what, str(error), hint=hint)
    what += f": it holds {args.name} out, and its keys wait"
    again = f"sealmq client remove {args.site} {args.name}"
    settled.check(settled.settle(layout, wait_s, done.kseq), f"{what} ({error})", again)
    first = f"{hint}; then" if hint else "put the file right, then"
    return OperatorError(what, str(error), hint=f"{first} again: {again}")


def rotate(args: argparse.Namespace) -> int:
    """A new secret, and its enrolment file."""
    layout, wait_s = Layout.open(args.site), settled.wait_s(args)
    before = load(layout.config)
    client = _client(before, args.name)
    path = enrolment.path_for(args.output or args.name + handout.FILES.suffix, layout)
    waits = (
        f"sealmq.toml asks for a new secret of {args.name}, and until the key generator takes it "
        f"the old one is good; to have it out at once: sealmq client disable {args.site} "
        f"{args.name}"
    )

    async def over_socket(kg: KgClient) -> _Done:
        was = _row(await kg.clients(), args.name)
        raise_rotation(layout, args.name, was.get("rotation", 0))
        with keygen.after_edit(waits):
            done = await kg.reload()
        return _Done(True, was, done, await kg.enrol(args.name))

    def by_ourselves() -> _Done:
        from sealmq.kg.local import opened

        with opened(layout, before, keygen.key_file(args)) as kg:
            was = _row(kg.clients(), args.name)
            now = raise_rotation(layout, args.name, was.get("rotation", 0))
            with keygen.after_edit(waits):
                done = kg.apply(now)
            return _Done(True, was, done, kg.enrol(args.name))

    again = f"sealmq client add {args.site} {args.name} --label {client.label}"
    with enrolment.reserve(path) as room:
        done = keygen.ask(layout, over_socket, by_ourselves)
        enrolment.write(room, handout.as_file(done.enrolment), again)
    found = settled.settle(layout, wait_s, done.done.kseq)
    out = done.was.get("disabled", False)
    if args.json:
        said = {"name": args.name, "file": str(path), "disabled": out}
        print(json.dumps(said | keygen.as_json(done.done) | found.to_json()))
    else:
        print(f"{args.name} has a new secret; the old one is worthless")
        print(f"enrolment file (secret, mode 0600): {path}")
        keygen.say_epochs(done.done)
        if client.disabled or out:
            print(f"it stays disabled; to let it in: sealmq client enable {args.site} {args.name}")
    # Said of whom is so already, it changes nothing and asks the mediators.
    verb = "disable" if out else "enable"
    what = f"{args.name} has a new secret, in {path}"
    settled.check(found, what, f"sealmq client {verb} {args.site} {args.name}")
    return 0


def _client(config: Config, name: str) -> Client:
    clients = config.clients
    if name not in clients:
        raise ConfigError(f"there is no client {name!r}", near(name, clients), key="clients")
    return clients[name]


# What the key generator knows of it; nothing if it has not heard of it yet.
def _row(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next((row for row in rows if row["name"] == name and not row["removed"]), {})
