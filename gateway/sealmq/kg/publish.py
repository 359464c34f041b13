"""The public packets: derivation records, back-links, manifests (SPEC.md 8, Algorithm 1).

What has to be there follows from the order and the newest epochs; what is there already stays.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping

from sqlalchemy import Connection

from sealmq.aead import make
from sealmq_spec.records import Roots, make_manifest, make_record

from . import rows
from .rows import EpochRow, LabelRow, Place
from .tools import Tools

_KID = 8

Epochs = Mapping[int, list[EpochRow]]


class Publisher:
    """One run. labels: those that exist, by number. `changed` when something had to be done."""

    def __init__(
        self, tx: Connection, site: bytes, tools: Tools, labels: Mapping[int, LabelRow]
    ) -> None:
        self._tx, self._site, self._tools, self._labels = tx, site, tools, labels
        self._roots: dict[tuple[int, int], Roots] = {}
        self.changed = False

    def run(self, epochs: Epochs, pairs: Iterable[tuple[int, int]]) -> None:
        """epochs: of each label, newest last. pairs: every strict (high, low)."""
        have = rows.places(self._tx)
        want = self._wanted(epochs, pairs)
        gone = have - want.keys()
        if gone:
            rows.drop_records(self._tx, gone)
        lacking = {place: of for place, of in want.items() if place not in have}
        stands = rows.manifests(self._tx)
        renewed = [
            number
            for number in sorted(self._labels)
            if stands.get(number, (0, b""))[0] != epochs[number][-1].epoch
        ]
        self._read(lacking, [epochs[number][-1] for number in renewed])
        missing = {place: self._record(place, of) for place, of in lacking.items()}
        rows.put_records(self._tx, missing)
        for number in stands.keys() - self._labels.keys():
            rows.drop_manifest(self._tx, number)
        for number in renewed:
            self._manifest(epochs[number][-1])
        self.changed |= bool(gone or missing or renewed)

    # Every place where a record has to be, and the epoch that it opens: one from each strict
    # dominator to the label's epoch of today, and back-links from that to its earlier epochs.
    def _wanted(self, epochs: Epochs, pairs: Iterable[tuple[int, int]]) -> dict[Place, EpochRow]:
        now = {number: epochs[number][-1] for number in self._labels}
        out: dict[Place, EpochRow] = {}
        for high, low in pairs:
            n = now[low]
            out[high, now[high].epoch, low, n.epoch] = n
        for last in now.values():
            for old in epochs[last.label][:-1]:
                out[last.label, last.epoch, old.label, old.epoch] = old
        return out

    def _record(self, place: Place, of: EpochRow) -> bytes:
        top, top_epoch, n, n_epoch = place
        return make_record(
            make,
            self._site,
            self._roots[top, top_epoch],
            self._roots[n, n_epoch],
            secrets.token_bytes(_KID),
            secrets.token_bytes(_KID),
            of.kseq,
            of.handover_end,
            self._tools.order(),
        )

    # One statement a label: to make one costs ten times what opening a secret does.
    def _read(self, places: Iterable[Place], manifests: Iterable[EpochRow]) -> None:
        wanted: dict[int, set[int]] = {}
        for top, top_epoch, n, n_epoch in places:
            wanted.setdefault(top, set()).add(top_epoch)
            wanted.setdefault(n, set()).add(n_epoch)
        for row in manifests:
            wanted.setdefault(row.label, set()).add(row.epoch)
        for number, some in wanted.items():
            for found in rows.roots_of(self._tx, self._tools.vault, self._labels[number], some):
                self._roots[number, found.epoch] = found

    def _manifest(self, last: EpochRow) -> None:
        own = self._roots[last.label, last.epoch]
        packet = make_manifest(
            make, self._site, own, last.kseq, last.handover_end, self._tools.order()
        )
        rows.put_manifest(self._tx, last.label, last.epoch, packet)
