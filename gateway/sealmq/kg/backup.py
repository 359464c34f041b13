"""A backup of kg.db in one file, while the key generator runs or not. Secrets stay sealed in it.

With the key file and sealmq.toml it brings a site back (restore.py). It says when it was made, and
holds the site's salt, without which the key file opens nothing.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from sealmq.site import values
from sealmq.site.layout import Layout, sync_folder

from .errors import Denied, StoreBroken
from .store import Clock, clock_ms, must_exist

MADE = "backup-made"
SALT = "backup-salt"


def backup(layout: Layout, site: bytes, target: Path, clock: Clock = clock_ms) -> int:
    """Write a backup (0600), on disk when this returns; its size in bytes.

    Denied: it would overwrite something. StoreBroken: there is nothing good to back up.
    """
    _may_write(layout, target)
    must_exist(layout.kg_db)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
    try:
        copy(layout, site, draft, clock() // 1000)
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        size = draft.stat().st_size
        try:
            os.link(draft, target)
        except FileExistsError:
            raise _there(target) from None
    finally:
        for path in (draft, *(draft.with_name(draft.name + end) for end in ("-wal", "-shm"))):
            path.unlink(missing_ok=True)
    sync_folder(target.parent)
    return size


def _may_write(layout: Layout, target: Path) -> None:
    if values.is_inside(target, layout.root):
        raise Denied(
            f"{target} lies inside the site, and would be lost with it",
            "name a file outside the site, best on another disk",
        )
    if target.exists() or target.is_symlink():
        raise _there(target)
    if not target.parent.is_dir():
        raise Denied(
            f"{target.parent} is no folder; nothing was backed up",
            f"name a file in a folder that is there, or: mkdir -p {target.parent}",
        )


def _there(target: Path) -> Denied:
    return Denied(f"{target} is there already; nothing was changed", "name another file")


def copy(layout: Layout, site: bytes, target: Path, now_s: int) -> None:
    """kg.db as of one moment, whatever is written meanwhile, into a file that is there (0600)."""
    try:
        source = sqlite3.connect(f"file:{quote(str(layout.kg_db))}?mode=ro", uri=True, timeout=10)
        made = sqlite3.connect(target, isolation_level=None)
        try:
            source.backup(made)
            made.execute("PRAGMA journal_mode=DELETE")
            found = made.execute("SELECT value FROM meta WHERE name = 'site'").fetchone()
            if found is None or found[0] != site:
                raise StoreBroken(
                    f"kg.db is not of site {site.hex()}", "put the id back into sealmq.toml"
                )
            notes = [(MADE, now_s.to_bytes(8, "big")), (SALT, layout.salt.read_bytes())]
            made.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", notes)
        finally:
            made.close()
            source.close()
    except sqlite3.Error as error:
        # kg.db is only read: it is not its disk that is full.
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            raise StoreBroken(
                f"{target.parent}: no space is left for the backup",
                "free some space on that disk, or name a file on another one",
            ) from None
        raise StoreBroken(f"kg.db: {error}") from None
