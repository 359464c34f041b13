"""A site is closed while the mediator's store cannot be trusted to hold every label and consent.

The key generator remembers which store (16 random bytes, drawn when the file is made) its mediator
had. Another one means that labels and reservations are gone: deleted by hand, or put in place
without the key generator's part. So does a restore without the mediator's part. The mediator hears
of it in its snapshot and opens nothing until an operator runs `sealmq reopen`.

With the store went the newest proof of each client, by which a CONNECT of before is told from a new
one. So all link roots end with it: clients provision anew by themselves, and no recorded CONNECT,
will or kept session of before counts any more.
"""

from __future__ import annotations

from sqlalchemy import Connection, delete, select, update
from sqlalchemy.dialects.sqlite import insert

from . import schema

STORE, CLOSED = "mediator-store", "closed"
STORE_BYTES = 16
NONE = b""
"""In a store's place: the one that was known is lost, and none has come since."""
LOST = "the mediator's store is another one than before: it was deleted, or put in place by hand"


def meet(tx: Connection, store: bytes) -> bool:
    """A mediator comes with this store. True: it is not the one that was known, and it is closed.

    The first one that ever comes is taken as it is.
    """
    known = _get(tx, STORE)
    if known == store:
        return False
    put_store(tx, store)
    if known is None:
        return False
    close(tx, LOST)
    return True


def put_store(tx: Connection, store: bytes) -> None:
    """The store that the mediator has from now on."""
    _put(tx, STORE, store)


def store(tx: Connection) -> bytes | None:
    """The store that the mediator had last; None: none has come yet."""
    return _get(tx, STORE)


def close(tx: Connection, reason: str) -> None:
    """Nothing is opened until `reopen`. The first reason stays."""
    if not closed(tx):
        _put(tx, CLOSED, reason.encode())
    end_links(tx)


def closed(tx: Connection) -> str:
    """Why the site is closed; "" while it is not."""
    return (_get(tx, CLOSED) or b"").decode()


def reopen(tx: Connection) -> bool:
    """Whether it was closed. Where the store is lost, the next one is taken as it is, too."""
    gone = [CLOSED, *([STORE] if _get(tx, STORE) == NONE else [])]
    was = closed(tx) != ""
    tx.execute(delete(schema.meta).where(schema.meta.c.name.in_(gone)))
    return was


def end_links(tx: Connection) -> None:
    """No connection, proof, will or kept session of before counts any more."""
    tx.execute(delete(schema.links))
    tx.execute(update(schema.clients).values(ended=schema.clients.c.gen))


def _get(tx: Connection, name: str) -> bytes | None:
    c = schema.meta.c
    return tx.execute(select(c.value).where(c.name == name)).scalar_one_or_none()


def _put(tx: Connection, name: str, value: bytes) -> None:
    row = insert(schema.meta).values(name=name, value=value)
    tx.execute(row.on_conflict_do_update(index_elements=["name"], set_={"value": value}))
