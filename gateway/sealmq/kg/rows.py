"""The store's rows, one small function each. A secret is unsealed only when it is asked for."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, delete, insert, select, update

from sealmq_spec.records import Roots

from . import schema
from .seal import Vault

ROOT = 32


@dataclass(frozen=True, slots=True)
class LabelRow:
    """A label. Its number never changes; `removed`: not in sealmq.toml any more."""

    number: int
    name: str
    suite: int
    removed: bool


@dataclass(frozen=True, slots=True)
class EpochRow:
    """One (label, epoch). `handover_end`: of the epoch before this one (SPEC.md 8)."""

    label: int
    epoch: int
    handover_end: int
    kseq: int


@dataclass(frozen=True, slots=True)
class ClientRow:
    """A client. `gen`: the highest generation ever issued to it."""

    number: int
    name: str
    label: int
    kind: str
    suite: int
    disabled: bool
    removed: bool
    gen: int


@dataclass(frozen=True, slots=True)
class LinkRow:
    """One link slot of a client; `km` is k_c^M."""

    client: int
    gen: int
    mediator: int
    pending: bool
    km: bytes = field(repr=False)


# --- labels and epochs --------------------------------------------------------------------------


def labels(tx: Connection) -> dict[str, LabelRow]:
    """All labels by name, removed ones included."""
    rows = tx.execute(select(schema.labels).order_by(schema.labels.c.number))
    return {r.name: LabelRow(r.number, r.name, r.suite, r.removed) for r in rows}


def put_label(tx: Connection, row: LabelRow) -> None:
    """Insert, or change what can change."""
    values = asdict(row)
    number = values.pop("number")
    done = tx.execute(
        update(schema.labels).where(schema.labels.c.number == number).values(**values)
    )
    if not done.rowcount:
        tx.execute(insert(schema.labels).values(number=number, **values))


def epochs(tx: Connection) -> dict[int, list[EpochRow]]:
    """label number -> its epochs, newest last."""
    c = schema.epochs.c
    out: dict[int, list[EpochRow]] = {}
    for r in tx.execute(
        select(c.label, c.epoch, c.handover_end, c.kseq).order_by(c.label, c.epoch)
    ):
        out.setdefault(r.label, []).append(EpochRow(r.label, r.epoch, r.handover_end, r.kseq))
    return out


def new_epoch(tx: Connection, vault: Vault, label: LabelRow, row: EpochRow) -> None:
    """Draw R and R̄ of a (label, epoch)."""
    place = (row.label, row.epoch, label.suite)
    sealed = vault.seal("epochs.secret", place, secrets.token_bytes(2 * ROOT))
    tx.execute(insert(schema.epochs).values(**asdict(row), secret=sealed))


def roots(tx: Connection, vault: Vault, label: int, epoch: int, suite: int) -> Roots:
    """R and R̄ of a (label, epoch) that is there."""
    c = schema.epochs.c
    blob = tx.execute(select(c.secret).where(c.label == label, c.epoch == epoch)).scalar_one()
    both = vault.open("epochs.secret", (label, epoch, suite), blob)
    return Roots(label, epoch, suite, both[:ROOT], both[ROOT:])


def current_epoch(tx: Connection, label: int) -> EpochRow:
    """The newest epoch of a label."""
    c = schema.epochs.c
    r = tx.execute(
        select(c.label, c.epoch, c.handover_end, c.kseq)
        .where(c.label == label)
        .order_by(c.epoch.desc())
        .limit(1)
    ).one()
    return EpochRow(r.label, r.epoch, r.handover_end, r.kseq)


def current_roots(tx: Connection, vault: Vault, label: int) -> Roots:
    """R and R̄ of the newest epoch of a label."""
    suite = tx.execute(
        select(schema.labels.c.suite).where(schema.labels.c.number == label)
    ).scalar_one()
    return roots(tx, vault, label, current_epoch(tx, label).epoch, suite)


# --- clients and links --------------------------------------------------------------------------


def clients(tx: Connection) -> dict[str, ClientRow]:
    """All clients by name, removed ones included."""
    rows = tx.execute(_clients().order_by(schema.clients.c.number))
    return {row.name: row for row in map(_client, rows)}


def client(tx: Connection, number: int) -> ClientRow | None:
    """One client by number."""
    found = tx.execute(_clients().where(schema.clients.c.number == number)).one_or_none()
    return None if found is None else _client(found)


def _clients() -> Select[Any]:
    c = schema.clients.c
    return select(c.number, c.name, c.label, c.kind, c.suite, c.disabled, c.removed, c.gen)


def _client(r: Row[Any]) -> ClientRow:
    return ClientRow(r.number, r.name, r.label, r.kind, r.suite, r.disabled, r.removed, r.gen)


def put_client(tx: Connection, row: ClientRow, sealed: bytes | None = None) -> None:
    """Insert, or change what can change; `sealed` is a new secret (a new client needs one)."""
    values: dict[str, object] = asdict(row)
    number = values.pop("number")
    if sealed is not None:
        values["secret"] = sealed
    done = tx.execute(
        update(schema.clients).where(schema.clients.c.number == number).values(**values)
    )
    if not done.rowcount:
        tx.execute(insert(schema.clients).values(number=number, **values))


def new_ps(vault: Vault, number: int, suite: int) -> bytes:
    """A new pre-shared secret, sealed for its row."""
    return vault.seal("clients.secret", (number, suite), secrets.token_bytes(ROOT))


def ps(tx: Connection, vault: Vault, row: ClientRow) -> bytes:
    """The client's pre-shared secret, 32 bytes."""
    c = schema.clients.c
    blob = tx.execute(select(c.secret).where(c.number == row.number)).scalar_one()
    return vault.open("clients.secret", (row.number, row.suite), blob)


def links(tx: Connection, vault: Vault, number: int | None = None) -> dict[int, list[LinkRow]]:
    """client -> its link slots, oldest first; of one client if `number` is given."""
    c = schema.links.c
    query = select(schema.links).order_by(c.client, c.gen)
    if number is not None:
        query = query.where(c.client == number)
    out: dict[int, list[LinkRow]] = {}
    for r in tx.execute(query):
        km = vault.open("links.secret", (r.client, r.gen, r.mediator), r.secret)
        out.setdefault(r.client, []).append(LinkRow(r.client, r.gen, r.mediator, r.pending, km))
    return out


def generations(tx: Connection) -> dict[int, tuple[int, int]]:
    """client -> (confirmed generation, pending one), 0 for none; needs no key."""
    c = schema.links.c
    out: dict[int, tuple[int, int]] = {}
    for r in tx.execute(select(c.client, c.gen, c.pending)):
        confirmed, pending = out.get(r.client, (0, 0))
        out[r.client] = (confirmed, r.gen) if r.pending else (r.gen, pending)
    return out


def new_link(tx: Connection, vault: Vault, row: ClientRow, gen: int, mediator: int) -> LinkRow:
    """Draw k_c^M for a new pending generation, in place of any other pending one."""
    km = secrets.token_bytes(ROOT)
    c = schema.links.c
    tx.execute(delete(schema.links).where(c.client == row.number, c.pending))
    sealed = vault.seal("links.secret", (row.number, gen, mediator), km)
    tx.execute(
        insert(schema.links).values(
            client=row.number, gen=gen, mediator=mediator, pending=True, secret=sealed
        )
    )
    put_client(tx, replace(row, gen=gen))
    return LinkRow(row.number, gen, mediator, True, km)


def confirm_link(tx: Connection, number: int, gen: int) -> None:
    """Make `gen` the confirmed slot and delete the others."""
    c = schema.links.c
    tx.execute(delete(schema.links).where(c.client == number, c.gen != gen))
    tx.execute(update(schema.links).where(c.client == number, c.gen == gen).values(pending=False))


def drop_links(tx: Connection, number: int) -> None:
    """The client has to provision anew."""
    tx.execute(delete(schema.links).where(schema.links.c.client == number))


# --- public packets -----------------------------------------------------------------------------

Place = tuple[int, int, int, int]
_PLACE = ("top", "top_epoch", "n", "n_epoch")


def records(tx: Connection) -> dict[Place, bytes]:
    """(top, its epoch, n, its epoch) -> record."""
    rows = tx.execute(select(schema.records).order_by(schema.records.c.n, schema.records.c.top))
    return {(r.top, r.top_epoch, r.n, r.n_epoch): r.packet for r in rows}


def put_records(tx: Connection, new: Mapping[Place, bytes]) -> None:
    """New records."""
    if new:
        rows = [_record_row(place) | {"packet": packet} for place, packet in new.items()]
        tx.execute(insert(schema.records), rows)


def drop_records(tx: Connection, places: Iterable[Place]) -> None:
    """Records that are not to be published any more."""
    c = schema.records.c
    where = [c[name] == bindparam(f"b_{name}") for name in _PLACE]
    rows = [{f"b_{name}": v for name, v in _record_row(place).items()} for place in places]
    if rows:
        tx.execute(delete(schema.records).where(*where), rows)


def _record_row(place: Place) -> dict[str, int | bytes]:
    return dict(zip(_PLACE, place, strict=True))


def manifests(tx: Connection) -> dict[int, tuple[int, bytes]]:
    """label -> (epoch, manifest)."""
    rows = tx.execute(select(schema.manifests).order_by(schema.manifests.c.label))
    return {r.label: (r.epoch, r.packet) for r in rows}


def put_manifest(tx: Connection, label: int, epoch: int, packet: bytes) -> None:
    """Insert or replace."""
    tx.execute(delete(schema.manifests).where(schema.manifests.c.label == label))
    tx.execute(insert(schema.manifests).values(label=label, epoch=epoch, packet=packet))


def drop_manifest(tx: Connection, label: int) -> None:
    """The label is gone."""
    tx.execute(delete(schema.manifests).where(schema.manifests.c.label == label))
