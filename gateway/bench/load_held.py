"""Reservations that a site begins with, so that the family's tree is looked at."""

from __future__ import annotations

import functools
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

from load_cpu import LoadError
from load_generator import name, topic

from sealmq.families.purposes.records import NAME, RESERVATION
from sealmq.families.purposes.records import reservation as kept
from sealmq.families.purposes.store import Reservation
from sealmq.store import database, tables

ALLOWED, FORBIDDEN = "billing", "advertising"
_ROWS = 20_000


def reservations(count: int, clients: int) -> Iterator[str]:
    """The filters of `count` reservations (at least two): over what is subscribed to, then one for
    each client's own topic as far as they reach, then other topics, four levels deep.
    """
    yield "bench/#"
    yield "rate/#"
    left = count - 2
    for number in range(min(clients, left)):
        yield topic(number)
    for n in range(left - clients):
        yield f"house/{n % 1000}/room/{n // 1000}"


def record(filt: str, at_ms: int = 1_800_000_000_000) -> tuple[str, bytes]:
    """Key and value of a reservation as the family keeps it."""
    return RESERVATION + filt, _value(at_ms)


# All say the same, and there may be a million. Not over a label: those of a steward count whatever
# a topic's label is.
@functools.cache
def _value(at_ms: int) -> bytes:
    made = kept(Reservation("x", [ALLOWED], [FORBIDDEN], name(0)), at_ms).value
    if made is None:
        raise LoadError("a reservation's record has no value")
    return made


def put(into: Path, folder: Path, count: int, clients: int) -> None:
    """A mediator's store with so many reservations, at `into`.

    A million rows take a while to write: stores with as many are copies of one file in `folder`.
    """
    made = folder / f"held-{count}.db"
    if not made.exists():
        hold(made, count, clients)
    shutil.copyfile(made, into)
    into.chmod(0o600)


def hold(path: Path, count: int, clients: int) -> None:
    """A mediator's store with so many reservations; nobody has it open."""
    engine = database.create(path, 2.0)
    insert = str(tables.families.insert().compile(dialect=engine.dialect))
    # In the order of the table's key, which is much faster.
    rows = ((NAME, *record(filt)) for filt in sorted(reservations(count, clients)))
    with engine.begin() as conn:
        # The statement as it is made, the rows by the driver: a tenth of the time.
        while some := list(itertools.islice(rows, _ROWS)):
            conn.exec_driver_sql(insert, some)
    engine.dispose()
