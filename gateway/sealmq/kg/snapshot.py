"""What a mediator may know (SPEC.md 1.1): topic keys EK, link roots, grants; no root, no secret.

The whole can be larger than a frame, so it is handed out in pieces of equal kseq.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from sealmq.site.model import Config
from sealmq_spec.keys import topic_key

from . import closing, grants, rows
from .errors import Changed
from .kept import Told
from .rows import EpochRow, GrantRow, LabelRow, LinkRow
from .store import KgStore, counter

PIECE = 5000
# Of one piece, of what families tell: their rows are of any size.
PIECE_BYTES = 1 << 20
_LISTS = (
    "labels", "order", "clients", "records", "manifests", "grants", "older_grants", "holders",
    "told",
)  # fmt: skip


def build(store: KgStore, config: Config, told: Told) -> dict[str, Any]:
    """The whole snapshot, ready for JSON. It holds keys: never log it."""
    with store.transaction() as tx:
        labels = {name: row for name, row in rows.labels(tx).items() if not row.removed}
        epochs = rows.epochs(tx)
        links = rows.links(tx, store.vault)
        return {
            "site": config.site.id.hex(),
            "kseq": counter(tx, "kseq"),
            "policy": config.digest,
            "closed": closing.closed(tx),
            "labels": [_label(store, tx, config, r, epochs) for r in labels.values()],
            "order": [[labels[h].number, labels[n].number] for h, n in config.strict_pairs()],
            "clients": [
                {
                    "number": row.number,
                    "name": row.name,
                    "label": row.label,
                    "kind": row.kind,
                    "suite": row.suite,
                    "disabled": row.disabled,
                    "ended": row.ended,
                    "since": row.since,
                    "rotation": row.rotation,
                    "links": link_list(links.get(row.number, [])),
                }
                for row in rows.clients(tx).values()
            ],
            "records": [packet.hex() for packet in rows.records(tx).values()],
            "manifests": [packet.hex() for _, packet in rows.manifests(tx).values()],
            "grants": [
                _grant(row, rows.g(tx, store.vault, row)) for row in rows.grants(tx).values()
            ],
            # That no client held: what lies at the broker under one is still to be read.
            "older_grants": [
                _grant(row, rows.older_g(tx, store.vault, row)) for row in rows.older_grants(tx)
            ],
            # Entries of their own: a grant may have more holders than a frame holds.
            "holders": [
                [number, client]
                for number, clients in rows.holders(tx).items()
                for client in sorted(clients)
            ],
            # What families' parts tell mediators of what they keep.
            "told": told.rows(tx, store.vault, config),
        }


def with_links(
    whole: dict[str, Any], kseq: int, number: int, links: list[dict[str, Any]]
) -> dict[str, Any]:
    """The snapshot in which only these link slots of this client are others."""
    clients = [
        row | {"links": links} if row["number"] == number else row for row in whole["clients"]
    ]
    return whole | {"kseq": kseq, "clients": clients}


def link_list(links: list[LinkRow]) -> list[dict[str, Any]]:
    """Link slots as they stand in a snapshot and beside a provisioning answer."""
    return [{"gen": k.gen, "epoch": k.epoch, "km": k.km.hex(), "pending": k.pending} for k in links]


def _grant(row: GrantRow, g: bytes) -> dict[str, Any]:
    return {
        "number": row.number,
        "family": row.family,
        "name": row.name,
        "epoch": row.epoch,
        "suite": grants.SUITE,
        "g": g.hex(),
    }


def _label(
    store: KgStore,
    tx: Connection,
    config: Config,
    row: LabelRow,
    epochs: dict[int, list[EpochRow]],
) -> dict[str, Any]:
    def key(epoch: int) -> str:
        own = rows.roots(tx, store.vault, row.number, epoch, row.suite)
        return topic_key(config.site.id, row.suite, row.number, epoch, own.r).hex()

    mine = epochs[row.number]
    last = mine[-1]
    previous = None
    if len(mine) > 1:
        previous = {
            "epoch": mine[-2].epoch,
            "ek": key(mine[-2].epoch),
            "handover_end": last.handover_end,
        }
    return {
        "number": row.number,
        "name": row.name,
        "suite": row.suite,
        "epoch": last.epoch,
        "ek": key(last.epoch),
        "previous": previous,
        **_origin(tx, row),
        # Back-links keep retained messages of these readable; the mediator has to open them too.
        "older": [{"epoch": e.epoch, "ek": key(e.epoch)} for e in mine[:-2]],
    }


def _origin(tx: Connection, row: LabelRow) -> dict[str, Any]:
    """Whose an imported label is, once its keys have come."""
    there = rows.imports(tx).get(row.number) if "@" in row.name else None
    if there is None:
        return {}
    return {"origin": [there.site.hex(), there.number, sorted(there.epochs.items())]}


def piece(whole: dict[str, Any], at: int, kseq: int | None) -> dict[str, Any]:
    """The entries from number `at` on, over all lists, and `next` when more follow."""
    if kseq is not None and kseq != whole["kseq"]:
        raise Changed("the keys have changed; begin anew")
    out = {name: whole[name] for name in ("site", "kseq", "policy", "closed")}
    start, room = at, PIECE
    total = given = 0
    for name in _LISTS:
        entries = whole[name]
        out[name] = entries[start : start + room]
        if name == "told":
            out[name] = _fitting(out[name])
        given += len(out[name])
        room -= len(out[name])
        start = max(start - len(entries), 0)
        total += len(entries)
    if at + given < total:
        out["next"] = at + given
    return out


# The first of these that have PIECE_BYTES together, or the first alone.
def _fitting(rows: list[list[str]]) -> list[list[str]]:
    size = 0
    for count, row in enumerate(rows):
        size += sum(map(len, row))
        if count and size > PIECE_BYTES:
            return rows[:count]
    return rows
