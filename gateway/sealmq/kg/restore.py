"""A key generator from a backup: it opens what was sealed, and issues nothing a second time.

`renew` makes it so in a draft that is not in use yet (sealmq.backup puts it into place). All labels
get new epochs, all grants other numbers, and all numbers begin above those that can have been
issued since (lift.py); all link roots end, since nobody knows which CONNECTs were proved since.
sealmq.toml is the truth about who is in: who was disabled, removed or rotated after the backup
stays so, since it says so. Whom `client disable` has put out without it stays out if the store that
is replaced can be read, or the backup says so.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from sqlalchemy import Connection, delete, insert, update

from sealmq.order import Order
from sealmq.site.layout import Layout, write_atomically
from sealmq.site.model import Config

from . import closing, grants, kept, lift, rows, schema, whole
from .converge import Converge
from .errors import StoreBroken
from .lift import Issued
from .rows import EpochRow
from .store import NEWS, Clock, KgStore, set_counter
from .tools import Tools

# What the last restore has begun at, for the next one; in case nothing else of it is left.
LIFTED = "restored"


@dataclass(frozen=True, slots=True)
class Renewed:
    """drawn: clients that need a new enrolment file, with the `rotation` of their new secret.
    out: clients of the backup that sealmq.toml does not let in. closed: why the site opens nothing
    yet, or "".
    """

    kseq: int
    labels: int
    drawn: dict[str, int]
    out: list[str]
    notes: list[str]
    begin: Issued
    closed: str


def renew(
    store: KgStore,
    layout: Layout,
    config: Config,
    made_s: int,
    mediator: bytes,
    lost: str,
    clock: Clock,
) -> Renewed:
    """Make a backup's store one that may take the place of layout.kg_db.

    mediator: the store that its mediator will come with. lost: why that does not hold what it held,
    or "". StoreBroken, Bad: it cannot be done; the draft is of no use then.
    """
    with store.transaction() as tx:
        whole.check(tx, store.vault)
    now_s = clock() // 1000
    there, held = _present(layout, now_s)
    before = _before(layout)
    with store.transaction() as tx:
        begin = lift.above(there, [lift.look(tx, made_s), *before], now_s)
        done = _renew(tx, store, config, begin, held, made_s, now_s)
        closing.put_store(tx, mediator)
        if lost:
            closing.close(tx, lost)
        done = replace(done, closed=closing.closed(tx))
    store.settle()
    return done


def keep_lifted(layout: Layout, begin: Issued) -> None:
    """For the restore after this one; durable before anything is issued from `begin` on."""
    write_atomically(layout.kg_db.with_name(LIFTED), json.dumps(asdict(begin)).encode(), 0o600)


def forget(store: KgStore, names: Sequence[str]) -> dict[str, bytes]:
    """Take rows out of `meta` and give their values: what stands there for the backup alone."""
    c = schema.meta.c
    with store.transaction() as tx:
        found = tx.execute(schema.meta.select().where(c.name.in_(names)))
        values = {row.name: bytes(row.value) for row in found}
        tx.execute(delete(schema.meta).where(c.name.in_(names)))
    return values


def mediator_store(store: KgStore) -> bytes | None:
    """Which store the mediator had when the backup was made; None: of before it was told."""
    with store.transaction() as tx:
        return closing.store(tx)


def present(layout: Layout, now_s: int) -> Issued | None:
    """What the store that is there has issued; None if it cannot be read."""
    return _present(layout, now_s)[0]


# What the store that is replaced has issued, and the names of whom it holds out (Kg.hold), as far
# as it can be read.
def _present(layout: Layout, now_s: int) -> tuple[Issued | None, frozenset[str]]:
    if not layout.kg_db.exists():
        return None, frozenset()
    try:
        store = KgStore.open_readonly(layout.kg_db)
        try:
            with store.transaction() as tx:
                out = rows.out(tx)
                held = (row.name for row in rows.clients(tx).values() if row.number in out)
                return lift.look(tx, now_s), frozenset(held)
        finally:
            store.close()
    except StoreBroken:
        return None, frozenset()


# Where the restore before this one has begun.
def _before(layout: Layout) -> list[Issued]:
    try:
        told = lift.from_json(json.loads(layout.kg_db.with_name(LIFTED).read_text()))
    except (OSError, ValueError):
        return []
    return [] if told is None else [told]


def _renew(
    tx: Connection,
    store: KgStore,
    config: Config,
    begin: Issued,
    held: frozenset[str],
    made_s: int,
    now_s: int,
) -> Renewed:
    for name in ("inst", "kseq", "label", "client", "grant"):
        set_counter(tx, name, getattr(begin, name))
    tx.execute(delete(schema.meta).where(schema.meta.c.name == NEWS))
    tx.execute(update(schema.clients).values(gen=begin.gen))
    closing.end_links(tx)
    # Who left one since the backup nobody knows: each gets another number, and with it another G.
    grants.end(tx, rows.grants(tx).values())
    labels = rows.labels(tx).values()
    for label in labels:
        epoch = EpochRow(label.number, begin.epoch, now_s, begin.kseq)
        rows.new_epoch(tx, store.vault, label, epoch)
        rows.put_label(tx, replace(label, day=0, made=0))
    there = rows.clients(tx)
    before = {row.name for row in there.values() if not row.disabled}
    order = Order(begin.inst)
    tools = Tools(store.vault, lambda: order.next_bytes(now_s * 1000), store.rise, now_s)
    runs, notes = _converged(tx, store, config, held, tools)
    drawn = {}
    for name in runs[0].drawn:
        row = rows.clients(tx)[name]
        drawn[name] = row.rotation + 1
        # Rotated since, or removed and another one added: nobody knows, so it inherits nothing.
        rows.put_client(tx, replace(row, rotation=row.rotation + 1, since=now_s))
    after = rows.clients(tx).values()
    out = sorted(row.name for row in after if row.disabled and row.name in before)
    kseq = next((run.kseq for run in reversed(runs) if run.kseq), begin.kseq)
    tx.execute(insert(schema.meta).values(name=NEWS, value=made_s.to_bytes(8, "big")))
    count = sum(not row.removed for row in rows.labels(tx).values())
    return Renewed(kseq, count, drawn, out, notes, begin, "")


# A second run where the first has made somebody who is held out, or whose name a family keeps
# something under: only then there is a row to hold out, and who has another secret is known.
def _converged(
    tx: Connection, store: KgStore, config: Config, held: frozenset[str], tools: Tools
) -> tuple[list[Converge], list[str]]:
    there = rows.clients(tx)
    _hold(tx, held)
    notes = kept.leave(tx, store.vault, config, frozenset(there.keys() - config.clients.keys()))
    runs = [Converge(tx, config, tools)]
    runs[0].run()
    late = held & frozenset(runs[0].drawn)
    _hold(tx, late)
    left = kept.leave(tx, store.vault, config, frozenset(runs[0].drawn))
    if late or left:
        runs.append(Converge(tx, config, tools))
        runs[1].run()
    notes = [note for run in runs for note in run.notes] + notes + left
    return runs, list(dict.fromkeys(notes))


def _hold(tx: Connection, names: frozenset[str]) -> None:
    there = rows.clients(tx)
    rows.put_out(tx, rows.out(tx) | {there[name].number for name in names if name in there})
