"""Whether every secret of a store opens: SQLite sees nothing of a bit that changed in a blob."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, select

from . import schema
from .errors import StoreBroken
from .seal import Vault

_Sealed = tuple[str, str, tuple[int, ...], object]


def check(tx: Connection, vault: Vault) -> None:
    """StoreBroken names what does not open: how many, and the first of them by its name."""
    bad = [
        f"{what} ({column})"
        for what, column, row, blob in _sealed(tx)
        if not _opens(vault, column, row, blob)
    ]
    if bad:
        more = f", nor do {len(bad) - 1} more" if len(bad) > 1 else ""
        raise StoreBroken(
            f"is damaged: {bad[0]} does not open{more}",
            "nothing was changed; restore another backup, or another copy of this one",
        )


# (whose secret, column, row, blob) of every one there is, of removed clients and labels as well.
def _sealed(tx: Connection) -> Iterator[_Sealed]:
    labels = {r.number: r for r in tx.execute(select(schema.labels))}
    clients = {r.number: r for r in tx.execute(select(schema.clients))}
    for r in tx.execute(select(schema.epochs)):
        label = labels.get(r.label)
        name, suite = (label.name, label.suite) if label else (f"number {r.label}", 0)
        yield (
            f"epoch {r.epoch} of label {name}",
            "epochs.secret",
            (r.label, r.epoch, suite),
            r.secret,
        )
    for r in clients.values():
        yield f"the secret of client {r.name}", "clients.secret", (r.number, r.suite), r.secret
    for r in tx.execute(select(schema.links)):
        name = clients[r.client].name if r.client in clients else f"number {r.client}"
        what = f"link key {r.gen} of client {name}"
        yield what, "links.secret", (r.client, r.gen, r.mediator), r.secret
    for r in tx.execute(select(schema.grants)):
        yield f"grant {r.name} of {r.family}", "grants.secret", (r.number, r.epoch), r.secret
    for r in tx.execute(select(schema.older_grants)):
        what = f"grant {r.name} of {r.family}, which is over,"
        yield what, "grants.secret", (r.number, r.epoch), r.secret
    for r in tx.execute(select(schema.kept)):
        yield f"what {r.family} keeps", f"kept.{r.family}", (), r.secret


# A damaged row may hold any type, and any number.
def _opens(vault: Vault, column: str, row: tuple[int, ...], blob: object) -> bool:
    try:
        return isinstance(blob, bytes) and bool(vault.open(column, row, blob))
    except (StoreBroken, AttributeError, OverflowError):
        return False
