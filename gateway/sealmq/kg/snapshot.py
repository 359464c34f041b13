"""What a mediator may know (SPEC.md 1.1): topic keys EK, link roots, grants; no root, no secret.

The whole can be larger than a frame, so it is handed out in pieces of equal kseq.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from sealmq.site.model import Config
from sealmq_spec.keys import topic_key

from . import closing, grants, rows
from .errors import Changed
from .kept import Told
from .rows import EpochRow, GrantRow, ImportRow, LabelRow, LinkRow
from .seal import Vault
from .store import KgStore, counter

# Entries of one piece, and bytes of all of them as JSON: a frame has room for that and for one
# entry of any size (kept.MOST_ROW in hex is the largest).
PIECE, PIECE_BYTES = 5000, 1 << 20
_LISTS = (
    "labels", "older", "order", "clients", "records", "manifests", "grants", "older_grants",
    "holders", "told",
)  # fmt: skip
_encoded = json.JSONEncoder(separators=(",", ":")).encode


class Keys:
    """Topic keys that the last snapshot held, in hex: one of a (label, epoch) never changes, and to
    open its root and derive it costs more than all else. Never log it.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[int, int], str] = {}

    def of(
        self, tx: Connection, vault: Vault, site: bytes, label: LabelRow, epochs: list[EpochRow]
    ) -> list[str]:
        """Those of these epochs of a label."""
        made = self._made
        missing = {row.epoch for row in epochs if (label.number, row.epoch) not in made}
        for own in rows.roots_of(tx, vault, label, missing):
            ek = topic_key(site, label.suite, label.number, own.epoch, own.r)
            made[label.number, own.epoch] = ek.hex()
        return [made[label.number, row.epoch] for row in epochs]

    def keep(self, labels: list[LabelRow], epochs: Mapping[int, list[EpochRow]]) -> None:
        """Only those of these labels' epochs stay."""
        there = {(label.number, row.epoch) for label in labels for row in epochs[label.number]}
        for gone in self._made.keys() - there:
            del self._made[gone]


def build(store: KgStore, config: Config, told: Told, keys: Keys) -> dict[str, Any]:
    """The whole snapshot, ready for JSON. It holds keys: never log it."""
    with store.transaction() as tx:
        labels = {name: row for name, row in rows.labels(tx).items() if not row.removed}
        epochs = rows.epochs(tx)
        keys.keep(list(labels.values()), epochs)
        eks = {
            row.number: keys.of(tx, store.vault, config.site.id, row, epochs[row.number])
            for row in labels.values()
        }
        imports = rows.imports(tx)
        links = rows.links(tx, store.vault)
        return {
            "site": config.site.id.hex(),
            "kseq": counter(tx, "kseq"),
            "policy": config.digest,
            "closed": closing.closed(tx),
            "labels": [
                _label(row, epochs[row.number], eks[row.number], imports) for row in labels.values()
            ],
            # Back-links keep retained messages of these readable; the mediator has to open them
            # too. Entries of their own: a label may have hundreds.
            "older": [
                [row.number, old.epoch, ek]
                for row in labels.values()
                for old, ek in zip(epochs[row.number][:-2], eks[row.number], strict=False)
            ],
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
    row: LabelRow, epochs: list[EpochRow], eks: list[str], imports: Mapping[int, ImportRow]
) -> dict[str, Any]:
    last = epochs[-1]
    previous = None
    if len(epochs) > 1:
        previous = {
            "epoch": epochs[-2].epoch,
            "ek": eks[-2],
            "handover_end": last.handover_end,
        }
    return {
        "number": row.number,
        "name": row.name,
        "suite": row.suite,
        "epoch": last.epoch,
        "ek": eks[-1],
        "previous": previous,
        **_origin(row, imports),
    }


def _origin(row: LabelRow, imports: Mapping[int, ImportRow]) -> dict[str, Any]:
    """Whose an imported label is, once its keys have come."""
    there = imports.get(row.number) if "@" in row.name else None
    if there is None:
        return {}
    return {"origin": [there.site.hex(), there.number, sorted(there.epochs.items())]}


def piece(whole: dict[str, Any], at: int, kseq: int | None) -> dict[str, Any]:
    """The entries from number `at` on, over all lists, and `next` when more follow."""
    if kseq is not None and kseq != whole["kseq"]:
        raise Changed("the keys have changed; begin anew")
    out = {name: whole[name] for name in ("site", "kseq", "policy", "closed")}
    skip, given, size = at, 0, 0
    for name in _LISTS:
        entries = whole[name]
        out[name] = mine = []
        for entry in entries[skip : skip + PIECE - given]:
            size += len(_encoded(entry)) + 1
            # From then on no later list has an entry in this piece either.
            if given and size > PIECE_BYTES:
                break
            mine.append(entry)
            given += 1
        skip = max(skip - len(entries), 0)
    if at + given < sum(len(whole[name]) for name in _LISTS):
        out["next"] = at + given
    return out
