"""`sealmq peer`: other sites, and what goes to them and comes from them. What it writes stands in
sealmq.toml; the labels' keys follow from it, as they do from clients.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sealmq.kglink import Applied, KgClient
from sealmq.site import masterkey
from sealmq.site import peers as peers_table
from sealmq.site.config import Config
from sealmq.site.edit import put_peer, remove_peer
from sealmq.site.errors import ConfigError
from sealmq.site.layout import Layout
from sealmq.site.model import Peer

from . import in_force, settled
from .errors import OperatorError, UsageError
from .keygen import add_key_file, ask, key_file
from .tables import moment_s, table

_EXAMPLES = """\
examples:
  sealmq peer fingerprint north                     say this to the operator of the other site
  sealmq peer add north south --fingerprint SHA256:... --listen 0.0.0.0:8884 --export heat
  sealmq peer add south north --fingerprint SHA256:... --address north.example:8884 --import heat
  sealmq peer list north
  sealmq peer remove north south                    its labels get new keys at once
"""
_ADD_EXAMPLES = """\
examples:
  sealmq peer add north south --fingerprint SHA256:... --listen 0.0.0.0:8884 --export heat
  sealmq peer add south north --fingerprint SHA256:... --address north.example:8884 --import heat
  sealmq peer add north south --export heat --export water       of a peer that is there
  sealmq peer add north south --no-import --export heat          imported by mistake
  sealmq peer add north east --far --fingerprint SHA256:... --export heat       no neighbour
  sealmq peer add south north --give '@west/#'      hand on to north what west's site has sent

One side listens, the other calls it; both export and import as they like. What is exported as heat
arrives at the other site under @north/..., with the label heat@north, which its own labels may be
over. It goes there as it is sealed: no bridge on the way can read it. All that is given in
--export, --import and --give takes the place of what stood there. The line to the first peer begins
with the next `sealmq up`, others at once.
"""
_FINGERPRINT_EXAMPLES = """\
examples:
  sealmq peer fingerprint north
  sealmq peer fingerprint north --json | jq -r .fingerprint

The other operator needs it from you, by a way on which nobody can change it: read aloud, say.
"""
_LIST_EXAMPLES = """\
examples:
  sealmq peer list north
  sealmq peer list north --json | jq '.peers[] | {name, line}'
"""
_REMOVE_EXAMPLES = """\
examples:
  sealmq peer remove north south

Its line ends, and the labels that went there get new keys: what it has kept opens nothing new. The
`sealmq peer add` that brings it back is printed.
"""


_LISTS = ("give", "export", "import")


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """sealmq peer fingerprint|add|list|remove"""
    parser = sub.add_parser(
        "peer",
        help="peers: sites that labels are exported to, and imported from",
        description="Join this site with others.",
        epilog=_EXAMPLES,
    )
    verbs = parser.add_subparsers(dest="verb", metavar="fingerprint|add|list|remove", required=True)
    one = verbs.add_parser(
        "fingerprint",
        help="say who this site is to its peers",
        description="Say who this site is to its peers.",
        epilog=_FINGERPRINT_EXAMPLES,
    )
    one.add_argument("site", metavar="SITE", help="the site's folder")
    add_key_file(one)
    one.add_argument("--json", action="store_true", help="as JSON, for scripts")
    adding = verbs.add_parser(
        "add", help="add a peer, or change one", description="Add a peer.", epilog=_ADD_EXAMPLES
    )
    adding.add_argument("site", metavar="SITE", help="the site's folder")
    adding.add_argument("name", metavar="PEER", help="what the other site is called here")
    adding.add_argument("--fingerprint", metavar="SHA256:...", help="what it says that it is")
    where = adding.add_mutually_exclusive_group()
    where.add_argument("--listen", metavar="HOST:PORT", help="wait for it there")
    where.add_argument("--address", metavar="HOST:PORT", help="call it there")
    where.add_argument(
        "--far", action="store_true", help="it is no neighbour: all goes by way of neighbours"
    )
    _add_list(
        adding,
        "give",
        "FILTER",
        "what may go to this neighbour, others' topics as @SITE/...; repeatable; what it is "
        "exported unless said",
        "nothing goes to it",
    )
    _add_list(
        adding, "export", "LABEL", "a label that goes to it; repeatable", "no label goes to it"
    )
    _add_list(
        adding,
        "import",
        "LABEL[:SUITE]",
        "a label of its own that comes here; repeatable; suite: ccm unless said",
        "no label of its own comes here",
    )
    listing = verbs.add_parser(
        "list", help="list peers", description="List the peers.", epilog=_LIST_EXAMPLES
    )
    listing.add_argument("site", metavar="SITE", help="the site's folder")
    listing.add_argument("--json", action="store_true", help="as JSON, for scripts")
    removing = verbs.add_parser(
        "remove",
        help="take a peer out for good",
        description="Take a peer out.",
        epilog=_REMOVE_EXAMPLES + settled.CODES,
    )
    removing.add_argument("site", metavar="SITE", help="the site's folder")
    removing.add_argument("name", metavar="PEER", help="what it is called here")
    for more in (adding, removing):
        add_key_file(more)
        settled.add_wait(more)
        more.add_argument("--json", action="store_true", help="say what was done as JSON")


def _add_list(parser: argparse.ArgumentParser, name: str, what: str, some: str, none: str) -> None:
    either = parser.add_mutually_exclusive_group()
    either.add_argument(f"--{name}", metavar=what, dest=name, action="append", help=some)
    either.add_argument(f"--no-{name}", dest=name, action="store_const", const=[], help=none)


def run(args: argparse.Namespace) -> int:
    """Do what the verb says."""
    verbs = {"fingerprint": _fingerprint, "add": _add, "list": _list, "remove": _remove}
    return verbs[args.verb](args)


def _fingerprint(args: argparse.Namespace) -> int:
    from sealmq import peerkeys

    layout = Layout.open(args.site)
    config = in_force.policy(layout)
    keys = masterkey.role_keys(layout, config, key_file(args))
    der = peerkeys.certificate(keys.line, keys.kg, config.site.id, config.site.name)
    found = peerkeys.read(der).fingerprint
    if args.json:
        print(json.dumps({"site": config.site.name, "fingerprint": shown(found)}))
    else:
        print(shown(found))
    return 0


def shown(fingerprint: str) -> str:
    """As people read it."""
    return f"SHA256:{fingerprint}"


def _add(args: argparse.Namespace) -> int:
    layout = Layout.open(args.site)
    seconds = settled.wait_s(args)
    said: dict[str, object] = {}
    if args.fingerprint is not None:
        found = _fingerprint_of(args)
        _not_ourselves(layout, args, found)
        said["fingerprint"] = shown(found)
    for key in ("listen", "address"):
        if getattr(args, key) is not None:
            said[key] = getattr(args, key)
    if args.far:
        said["far"] = True
    for key in _LISTS:
        if getattr(args, key) is not None:
            said[key] = getattr(args, key)
    if not said:
        raise UsageError("nothing to add or to change", hint="sealmq peer add --help")
    before: dict[str, Any] | None = None

    def change() -> Config:
        nonlocal before
        config, before = put_peer(layout, args.name, said)
        return config

    config, done = _applied(args, layout, change)
    closed = _closed(config, config.peers[args.name])
    added = before is None
    none: dict[str, Any] = {"export": [], "import": []}
    changed = before is None or any((none | before).get(key) != said[key] for key in said)
    if args.json:
        said = {"name": args.name, "added": added, "changed": changed, "kseq": done.kseq}
        print(json.dumps(said | {"closed": closed}))
    else:
        for line in _words(config.peers[args.name]):
            print(line)
        for line in (*closed, *done.notes):
            print(f"note: {line}")
        if added:
            print(_begins(layout, args.site))
        else:
            print("changed" if changed else "nothing to change")
    _settle(args, layout, seconds, config, done, f"sealmq peer add {args.site} {args.name}")
    return 0


def _adds(args: argparse.Namespace, row: Mapping[str, Any]) -> str:
    """The command that adds the peer of which sealmq.toml says so."""
    words = ["sealmq", "peer", "add", args.site, args.name]
    if args.key_file:
        words += ["--key-file", args.key_file]
    for key in ("fingerprint", "listen", "address"):
        if key in row:
            words += [f"--{key}", row[key]]
    words += ["--far"] * bool(row.get("far"))
    for key in _LISTS:
        for value in row.get(key, ()):
            words += [f"--{key}", value]
    words += ["--no-give"] * (row.get("give") == [])
    return shlex.join(words)


def _closed(config: Config, peer: Peer) -> list[str]:
    """What policy families still refuse of what crosses."""
    from sealmq.families import registry

    manifests = [m for m in registry.manifests() if m.name in config.policy.order and m.of_peer]
    return [line for m in manifests if m.of_peer for line in m.load(m.of_peer)(config, peer)]


def _fingerprint_of(args: argparse.Namespace) -> str:
    try:
        return peers_table.fingerprint(args.fingerprint, f"peers.{args.name}")
    except ConfigError as error:
        raise UsageError(f"--fingerprint: {error.what}", hint=error.hint) from None


# A mistake that is easily made: the own one instead of the other's.
def _not_ourselves(layout: Layout, args: argparse.Namespace, found: str) -> None:
    from sealmq import peerkeys

    config = in_force.policy(layout)
    keys = masterkey.role_keys(layout, config, key_file(args))
    der = peerkeys.certificate(keys.line, keys.kg, config.site.id, config.site.name)
    if peerkeys.read(der).fingerprint == found:
        raise OperatorError(
            "that is the fingerprint of this site itself",
            "each side enters the other's",
            hint="sealmq peer fingerprint SITE, at the other site",
        )


def _begins(layout: Layout, site: str) -> str:
    from sealmq.bridge import told

    if told.runs(layout):
        return "its line begins now"
    return f"its line begins with the next `sealmq up {site}`"


def _words(peer: Peer) -> list[str]:
    where = peer.address or peer.listen or ("", 0)
    verb = "called at" if peer.address else "waited for at"
    far = f"{peer.name}: no neighbour"
    lines = [far if peer.far else f"{peer.name}: {verb} {where[0]}:{where[1]}"]
    if peer.give is not None:
        lines.append(f"  it may have {', '.join(peer.give) or 'nothing'}")
    lines += [f"  {label} goes there, as @SITE/... there" for label in peer.exports]
    lines += [
        f"  {label} comes from there, as @{peer.name}/..., label {peer.label_in(label)}"
        for label in peer.imports
    ]
    return lines


def _applied(args: argparse.Namespace, layout: Layout, change: Any) -> tuple[Config, Applied]:
    async def over_socket(kg: KgClient) -> tuple[Config, Applied]:
        config: Config = change()
        return config, await kg.reload()

    def by_ourselves() -> tuple[Config, Applied]:
        from sealmq.kg.local import opened

        with opened(layout, in_force.policy_and_fault(layout)[0], key_file(args)) as kg:
            config: Config = change()
            return config, kg.apply(config)

    return ask(layout, over_socket, by_ourselves)


def _settle(
    args: argparse.Namespace,
    layout: Layout,
    seconds: float,
    config: Config,
    done: Applied,
    again: str,
) -> None:
    found = settled.settle(layout, seconds, done.kseq, config.digest)
    settled.check(found, "it is written", again)


def _list(args: argparse.Namespace) -> int:
    from sealmq.bridge import told

    layout = Layout.open(args.site)
    config = in_force.policy(layout)
    rows = [_row(peer, told.line(layout, peer.name)) for peer in config.peers.values()]
    if args.json:
        print(json.dumps({"site": config.site.name, "peers": rows}))
        return 0
    if not rows:
        print("no peers; sealmq peer add --help")
        return 0
    titles = ("NAME", "FINGERPRINT", "LINE", "SINCE", "EXPORT", "IMPORT", "WAITING", "DROPPED")
    for line in table(titles, [_cells(row) for row in rows]):
        print(line)
    return 0


def _row(peer: Peer, line: dict[str, Any]) -> dict[str, Any]:
    where = peer.address or peer.listen or ("", 0)
    side = "address" if peer.address else "listen"
    return {
        "name": peer.name,
        "fingerprint": shown(peer.fingerprint),
        **({"far": True} if peer.far else {side: f"{where[0]}:{where[1]}"}),
        **({} if peer.give is None else {"give": list(peer.give)}),
        "export": list(peer.exports),
        "import": list(peer.imports),
        **line,
    }


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        row["name"],
        row["fingerprint"][: len("SHA256:") + 16] + "...",
        _shown_line(row),
        moment_s(row["since"]),
        " ".join(row["export"]) or "-",
        " ".join(row["import"]) or "-",
        str(row["waiting"]),
        str(sum(row["dropped"].values())),
    ]


_STATES = ("up", "beginning", "not running")
_NO_LINE = ("ConnectionResetError", "Connection reset by peer", "TLS: ")


def _shown_line(row: dict[str, Any]) -> str:
    """With where, if this side calls and it is not up."""
    line, at = str(row["line"]), row.get("address")
    if at is None or line.partition(";")[0] in _STATES or at in line:
        return line
    # While a line begins; one that was lost later says more.
    if line in _NO_LINE or line.startswith(_NO_LINE[-1]):
        return f"{at} answers, but not as a SealMQ line ({line})"
    return f"calling {at}: {line}"


def _remove(args: argparse.Namespace) -> int:
    layout = Layout.open(args.site)
    seconds = settled.wait_s(args)
    was: dict[str, Any] = {}

    def change() -> Config:
        nonlocal was
        config, was = remove_peer(layout, args.name)
        return config

    config, done = _applied(args, layout, change)
    again = _adds(args, was)
    if args.json:
        told = {"name": args.name, "removed": True, "kseq": done.kseq, "again": again}
        print(json.dumps(told))
    else:
        print(f"{args.name} is no peer any more; what brings it back: {again}")
        rest = [row for row in done.differences if row.key != f"peers.{args.name}"]
        for line in replace(done, differences=rest).words():
            print(line)
    _settle(args, layout, seconds, config, done, f"sealmq policy apply {args.site}")
    return 0
