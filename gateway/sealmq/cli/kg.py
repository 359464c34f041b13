"""`sealmq kg backup|restore SITE FILE`: the key generator's store, all that cannot be made anew."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from sealmq.kg.backup import backup
from sealmq.kg.restore import restore
from sealmq.kg.store import give_back
from sealmq.run.lock import SiteLock
from sealmq.site.config import load
from sealmq.site.layout import Layout, prepare

from . import keygen

_EXAMPLES = """\
examples:
  sealmq kg backup site /media/stick/site.backup    while the site runs, or not
  sealmq kg restore site /media/stick/site.backup   while it does not
"""
_BACKUP_EXAMPLES = """\
examples:
  sealmq kg backup site /media/stick/site-$(date +%F).backup

One file (mode 0600) of one moment; the site may run. Secrets stay sealed in it: to restore it needs
the key file, of which you keep a backup apart, and sealmq.toml. Nothing is overwritten.
"""
_RESTORE_EXAMPLES = """\
examples:
  sealmq kg restore site /media/stick/site.backup
  sealmq kg restore site site/state/kg/kg.db.replaced   undo: what the last restore replaced

The site has to be stopped. All labels get new epochs, and no number is issued a second time.
Clients come back by themselves; those that were added or rotated since the backup need a new
enrolment file and are named. sealmq.toml is the truth: whom it disables stays out, so have the
newest in place. Copying kg.db or a disk image into place is no restore: numbers would come twice.
"""


def add(sub: argparse._SubParsersAction[Any]) -> None:
    """sealmq kg backup|restore"""
    parser = sub.add_parser(
        "kg",
        help="back up and restore the key generator's store",
        description="Back up the key generator's store, and restore it.",
        epilog=_EXAMPLES,
    )
    verbs = parser.add_subparsers(dest="verb", metavar="backup|restore", required=True)
    saving = verbs.add_parser(
        "backup", help="into a file", description="Write a backup.", epilog=_BACKUP_EXAMPLES
    )
    bringing = verbs.add_parser(
        "restore",
        help="from a file",
        description="Put a backup in the place of the store.",
        epilog=_RESTORE_EXAMPLES,
    )
    for one in (saving, bringing):
        one.add_argument("site", metavar="SITE", help="the site's folder")
        one.add_argument("file", metavar="FILE", help="the backup")
        if one is bringing:
            keygen.add_key_file(one)
        one.add_argument("--json", action="store_true", help="say what was done as JSON")


def run(args: argparse.Namespace) -> int:
    """Back up or restore."""
    return _backup(args) if args.verb == "backup" else _restore(args)


def _backup(args: argparse.Namespace) -> int:
    layout = Layout.open(args.site)
    file = Path(args.file).absolute()
    try:
        size = backup(layout, load(layout.config).site.id, file)
    finally:
        give_back(layout)
    if args.json:
        print(json.dumps({"file": str(file), "bytes": size}))
    else:
        print(f"backup (secrets sealed, mode 0600): {file}")
        print("it needs the site's key file and sealmq.toml; keep these apart from it")
    return 0


def _restore(args: argparse.Namespace) -> int:
    layout = Layout.open(args.site)
    config = load(layout.config)
    prepare(layout)
    lock = SiteLock.take(layout.run / "up.lock", args.site)
    try:
        done = restore(layout, config, Path(args.file).absolute(), keygen.key_file(args))
    finally:
        lock.release()
        if os.geteuid() == 0:  # the site's owner is to come up again
            owner = layout.root.stat()
            os.chown(layout.run / "up.lock", owner.st_uid, owner.st_gid)
    if args.json:
        said: dict[str, Any] = {"made": done.made_s, "kseq": done.kseq, "labels": done.labels}
        said |= {"enrol": list(done.drawn), "out": done.out, "notes": done.notes}
        print(json.dumps(said | {"replaced": str(done.replaced) if done.replaced else None}))
        return 0
    made = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(done.made_s))
    print(f"restored the backup of {made}")
    print(f"all {done.labels} labels have new epochs; clients come back by themselves")
    for name in done.drawn:
        label = config.clients[name].label
        print(f"needs a new enrolment file: sealmq client add {args.site} {name} --label {label}")
    if done.out:
        print(f"out, as sealmq.toml says: {', '.join(done.out)}")
    for note in done.notes:
        print(f"note: {note}")
    if done.replaced:
        print(f"what was there before: {done.replaced}")
        key = f" --key-file {args.key_file}" if args.key_file else ""
        print(f"to undo: sealmq kg restore {args.site} {done.replaced}{key}")
    print("now make a new backup: those before know nothing of this restore")
    return 0
