"""Which format a file has: a number that rises with what an older program must not meet.

What is newer than the program is left as it is, and said so; what is older is brought up to date by
whoever opens it. The small databases of bridge, borders and agent keep theirs in SQLite's
`user_version`; 0 is what they had before they kept one, and is as 1.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sealmq import __version__
from sealmq.site.errors import SiteError


class NewerFormat(SiteError):
    """The file was written by a newer SealMQ; nothing was changed."""

    def __init__(self, what: object, found: object, known: int | str) -> None:
        super().__init__(*newer(what, found, known))


def newer(what: object, found: object, known: int | str) -> tuple[str, str]:
    """What to say of a file whose format is not known here, and what to do."""
    return (
        f"{what} has the format {found}; this SealMQ ({__version__}) knows up to {known}: "
        "a newer one is needed",
        "use the SealMQ that wrote it, or a newer one; nothing was changed",
    )


def database(db: sqlite3.Connection, path: Path, tables: str, known: int) -> None:
    """Begin with a database of one process's own: each commit is on disk, the tables are there.

    tables: statements that may run again. NewerFormat, sqlite3.Error.
    """
    [(found,)] = db.execute("PRAGMA user_version")
    if found > known:
        raise NewerFormat(path, found, known)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.executescript(tables)
    if found != known:
        db.execute(f"PRAGMA user_version = {known}")
