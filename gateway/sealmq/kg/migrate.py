"""From an older kg.db to this one: one step a version, in the transaction of whoever opens it."""

from __future__ import annotations

from sqlalchemy import Connection, update

from . import schema

# What went out with a generation before version 2 was the epoch that was current then; nobody wrote
# it down. The current one is as good as it was: the mediator tells the client of it at its CONNECT.
_TO_2 = (
    "ALTER TABLE labels ADD COLUMN day INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE labels ADD COLUMN made INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE clients ADD COLUMN rotation INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE clients ADD COLUMN ended INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE links ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0",
    "UPDATE links SET epoch = (SELECT max(e.epoch) FROM epochs e JOIN clients c "
    "ON c.label = e.label WHERE c.number = links.client)",
    "INSERT INTO counters (name, value) VALUES ('label', 0), ('client', 0)",
)
_TO_3 = ("ALTER TABLE clients ADD COLUMN since INTEGER NOT NULL DEFAULT 0",)
_TO_4 = (
    "CREATE TABLE grants (number INTEGER NOT NULL, family TEXT NOT NULL, name TEXT NOT NULL, "
    "epoch INTEGER NOT NULL, secret BLOB NOT NULL, PRIMARY KEY (number), UNIQUE (family, name))",
    "CREATE TABLE holders (number INTEGER NOT NULL, client INTEGER NOT NULL, "
    "PRIMARY KEY (number, client))",
    "INSERT INTO counters (name, value) VALUES ('grant', 0)",
)
_TO_5 = (
    "CREATE TABLE older_grants (number INTEGER NOT NULL, epoch INTEGER NOT NULL, "
    "family TEXT NOT NULL, name TEXT NOT NULL, secret BLOB NOT NULL, PRIMARY KEY (number, epoch))",
)
_TO_6 = ("CREATE TABLE kept (family TEXT NOT NULL, secret BLOB NOT NULL, PRIMARY KEY (family))",)
_STEPS = {1: _TO_2, 2: _TO_3, 3: _TO_4, 4: _TO_5, 5: _TO_6}


def migrate(tx: Connection, version: int) -> None:
    """Bring the tables from `version`, 1 to schema.VERSION, to the latter."""
    for now in range(version, schema.VERSION):
        for statement in _STEPS[now]:
            tx.exec_driver_sql(statement)
        tx.execute(
            update(schema.meta)
            .where(schema.meta.c.name == "version")
            .values(value=bytes((now + 1,)))
        )
