"""A site from a backup. All is made in drafts, which take the places of the stores by rename.

The two stores carry one number that is drawn anew (kg/closing.py): cut off between the two renames,
the key generator meets a store that it does not know, and the site opens nothing until the restore
is repeated. Anywhere else the old site or the new one is there. What undoes a restore that was cut
off is not written anew by the one that repeats it: by then the site may be half the backup's.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sealmq.families import registry
from sealmq.families.records import FamilyRecord
from sealmq.kg import restore as kg_restore
from sealmq.kg.closing import NONE
from sealmq.kg.errors import StoreBroken
from sealmq.kg.store import Clock, KgStore, clock_ms, hold
from sealmq.site import masterkey
from sealmq.site.config import load, loads
from sealmq.site.edit import set_rotations
from sealmq.site.errors import KeyFileError
from sealmq.site.layout import Layout, give_back, prepare, sync_folder, write_atomically
from sealmq.site.model import Config
from sealmq.store import Reader, StoreError
from sealmq.store.database import rewrite, set_identity

from . import make
from .make import CONFIG, KG, MEDIATOR
from .sealed import BackupError, Header, NoRoom, NotSealed, header, read

# A backup of what was there before; what cannot be backed up goes aside with OLD behind its name.
UNDO = "replaced.backup"
EARLIER = "replaced-earlier.backup"
"""What undoes the restore before, where nothing can be written that undoes this one."""
OLD = ".replaced"
# While the stores are put into place: what they are to be known by.
_BEGUN = "restoring"
_ENDS = ("", "-wal", "-shm", "-journal")
_SQLITE = b"SQLite format 3\0"
# Rows of `meta` in a backup of the key generator alone, of before there were whole ones.
_MADE, _SALT = "backup-made", "backup-salt"

NO_PART = "restored from a backup without the mediator's store: labels and reservations are lost"
NOT_ITS = "the keys were restored, and the mediator's store is not the one that belongs to them"


@dataclass(frozen=True, slots=True)
class Restored:
    """made_s: when the backup was made. config: whose sealmq.toml holds, "site" or "backup".
    drawn, out, notes, closed: see kg.restore.Renewed. replaced: a backup of what was there before;
    None if that was nothing, or past reading.
    """

    made_s: int
    kseq: int
    labels: int
    drawn: dict[str, int]
    out: list[str]
    notes: list[str]
    closed: str
    config: str
    replaced: Path | None = None


def restore(
    layout: Layout,
    source: Path,
    key_file: Path | None = None,
    *,
    keys_only: bool = False,
    clock: Clock = clock_ms,
) -> Restored:
    """Put a backup in the place of a site, which must be stopped: StoreBusy otherwise.

    keys_only: the mediator's store that is there stays. BackupError, SiteError, KgRefusal, OSError:
    it cannot be done, and nothing was changed.
    """
    with source.open("rb"):  # before anything is made
        pass
    layout.root.mkdir(parents=True, exist_ok=True)
    prepare(layout)
    try:
        with hold(layout.kg_db), make.drafts(layout) as folder:
            return _Restore(layout, source, key_file, keys_only, clock, folder).run()
    finally:
        give_back(layout)


class _Restore:
    def __init__(
        self,
        layout: Layout,
        source: Path,
        key_file: Path | None,
        keys_only: bool,
        clock: Clock,
        folder: Path,
    ) -> None:
        self._layout, self._source, self._key_file = layout, source, key_file
        self._keys_only, self._clock = keys_only, clock
        self._drafts = {name: folder / name for name in (KG, MEDIATOR, CONFIG)}

    def run(self) -> Restored:
        layout, drafts = self._layout, self._drafts
        there = load(layout.config) if layout.config.exists() else None
        head, parts, key = self._unpack(there)
        config = there or loads(drafts[CONFIG].read_text(encoding="utf-8"), layout.config)
        self._of_this_site(head, config)
        fresh_salt = self._salt(head.salt)
        mediator, lost = secrets.token_bytes(16), ""
        store = self._opened(key.kg, config)
        try:
            if self._keys_only or MEDIATOR not in parts:
                mediator, lost = self._store_that_stays(store, MEDIATOR in parts)
                parts.discard(MEDIATOR)
            else:
                set_identity(drafts[MEDIATOR], mediator, self._put_back)
            done = self._renewed(store, config, head.made_s, mediator, lost)
        finally:
            store.close()
        # Nothing was changed so far.
        if there is None:
            write_atomically(layout.config, drafts[CONFIG].read_bytes(), 0o640)
        if fresh_salt:
            write_atomically(layout.salt, head.salt, 0o600)
        kg_restore.keep_lifted(layout, done.begin)
        undo, notes = self._put_aside(config), list(done.notes)
        if undo is None and (layout.state / EARLIER).exists():
            notes.append(f"what undoes the restore before this one: {layout.state / EARLIER}")
        begun = layout.state / _BEGUN
        told = {"mediator": mediator.hex() if MEDIATOR in parts else "", "inst": done.begin.inst}
        write_atomically(begun, json.dumps(told).encode(), 0o600)
        for name in (MEDIATOR, KG):
            if name in parts:
                _swap(drafts[name], _place(layout, name))
        if lost and _identity(layout.mediator_db):
            # What stays may be as old as a backup.
            rewrite(layout.mediator_db, self._put_back)
        # Another backup may know these clients with another secret of the same number.
        set_rotations(layout, done.drawn)
        begun.unlink(missing_ok=True)
        sync_folder(begun.parent)
        return Restored(
            head.made_s,
            done.kseq,
            done.labels,
            done.drawn,
            done.out,
            notes,
            done.closed,
            "backup" if there is None else "site",
            undo,
        )

    def _put_back(self, held: Callable[[str], list[FamilyRecord]]) -> list[FamilyRecord]:
        return registry.put_back(held, self._clock())

    def _unpack(self, config: Config | None) -> tuple[Header, set[str], masterkey.RoleKeys]:
        """Every part is in its draft, and proved to be as it was sealed."""
        with self._source.open("rb") as file:
            try:
                head = header(file)
            except NotSealed as error:
                return self._keys_alone(config, error)
            key = self._role_keys(config, head)
            try:
                return head, read(file, head, key.backup, self._drafts), key
            except BackupError as error:
                raise BackupError(f"{self._source} {error}", error.hint) from None
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                raise NoRoom(
                    f"{self._layout.state}: no space is left for what the backup holds",
                    "nothing was changed; free some space on that disk",
                ) from None

    # `sealmq kg backup` wrote the key generator's database itself, and noted two things in it.
    def _keys_alone(
        self, config: Config | None, error: BackupError
    ) -> tuple[Header, set[str], masterkey.RoleKeys]:
        with self._source.open("rb") as file:
            if file.read(len(_SQLITE)) != _SQLITE:
                raise BackupError(f"{self._source} {error}", error.hint)
        if config is None:
            raise BackupError(
                f"{self._source} holds keys alone, and {self._layout.config} is missing",
                "put the site's sealmq.toml there first",
            )
        made = self._drafts[KG]
        fd = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with self._source.open("rb") as file, os.fdopen(fd, "wb") as draft:
            shutil.copyfileobj(file, draft)
        try:
            with contextlib.closing(sqlite3.connect(made)) as db:
                [(state,)] = db.execute("PRAGMA integrity_check(1)").fetchall()
                meta = dict(db.execute("SELECT name, value FROM meta"))
                with db:
                    db.execute("DELETE FROM meta WHERE name IN (?, ?)", (_MADE, _SALT))
        except sqlite3.Error as broken:
            raise BackupError(
                f"{self._source} is no backup, or not a whole one: {broken}", "nothing was changed"
            ) from None
        if state != "ok":
            raise BackupError(f"{self._source} is damaged: {state}", "nothing was changed")
        salt = meta.get(_SALT, b"")
        if _MADE not in meta or len(salt) != masterkey.SALT_BYTES:
            raise BackupError(
                f"{self._source} was not made by `sealmq backup`; a copied kg.db does not say when "
                "it was made",
                "nothing was changed; copying it into place would issue old numbers again",
            )
        made_s = int.from_bytes(meta[_MADE], "big")
        head = Header(meta.get("site", b""), made_s, salt, bytes(32))
        return head, {KG}, self._role_keys(config, head)

    def _role_keys(self, config: Config | None, head: Header) -> masterkey.RoleKeys:
        path = self._key_file
        if config is not None:
            path = masterkey.find(config, self._layout.root, path)
        elif (credential := masterkey.credential()) is not None:
            path = credential
        elif path is None:
            path = masterkey.default_path(self._layout.root.name, head.site)
            if not path.exists():
                raise KeyFileError(
                    "no key file is named, and there is no sealmq.toml that names one",
                    "give the site's key file: --key-file FILE",
                )
        return masterkey.derive(masterkey.read(path), head.salt)

    def _of_this_site(self, head: Header, config: Config) -> None:
        if head.site != config.site.id:
            raise BackupError(
                f"{self._source} is a backup of site {head.site.hex()}, this one is "
                f"{config.site.id.hex()}",
                "nothing was changed; was another backup meant?",
            )

    # Whether the salt has to be written. The mediator's copy of its keys hangs on it as well.
    def _salt(self, salt: bytes) -> bool:
        path = self._layout.salt
        try:
            have = path.read_bytes()
        except FileNotFoundError:
            return True
        if have != salt:
            raise BackupError(
                f"{path} is another one than the backup's: it belongs to another kg.db",
                f"if that one is lost, remove {path} and restore again",
            )
        return False

    def _opened(self, key: bytes, config: Config) -> KgStore:
        try:
            return KgStore.open(self._drafts[KG], key, config.site.id, self._clock, held=True)
        except StoreBroken as error:
            raise StoreBroken(f"{self._source}: {error}", error.hint) from None

    def _renewed(
        self, store: KgStore, config: Config, made_s: int, mediator: bytes, lost: str
    ) -> kg_restore.Renewed:
        try:
            return kg_restore.renew(
                store, self._layout, config, made_s, mediator, lost, self._clock
            )
        except StoreBroken as error:
            hint = error.hint or "nothing was changed; restore another backup"
            raise StoreBroken(f"{self._source} {error}", hint) from None

    def _store_that_stays(self, store: KgStore, sealed_in: bool) -> tuple[bytes, str]:
        """(which store the mediator will come with, or NONE; why that does not hold what it held,
        or "").

        One that is there and is the one that these keys had holds all that it ever held.
        """
        belongs = kg_restore.mediator_store(store)
        found = _identity(self._layout.mediator_db)
        if found and found == belongs:
            return found, ""
        return found or NONE, NOT_ITS if sealed_in or found else NO_PART

    def _put_aside(self, config: Config) -> Path | None:
        """What undoes the restore; None when nothing was there, or nothing that can be read.

        Of one that was cut off within, what was put aside then. NoRoom: the disk is full.
        """
        layout = self._layout
        stores = [layout.kg_db, layout.mediator_db]
        if not any(path.exists() for path in stores):
            return None
        undo = layout.state / UNDO
        if self._cut_off():
            return undo if undo.exists() else None
        fresh = undo.with_name(undo.name + ".new")
        fresh.unlink(missing_ok=True)
        try:
            key_file = masterkey.find(config, layout.root, self._key_file)
            make.make(layout, config.site.id, key_file, fresh, lambda: self._clock() // 1000)
            os.replace(fresh, undo)
        except NoRoom as error:
            raise NoRoom(
                f"{error}; what would undo the restore cannot be written", error.hint
            ) from None
        except (BackupError, sqlite3.Error):
            if undo.exists():
                os.replace(undo, undo.with_name(EARLIER))
            for path in stores:
                old = path.with_name(path.name + OLD)
                for end in _ENDS:
                    old.with_name(old.name + end).unlink(missing_ok=True)
                if path.exists():
                    os.link(path, old)
            return None
        return undo

    # Whether the stores are as a restore has left them that was cut off while it put them into
    # place, or right after: the mediator's is the backup's and the keys are not, or the keys are,
    # and no key generator has run on them.
    def _cut_off(self) -> bool:
        layout = self._layout
        try:
            told = json.loads((layout.state / _BEGUN).read_text())
            mediator, inst = bytes.fromhex(told["mediator"]), int(told["inst"])
        except (OSError, ValueError, KeyError, TypeError):
            return False
        there = kg_restore.present(layout, self._clock() // 1000)
        if there is not None and there.inst >= inst:
            return there.inst == inst
        return bool(mediator) and _identity(layout.mediator_db) == mediator


def _identity(path: Path) -> bytes:
    try:
        with contextlib.closing(Reader.open_readonly(path)) as reader:
            return reader.identity
    except StoreError:
        return b""


def _place(layout: Layout, name: str) -> Path:
    return {KG: layout.kg_db, MEDIATOR: layout.mediator_db}[name]


# The journal that belongs to the old file goes first: one that stayed would be played into the new.
def _swap(draft: Path, place: Path) -> None:
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    if place.is_file() and not place.is_symlink():
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(place)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for end in _ENDS[1:]:
        with contextlib.suppress(FileNotFoundError):
            os.rename(place.with_name(place.name + end), place.with_name(place.name + OLD + end))
    os.replace(draft, place)
    sync_folder(place.parent)
