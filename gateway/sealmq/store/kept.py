"""The subscriptions of sessions that the broker keeps: only we know for which purpose each is held.

A row belongs to its session's row in `kept` and goes with it, whoever deletes that one. A file of
an older version gets this table when it opens; of sessions from before, nothing stands in it.
"""

from __future__ import annotations

from dataclasses import fields

from sqlalchemy import (
    Column,
    Connection,
    ForeignKeyConstraint,
    Integer,
    String,
    Table,
    and_,
    delete,
    inspect,
    select,
)
from sqlalchemy.dialects.sqlite import insert

from .left import kept
from .metadata import metadata, there
from .records import KeptSub, KeptSubGone

kept_subs = Table(
    "kept_subs",
    metadata,
    Column("client", Integer, primary_key=True, autoincrement=False),
    Column("client_id", String, primary_key=True),
    Column("filter", String, primary_key=True),
    Column("qos", Integer, nullable=False),
    Column("at", String, nullable=False),
    # A file of an older version gets it when it opens.
    Column("identifier", Integer, nullable=False, server_default="0"),
    ForeignKeyConstraint(
        ["client", "client_id"], [kept.c.client, kept.c.client_id], ondelete="CASCADE"
    ),
)


def write(conn: Connection, record: KeptSub | KeptSubGone) -> None:
    """Carry one record out inside the caller's transaction."""
    c = kept_subs.c
    if isinstance(record, KeptSubGone):
        mine = and_(c.client == record.client, c.client_id == record.client_id)
        conn.execute(delete(kept_subs).where(mine, c.filter == record.filter))
        return
    row = insert(kept_subs).values(**{f.name: getattr(record, f.name) for f in fields(record)})
    conn.execute(
        row.on_conflict_do_update(
            index_elements=[c.client, c.client_id, c.filter],
            set_={name: row.excluded[name] for name in ("qos", "at", "identifier")},
        )
    )


def read(conn: Connection, client: int, client_id: str) -> tuple[KeptSub, ...]:
    """Those of one session, by filter."""
    c = kept_subs.c
    mine = and_(c.client == client, c.client_id == client_id)
    return tuple(
        KeptSub(*row) for row in conn.execute(select(kept_subs).where(mine).order_by(c.filter))
    )


def read_all(conn: Connection) -> list[KeptSub]:
    """Those of all sessions; none in a file of an older version."""
    if not inspect(conn).has_table(kept_subs.name):
        return []
    c = kept_subs.c
    found = conn.execute(select(*there(conn, kept_subs)).order_by(c.client, c.client_id, c.filter))
    return [KeptSub(*row) for row in found]
