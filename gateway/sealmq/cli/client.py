"""`sealmq client`: the parsers of all its verbs; `add` and `list` (the others: leave.py).

`add` first changes sealmq.toml, then the key generator, then writes the file. Cut off anywhere, the
same command again finishes the work: what is there already is found, not made twice.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sealmq.audit.totals import read_seen
from sealmq.kglink import KgClient
from sealmq.site import values
from sealmq.site.canary import is_canary
from sealmq.site.config import KINDS, SUITES, Config
from sealmq.site.edit import New, add_clients, set_rotations
from sealmq.site.layout import Layout

from . import enrolment, handout, in_force, leave, settled
from .errors import OperatorError, UsageError
from .keygen import add_key_file, after_edit, ask, key_file
from .tables import moment

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
  sealmq client remove site thermometer                      out for good, its line too
"""
_ADD_EXAMPLES = """\
examples:
  sealmq client add site thermometer --label sensors
  sealmq client add site panel --label control --kind app -o /media/stick/panel.json
  sealmq client add site hall-1 hall-2 hall-3 --label sensors -o /media/stick
  sealmq client add site --from clients.csv -o /media/stick      name,label and a row for each
  sealmq client add site --from clients.csv --seal-to age1... -o clients.tar.age
  sealmq client add site panel --label control --qr -o panel.svg

The enrolment file holds the client's secret (mode 0600). Bring it to the client, then delete it.
Several clients are one change: all are added, or none. Each further one costs little.
What --seal-to writes is no secret on its way: age -d -i KEY clients.tar.age | tar -x
For a client that is there with the same label the file is written again. It works whether the site
is up or down; when it is up the client can connect at once.
"""
_LIST_EXAMPLES = """\
examples:
  sealmq client list site
  sealmq client list site --json | jq -r '.clients[].name'
"""


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """sealmq client add|list|disable|enable|rotate|remove"""
    parser = sub.add_parser(
        "client",
        help="add clients and write their enrolment files; list, disable, enable, rotate, remove",
        description="Add clients, list them, take them out, give them new secrets.",
        epilog=_EXAMPLES,
    )
    verbs = parser.add_subparsers(
        dest="verb", metavar="add|list|disable|enable|rotate|remove", required=True
    )
    adding = verbs.add_parser(
        "add", help="add a client", description="Add a client.", epilog=_ADD_EXAMPLES
    )
    adding.add_argument("site", metavar="SITE", help="the site's folder")
    adding.add_argument("name", metavar="NAME", nargs="*", help="the client's name, or several")
    adding.intermixed = True
    adding.add_argument("--label", help="its label in sealmq.toml")
    adding.add_argument("--kind", choices=KINDS, help="default: device")
    adding.add_argument("--suite", choices=tuple(SUITES), help="default: ccm; for apps chacha")
    adding.add_argument(
        "--from",
        dest="rows",
        metavar="FILE",
        help="instead: a CSV file with a row for each client; its first line is name,label and if "
        "wanted kind and suite",
    )
    adding.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="default: ./NAME.sealmq.json; of several clients the folder for their files, or the "
        "file of --seal-to",
    )
    adding.add_argument(
        "--seal-to",
        action="append",
        metavar="KEY|FILE",
        help="instead of files: one archive of them, encrypted with age for this public key "
        "(age1..., ssh-ed25519 ..., or a file with one in each line); may be given several times",
    )
    adding.add_argument(
        "--qr", action="store_true", help="instead of a file: its QR code, as .svg, or -o FILE.png"
    )
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
        ("remove", "take a client out for good", leave.REMOVE_EXAMPLES),
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
        "remove": leave.remove,
    }
    return verbs[args.verb](args)


def _add(args: argparse.Namespace) -> int:
    layout = Layout.open(args.site)
    wanted = _wanted(args)
    names = [new.name for new in wanted]
    form = _form(args)
    paths = _paths(args, form, names, layout)

    def into_toml() -> tuple[Config, set[str]]:
        return add_clients(layout, wanted)

    waits = f"nobody was added at the key generator; then again: {_again(args)}"

    # The key generator is there, or its store is open, before anything is changed. All rows are one
    # change of sealmq.toml and one transaction of the key generator.
    async def over_socket(kg: KgClient) -> _Added:
        config, added = into_toml()
        with after_edit(waits):
            await kg.reload()
        config = _noted(layout, config, await kg.clients(), names)
        return _Added(config, added, await kg.enrolments(names))

    # What the file says after the edit counts; what it says before may be wrong.
    def by_ourselves() -> _Added:
        from sealmq.kg.local import opened

        with opened(layout, in_force.policy_and_fault(layout)[0], key_file(args)) as kg:
            config, added = into_toml()
            with after_edit(waits):
                kg.apply(config)
            config = _noted(layout, config, kg.clients(), names)
            return _Added(config, added, kg.enrolments(names))

    with contextlib.ExitStack() as stack:
        now = stack.enter_context(_steps(len(names)))
        now("takes the room for their files")
        size = form.room(len(names))
        rooms = [stack.enter_context(enrolment.reserve(path, size)) for path in paths]
        now("draws their secrets")
        done = ask(layout, over_socket, by_ourselves)
        now("writes their files")
        files = zip(rooms, form.files(done.drawn), strict=True)
        enrolment.write_all(list(files), _again(args))
    _say_added(args, done, paths)
    return 0


# Some hundred are there before anybody wonders.
_MANY = 500


@contextlib.contextmanager
def _steps(count: int) -> Iterator[Callable[[str], None]]:
    """What is being done, and since when, at a terminal."""
    if count < _MANY or not sys.stderr.isatty():
        yield lambda step: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda step: bar.update(task, description=f"{count} clients: {step}")


class _Added(NamedTuple):
    config: Config
    added: set[str]
    drawn: list[dict[str, Any]]


def _again(args: argparse.Namespace) -> str:
    form = "".join(f" --seal-to {shlex.quote(one)}" for one in args.seal_to or ())
    form += " --qr" if args.qr else ""
    if args.rows:
        return f"sealmq client add {args.site} --from {args.rows}{form}"
    return f"sealmq client add {args.site} {' '.join(args.name)} --label {args.label}{form}"


def _wanted(args: argparse.Namespace) -> list[New]:
    """Whom to add: the names of the command line, or the rows of --from. UsageError."""
    hint = "sealmq client add --help"
    if args.rows:
        if args.name or args.label or args.kind or args.suite:
            raise UsageError("--from beside a name, --label, --kind or --suite", hint=hint)
        rows = read_rows(Path(args.rows))
    elif not args.name or not args.label:
        raise UsageError("nobody to add", "NAME and --label, or --from FILE", hint=hint)
    else:
        rows = [New(name, args.label, args.kind, args.suite) for name in args.name]
    seen: set[str] = set()
    for new in rows:
        if not values.is_name(new.name):
            raise UsageError(f"{new.name!r} is no name", hint=values.NAME_RULE)
        if new.name in seen:
            raise UsageError(f"{new.name} is there twice", "name each once")
        seen.add(new.name)
    return rows


def read_rows(path: Path) -> list[New]:
    """The rows of a CSV file: name and label, and if the first line names them kind and suite."""
    try:
        # -sig: a spreadsheet may have put a byte order mark in front.
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            columns = tuple(reader.fieldnames or ())
            if not {"name", "label"} <= set(columns) <= set(_COLUMNS):
                raise OperatorError(
                    f"{path}, line 1: the columns are {', '.join(columns) or 'none'}",
                    "name,label, and if wanted kind and suite",
                    hint="sealmq client add --help",
                )
            rows = []
            for row in reader:
                if None in row or None in row.values():
                    raise OperatorError(
                        f"{path}, line {reader.line_num}: not as many fields as columns",
                        f"there are {len(columns)}",
                    )
                rows.append(New(*(row.get(name) or None for name in _COLUMNS)))  # type: ignore[arg-type]
                if not rows[-1].name or not rows[-1].label:
                    raise OperatorError(
                        f"{path}, line {reader.line_num}: no name or no label", "each row has both"
                    )
    except UnicodeDecodeError as error:
        raise OperatorError(f"{path} is not UTF-8: byte {error.start}") from None
    except csv.Error as error:
        raise OperatorError(f"{path}: {error}") from None
    if not rows:
        raise OperatorError(f"{path} has no rows", "a line for each client, after name,label")
    return rows


_COLUMNS = ("name", "label", "kind", "suite")


def _form(args: argparse.Namespace) -> handout.Form:
    """UsageError, OperatorError, before anything is changed."""
    if args.seal_to and args.qr:
        raise UsageError("--seal-to beside --qr", "one of them", hint="sealmq client add --help")
    if args.seal_to:
        return handout.archive(args.seal_to)
    if args.qr:
        return handout.codes(".png" if (args.output or "").endswith(".png") else ".svg")
    return handout.FILES


def _paths(
    args: argparse.Namespace, form: handout.Form, names: list[str], layout: Layout
) -> list[Path]:
    """Where the enrolments go: one file, or of several or of rows one each, into a folder."""
    if form.one_for_all or (len(names) == 1 and not args.rows):
        name = Path(args.rows).stem if args.rows else names[0]
        return [enrolment.path_for(args.output or f"{name}{form.suffix}", layout)]
    folder = Path(args.output or ".")
    if args.output == "-" or not folder.is_dir():
        raise UsageError(
            f"{args.output} is no folder", "several clients have a file each", hint="-o FOLDER"
        )
    return [enrolment.path_for(str(folder / f"{name}{form.suffix}"), layout) for name in names]


def _say_added(args: argparse.Namespace, done: _Added, paths: list[Path]) -> None:
    where = paths * len(done.drawn) if args.seal_to else paths
    said = [
        {
            "name": one["name"],
            "number": one["client"],
            "label": done.config.clients[one["name"]].label,
            "added": one["name"] in done.added,
            "file": str(path),
        }
        for one, path in zip(done.drawn, where, strict=True)
    ]
    several = len(said) > 1 or bool(args.rows)
    if args.json:
        print(json.dumps({"clients": said} if several else said[0]))
        return
    for row in said:
        print(f"{row['name']}: number {row['number']}, label {row['label']}")
    if args.seal_to:
        print(f"enrolment files, encrypted for whom --seal-to names: {paths[0]}")
    elif several:
        print(f"enrolment files (secret, mode 0600): {paths[0].parent}, {len(paths)} files")
    else:
        print(f"enrolment file (secret, mode 0600): {paths[0]}")
    print(f"next: {_next(args, done, paths)}")


def _next(args: argparse.Namespace, done: _Added, paths: list[Path]) -> str:
    """What to do with what was written."""
    file = shlex.quote(str(paths[0]))
    if args.qr:
        return f"show {paths[0]} to the app's camera, and delete it"
    if args.seal_to:
        return f"sealmq board flash --archive {file} --identity KEY --firmware FILE --port PORT"
    if args.rows:
        rows, folder = shlex.quote(args.rows), shlex.quote(str(paths[0].parent))
        files = f"--csv {rows} --enrolments {folder}"
        return f"sealmq board flash {files} --firmware FILE --port PORT"
    client = done.config.clients[done.drawn[0]["name"]]
    if client.kind == "device":
        return f"sealmq board build --enrolment {file} --wifi ask -o {client.name}.board"
    # No wildcard of the first level reaches what comes from a peer.
    _, at, peer = client.label.rpartition("@")
    filt = f"@{peer}/#" if at else "#"
    return f"sealmq sub --enrolment {file} -t '{filt}' -v"


# One that was removed and comes back has another secret. sealmq.toml has to say so, or a backup
# from before would bring the old one back.
def _noted(layout: Layout, config: Config, rows: list[dict[str, Any]], names: list[str]) -> Config:
    mine = set(names)
    # Of removed ones the name may be another one's now.
    here = {row["name"]: row["rotation"] for row in rows if not row["removed"]}
    risen = {
        name: n for name, n in here.items() if name in mine and n > config.clients[name].rotation
    }
    return set_rotations(layout, risen) if risen else config


def _list(args: argparse.Namespace) -> int:
    layout = Layout.open(args.site)

    async def over_socket(kg: KgClient) -> list[dict[str, Any]]:
        return await kg.clients()

    def by_ourselves() -> list[dict[str, Any]]:
        from sealmq.kg.core import list_clients
        from sealmq.kg.store import KgStore

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
    seen = read_seen(layout.state_of("mediator").glob("seen-*.json"))
    clients = [row | {"last_seen_ms": seen.get(row["name"])} for row in clients]
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
        # At a change of epochs a client gets its next generation in the connection that it has, and
        # proves it in the next one.
        state = "provisioned" if row["gen"] or row["pending"] else "new"
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
    titles: tuple[str, ...] = ("NUMBER", "NAME", "LABEL", "KIND", "STATE")
    lines = [
        tuple(
            str(row[title.lower()] if row[title.lower()] is not None else "-") for title in titles
        )
        for row in clients
    ]
    if any(row["last_seen_ms"] for row in clients):
        # When it came or went last; what the mediator writes down every 20 seconds.
        seen = [moment(row["last_seen_ms"]) for row in clients]
        titles = (*titles, "LAST SEEN")
        lines = [(*line, at) for line, at in zip(lines, seen, strict=True)]
    widths = [max(len(line[i]) for line in [titles, *lines]) for i in range(len(titles))]
    for line in [titles, *lines]:
        print("  ".join(word.ljust(w) for word, w in zip(line, widths, strict=True)).rstrip())
