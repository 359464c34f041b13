"""How much policy families keep, by client and by family, and whether more fits ([limits]).

It is counted when the writer begins, and goes on with each transaction that it commits: exact, with
however many connections and workers the commands come. A row counts once for each ROW_BYTES that
key and value have begun. Whoever is over a bound keeps what there is and may take away or replace
it; only more is refused. What counts on no client is never refused: the operator's doing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sqlalchemy import Connection, LargeBinary, cast, func, inspect, select
from sqlalchemy.sql.elements import ColumnElement

from sealmq.families.records import FamilyRecord

from .errors import StoreFull
from .tables import families

ROW_BYTES = 1024


class Most(NamedTuple):
    """[limits]: rows of one client, bytes of one family."""

    rows: int
    family_bytes: int


class _Row(NamedTuple):
    client: str
    size: int

    @property
    def weight(self) -> int:
        """As how many rows it counts on its client."""
        return -(-self.size // ROW_BYTES) if self.client else 0


_NO_ROW = _Row("", 0)


class Usage:
    """What is there by now. StoreFull and whatever a database raises leave it as it was."""

    def __init__(self, conn: Connection) -> None:
        c = families.c
        rows = func.sum((_size() + ROW_BYTES - 1) // ROW_BYTES)
        found = select(c.family, c.client, rows, func.sum(_size())).group_by(c.family, c.client)
        self.of_client: Counter[str] = Counter()
        self.of_family: Counter[str] = Counter()
        for family, client, weight, size in conn.execute(found):
            if client:
                self.of_client[client] += weight
            self.of_family[family] += size

    def add(
        self, conn: Connection, records: Iterable[object], most: Most, urgent: bool = False
    ) -> None:
        """Counts what is about to be written, in the transaction that writes it. StoreFull.

        urgent: it takes something away; in the place of rows that are there it may have more bytes.
        """
        new = {(r.family, r.key): r for r in records if isinstance(r, FamilyRecord)}
        if not new:
            return
        clients, sizes, comes = Counter[str](), Counter[str](), False
        bounded = {family for (family, _), record in new.items() if record.client}
        for (family, key), record in new.items():
            before, after = _held(conn, family, key), _row(record)
            comes = comes or not before.size
            clients[before.client] -= before.weight
            clients[after.client] += after.weight
            sizes[family] += after.size - before.size
        if comes or not urgent:
            self._check(clients, {name: sizes[name] for name in bounded}, most)
        for of, more in (self.of_client, clients), (self.of_family, sizes):
            for name, much in more.items():
                of[name] += much
                if not of[name]:
                    del of[name]

    def _check(self, clients: Mapping[str, int], sizes: Mapping[str, int], most: Most) -> None:
        for client, more in clients.items():
            if client and more > 0 and self.of_client[client] + more > most.rows:
                raise StoreFull(
                    f"a client keeps {most.rows} rows at most ([limits] rows), one of more than "
                    f"{ROW_BYTES} bytes counts several times; take back what is not needed"
                )
        for family, more in sizes.items():
            if more > 0 and self.of_family[family] + more > most.family_bytes:
                raise StoreFull(
                    f"{most.family_bytes >> 20} MiB at most are kept for the clients of {family} "
                    "([limits] family_mib); take back what is not needed"
                )


def add_column(conn: Connection) -> None:
    """Gives the families' rows of an older version's file the column that says on whom they count.

    At that time a row of a client's was JSON, which named the client as `by`.
    """
    c = families.c
    if c.client.name in {column["name"] for column in inspect(conn).get_columns(families.name)}:
        return
    conn.exec_driver_sql("ALTER TABLE families ADD COLUMN client VARCHAR NOT NULL DEFAULT ''")
    conn.exec_driver_sql(
        "UPDATE families SET client = coalesce(json_extract(CAST(value AS TEXT), '$.by'), '') "
        "WHERE json_valid(CAST(value AS TEXT))"
    )


def _size() -> ColumnElement[int]:
    c = families.c
    return func.length(cast(c.key, LargeBinary)) + func.length(c.value)


def _held(conn: Connection, family: str, key: str) -> _Row:
    c = families.c
    found = select(c.client, _size()).where(c.family == family, c.key == key)
    row = conn.execute(found).one_or_none()
    return _NO_ROW if row is None else _Row(*row)


def _row(record: FamilyRecord) -> _Row:
    if record.value is None:
        return _NO_ROW
    return _Row(record.client, len(record.key.encode()) + len(record.value))
