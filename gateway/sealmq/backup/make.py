"""A backup of a site, while it runs or not: key generator, mediator's store and sealmq.toml.

Each part is a whole state of its own, of one moment. They are taken in this order, so that each is
no older than the one before, and none is older than the time that the file says: the key
generator's, the mediator's, sealmq.toml. What that leaves between the parts opens nothing:

- a topic labelled, or a consent given or withdrawn, between the first two is in the mediator's
  part. Its label or client may be one that the key generator's part has not; sealmq.toml, which is
  taken last, names it, and a restore makes it anew with a number that nobody had;
- a client disabled in between is disabled in sealmq.toml, which decides;
- the other way round, with the mediator's part first, a label could be missing of a topic whose
  publisher the backup knows: anybody might have taken the topic over. That order is never used.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shlex
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from sealmq.run import proc
from sealmq.site import masterkey, values
from sealmq.site.layout import Layout, sync_folder

from .sealed import BackupError, Header, NoRoom, write

KG, MEDIATOR, CONFIG = "kg", "mediator", "config"
_DRAFTS = "backup-"
_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)


@dataclass(frozen=True, slots=True)
class Made:
    """size: of the file, in bytes. whole: whether the mediator's store is in it."""

    size: int
    made_s: int
    whole: bool


def backup(
    layout: Layout,
    site: bytes,
    key_file: Path,
    target: Path,
    clock_s: Callable[[], float] = time.time,
) -> Made:
    """Write a backup (0600), on disk when this returns. It overwrites nothing.

    key_file: the site's (masterkey.find). BackupError, KeyFileError, OSError: nothing was written.
    """
    _may_write(layout, target)
    return make(layout, site, key_file, target, clock_s)


def make(
    layout: Layout,
    site: bytes,
    key_file: Path,
    target: Path,
    clock_s: Callable[[], float] = time.time,
) -> Made:
    """As `backup`, wherever the target lies."""
    salt = _salt(layout)
    role_key = masterkey.derive(masterkey.read(key_file), salt).backup
    made_s = int(clock_s())
    with drafts(layout) as folder:
        parts = {KG: folder / KG}
        copy(layout.kg_db, parts[KG], "the key generator's store")
        _check_site(parts[KG], site)
        if layout.mediator_db.exists():
            parts[MEDIATOR] = folder / MEDIATOR
            copy(layout.mediator_db, parts[MEDIATOR], "the mediator's store")
        parts[CONFIG] = folder / CONFIG
        shutil.copyfile(layout.config, parts[CONFIG])
        head = Header(site, made_s, salt, secrets.token_bytes(32))
        draft = target.with_name(f".{target.name}.{os.getpid()}")
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                write(file, head, role_key, parts)
                file.flush()
                os.fsync(file.fileno())
            size = draft.stat().st_size
            _take_name(target)
            os.replace(draft, target)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            # A write names no file, and the site's disk may be another one.
            raise NoRoom(
                f"{target.parent}: no space is left for the backup",
                "free some space on that disk, or name a file on another one",
            ) from None
        finally:
            draft.unlink(missing_ok=True)
    sync_folder(target.parent)
    return Made(size, made_s, MEDIATOR in parts)


def copy(source: Path, target: Path, what: str) -> None:
    """A database as of one moment, whatever is written meanwhile, into a new file (0600)."""
    if not source.is_file():
        raise BackupError(
            f"{source} is missing: {what} is lost", "`sealmq restore` brings back a backup"
        )
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
    try:
        with (
            contextlib.closing(_reader(source)) as have,
            contextlib.closing(sqlite3.connect(target, isolation_level=None)) as made,
        ):
            have.backup(made)
            made.execute("PRAGMA journal_mode=DELETE")
            [(state,)] = made.execute("PRAGMA integrity_check(1)").fetchall()
    except sqlite3.Error as error:
        # The source is only read: it is not its disk that is full.
        if getattr(error, "sqlite_errorcode", None) in _NO_ROOM:
            raise NoRoom(
                f"{target.parent}: no space is left for a copy of {what}",
                "free some space on that disk",
            ) from None
        raise BackupError(f"{source}: {error}", f"{what} cannot be read") from None
    if state != "ok":
        raise BackupError(f"{source} is damaged: {state}", f"{what} cannot be backed up")


def _reader(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=10)


def _check_site(path: Path, site: bytes) -> None:
    with contextlib.closing(_reader(path)) as db:
        try:
            found = db.execute("SELECT value FROM meta WHERE name = 'site'").fetchone()
        except sqlite3.Error as error:
            raise BackupError(f"kg.db: {error}") from None
    if found is None or found[0] != site:
        raise BackupError(f"kg.db is not of site {site.hex()}", "put the id back into sealmq.toml")


def _salt(layout: Layout) -> bytes:
    try:
        return layout.salt.read_bytes()
    except FileNotFoundError:
        raise BackupError(
            f"{layout.salt} is missing: the site's state is lost",
            "`sealmq restore` brings back a backup",
        ) from None


@contextlib.contextmanager
def drafts(layout: Layout) -> Iterator[Path]:
    """A folder for copies in clear, on the site's own disk and for its owner alone.

    What a killed command has left goes with the next one.
    """
    for left in layout.state.glob(f"{_DRAFTS}*"):
        pid = left.name.removeprefix(_DRAFTS).partition("-")[0]
        if not (pid.isdecimal() and proc.start_of(int(pid))):
            shutil.rmtree(left, ignore_errors=True)
    try:
        made = tempfile.TemporaryDirectory(prefix=f"{_DRAFTS}{os.getpid()}-", dir=layout.state)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        # As a card that fails becomes: the copy is as good as the site, as long as nobody writes.
        raise BackupError(
            f"{layout.state} is on a disk that is read-only",
            "copy the site to another one, and name the copy: "
            f"cp -a {shlex.quote(str(layout.root))} /media/stick/site",
        ) from None
    with made as folder:
        yield Path(folder)


def _may_write(layout: Layout, target: Path) -> None:
    if values.is_inside(target, layout.root):
        raise BackupError(
            f"{target} lies inside the site, and would be lost with it",
            "name a file outside the site, best on another disk",
        )
    if target.exists() or target.is_symlink():
        raise _there(target)
    if not target.parent.is_dir():
        raise BackupError(
            f"{target.parent} is no folder; nothing was backed up",
            f"name a file in a folder that is there, or: mkdir -p {target.parent}",
        )


# Not by a link: the file systems of many sticks have none.
def _take_name(target: Path) -> None:
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
    except FileExistsError:
        raise _there(target) from None


def _there(target: Path) -> BackupError:
    return BackupError(f"{target} is there already; nothing was changed", "name another file")
