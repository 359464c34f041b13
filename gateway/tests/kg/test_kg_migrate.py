"""A kg.db of version 1, made by the statements that version 1 made it with, opens as it was."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from kg.helpers import Device, MadeSite, own
from sealmq.backup.make import backup
from sealmq.backup.restore import restore
from sealmq.kg.core import Kg, list_clients
from sealmq.kg.errors import StoreBroken
from sealmq.kg.store import KgStore

VERSION_1 = """
CREATE TABLE meta (name TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (name));
CREATE TABLE counters (name TEXT NOT NULL, value INTEGER NOT NULL, PRIMARY KEY (name));
CREATE TABLE labels (number INTEGER NOT NULL, name TEXT NOT NULL, suite INTEGER NOT NULL,
    removed BOOLEAN NOT NULL, PRIMARY KEY (number), UNIQUE (name));
CREATE TABLE epochs (label INTEGER NOT NULL, epoch INTEGER NOT NULL, handover_end INTEGER NOT NULL,
    kseq INTEGER NOT NULL, secret BLOB NOT NULL, PRIMARY KEY (label, epoch));
CREATE TABLE clients (number INTEGER NOT NULL, name TEXT NOT NULL, label INTEGER NOT NULL,
    kind TEXT NOT NULL, suite INTEGER NOT NULL, disabled BOOLEAN NOT NULL, removed BOOLEAN NOT NULL,
    gen INTEGER NOT NULL, secret BLOB NOT NULL, PRIMARY KEY (number), UNIQUE (name));
CREATE TABLE links (client INTEGER NOT NULL, gen INTEGER NOT NULL, mediator INTEGER NOT NULL,
    pending BOOLEAN NOT NULL, secret BLOB NOT NULL, PRIMARY KEY (client, gen));
CREATE TABLE records (top INTEGER NOT NULL, top_epoch INTEGER NOT NULL, n INTEGER NOT NULL,
    n_epoch INTEGER NOT NULL, packet BLOB NOT NULL, PRIMARY KEY (top, top_epoch, n, n_epoch));
CREATE TABLE manifests (label INTEGER NOT NULL, epoch INTEGER NOT NULL, packet BLOB NOT NULL,
    PRIMARY KEY (label));
"""
TABLES = ("meta", "counters", "labels", "epochs", "clients", "links", "records", "manifests")


def to_version_1(path: Path) -> None:
    """The same content in the tables of version 1."""
    old = path.with_name("old.db")
    with sqlite3.connect(path) as new, sqlite3.connect(old) as db:
        db.executescript(VERSION_1)
        for table in TABLES:
            names = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            listed = ", ".join(names)
            rows = new.execute(f"SELECT {listed} FROM {table}").fetchall()  # noqa: S608 - our names
            marks = ", ".join("?" * len(names))
            db.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608
        db.execute("UPDATE meta SET value = x'01' WHERE name = 'version'")
        db.execute("DELETE FROM counters WHERE name NOT IN ('kseq', 'inst')")
    new.close()
    db.close()
    for part in path.parent.glob("kg.db*"):
        part.unlink()
    old.rename(path)


@pytest.fixture
def device(site: MadeSite, kg: Kg, store: KgStore) -> Device:
    """A client at epoch 2 with a confirmed and a pending slot; its site is then of version 1."""
    kg.rekey(["m1-ctrl"], 60, False)
    device = Device(kg.enrol("m1-control-panel"))
    device.accept(kg.answer(device.ask(), 1)[0].packet)
    kg.confirm(device.ident.client, 1)
    kg.answer(device.ask(), 1)
    store.close()
    to_version_1(site.layout.kg_db)
    return device


def test_version_1_opens_and_goes_on(site: MadeSite, key: bytes, device: Device) -> None:
    path, number = site.layout.kg_db, site.config.site.id
    for _ in range(2):  # the second time it is of this version already
        store = KgStore.open(path, key, number)
        kg = Kg(store, site.config)
        assert not kg.apply(site.config).changed
        links = kg.links(device.ident.client)
        assert [(k["gen"], k["epoch"], k["pending"]) for k in links] == [
            (1, 2, False),
            (2, 2, True),
        ]
        assert links[0]["km"] == device.ident.km.hex()
        store.close()
    store = KgStore.open(path, key, number)
    kg = Kg(store, site.config)
    device.accept(kg.answer(device.ask(), 1)[0].packet)
    assert (device.ident.gen, own(device).epoch) == (2, 2)
    assert len(kg.clients()) == 8
    store.close()


def test_a_key_that_does_not_fit_migrates_nothing(
    site: MadeSite, key: bytes, device: Device
) -> None:
    path, number = site.layout.kg_db, site.config.site.id
    before = path.read_bytes()
    with pytest.raises(StoreBroken, match="this key does not open"):
        KgStore.open(path, bytes(32), number)
    with pytest.raises(StoreBroken, match="still has the format 1") as caught:
        KgStore.open_readonly(path)
    assert caught.value.hint == "`sealmq up` brings it up to date"
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT value FROM meta WHERE name = 'version'").fetchone() == (b"\x01",)
    assert len(path.read_bytes()) == len(before)


def test_a_migration_that_is_cut_off_is_begun_anew(
    site: MadeSite, key: bytes, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, number = site.layout.kg_db, site.config.site.id
    steps = {1: ("ALTER TABLE links ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0", "not SQL")}
    with monkeypatch.context() as patch:
        patch.setattr("sealmq.kg.migrate._STEPS", steps)
        with pytest.raises(StoreBroken, match="syntax error"):
            KgStore.open(path, key, number)
    KgStore.open(path, key, number).close()
    reader = KgStore.open_readonly(path)
    assert len(list_clients(reader)) == 8
    reader.close()


def test_a_backup_of_version_1_is_restored(
    site: MadeSite, key: bytes, device: Device, tmp_path: Path
) -> None:
    number = site.config.site.id
    backup(site.layout, number, site.key_file, tmp_path / "b")
    done = restore(site.layout, tmp_path / "b")
    assert (done.labels, done.drawn, done.out) == (10, {}, [])
    store = KgStore.open(site.layout.kg_db, key, number)
    kg = Kg(store, site.config)
    assert kg.links(device.ident.client) == []
    device.accept(kg.answer(device.ask(), 1)[0].packet)
    assert own(device).epoch > 4096
    store.close()
