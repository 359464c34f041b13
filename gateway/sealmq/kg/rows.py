"""The store's rows, one small function each. A secret is unsealed only when it is asked for."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from sqlalchemy import Connection, Row, Select, delete, insert, select, update

from sealmq_spec.records import Roots

from . import schema
from .seal import Vault

ROOT = 32
# Pending link slots of a client.
PENDING = 4


@dataclass(frozen=True, slots=True)
class LabelRow:
    """A label. Its number never changes; `removed`: not in sealmq.toml any more.

    made: how many epochs it got on `day` (limits.py).
    """

    number: int
    name: str
    suite: int
    removed: bool
    day: int = 0
    made: int = 0


@dataclass(frozen=True, slots=True)
class EpochRow:
    """One (label, epoch). `handover_end`: of the epoch before this one (SPEC.md 8)."""

    label: int
    epoch: int
    handover_end: int
    kseq: int


@dataclass(frozen=True, slots=True)
class ClientRow:
    """A client. `gen`: the highest generation ever issued to it.

    rotation: how often its secret was replaced. ended: connections up to this generation are over.
    since: Unix time at which it was added; one of the same name before was another client.
    """

    number: int
    name: str
    label: int
    kind: str
    suite: int
    disabled: bool
    removed: bool
    gen: int
    rotation: int
    ended: int
    since: int = 0


@dataclass(frozen=True, slots=True)
class LinkRow:
    """One link slot of a client; `km` is k_c^M. epoch: of its label; each `gen` has exactly one."""

    client: int
    gen: int
    mediator: int
    pending: bool
    epoch: int
    km: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class GrantRow:
    """A grant that a policy family wants; `epoch`: the newest, of which G is kept."""

    number: int
    family: str
    name: str
    epoch: int


# --- the policy in force ------------------------------------------------------------------------

_POLICY, _OUT = "policy", "out"
# Before the name of a family.
_LEAVERS = "leavers."


def policy(tx: Connection) -> str | None:
    """The text of the sealmq.toml that was taken over last; None in a store of an older version."""
    found = _meta(tx, _POLICY)
    return None if found is None else found.decode()


def put_policy(tx: Connection, text: str) -> None:
    """This one is in force now."""
    if policy(tx) != text:
        _put_meta(tx, _POLICY, text.encode())


def out(tx: Connection) -> frozenset[int]:
    """Clients that are out although sealmq.toml does not say so (Kg.hold), by number."""
    return frozenset(json.loads(_meta(tx, _OUT) or b"[]"))


def put_out(tx: Connection, numbers: Iterable[int]) -> None:
    """These, and nobody else."""
    if out(tx) != frozenset(numbers):
        _put_meta(tx, _OUT, json.dumps(sorted(numbers)).encode())


@dataclass(frozen=True, slots=True)
class ImportRow:
    """Whose an imported label is: the site (4 bytes), the label's number there, and for the epochs
    whose keys have come, there -> here.
    """

    site: bytes
    number: int
    epochs: Mapping[int, int]


_IMPORTS = "imports"


def imports(tx: Connection) -> dict[int, ImportRow]:
    """By the label's number here. What nothing has come for is not there."""
    found = json.loads(_meta(tx, _IMPORTS) or b"{}")
    return {
        int(label): ImportRow(bytes.fromhex(site), number, dict(epochs))
        for label, (site, number, epochs) in found.items()
    }


def put_import(tx: Connection, label: int, row: ImportRow, keep: int) -> None:
    """The label's; of epochs the newest stay."""
    all_rows = imports(tx) | {label: row}
    said = {
        str(n): (one.site.hex(), one.number, sorted(one.epochs.items(), key=_here)[-keep:])
        for n, one in all_rows.items()
    }
    _put_meta(tx, _IMPORTS, json.dumps(said).encode())


def _here(pair: tuple[int, int]) -> int:
    return pair[1]


def _meta(tx: Connection, name: str) -> bytes | None:
    c = schema.meta.c
    found: bytes | None = tx.execute(select(c.value).where(c.name == name)).scalar_one_or_none()
    return found


def _put_meta(tx: Connection, name: str, value: bytes) -> None:
    tx.execute(delete(schema.meta).where(schema.meta.c.name == name))
    tx.execute(insert(schema.meta).values(name=name, value=value))


# --- labels and epochs --------------------------------------------------------------------------


def labels(tx: Connection) -> dict[str, LabelRow]:
    """All labels by name, removed ones included."""
    c = schema.labels.c
    rows = tx.execute(select(*(c[field.name] for field in fields(LabelRow))).order_by(c.number))
    return {r.name: LabelRow(*r) for r in rows}


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


def new_epoch(
    tx: Connection, vault: Vault, label: LabelRow, row: EpochRow, given: bytes | None = None
) -> None:
    """Draw R and R̄ of a (label, epoch); or take those that a peer has given, both in one."""
    place = (row.label, row.epoch, label.suite)
    sealed = vault.seal("epochs.secret", place, given or secrets.token_bytes(2 * ROOT))
    tx.execute(insert(schema.epochs).values(**asdict(row), secret=sealed))


def prune_epochs(tx: Connection, label: int, keep: int) -> None:
    """Only the newest `keep` epochs of a label stay."""
    c = schema.epochs.c
    oldest = (
        select(c.epoch).where(c.label == label).order_by(c.epoch.desc()).offset(keep - 1).limit(1)
    )
    tx.execute(delete(schema.epochs).where(c.label == label, c.epoch < oldest.scalar_subquery()))


def roots(tx: Connection, vault: Vault, label: int, epoch: int, suite: int) -> Roots:
    """R and R̄ of a (label, epoch) that is there."""
    c = schema.epochs.c
    blob = tx.execute(select(c.secret).where(c.label == label, c.epoch == epoch)).scalar_one()
    both = vault.open("epochs.secret", (label, epoch, suite), blob)
    return Roots(label, epoch, suite, both[:ROOT], both[ROOT:])


# In one statement: to make one costs ten times what opening a secret does.
def roots_of(tx: Connection, vault: Vault, label: LabelRow, epochs: Set[int]) -> Iterator[Roots]:
    """R and R̄ of these epochs of a label, those that are there."""
    if not epochs:
        return
    c = schema.epochs.c
    chosen = select(c.epoch, c.secret).where(c.label == label.number, c.epoch >= min(epochs))
    for epoch, blob in tx.execute(chosen):
        if epoch in epochs:
            both = vault.open("epochs.secret", (label.number, epoch, label.suite), blob)
            yield Roots(label.number, epoch, label.suite, both[:ROOT], both[ROOT:])


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


def client_named(tx: Connection, name: str) -> ClientRow | None:
    """One client by name; a removed one as well."""
    found = tx.execute(_clients().where(schema.clients.c.name == name)).one_or_none()
    return None if found is None else _client(found)


def _clients() -> Select[Any]:
    c = schema.clients.c
    return select(*(c[field.name] for field in fields(ClientRow)))


def _client(r: Row[Any]) -> ClientRow:
    values: tuple[Any, ...] = tuple(r)
    return ClientRow(*values)


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
        slot = LinkRow(r.client, r.gen, r.mediator, r.pending, r.epoch, km)
        out.setdefault(r.client, []).append(slot)
    return out


def generations(tx: Connection) -> dict[int, tuple[int, int]]:
    """client -> (confirmed generation, newest pending one), 0 for none; needs no key."""
    c = schema.links.c
    out: dict[int, tuple[int, int]] = {}
    for r in tx.execute(select(c.client, c.gen, c.pending).order_by(c.client, c.gen)):
        confirmed, pending = out.get(r.client, (0, 0))
        out[r.client] = (confirmed, r.gen) if r.pending else (r.gen, pending)
    return out


def new_link(
    tx: Connection, vault: Vault, row: ClientRow, gen: int, mediator: int, epoch: int
) -> LinkRow:
    """Draw k_c^M for a new pending generation.

    Pending ones that went out before stay, since the client may have stored them; the newest few.
    """
    km = secrets.token_bytes(ROOT)
    c = schema.links.c
    before = select(c.gen).where(c.client == row.number, c.pending).order_by(c.gen.desc())
    for old in tx.execute(before.offset(PENDING - 1)).scalars().all():
        tx.execute(delete(schema.links).where(c.client == row.number, c.gen == old))
    sealed = vault.seal("links.secret", (row.number, gen, mediator), km)
    tx.execute(
        insert(schema.links).values(
            client=row.number,
            gen=gen,
            mediator=mediator,
            pending=True,
            epoch=epoch,
            secret=sealed,
        )
    )
    put_client(tx, replace(row, gen=gen))
    return LinkRow(row.number, gen, mediator, True, epoch, km)


def confirm_link(tx: Connection, number: int, gen: int) -> None:
    """Make `gen` the confirmed slot and delete those before it."""
    c = schema.links.c
    tx.execute(delete(schema.links).where(c.client == number, c.gen < gen))
    tx.execute(update(schema.links).where(c.client == number, c.gen == gen).values(pending=False))


def end_before(tx: Connection, number: int, gen: int) -> bool:
    """The client has stored `gen`: slots before it end. False: there is no such slot, or no older.

    Whoever holds a generation does not come back with an older one.
    """
    c = schema.links.c
    slots = select(c.gen).where(c.client == number, c.gen == gen)
    if tx.execute(slots).one_or_none() is None:
        return False
    return tx.execute(delete(schema.links).where(c.client == number, c.gen < gen)).rowcount > 0


def drop_links(tx: Connection, number: int) -> None:
    """The client has to provision anew."""
    tx.execute(delete(schema.links).where(schema.links.c.client == number))


# --- grants ---------------------------------------------------------------------------------------


def grants(tx: Connection) -> dict[tuple[str, str], GrantRow]:
    """All of them, by family and name."""
    c = schema.grants.c
    rows = tx.execute(select(*(c[field.name] for field in fields(GrantRow))).order_by(c.number))
    return {(r.family, r.name): GrantRow(*r) for r in rows}


def new_g(tx: Connection, vault: Vault, row: GrantRow) -> None:
    """Draw G of a grant's new epoch; what it had before is gone."""
    sealed = vault.seal("grants.secret", (row.number, row.epoch), secrets.token_bytes(ROOT))
    tx.execute(delete(schema.grants).where(schema.grants.c.number == row.number))
    tx.execute(insert(schema.grants).values(**asdict(row), secret=sealed))


def g(tx: Connection, vault: Vault, row: GrantRow) -> bytes:
    """G of a grant's newest epoch, 32 bytes."""
    c = schema.grants.c
    blob = tx.execute(select(c.secret).where(c.number == row.number)).scalar_one()
    return vault.open("grants.secret", (row.number, row.epoch), blob)


def holders(tx: Connection) -> dict[int, set[int]]:
    """number of a grant -> numbers of the clients that hold it."""
    c = schema.holders.c
    out: dict[int, set[int]] = {}
    for r in tx.execute(select(c.number, c.client).order_by(c.number, c.client)):
        out.setdefault(r.number, set()).add(r.client)
    return out


def add_holders(tx: Connection, number: int, clients: Iterable[int]) -> None:
    """These hold the grant, too."""
    rows = [{"number": number, "client": client} for client in clients]
    if rows:
        tx.execute(insert(schema.holders), rows)


def drop_holders(tx: Connection, number: int, clients: Iterable[int]) -> None:
    """These do not hold it any more."""
    c = schema.holders.c
    for client in clients:
        tx.execute(delete(schema.holders).where(c.number == number, c.client == client))


def older_grants(tx: Connection) -> list[GrantRow]:
    """Those that are over and of which G is kept, the newest first."""
    c = schema.older_grants.c
    chosen = select(*(c[field.name] for field in fields(GrantRow)))
    rows = tx.execute(chosen.order_by(c.number.desc(), c.epoch.desc()))
    return [GrantRow(*r) for r in rows]


def older_g(tx: Connection, vault: Vault, row: GrantRow) -> bytes:
    """G of one of them, 32 bytes."""
    c = schema.older_grants.c
    chosen = select(c.secret).where(c.number == row.number, c.epoch == row.epoch)
    return vault.open("grants.secret", (row.number, row.epoch), tx.execute(chosen).scalar_one())


def keep_g(tx: Connection, row: GrantRow, most: int) -> None:
    """The grant is over; its G is kept, with that of `most` in all."""
    c, old = schema.grants.c, schema.older_grants
    blob = tx.execute(select(c.secret).where(c.number == row.number)).scalar_one()
    tx.execute(insert(old).values(**asdict(row), secret=blob))
    for gone in older_grants(tx)[most:]:
        tx.execute(delete(old).where(old.c.number == gone.number, old.c.epoch == gone.epoch))


def drop_grants(tx: Connection, gone: Iterable[GrantRow]) -> None:
    """They are held by nobody any more."""
    for row in gone:
        tx.execute(delete(schema.grants).where(schema.grants.c.number == row.number))
        tx.execute(delete(schema.holders).where(schema.holders.c.number == row.number))


def kept(tx: Connection, vault: Vault, family: str) -> bytes:
    """What a family keeps, or nothing."""
    c = schema.kept.c
    blob = tx.execute(select(c.secret).where(c.family == family)).scalar_one_or_none()
    return b"" if blob is None else vault.open(f"kept.{family}", (), blob)


def keeping(tx: Connection) -> list[str]:
    """The families that keep something."""
    c = schema.kept.c
    return [r.family for r in tx.execute(select(c.family).order_by(c.family))]


def leavers(tx: Connection, family: str) -> frozenset[str]:
    """Names of clients that are gone, which that family could not be told of."""
    return frozenset(json.loads(_meta(tx, f"{_LEAVERS}{family}") or b"[]"))


def put_leavers(tx: Connection, family: str, names: frozenset[str]) -> None:
    """These, and no others."""
    if leavers(tx, family) != names:
        _put_meta(tx, f"{_LEAVERS}{family}", json.dumps(sorted(names)).encode())


def keep(tx: Connection, vault: Vault, family: str, what: bytes) -> None:
    """Insert or replace."""
    tx.execute(delete(schema.kept).where(schema.kept.c.family == family))
    sealed = vault.seal(f"kept.{family}", (), what)
    tx.execute(insert(schema.kept).values(family=family, secret=sealed))


# --- public packets -----------------------------------------------------------------------------

Place = tuple[int, int, int, int]
_PLACE = ("top", "top_epoch", "n", "n_epoch")


def places(tx: Connection) -> set[Place]:
    """Where records are: (top, its epoch, n, its epoch)."""
    c = schema.records.c
    return {(r[0], r[1], r[2], r[3]) for r in tx.execute(select(*(c[name] for name in _PLACE)))}


def pairs(tx: Connection) -> set[tuple[int, int]]:
    """Every strict (high, low) of the order that the records were last made for."""
    c = schema.records.c
    found = tx.execute(select(c.top, c.n).where(c.top != c.n).distinct())
    return {(r.top, r.n) for r in found}


def records(tx: Connection) -> dict[Place, bytes]:
    """(top, its epoch, n, its epoch) -> record."""
    rows = tx.execute(select(schema.records).order_by(schema.records.c.n, schema.records.c.top))
    return {(r.top, r.top_epoch, r.n, r.n_epoch): r.packet for r in rows}


# By the driver itself: an order of 400 labels has 80,000 of these.
def put_records(tx: Connection, new: Mapping[Place, bytes]) -> None:
    """New records."""
    if new:
        rows = [(*place, packet) for place, packet in new.items()]
        tx.exec_driver_sql(
            "INSERT INTO records (top, top_epoch, n, n_epoch, packet) VALUES (?, ?, ?, ?, ?)", rows
        )


def drop_records(tx: Connection, gone: Iterable[Place]) -> None:
    """Records that are not to be published any more."""
    rows = list(gone)
    if rows:
        tx.exec_driver_sql(
            "DELETE FROM records WHERE top = ? AND top_epoch = ? AND n = ? AND n_epoch = ?", rows
        )


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
