"""A key generator from a backup: it opens what was sealed, and issues nothing a second time.

All is made in a draft beside kg.db, which takes its place in one step: cut off anywhere, the old
one or the new one is there. All labels get new epochs and all numbers begin above those that can
have been issued since (lift.py). sealmq.toml is the truth about who is in: who was disabled,
removed or rotated after the backup stays so, since it says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from sqlalchemy import Connection, delete, insert, update

from sealmq.order import Order
from sealmq.site import masterkey
from sealmq.site.edit import set_rotations
from sealmq.site.layout import Layout, prepare, sync_folder, write_atomically
from sealmq.site.model import Config

from . import lift, rows, schema, whole
from .backup import MADE, SALT, copy
from .converge import Converge
from .errors import StoreBroken
from .lift import Issued
from .rows import EpochRow
from .store import NEWS, Clock, KgStore, clock_ms, give_back, set_counter
from .tools import Tools

DRAFT = "restore.db"
# What the last restore has begun at, for the next one; in case nothing else of it is left.
LIFTED = "restored"
OLD = "kg.db.replaced"


@dataclass(frozen=True, slots=True)
class Restored:
    """made_s: when the backup was made. drawn: clients that need a new enrolment file, with the
    `rotation` of their new secret. out: clients of the backup that sealmq.toml does not let in.
    replaced: a backup of what was there before; None if that was nothing, or past reading.
    """

    made_s: int
    kseq: int
    labels: int
    drawn: dict[str, int]
    out: list[str]
    notes: list[str]
    replaced: Path | None = None


def restore(
    layout: Layout,
    config: Config,
    source: Path,
    key_file: Path | None = None,
    clock: Clock = clock_ms,
) -> Restored:
    """Put a backup in the place of kg.db. The site must be stopped: StoreBusy otherwise.

    StoreBroken, Bad: it cannot be done, and nothing was changed.
    """
    prepare(layout)
    draft = layout.kg_db.with_name(DRAFT)
    with _held(draft):
        made_s, salt = _copy(source, draft, config.site.id)
        fresh_salt = _salt(layout, salt)
        secret = masterkey.read(masterkey.find(config, layout.root, key_file))
        key = masterkey.derive(secret, salt).kg
        try:
            store = KgStore.open(draft, key, config.site.id, clock)
        except StoreBroken as error:
            raise StoreBroken(f"{source}: {error}", error.hint) from None
        try:
            _check(store, source)
            now_s = clock() // 1000
            present, before = _present(layout, now_s), _before(layout)
            with store.transaction() as tx:
                begin = lift.above(present, [lift.look(tx, made_s), *before], now_s)
                done = _renew(tx, store, config, begin, made_s, now_s)
            store.settle()
            if fresh_salt:
                write_atomically(layout.salt, salt, 0o600)
            done = replace(done, replaced=_swap(layout, config.site.id, draft, begin))
        finally:
            store.close()
            give_back(layout)
    # Another backup may know these clients with another secret of the same number.
    set_rotations(layout, done.drawn)
    return done


def _check(store: KgStore, source: Path) -> None:
    try:
        with store.transaction() as tx:
            whole.check(tx, store.vault)
    except StoreBroken as error:
        hint = error.hint or "nothing was changed; restore another backup"
        raise StoreBroken(f"{source} {error}", hint) from None


# The draft, its lock and what SQLite puts beside it, gone at the end unless it has become kg.db.
@contextlib.contextmanager
def _held(draft: Path) -> Iterator[None]:
    parts = [draft.with_name(draft.name + end) for end in ("", "-wal", "-shm", "-journal")]
    try:
        for part in parts:
            part.unlink(missing_ok=True)
        yield
    finally:
        for part in parts:
            part.unlink(missing_ok=True)


# (when it was made, the salt of its key)
def _copy(source: Path, draft: Path, site: bytes) -> tuple[int, bytes]:
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with source.open("rb") as file, os.fdopen(fd, "wb") as copy:
        shutil.copyfileobj(file, copy)
    try:
        db = sqlite3.connect(draft)
        try:
            whole = db.execute("PRAGMA integrity_check(1)").fetchone()
            found = dict(db.execute("SELECT name, value FROM meta"))
        finally:
            db.close()
    except sqlite3.Error as error:
        raise StoreBroken(
            f"{source} is no backup, or not a whole one: {error}", "nothing was changed"
        ) from None
    if whole != ("ok",):
        raise StoreBroken(f"{source} is damaged: {whole[0]}", "nothing was changed")
    if MADE not in found or len(found.get(SALT, b"")) != masterkey.SALT_BYTES:
        raise StoreBroken(
            f"{source} was not made by `sealmq kg backup`; a copied kg.db does not say when it was "
            "made",
            "nothing was changed; copying it into place would issue old numbers again",
        )
    if found.get("site") != site:
        of = found.get("site", b"").hex()
        raise StoreBroken(
            f"{source} is a backup of site {of}, this one is {site.hex()}",
            "nothing was changed; was another backup meant?",
        )
    return int.from_bytes(found[MADE], "big"), found[SALT]


# Whether the salt has to be written. The mediator's copy of its keys hangs on it as well.
def _salt(layout: Layout, salt: bytes) -> bool:
    try:
        have = layout.salt.read_bytes()
    except FileNotFoundError:
        return True
    if have != salt:
        raise StoreBroken(
            f"{layout.salt} is another one than the backup's: it belongs to another kg.db",
            f"if that one is lost, remove {layout.salt} and restore again",
        )
    return False


# What the store that is replaced has issued, as far as it can be read.
def _present(layout: Layout, now_s: int) -> Issued | None:
    if not layout.kg_db.exists():
        return None
    try:
        store = KgStore.open_readonly(layout.kg_db)
        try:
            with store.transaction() as tx:
                return lift.look(tx, now_s)
        finally:
            store.close()
    except StoreBroken:
        return None


# Where the restore before this one has begun.
def _before(layout: Layout) -> list[Issued]:
    try:
        told = lift.from_json(json.loads(layout.kg_db.with_name(LIFTED).read_text()))
    except (OSError, ValueError):
        return []
    return [] if told is None else [told]


def _renew(
    tx: Connection, store: KgStore, config: Config, begin: Issued, made_s: int, now_s: int
) -> Restored:
    for name in ("inst", "kseq", "label", "client"):
        set_counter(tx, name, getattr(begin, name))
    order = Order(begin.inst)
    tx.execute(delete(schema.meta).where(schema.meta.c.name.in_((MADE, SALT, NEWS))))
    tx.execute(delete(schema.links).where(schema.links.c.pending))
    tx.execute(update(schema.clients).values(gen=begin.gen))
    labels = rows.labels(tx).values()
    for label in labels:
        epoch = EpochRow(label.number, begin.epoch, now_s, begin.kseq)
        rows.new_epoch(tx, store.vault, label, epoch)
        rows.put_label(tx, replace(label, day=0, made=0))
    before = {row.name for row in rows.clients(tx).values() if not row.disabled}
    tools = Tools(store.vault, lambda: order.next_bytes(now_s * 1000), store.rise, now_s)
    run = Converge(tx, config, tools)
    run.run()
    drawn = {}
    for name in run.drawn:
        row = rows.clients(tx)[name]
        drawn[name] = row.rotation + 1
        rows.put_client(tx, replace(row, rotation=row.rotation + 1))
    after = rows.clients(tx).values()
    out = sorted(row.name for row in after if row.disabled and row.name in before)
    kseq = run.kseq or begin.kseq
    tx.execute(insert(schema.meta).values(name=NEWS, value=made_s.to_bytes(8, "big")))
    there = sum(not row.removed for row in rows.labels(tx).values())
    return Restored(made_s, kseq, there, drawn, out, run.notes)


# What undoes it, if there is such a thing.
def _swap(layout: Layout, site: bytes, draft: Path, begin: Issued) -> Path | None:
    folder = layout.kg_db.parent
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    write_atomically(folder / LIFTED, json.dumps(asdict(begin)).encode(), 0o600)
    undo = _put_aside(layout, site, begin.at_s) if layout.kg_db.exists() else None
    os.replace(draft, layout.kg_db)
    sync_folder(folder)
    return undo


# The old store is kept as a backup, in case the one that was restored is the wrong one. Its journal
# is played into it before, or goes aside: one that stayed would be played into the new store.
def _put_aside(layout: Layout, site: bytes, now_s: int) -> Path | None:
    path, old = layout.kg_db, layout.kg_db.with_name(OLD)
    undo: Path | None = old
    for end in ("", "-wal", "-shm"):
        old.with_name(old.name + end).unlink(missing_ok=True)
    try:
        os.close(os.open(old, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        copy(layout, site, old, now_s)
        db = sqlite3.connect(path)
        try:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            db.close()
    except (StoreBroken, sqlite3.Error):
        old.unlink()
        os.link(path, old)
        undo = None
    for end in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.rename(path.with_name(path.name + end), old.with_name(old.name + end))
    return undo
