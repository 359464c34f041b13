"""What clients leave behind: wills, and sessions that the broker keeps.

Both belong to one (client, client id). A file of an older version gets these tables when it opens.
"""

from __future__ import annotations

from dataclasses import astuple, fields

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Integer,
    LargeBinary,
    String,
    Table,
    and_,
    delete,
    select,
    update,
)
from sqlalchemy.dialects.sqlite import insert

from .metadata import metadata, there
from .records import NEVER, KeptGone, KeptLeft, KeptSession, WillGone, WillRecord

wills = Table(
    "wills",
    metadata,
    Column("client", Integer, primary_key=True, autoincrement=False),
    Column("client_id", String, primary_key=True),
    Column("gen", Integer, primary_key=True, autoincrement=False),
    Column("boot", Integer, primary_key=True, autoincrement=False),
    Column("conn", Integer, primary_key=True, autoincrement=False),
    Column("topic", String, nullable=False),
    Column("qos", Integer, nullable=False),
    Column("retain", Boolean, nullable=False),
    Column("label", Integer, nullable=False),
    Column("ctr", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
kept = Table(
    "kept",
    metadata,
    Column("client", Integer, primary_key=True, autoincrement=False),
    Column("client_id", String, primary_key=True),
    Column("gen", Integer, nullable=False),
    # A file of an older version gets these when it opens.
    Column("expiry", Integer, nullable=False, server_default=str(NEVER)),
    Column("ends", Integer, nullable=False, server_default="0"),
)

Left = WillRecord | WillGone | KeptSession | KeptLeft | KeptGone


def write(conn: Connection, record: Left) -> None:
    """Carry one record out inside the caller's transaction."""
    match record:
        case WillRecord():
            values = {f.name: getattr(record, f.name) for f in fields(record)}
            conn.execute(insert(wills).values(**values).on_conflict_do_nothing())
        case WillGone(client, client_id, gen, boot, number):
            c = wills.c
            mine = and_(c.client == client, c.client_id == client_id, c.gen == gen)
            conn.execute(delete(wills).where(mine, c.boot == boot, c.conn == number))
        case KeptSession():
            values = {f.name: getattr(record, f.name) for f in fields(record)}
            row = insert(kept).values(**values)
            new = {name: row.excluded[name] for name in ("gen", "expiry", "ends")}
            conn.execute(
                row.on_conflict_do_update(
                    index_elements=[kept.c.client, kept.c.client_id], set_=new
                )
            )
        case KeptLeft(client, client_id, gen, ends):
            mine = and_(kept.c.client == client, kept.c.client_id == client_id)
            conn.execute(update(kept).where(mine, kept.c.gen == gen).values(ends=ends))
        case KeptGone(client, client_id, gen):
            mine = and_(kept.c.client == client, kept.c.client_id == client_id)
            conn.execute(delete(kept).where(mine, kept.c.gen == gen))


def read_wills(conn: Connection) -> list[WillRecord]:
    """All wills, oldest CONNECT first."""
    order = (wills.c.client, wills.c.gen, wills.c.boot, wills.c.conn)
    return [WillRecord(*row) for row in conn.execute(select(wills).order_by(*order))]


def read_kept(conn: Connection) -> list[KeptSession]:
    """All kept sessions."""
    return [KeptSession(*row) for row in conn.execute(select(*there(conn, kept)))]


def gone(will: WillRecord) -> WillGone:
    """What takes this will back."""
    return WillGone(*astuple(will)[:5])
