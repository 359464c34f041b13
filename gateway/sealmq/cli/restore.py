"""`sealmq restore SITE FILE`: a whole site from its backup."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from sealmq.families import registry

from . import keygen

_EXAMPLES = """\
examples:
  sealmq restore site /media/stick/site.backup
  sealmq restore site /media/stick/site.backup --key-file site.key    the folder is gone
  sealmq restore site site/state/replaced.backup     undo: what the last restore replaced
  sealmq restore site /media/stick/site.backup --keys-only   what clients have made stays

The site has to be stopped. All labels get new epochs, no number is issued a second time, and every
client provisions anew by itself, so that nothing that was recorded since the backup counts again.
Clients that were added or rotated since need a new enrolment file and are named. A sealmq.toml that
is in place is the truth and stays: have the newest there; only where none is, the backup's is put.
Cut off anywhere, the same command again finishes it, and state/replaced.backup still undoes it all.

What was decided after the backup nobody can know: clients that were disabled,
{decided}.
Look through these before `sealmq up`. A backup of the keys alone (an
old one) leaves the site closed: nothing is delivered and no topic gets a label before you have put
into sealmq.toml what must hold, and `sealmq reopen`. Copying files of state/ into place is no
restore: numbers would come twice.
"""


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """sealmq restore SITE FILE"""
    lost = [manifest.lost for manifest in registry.manifests() if manifest.lost]
    parser = sub.add_parser(
        "restore",
        help="a whole site from its backup",
        description="Put a backup in the place of a site.",
        epilog=_EXAMPLES.format(decided=", ".join(each.decided for each in lost)),
    )
    parser.add_argument("site", metavar="SITE", help="the site's folder")
    parser.add_argument("file", metavar="FILE", help="the backup")
    parser.add_argument(
        "--keys-only", action="store_true", help="leave the mediator's store as it is"
    )
    keygen.add_key_file(parser)
    parser.add_argument("--json", action="store_true", help="say what was done as JSON")


def run(args: argparse.Namespace) -> int:
    """Restore, and say what has to be looked at."""
    from sealmq.backup.restore import restore
    from sealmq.run.lock import stopped
    from sealmq.site.layout import Layout

    layout, source = Layout.of(args.site), Path(args.file).absolute()
    with source.open("rb"):  # before anything is made
        pass
    with stopped(layout.root, layout.run, args.site):
        done = restore(layout, source, keygen.key_file(args), keys_only=args.keys_only)
    if args.json:
        said: dict[str, Any] = {"made": done.made_s, "kseq": done.kseq, "labels": done.labels}
        said |= {"enrol": list(done.drawn), "out": done.out, "notes": done.notes}
        said |= {"closed": done.closed, "config": done.config}
        print(json.dumps(said | {"replaced": str(done.replaced) if done.replaced else None}))
        return 0
    _say(args, layout, done)
    return 0


def _say(args: argparse.Namespace, layout: Any, done: Any) -> None:
    from sealmq.site.config import load

    site, config = args.site, load(layout.config)
    made = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(done.made_s))
    print(f"restored the backup of {made}, {_age(time.time() - done.made_s)} old")
    print(f"all {done.labels} labels have new epochs; clients come back by themselves")
    if done.config == "backup":
        print("sealmq.toml is the backup's: clients that were disabled since are in again")
    for name in done.drawn:
        label = config.clients[name].label
        print(f"needs a new enrolment file: sealmq client add {site} {name} --label {label}")
    if done.out:
        print(f"out, as sealmq.toml or `sealmq client disable` says: {', '.join(done.out)}")
    for note in done.notes:
        print(f"note: {note}")
    print("what was decided after the backup is not known; look before `sealmq up`:")
    looks = [("who is in or disabled", f"sealmq client list {site}")]
    for name in config.policy.order:
        if lost := registry.manifest(name).lost:
            looks.append((lost.look, lost.by.format(site=site)))
    wide = max(len(what) for what, _ in looks) + 1
    for what, by in looks:
        print(f"  {f'{what}:'.ljust(wide)} {by}")
    if done.closed:
        print(f"THE SITE IS CLOSED: {done.closed}")
        print(
            "nothing is delivered and no topic gets a label until you have put into sealmq.toml "
            f"what must hold, and: sealmq reopen {site}"
        )
    if done.replaced:
        print(f"what was there before: {done.replaced}")
        key = f" --key-file {args.key_file}" if args.key_file else ""
        print(f"to undo: sealmq restore {site} {done.replaced}{key}")
    print("now make a new backup: those before know nothing of this restore")


def _age(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(int(seconds), 0)} seconds"
