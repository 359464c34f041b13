"""From sealmq.toml to keys: the one place that creates, relabels and removes (Algorithm 1).

It compares what should be with what is and makes the difference, in one transaction of the caller.
So it does not matter where an earlier run was cut off: the next one repairs it. Numbers stick to
names for ever. A client that is relabelled or removed loses its link slots and has to provision
anew; one that is removed and comes back gets a new secret.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from sealmq.aead import make
from sealmq.site.model import BOTTOM, NONE, TOP, Config
from sealmq_spec.const import (
    CCM,
    LABEL_BOTTOM,
    LABEL_FIRST,
    LABEL_NONE,
    LABEL_TOP,
    U24,
)
from sealmq_spec.records import Roots, make_manifest, make_record

from . import rows
from .errors import Bad
from .rows import ClientRow, EpochRow, LabelRow, Place
from .seal import Vault

_KID = 8


@dataclass(frozen=True, slots=True)
class Tools:
    """What a run needs. order: the key generator's next 12 bytes; rise: the next kseq."""

    vault: Vault
    order: Callable[[], bytes]
    rise: Callable[[Connection], int]


class Converge:
    """One run. `kseq` is the new change counter (given if it has risen), None: nothing changed."""

    def __init__(
        self, tx: Connection, config: Config, tools: Tools, kseq: int | None = None
    ) -> None:
        self._tx, self._config, self._tools = tx, config, tools
        self.kseq = kseq
        self.notes: list[str] = []
        self._labels: dict[str, LabelRow] = {}
        self._roots: dict[tuple[int, int], Roots] = {}

    def run(self) -> None:
        """Bad when sealmq.toml asks for what cannot be; then nothing must be committed."""
        self._do_labels()
        self._do_clients()
        self._do_records()

    def _changed(self) -> int:
        if self.kseq is None:
            self.kseq = self._tools.rise(self._tx)
        return self.kseq

    # --- labels -----------------------------------------------------------------------------------

    def _do_labels(self) -> None:
        have = rows.labels(self._tx)
        want = {BOTTOM: CCM, TOP: CCM}
        want.update((label.name, label.suite) for label in self._config.labels.values())
        free = _free((row.number for row in have.values()), LABEL_FIRST, "label")
        for name, suite in want.items():
            old = have.get(name)
            if old is None:
                fixed = {BOTTOM: LABEL_BOTTOM, TOP: LABEL_TOP}
                new = LabelRow(fixed.get(name) or free(), name, suite, False)
            else:
                _same_suite("label", name, old.suite, suite)
                new = replace(old, removed=False)
            self._put_label(old, new)
        for name, row in have.items():
            if name not in want:
                self._put_label(row, replace(row, removed=True))

    def _put_label(self, old: LabelRow | None, new: LabelRow) -> None:
        if new != old:
            self._changed()
            rows.put_label(self._tx, new)
        if not new.removed:
            self._labels[new.name] = new

    # --- clients ----------------------------------------------------------------------------------

    def _do_clients(self) -> None:
        have = rows.clients(self._tx)
        free = _free((row.number for row in have.values()), 1, "client")
        for name, client in self._config.clients.items():
            label = LABEL_NONE if client.label == NONE else self._labels[client.label].number
            old = have.get(name)
            if old is None or old.removed:
                number = free() if old is None else old.number
                gen = 0 if old is None else old.gen
                row = ClientRow(
                    number, name, label, client.kind, client.suite, not label, False, gen
                )
                self._changed()
                sealed = rows.new_ps(self._tools.vault, number, client.suite)
                rows.put_client(self._tx, row, sealed)
                continue
            _same_suite("client", name, old.suite, client.suite)
            self._put_client(old, replace(old, label=label, kind=client.kind, disabled=not label))
        for name, row in have.items():
            if name not in self._config.clients:
                self._put_client(row, replace(row, removed=True, disabled=True))

    def _put_client(self, old: ClientRow, new: ClientRow) -> None:
        if new == old:
            return
        self._changed()
        rows.put_client(self._tx, new)
        if new.label != old.label or new.disabled:
            rows.drop_links(self._tx, new.number)
            self._note_lost(old, new)

    # What the client's device still has in its flash does not change by itself.
    def _note_lost(self, old: ClientRow, new: ClientRow) -> None:
        names = {row.number: row.name for row in rows.labels(self._tx).values()}
        was, now = names.get(old.label, NONE), NONE if new.disabled else names.get(new.label, NONE)
        if old.label and not old.disabled and not self._config.dominates(now, was):
            self.notes.append(
                f"{new.name}: label {was} became {now}; what it already holds for {was} and below "
                "still opens what is sealed with the present keys of those labels"
            )

    # --- records ----------------------------------------------------------------------------------

    def _do_records(self) -> None:
        epochs = rows.epochs(self._tx)
        for label in self._labels.values():
            if label.number not in epochs:
                first = EpochRow(label.number, 1, 0, self._changed())
                rows.new_epoch(self._tx, self._tools.vault, label, first)
                epochs[label.number] = [first]
        have = rows.records(self._tx)
        want = self._wanted(epochs)
        gone = [place for place in have if place not in want]
        if gone:
            self._changed()
            rows.drop_records(self._tx, gone)
            self._note_order({(top, n) for top, _, n, _ in want}, gone)
        missing = [(place, of) for place, of in want.items() if place not in have]
        if missing:
            self._changed()
            rows.put_records(self._tx, {place: self._record(place, of) for place, of in missing})
        self._do_manifests(epochs)

    # Every place where a record has to be, and the epoch that it opens: one from each strict
    # dominator to the label's epoch of today, and back-links from that to its earlier epochs.
    def _wanted(self, epochs: dict[int, list[EpochRow]]) -> dict[Place, EpochRow]:
        now = {name: epochs[label.number][-1] for name, label in self._labels.items()}
        out: dict[Place, EpochRow] = {}
        for high, low in self._config.strict_pairs():
            top, n = now[high], now[low]
            out[top.label, top.epoch, n.label, n.epoch] = n
        for last in now.values():
            for old in epochs[last.label][:-1]:
                out[last.label, last.epoch, old.label, old.epoch] = old
        return out

    def _record(self, place: Place, of: EpochRow) -> bytes:
        top, top_epoch, n, n_epoch = place
        return make_record(
            make,
            self._config.site.id,
            self._load(top, top_epoch),
            self._load(n, n_epoch),
            secrets.token_bytes(_KID),
            secrets.token_bytes(_KID),
            of.kseq,
            of.handover_end,
            self._tools.order(),
        )

    def _load(self, label: int, epoch: int) -> Roots:
        found = self._roots.get((label, epoch))
        if found is None:
            suite = next(row.suite for row in self._labels.values() if row.number == label)
            found = rows.roots(self._tx, self._tools.vault, label, epoch, suite)
            self._roots[label, epoch] = found
        return found

    def _do_manifests(self, epochs: dict[int, list[EpochRow]]) -> None:
        have = rows.manifests(self._tx)
        numbers = {label.number for label in self._labels.values()}
        for number in have.keys() - numbers:
            rows.drop_manifest(self._tx, number)
        for number in sorted(numbers):
            last = epochs[number][-1]
            if have.get(number, (0, b""))[0] != last.epoch:
                self._changed()
                packet = make_manifest(
                    make,
                    self._config.site.id,
                    self._load(number, last.epoch),
                    last.kseq,
                    last.handover_end,
                    self._tools.order(),
                )
                rows.put_manifest(self._tx, number, last.epoch, packet)

    # An edge that was taken out of the order takes no key back.
    def _note_order(self, pairs: set[tuple[int, int]], gone: list[Place]) -> None:
        names = {label.number: label.name for label in self._labels.values()}
        for top, _, n, _ in gone:
            if (top, n) not in pairs and top in names and n in names:
                self.notes.append(
                    f"{names[top]} does not dominate {names[n]} any more; clients at {names[top]} "
                    f"can still open what is sealed with the present keys of {names[n]}"
                )


def _free(taken: Iterable[int], first: int, what: str) -> Callable[[], int]:
    last = max((number for number in taken if number >= first), default=first - 1)

    def take() -> int:
        nonlocal last
        last += 1
        if last > U24:
            raise Bad(f"all {what} numbers are used up", "make a new site")
        return last

    return take


def _same_suite(what: str, name: str, have: int, want: int) -> None:
    if have != want:
        names = {1: "ccm", 2: "chacha"}
        raise Bad(
            f"{what} {name}: its keys were made for suite {names[have]}, sealmq.toml says "
            f"{names[want]}",
            f"put suite {names[have]} back, or give the {what} another name",
        )
