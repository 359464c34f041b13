"""A mediator's store that holds records of a policy family before anybody connects."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterable
from pathlib import Path

from sealmq.store import database, tables

_ROWS = 20_000
# On whom they count ([limits] rows).
NOBODY = ""


def put(
    into: Path, folder: Path, family: str, rows: Iterable[tuple[str, bytes]], count: int
) -> None:
    """One with these records, of which there are `count`, at `into`.

    A million rows take a while to write: stores with as many are copies of one file in `folder`.
    """
    made = folder / f"held-{family}-{count}.db"
    if not made.exists():
        hold(made, family, rows)
    shutil.copyfile(made, into)
    into.chmod(0o600)


def hold(path: Path, family: str, rows: Iterable[tuple[str, bytes]]) -> None:
    """One with these records, key and value; nobody has it open."""
    engine = database.create(path, 2.0)
    insert = str(tables.families.insert().compile(dialect=engine.dialect))
    # In the order of the table's key, which is much faster.
    records = ((family, *row, NOBODY) for row in sorted(rows))
    with engine.begin() as conn:
        # The statement as it is made, the rows by the driver: a tenth of the time.
        while some := list(itertools.islice(records, _ROWS)):
            conn.exec_driver_sql(insert, some)
    engine.dispose()
