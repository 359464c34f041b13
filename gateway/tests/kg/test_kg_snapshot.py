"""Snapshots of sites with many labels and epochs: pieces that fit a frame, keys derived once."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kg.helpers import Device, MadeSite
from kg.test_kg_server import serving
from sealmq import kglink
from sealmq.kg import limits, rows, snapshot
from sealmq.kg import server as server_module
from sealmq.kg.core import Kg
from sealmq.kg.errors import Changed
from sealmq.kg.seal import Vault
from sealmq.kg.store import KgStore
from sealmq.kglink import MAX_FRAME, SNAPSHOT_LISTS, KgClient
from sealmq.mediator.core.keyring import Keyring
from sealmq_spec.keys import topic_key

_SQL = (
    "INSERT INTO epochs (label, epoch, handover_end, kseq, secret) "
    "SELECT label, ?, handover_end, kseq, ? FROM epochs WHERE label = ? AND epoch = 1"
)


def grown(site: MadeSite, store: KgStore, kg: Kg, labels: int, epochs: int) -> set[int]:
    """The site with so many labels more, each of which has had so many epochs; their numbers."""
    there = {row["number"] for row in kg.labels()}
    more = "".join(f"x{n} = []\n" for n in range(labels))
    site.edit("[labels]\n", "[labels]\n" + more)
    kg.apply(site.config)
    new = {row["number"]: row["suite"] for row in kg.labels() if row["number"] not in there}
    assert len(new) == labels
    with store.transaction() as tx:
        for number, suite in new.items():
            made = [
                (e, store.vault.seal("epochs.secret", (number, e, suite), bytes(64)), number)
                for e in range(2, epochs + 1)
            ]
            tx.exec_driver_sql(_SQL, made)
    kg._whole = None
    return set(new)


def fetched(site: MadeSite, kg: Kg) -> dict[str, Any]:
    """As a mediator does."""

    async def run() -> dict[str, Any]:
        async with serving(site, kg), await KgClient.connect(site.layout.kg_socket) as link:
            return await link.snapshot()

    return asyncio.run(run())


def test_a_site_with_the_most_epochs_of_a_hundred_labels_hands_out_its_keys(
    site: MadeSite, store: KgStore, kg: Kg, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had one frame for thousands of labels with all their epochs, and refused for ever."""
    new = grown(site, store, kg, 100, limits.KEPT)
    sizes: list[int] = []
    send = server_module.Connection.send

    def measured(self: server_module.Connection, frame: dict[str, Any]) -> None:
        sizes.append(len(json.dumps(frame, separators=(",", ":"))))
        send(self, frame)

    monkeypatch.setattr(server_module.Connection, "send", measured)
    got = fetched(site, kg)
    assert len(sizes) > 10
    assert max(sizes) < MAX_FRAME // 2
    whole = kg._whole
    assert whole is not None
    assert {name: got[name] for name in whole} == json.loads(json.dumps(whole))
    assert len(got["older"]) == 100 * (limits.KEPT - 2)
    ring = Keyring(site.config.site.id, 1, got)
    assert {(n, e) for n, e in ring._ek if n in new} == {
        (n, e) for n in new for e in range(1, limits.KEPT + 1)
    }


def test_no_list_makes_a_piece_too_large_for_a_frame(kg: Kg) -> None:
    whole = dict(kg.snapshot())
    assert set(snapshot._LISTS) == set(SNAPSHOT_LISTS)
    for name in SNAPSHOT_LISTS:
        # Of one that is larger than what a piece has, and of many that are large together.
        whole[name] = [[name, "x" * (2 << 20)], *([name, n, "x" * 2000] for n in range(1000))]
    found: dict[str, list[Any]] = {name: [] for name in SNAPSHOT_LISTS}
    at: int | None = 0
    while at is not None:
        piece = snapshot.piece(whole, at, whole["kseq"])
        assert len(json.dumps(piece)) < MAX_FRAME
        for name, entries in found.items():
            entries += piece[name]
        at = piece.get("next")
    assert found == {name: whole[name] for name in SNAPSHOT_LISTS}


def test_a_topic_key_is_derived_once(
    site: MadeSite, store: KgStore, kg: Kg, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = grown(site, store, kg, 3, 6)
    derived: list[tuple[int, int]] = []
    opened: list[tuple[int, ...]] = []
    unseal = Vault.open

    def derive(site: bytes, suite: int, label: int, epoch: int, root: bytes) -> bytes:
        derived.append((label, epoch))
        return topic_key(site, suite, label, epoch, root)

    def opening(self: Vault, column: str, row: tuple[int, ...], blob: bytes) -> bytes:
        if column == "epochs.secret":
            opened.append(row)
        return unseal(self, column, row, blob)

    def built() -> dict[str, Any]:
        derived.clear()
        opened.clear()
        kg._whole = None
        return kg.snapshot()

    monkeypatch.setattr(snapshot, "topic_key", derive)
    monkeypatch.setattr(Vault, "open", opening)
    first = built()
    assert sorted(derived) == sorted({(row["number"], 1) for row in first["labels"]} | {
        (number, epoch) for number in new for epoch in range(1, 7)
    })  # fmt: skip
    assert built() == first
    assert derived == opened == []
    kg.rekey(["x0"], 0, False)
    (number,) = (row["number"] for row in first["labels"] if row["name"] == "x0")
    after = built()
    assert derived == [(number, 7)]
    assert [row[:2] for row in opened] == [(number, 7)]
    assert [row[:2] for row in after["older"] if row[0] == number] == [
        [number, epoch] for epoch in range(1, 6)
    ]
    # What is kept of them is what the whole holds, and what another key generator would say.
    assert Kg(store, site.config).snapshot() == after
    with store.transaction() as tx:
        rows.prune_epochs(tx, number, 2)
    assert not any(row[0] == number for row in built()["older"])
    assert {epoch for label, epoch in kg._keys._made if label == number} == {6, 7}
    site.edit("x0 = []\n", "")
    kg.apply(site.config)
    built()
    assert number not in {label for label, _ in kg._keys._made}


def test_a_snapshot_is_waited_for_as_long_as_a_new_policy(
    site: MadeSite, kg: Kg, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "PIECE", 50)
    waits: list[float] = []
    call = KgClient._call

    async def noted(
        self: KgClient, op: str, wait: float = kglink.CALL_S, **fields: Any
    ) -> dict[str, Any]:
        waits.append(wait)
        return await call(self, op, wait, **fields)

    monkeypatch.setattr(KgClient, "_call", noted)
    fetched(site, kg)
    assert len(waits) > 1
    assert set(waits) == {kglink.RELOAD_S}


def test_a_copy_of_an_older_version_has_older_keys_with_their_labels(kg: Kg) -> None:
    for _ in range(3):
        kg.rekey(["m1-temp"], 0, False)
    got = kg.snapshot()
    ring = Keyring(b"\0\0\0\1", 1, got)
    assert len(got["older"]) == 2
    labels = [
        row | {"older": [{"epoch": e, "ek": ek} for n, e, ek in got["older"] if n == row["number"]]}
        for row in got["labels"]
    ]
    old = {name: what for name, what in got.items() if name != "older"} | {"labels": labels}
    assert Keyring(b"\0\0\0\1", 1, old)._ek == ring._ek


def clients_of(kg: Kg) -> list[Device]:
    """Those that an operator has enrolled."""
    found = [row["name"] for row in kg.clients() if row["kind"] == "device"]
    return [Device(enrolment) for enrolment in kg.enrolments(found)]


def test_a_snapshot_in_pieces_is_fetched_to_its_end_while_clients_get_their_keys(
    kg: Kg, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut they do all the time: of a large site nothing was ever fetched."""
    monkeypatch.setattr(snapshot, "PIECE", 4)
    devices = clients_of(kg)
    assert len(devices) > 2
    piece = kg.snapshot()
    kseq = piece["kseq"]
    whole = json.loads(json.dumps(kg._whole))
    found = {name: list(piece[name]) for name in SNAPSHOT_LISTS}
    while "next" in piece:
        if devices:
            kg.answer(devices.pop().ask(), 1)
        piece = kg.snapshot(piece["next"], kseq)
        assert piece["kseq"] == kseq
        for name, entries in found.items():
            entries += piece[name]
    assert not devices
    assert found == {name: whole[name] for name in SNAPSHOT_LISTS}
    # The next one has it all, and the mediator is told that there is one.
    assert kg.snapshot()["kseq"] > kseq
    with pytest.raises(Changed):
        kg.snapshot(4, kseq)


def test_a_snapshot_in_pieces_is_fetched_anew_once_more_than_clients_keys_has_changed(
    kg: Kg, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "PIECE", 4)
    piece = kg.snapshot()
    kg.answer(clients_of(kg)[0].ask(), 1)
    kg.rekey([next(iter(kg.config.labels))], 0, False)
    with pytest.raises(Changed):
        kg.snapshot(piece["next"], piece["kseq"])
