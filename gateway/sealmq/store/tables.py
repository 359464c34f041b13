"""The tables, and what each record means in SQL. SQLAlchemy Core; only `insert` is SQLite's own.

Who may overwrite what stands in the statements themselves: the first writer wins a topic, a session
mark only rises. So it holds between processes too.
"""

from __future__ import annotations

from dataclasses import fields

from sqlalchemy import (
    Column,
    Connection,
    Integer,
    LargeBinary,
    String,
    Table,
    and_,
    delete,
    or_,
    select,
)
from sqlalchemy.dialects.sqlite import insert

from sealmq.families.records import FamilyRecord, Record, ResetDone, TopicLabel, TopicReset

from . import kept, left
from .errors import StoreError
from .metadata import metadata, there
from .records import (
    CacheBlob,
    Held,
    KeptGone,
    KeptLeft,
    KeptSession,
    KeptSub,
    KeptSubGone,
    KeptSubs,
    SessionMark,
    StoreRecord,
    WillGone,
    WillRecord,
)

# Of this file and of the journals beside it, which are opened after it.
FORMAT = "1"
# Of meta: 16 random bytes in hex, drawn when the file is made. By them the key generator notices
# that a store was lost and begun anew.
IDENTITY = "store"
# Of cache: whether all that was counted is in here (mediator/counted.py).
COUNTING, RUNS = "counting", b"runs"

meta = Table(
    "meta",
    metadata,
    Column("key", String, primary_key=True),
    Column("value", String, nullable=False),
)
topics = Table(
    "topics",
    metadata,
    Column("topic", String, primary_key=True),
    Column("label", String, nullable=False),
    Column("client", String, nullable=False),
    Column("at_ms", Integer, nullable=False),
)
resets = Table("resets", metadata, Column("topic", String, primary_key=True))
families = Table(
    "families",
    metadata,
    Column("family", String, primary_key=True),
    Column("key", String, primary_key=True),
    Column("value", LargeBinary, nullable=False),
    # On whom it counts. A file of an older version gets the column when it opens (usage.py).
    Column("client", String, nullable=False, server_default=""),
)
sessions = Table(
    "sessions",
    metadata,
    Column("client", Integer, primary_key=True, autoincrement=False),
    Column("gen", Integer, nullable=False),
    Column("boot", Integer, nullable=False),
    Column("salt", LargeBinary, nullable=False),
    Column("conn", Integer, nullable=False),
)
cache = Table(
    "cache",
    metadata,
    Column("name", String, primary_key=True),
    Column("blob", LargeBinary, nullable=False),
)


def write(conn: Connection, record: StoreRecord) -> Held:
    """Carry one record out inside the caller's transaction; say what holds."""
    match record:
        case TopicLabel():
            return _topic_label(conn, record)
        case TopicReset():
            return _topic_reset(conn, record)
        case ResetDone(topic):
            gone = conn.execute(delete(resets).where(resets.c.topic == topic))
            return Held(record, gone.rowcount == 1)
        case FamilyRecord():
            _family_record(conn, record)
        case SessionMark():
            return _session_mark(conn, record)
        case CacheBlob():
            _cache_blob(conn, record)
        case WillRecord() | WillGone() | KeptSession() | KeptLeft() | KeptGone():
            left.write(conn, record)
        case KeptSub() | KeptSubGone():
            kept.write(conn, record)
        case KeptSubs(client, client_id):
            return Held(KeptSubs(client, client_id, kept.read(conn, client, client_id)), False)
        case _:
            raise StoreError(f"a {type(record).__name__} is no record of the store")
    return Held(record, True)


def _topic_label(conn: Connection, record: TopicLabel) -> Held:
    row = insert(topics).values(
        topic=record.topic, label=record.label, client=record.client, at_ms=record.at_ms
    )
    if conn.execute(row.on_conflict_do_nothing()).rowcount == 1:
        return Held(record, True)
    held = conn.execute(select(topics).where(topics.c.topic == record.topic)).one()
    return Held(TopicLabel(*held), False)


def _topic_reset(conn: Connection, record: TopicReset) -> Held:
    mark = insert(resets).values(topic=record.topic).on_conflict_do_nothing()
    if conn.execute(mark).rowcount == 0:
        return Held(TopicReset(record.topic, done=True), False)
    conn.execute(delete(topics).where(topics.c.topic == record.topic))
    return Held(record, True)


def _family_record(conn: Connection, record: FamilyRecord) -> None:
    if record.value is None:
        mine = and_(families.c.family == record.family, families.c.key == record.key)
        conn.execute(delete(families).where(mine))
        return
    row = insert(families).values(**{f.name: getattr(record, f.name) for f in fields(record)})
    conn.execute(
        row.on_conflict_do_update(
            index_elements=[families.c.family, families.c.key],
            set_={"value": row.excluded.value, "client": row.excluded.client},
        )
    )


def _session_mark(conn: Connection, record: SessionMark) -> Held:
    row = insert(sessions).values(
        client=record.client, gen=record.gen, boot=record.boot, salt=record.salt, conn=record.conn
    )
    old, new = sessions.c, row.excluded
    rises = or_(
        old.gen < new.gen,
        and_(old.gen == new.gen, old.boot < new.boot),
        and_(old.gen == new.gen, old.boot == new.boot, old.salt == new.salt, old.conn < new.conn),
    )
    done = conn.execute(
        row.on_conflict_do_update(
            index_elements=[old.client],
            set_={name: new[name] for name in ("gen", "boot", "salt", "conn")},
            where=rises,
        )
    )
    if done.rowcount == 1:
        return Held(record, True)
    held = conn.execute(select(sessions).where(old.client == record.client)).one()
    return Held(SessionMark(*held), False)


def _cache_blob(conn: Connection, record: CacheBlob) -> None:
    if record.blob is None:
        conn.execute(delete(cache).where(cache.c.name == record.name))
        return
    row = insert(cache).values(name=record.name, blob=record.blob)
    conn.execute(
        row.on_conflict_do_update(index_elements=[cache.c.name], set_={"blob": row.excluded.blob})
    )


def read_topics(conn: Connection) -> list[TopicLabel]:
    """The learned labels, by topic."""
    return [TopicLabel(*row) for row in conn.execute(select(topics).order_by(topics.c.topic))]


def read_records(conn: Connection) -> list[Record]:
    """All that policy families index."""
    records: list[Record] = list(read_topics(conn))
    records += [TopicReset(topic, done=True) for topic in conn.scalars(select(resets.c.topic))]
    records += [FamilyRecord(*row) for row in conn.execute(select(*there(conn, families)))]
    return records


def read_family(conn: Connection, family: str) -> list[FamilyRecord]:
    """The rows of one family."""
    found = select(*there(conn, families)).where(families.c.family == family)
    return [FamilyRecord(*row) for row in conn.execute(found)]


def read_sessions(conn: Connection) -> dict[int, SessionMark]:
    """The marks by client number."""
    return {row.client: SessionMark(*row) for row in conn.execute(select(sessions))}


def read_identity(conn: Connection) -> bytes:
    """Which store this is; b"" in a file of an older version."""
    found = conn.scalar(select(meta.c.value).where(meta.c.key == IDENTITY))
    return bytes.fromhex(found or "")


def read_cache(conn: Connection, name: str) -> bytes | None:
    """A sealed blob, or None."""
    return conn.scalar(select(cache.c.blob).where(cache.c.name == name))
