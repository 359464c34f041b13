"""What two key generators tell each other of the labels that cross (GATEWAY.md G11).

The site that a label is of draws its keys, and gives each epoch to those whom it exports the label
to. There it becomes the next epoch of the imported label, whatever its number is: so that label may
get keys of its own between, when one of its readers leaves, and the owner is asked for new ones.
Nothing here can take an older epoch for a newer one, so a packet that is replayed changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection

from sealmq.peerkeys import BadPeer
from sealmq.site.model import Peer
from sealmq_spec.const import CCM, CHACHA, U24

from . import limits, rows
from .errors import Bad
from .rekey import Asked
from .rows import ROOT, ImportRow
from .seal import Vault

VERSION = 1
_MOST = 256


@dataclass(frozen=True, slots=True)
class Export:
    """A label as its own site gives it. until: Unix time at which the epoch before ends."""

    label: str
    number: int
    suite: int
    epoch: int
    until: int
    roots: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Told:
    """What a peer says. stale: labels of ours that need keys above this epoch of ours."""

    exports: tuple[Export, ...]
    stale: Mapping[str, int]


def said(tx: Connection, vault: Vault, peer: Peer) -> bytes:
    """What the peer's key generator is to know. It holds keys."""
    labels, clients = rows.labels(tx), rows.clients(tx)
    exports = []
    for name in peer.exports:
        row = labels[name]
        if clients[peer.client_out(name)].disabled:
            continue  # `sealmq client disable` has put it out
        last = rows.current_epoch(tx, row.number)
        own = rows.roots(tx, vault, row.number, last.epoch, row.suite)
        exports.append(
            [name, row.number, row.suite, last.epoch, last.handover_end, (own.r + own.r_bar).hex()]
        )
    stale = {}
    known = rows.imports(tx)
    for name in peer.imports:
        row = labels[peer.label_in(name)]
        there = known.get(row.number)
        if there is not None and rows.current_epoch(tx, row.number).epoch not in set(
            there.epochs.values()
        ):
            stale[name] = max(there.epochs)
    return json.dumps({"v": VERSION, "exports": exports, "stale": stale}).encode()


def read(packet: bytes) -> Told:
    """BadPeer: it is of no form that we know."""
    try:
        found = json.loads(packet)
        if found["v"] != VERSION or len(found["exports"]) > _MOST or len(found["stale"]) > _MOST:
            raise ValueError("form")
        exports = tuple(_export(*row) for row in found["exports"])
        stale = {str(name): _number(epoch, 1, U24) for name, epoch in found["stale"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BadPeer("its key generator says what this one does not understand") from None
    return Told(exports, stale)


def _export(label: Any, number: Any, suite: Any, epoch: Any, until: Any, roots: Any) -> Export:
    raw = bytes.fromhex(roots)
    if not isinstance(label, str) or suite not in (CCM, CHACHA) or len(raw) != 2 * ROOT:
        raise ValueError("export")
    most = (1 << 32) - 1
    return Export(
        label, _number(number, 1, U24), suite, _number(epoch, 1, U24), _number(until, 0, most), raw
    )


def _number(value: Any, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise ValueError("number")
    return value


def with_room(tx: Connection, peer: Peer, told: Told, now_s: int) -> Told:
    """Without exports of labels that have had too many epochs today: they come again."""
    labels = rows.labels(tx)

    def room(name: str) -> bool:
        row = labels.get(peer.label_in(name))
        return row is None or limits.had(row, now_s) < limits.TAKEN_A_DAY

    return replace(told, exports=tuple(one for one in told.exports if room(one.label)))


def taken(
    tx: Connection,
    peer: Peer,
    site: bytes,
    told: Told,
    now_s: int,
    may: Callable[[int], bool] = lambda number: True,
) -> Asked:
    """What follows for the labels here. may: whether the peer may ask for new keys of this label
    now; what it may not has to wait. Bad: the suites differ.
    """
    labels, known = rows.labels(tx), rows.imports(tx)
    given: dict[int, tuple[bytes, int]] = {}
    for one in told.exports:
        if one.label not in peer.imports:
            continue
        row = labels[peer.label_in(one.label)]
        if row.suite != one.suite:
            names = {CCM: "ccm", CHACHA: "chacha"}
            raise Bad(
                f"label {row.name} has suite {names[row.suite]} here and {names[one.suite]} there",
                f'import = ["{one.label}:{names[one.suite]}"]; a label keeps its suite, so remove '
                "the peer first and give it another name",
            )
        there = known.get(row.number)
        # Another site by this name, or the label made anew there, begins from nothing.
        if there is None or not _same(there, site, one) or one.epoch > max(there.epochs):
            given[row.number] = one.roots, max(now_s, one.until)
    stale = set()
    for name, epoch in told.stale.items():
        if name in peer.exports:
            row = labels[name]
            if (
                rows.current_epoch(tx, row.number).epoch <= epoch
                and limits.had(row, now_s) < limits.BY_PEERS_A_DAY
                and may(row.number)
            ):
                stale.add(row.number)
    return Asked(frozenset(stale), now_s, given)


def waiting(tx: Connection, peer: Peer, told: Told) -> dict[str, int]:
    """Of what it has asked for, what it has not had."""
    labels = rows.labels(tx)
    return {
        name: epoch
        for name, epoch in told.stale.items()
        if name in peer.exports and rows.current_epoch(tx, labels[name].number).epoch <= epoch
    }


def _same(there: ImportRow, site: bytes, one: Export) -> bool:
    return (there.site, there.number) == (site, one.number)


def note(tx: Connection, peer: Peer, site: bytes, told: Told) -> None:
    """After the keys are there: which epoch here is which of theirs."""
    labels, known = rows.labels(tx), rows.imports(tx)
    for one in told.exports:
        if one.label not in peer.imports:
            continue
        number = labels[peer.label_in(one.label)].number
        there = known.get(number)
        if there is None or not _same(there, site, one):
            there = ImportRow(site, one.number, {})
        if there.epochs and one.epoch <= max(there.epochs):
            continue
        here = rows.current_epoch(tx, number).epoch
        row = ImportRow(site, one.number, {**there.epochs, one.epoch: here})
        rows.put_import(tx, number, row, limits.KEPT)
