"""The one MetaData that all tables belong to, and tables of older versions' files."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, Connection, MetaData, Table, inspect
from sqlalchemy.schema import CreateColumn

metadata = MetaData()


def there(conn: Connection, table: Table) -> list[Column[Any]]:
    """Its columns that the file has: who only reads may meet one of an older version."""
    names = {column["name"] for column in inspect(conn).get_columns(table.name)}
    return [column for column in table.c if column.name in names]


def add_columns(conn: Connection, table: Table) -> None:
    """Gives an older version's file those that it lacks, which have a default."""
    names = {column.name for column in there(conn, table)}
    for column in table.c:
        if column.name not in names:
            text = CreateColumn(column).compile(dialect=conn.dialect)
            conn.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {text}")
