"""kg.db: one process at a time (a lock); each change is one transaction, on disk when it returns.

WAL with synchronous=FULL: what a transaction wrote survives power loss, so an instance number is
never issued twice. Secrets pass through `Vault` on their way in and out.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, delete, event, insert, select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from sealmq.formats import newer
from sealmq.site.layout import sync_folder
from sealmq.site.reserve import Reserve
from sealmq_spec.const import U24

from . import rows, schema
from .errors import KgRefusal, StoreBroken, StoreBusy
from .migrate import migrate
from .seal import Vault

# In meta: when the backup was made that this store was restored from, until somebody is told.
NEWS = "restored"
_CHECK = b"sealmq kg store"
_NO_DISK = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
)
# inst also follows the clock, in steps of ten minutes: a store that is restored from a backup then
# still does not issue what it issued since. 2024-01-01; the u24 lasts three centuries.
_INST_EPOCH_S = 1_704_067_200
_INST_STEP_S = 600
_KSEQ_MAX = 0xFFFF_FFFF
# Beyond this (year 2096) a clock is wrong, and kseq only counts.
_KSEQ_CLOCK_MAX = 4_000_000_000

Clock = Callable[[], int]


def clock_ms() -> int:
    """Unix time in ms."""
    return time.time_ns() // 1_000_000


class KgStore:
    """`vault` is None for a reader without the key: names and numbers only."""

    def __init__(self, engine: Engine, vault: Vault | None, lock: int | None, clock: Clock) -> None:
        self._engine, self._vault, self._lock, self._clock = engine, vault, lock, clock
        # None in a reader.
        self._reserve: Reserve | None = None

    def __repr__(self) -> str:
        return "<KgStore>"

    @property
    def vault(self) -> Vault:
        """What opens the secrets; StoreBroken in a reader without the key."""
        if self._vault is None:
            raise StoreBroken("the store was opened without its key")
        return self._vault

    @classmethod
    def create(cls, path: Path, vault: Vault, site: bytes, clock: Clock = clock_ms) -> KgStore:
        """A new, empty store (0600). StoreBroken when there is one."""
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            raise StoreBroken(f"{path} is there already", "it is never overwritten") from None
        lock = _take_lock(path.with_name("lock"))
        store = cls(_engine(path), vault, lock, clock)
        store._reserve = Reserve(path.parent)
        with store.transaction() as tx:
            schema.metadata.create_all(tx)
            for name, value in (
                ("site", site),
                ("version", bytes((schema.VERSION,))),
                ("check", vault.seal("meta.check", (), _CHECK)),
            ):
                tx.execute(insert(schema.meta).values(name=name, value=value))
            for name in ("inst", "kseq", "label", "client", "grant"):
                tx.execute(insert(schema.counters).values(name=name, value=0))
        sync_folder(path.parent)
        return store

    @classmethod
    def open(
        cls, path: Path, key: bytes, site: bytes, clock: Clock = clock_ms, *, held: bool = False
    ) -> KgStore:
        """Open for writing. StoreBusy: another process has it; StoreBroken: it is not this one.

        held: the caller has the lock (hold).
        """
        must_exist(path)
        lock = None if held else _take_lock(path.with_name("lock"))
        store = cls(_engine(path), Vault(key, site), lock, clock)
        store._reserve = None if held else Reserve(path.parent)
        try:
            store._check(site)
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def open_readonly(cls, path: Path) -> KgStore:
        """Names and numbers, whether another process has it open or not."""
        must_exist(path)
        store = cls(_engine(path, readonly=True), None, None, clock_ms)
        try:
            with store.transaction() as tx:
                old = _version({r.name: r.value for r in tx.execute(select(schema.meta))})
            if old != schema.VERSION:
                raise StoreBroken(
                    f"kg.db still has the format {old}", "`sealmq up` brings it up to date"
                )
        except BaseException:
            store.close()
            raise
        return store

    def _check(self, site: bytes) -> None:
        with self.transaction() as tx:
            rows = {r.name: r.value for r in tx.execute(select(schema.meta))}
            version = _version(rows)
            self._may_open(rows, site)
            migrate(tx, version)

    def _may_open(self, rows: dict[str, bytes], site: bytes) -> None:
        if rows.get("site") != site:
            raise StoreBroken(
                f"kg.db is of site {rows.get('site', b'').hex()}, sealmq.toml says {site.hex()}",
                "put the id back into sealmq.toml, under [site]",
            )
        try:
            good = self.vault.open("meta.check", (), rows.get("check", b"")) == _CHECK
        except StoreBroken:
            good = False
        if not good:
            raise StoreBroken(
                "this key does not open the key generator's store",
                "it needs the key file that `sealmq init` wrote or was given, and state/salt",
            )

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        """All or nothing; on disk at the end. Database errors come without their parameters."""
        if self._reserve is not None:
            self._reserve.urgent()
        try:
            with self._engine.begin() as tx:
                yield tx
        except (DBAPIError, sqlite3.Error) as error:
            of_sqlite = getattr(error, "orig", None) or error
            # It is not broken; a reader, too, makes a small file beside it.
            full = getattr(of_sqlite, "sqlite_errorcode", 0) & 0xFF in _NO_DISK
            hint = "is its disk full, read-only or damaged? df, dmesg" if full else None
            raise StoreBroken(f"kg.db: {of_sqlite}", hint) from None
        if self._reserve is not None and not self._reserve.whole:
            self._checkpoint()

    # What is in the file already: then the next transaction begins the WAL anew, and takes no more
    # space.
    def _checkpoint(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            raw = self._engine.raw_connection()
            raw.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            raw.close()

    def news(self) -> int | None:
        """Unix time of the backup that this store is from; once after a restore, then None."""
        of_it = schema.meta.c.name == NEWS
        with self.transaction() as tx:
            made = tx.execute(select(schema.meta.c.value).where(of_it)).scalar_one_or_none()
            tx.execute(delete(schema.meta).where(of_it))
        return None if made is None else int.from_bytes(made, "big")

    def settle(self) -> None:
        """Close the file, all of it in the one that has its name. The lock is kept."""
        self._engine.dispose()

    def close(self) -> None:
        """Close the file and let the lock go."""
        self.settle()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # --- counters ---------------------------------------------------------------------------------

    def take_inst(self) -> int:
        """A new instance number (SPEC.md 5): durable before this returns, never issued again."""
        by_clock = (self._clock() // 1000 - _INST_EPOCH_S) // _INST_STEP_S
        with self.transaction() as tx:
            inst = max(counter(tx, "inst") + 1, min(by_clock, U24 // 2))
            if inst > U24:
                raise KgRefusal("all instance numbers are used up", "make a new site")
            set_counter(tx, "inst", inst)
        return inst

    def rise(self, tx: Connection) -> int:
        """The next kseq. It follows the clock: a restored store is not behind its clients."""
        now = self._clock() // 1000
        by_clock = now if now < _KSEQ_CLOCK_MAX else 0
        kseq = max(counter(tx, "kseq") + 1, by_clock)
        if kseq > _KSEQ_MAX:
            raise KgRefusal("the change counter is used up", "make a new site")
        set_counter(tx, "kseq", kseq)
        return kseq


def counter(tx: Connection, name: str) -> int:
    """The value of kseq or inst."""
    return int(
        tx.execute(
            select(schema.counters.c.value).where(schema.counters.c.name == name)
        ).scalar_one()
    )


def set_counter(tx: Connection, name: str, value: int) -> None:
    """It only rises: a lower value is a defect."""
    done = tx.execute(
        update(schema.counters)
        .where(schema.counters.c.name == name, schema.counters.c.value < value)
        .values(value=value)
    )
    if done.rowcount != 1:
        raise KgRefusal(f"{name} would not rise")


def _version(rows: dict[str, bytes]) -> int:
    version = int.from_bytes(rows.get("version", b""), "big")
    if version > schema.VERSION:
        raise StoreBroken(*newer("kg.db", version, schema.VERSION))
    if not version:
        raise StoreBroken("kg.db does not say of which format it is", "put a good copy back")
    return version


def policy_of(path: Path) -> str | None:
    """The text of the sealmq.toml in force, from a kg.db that may be open elsewhere."""
    store = KgStore.open_readonly(path)
    try:
        with store.transaction() as tx:
            return rows.policy(tx)
    finally:
        store.close()


def must_exist(path: Path) -> None:
    """StoreBroken when there is no store."""
    if not path.is_file():
        raise StoreBroken(
            f"{path} is missing", "restore the site's state folder, or make a new site"
        )


@contextlib.contextmanager
def hold(path: Path) -> Iterator[None]:
    """Nobody has the store open meanwhile, whether there is one or not. StoreBusy."""
    lock = _take_lock(path.with_name("lock"))
    try:
        yield
    finally:
        os.close(lock)


def _engine(path: Path, readonly: bool = False) -> Engine:
    def connect() -> sqlite3.Connection:
        raw = sqlite3.connect(
            f"file:{quote(str(path))}?mode={'ro' if readonly else 'rw'}",
            uri=True,
            timeout=10,
            check_same_thread=False,
            isolation_level=None,  # we begin transactions ourselves, below
        )
        raw.execute("PRAGMA trusted_schema=OFF")
        if not readonly:
            raw.execute("PRAGMA temp_store=MEMORY")  # the disk may be full
            for setting in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"):
                raw.execute(f"PRAGMA {setting}")
        return raw

    engine = create_engine("sqlite://", creator=connect, poolclass=StaticPool, hide_parameters=True)

    # Python's sqlite3 would begin at the first write only; a read before it belongs to it too.
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN" if readonly else "BEGIN IMMEDIATE")

    event.listen(engine, "begin", begin)
    return engine


# Held for as long as the store is open; the kernel lets it go when the process dies.
def _take_lock(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise StoreBusy(
            "another process has the key generator's store open",
            "if that is `sealmq up`, wait until it answers; if not, end the other command",
        ) from None
    return fd
