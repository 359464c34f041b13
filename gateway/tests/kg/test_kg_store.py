"""kg.db: durable, locked, sealed; nothing secret in any file of the site."""

from __future__ import annotations

import base64
import os
import shutil
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import text

from kg.helpers import Device, MadeSite
from sealmq.kg import rows
from sealmq.kg.core import Kg, list_clients
from sealmq.kg.errors import KgRefusal, StoreBroken, StoreBusy
from sealmq.kg.store import KgStore, counter
from sealmq_spec.const import U24


def secrets_of(store: KgStore, key: bytes) -> dict[str, bytes]:
    """Everything that must not be readable: roots, topic keys' sources, ps, link roots, the key."""
    found = {"role key": key}
    with store.transaction() as tx:
        for label in rows.labels(tx).values():
            for epoch in rows.epochs(tx)[label.number]:
                own = rows.roots(tx, store.vault, label.number, epoch.epoch, label.suite)
                found[f"R {label.name}/{epoch.epoch}"] = own.r
                found[f"R-bar {label.name}/{epoch.epoch}"] = own.r_bar
        for client in rows.clients(tx).values():
            found[f"ps {client.name}"] = rows.ps(tx, store.vault, client)
        for number, links in rows.links(tx, store.vault).items():
            for link in links:
                found[f"km {number}/{link.gen}"] = link.km
        for grant in rows.grants(tx).values():
            found[f"G {grant.name}/{grant.epoch}"] = rows.g(tx, store.vault, grant)
    return found


def scan(root: Path, secrets: dict[str, bytes]) -> list[str]:
    """Which secret stands in which file: raw, hex of both cases, base64 of any alignment."""
    needles = []
    for name, secret in secrets.items():
        forms = [secret, secret.hex().encode(), secret.hex().upper().encode()]
        for shift in range(3):
            # the middle of the base64 text, which does not depend on what stands around it
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                forms.append(encode(bytes(shift) + secret)[(shift and 4) : -4])
        needles += [(name, form) for form in forms]
    hits = []
    for path in sorted(p for p in root.rglob("*") if p.is_file()):
        data = path.read_bytes()
        hits += [f"{path.name}: {name}" for name, form in needles if form in data]
    return hits


def test_a_copied_site_reveals_nothing(site: MadeSite, store: KgStore, kg: Kg, key: bytes) -> None:
    for name in ("m1-temp-sensor", "monitor"):
        device = Device(kg.enrol(name))
        done, _ = kg.answer(device.ask(), 1)
        device.accept(done.packet)
        kg.confirm(device.ident.client, device.ident.gen)
    kg.lend("m1-arm-operator")
    kg.rekey(["m1-temp"], 60, False)
    # Gone from the tables, perhaps not from the file: link roots that were replaced.
    old = secrets_of(store, key)
    site.edit('m1-temp-sensor = { label = "m1-temp"', 'm1-temp-sensor = { label = "m2-temp"')
    site.edit('monitor = { label = "monitor", kind = "app" }\n', "")
    kg.apply(site.config)
    secrets = old | {f"new {n}": s for n, s in secrets_of(store, key).items()}
    assert len(secrets) > 60
    names = {p.name for p in site.layout.root.rglob("*")}
    assert {"kg.db", "kg.db-wal", "kg.db-shm"} <= names
    assert scan(site.layout.root, secrets) == []
    store.close()
    assert scan(site.layout.root, secrets) == []


@pytest.mark.parametrize("form", ["raw", "hex", "HEX", "base64", "base64url"])
@pytest.mark.parametrize("shift", [0, 1, 2])
def test_the_scan_finds_what_is_planted(
    form: str, shift: int, site: MadeSite, store: KgStore, key: bytes
) -> None:
    secrets = secrets_of(store, key)
    name, secret = "ps monitor", secrets["ps monitor"]
    padded = b"x" * shift + secret + b"yyy"
    planted = {
        "raw": padded,
        "hex": padded.hex().encode(),
        "HEX": padded.hex().upper().encode(),
        "base64": base64.b64encode(padded),
        "base64url": base64.urlsafe_b64encode(padded),
    }[form]
    assert scan(site.layout.root, secrets) == []
    (site.layout.run / "log").write_bytes(b"..." + planted + b"...")
    assert set(scan(site.layout.root, secrets)) == {f"log: {name}"}


def test_the_scan_finds_what_sqlite_would_hold(site: MadeSite, store: KgStore, key: bytes) -> None:
    secrets = secrets_of(store, key)
    with store.transaction() as tx:
        tx.execute(text("INSERT INTO meta VALUES ('oops', :v)"), {"v": secrets["R-bar monitor/1"]})
    assert scan(site.layout.root, secrets) == ["kg.db-wal: R-bar monitor/1"]
    store.close()
    assert scan(site.layout.root, secrets) == ["kg.db: R-bar monitor/1"]


def test_secrets_stay_out_of_errors_and_reprs(store: KgStore, kg: Kg, key: bytes) -> None:
    secrets = secrets_of(store, key)
    device = Device(kg.enrol("monitor"))
    done, _ = kg.answer(device.ask(), 1)
    with store.transaction() as tx:
        link = rows.links(tx, store.vault)[done.client.number][0]
        row = rows.client(tx, done.client.number)
    shown = " ".join(map(repr, (store, store.vault, kg, link, row)))
    with pytest.raises(StoreBroken) as caught, store.transaction() as tx:
        tx.execute(text("INSERT INTO meta VALUES ('site', :v)"), {"v": secrets["ps monitor"]})
    shown += str(caught.value) + repr(caught.value)
    assert "UNIQUE" in str(caught.value)
    for secret in (*secrets.values(), link.km):
        assert secret.hex() not in shown
        assert repr(secret) not in shown


def raw(site: MadeSite) -> sqlite3.Connection:
    return sqlite3.connect(site.layout.kg_db)


SWAPS = {
    "clients": ("UPDATE clients SET secret = (SELECT secret FROM clients WHERE number = 8) "
                "WHERE number = 1"),
    "epochs": ("UPDATE epochs SET secret = (SELECT secret FROM epochs WHERE label = 16) "
               "WHERE label = 23"),
    "links": ("UPDATE links SET secret = (SELECT secret FROM links WHERE client = 8) "
              "WHERE client = 1"),
    "across tables": ("UPDATE clients SET secret = (SELECT secret FROM links WHERE client = 8) "
                      "WHERE number = 1"),
    "number": "UPDATE epochs SET label = 99 WHERE label = 16; "
              "UPDATE epochs SET label = 16 WHERE label = 17; "
              "UPDATE epochs SET label = 17 WHERE label = 99",
    "suite": "UPDATE labels SET suite = 2 WHERE number = 23",
}  # fmt: skip


@pytest.mark.parametrize("swap", SWAPS)
def test_swapped_rows_are_noticed(swap: str, site: MadeSite, store: KgStore, kg: Kg) -> None:
    kg.lend("m1-temp-sensor")
    kg.lend("monitor")

    def use() -> None:
        kg._whole = None
        kg.snapshot()
        for name in ("m1-temp-sensor", "monitor"):
            kg.lend(name)

    use()
    with raw(site) as db:
        db.executescript(SWAPS[swap])
    with pytest.raises(StoreBroken, match="does not open"):
        use()


def test_durable_settings_and_modes(site: MadeSite, store: KgStore) -> None:
    with store.transaction() as tx:
        assert tx.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL
        assert tx.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert tx.exec_driver_sql("PRAGMA secure_delete").scalar() == 1
    store.take_inst()
    for path in site.layout.kg_db.parent.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600, path


def test_a_transaction_is_all_or_nothing(store: KgStore) -> None:
    before = list_clients(store)

    def fails() -> None:
        with store.transaction() as tx:
            store.rise(tx)
            tx.execute(text("DELETE FROM clients"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert list_clients(store) == before


def test_opening_says_what_is_wrong(site: MadeSite, key: bytes, tmp_path: Path) -> None:
    path, number = site.layout.kg_db, site.config.site.id
    with pytest.raises(StoreBroken, match="this key does not open"):
        KgStore.open(path, bytes(32), number)
    with pytest.raises(StoreBroken, match=f"of site {number.hex()}, sealmq.toml says 00000000"):
        KgStore.open(path, key, bytes(4))
    with pytest.raises(StoreBroken, match="missing"):
        KgStore.open(tmp_path / "none.db", key, number)
    with raw(site) as db:
        db.execute("UPDATE meta SET value = x'09' WHERE name = 'version'")
    with pytest.raises(StoreBroken, match="a newer one is needed"):
        KgStore.open(path, key, number)
    path.write_bytes(os.urandom(5000))
    with pytest.raises(StoreBroken, match="not a database"):
        KgStore.open(path, key, number)
    assert not (tmp_path / "none.db").exists()


def test_one_process_at_a_time(site: MadeSite, store: KgStore, key: bytes) -> None:
    with pytest.raises(StoreBusy, match="another process"):
        KgStore.open(site.layout.kg_db, key, site.config.site.id)
    reader = KgStore.open_readonly(site.layout.kg_db)
    assert len(list_clients(reader)) == 8
    with pytest.raises(StoreBroken, match="without its key"):
        _ = reader.vault
    with pytest.raises(StoreBroken), reader.transaction() as tx:
        tx.execute(text("DELETE FROM clients"))
    reader.close()
    store.close()
    KgStore.open(site.layout.kg_db, key, site.config.site.id).close()


class Clock:
    """A clock that tests set, in ms."""

    def __init__(self, ms: int) -> None:
        self.ms = ms

    def __call__(self) -> int:
        return self.ms


DAY = 86_400_000
NOW = 1_800_000_000_000


def test_inst_is_never_issued_twice_even_from_a_restored_copy(
    site: MadeSite, key: bytes, tmp_path: Path
) -> None:
    def opened(clock: Clock) -> KgStore:
        return KgStore.open(site.layout.kg_db, key, site.config.site.id, clock)

    clock = Clock(NOW)
    first = opened(clock)
    issued = [first.take_inst() for _ in range(3)]
    first.close()
    backup = tmp_path / "backup"
    shutil.copytree(site.layout.kg_db.parent, backup)
    clock.ms += 7 * DAY
    later = opened(clock)
    issued += [later.take_inst() for _ in range(3)]
    with later.transaction() as tx:
        kseq = later.rise(tx)
    later.close()
    shutil.rmtree(site.layout.kg_db.parent)
    shutil.copytree(backup, site.layout.kg_db.parent)
    clock.ms += DAY
    restored = opened(clock)
    issued += [restored.take_inst() for _ in range(3)]
    assert issued == sorted(set(issued))
    with restored.transaction() as tx:
        assert counter(tx, "kseq") < kseq < restored.rise(tx)
    restored.close()


@pytest.mark.parametrize("ms", [0, 1, -DAY * 20000, 10**15, 2**60])
def test_counters_rise_under_any_clock(ms: int, site: MadeSite, key: bytes) -> None:
    clock = Clock(NOW)
    store = KgStore.open(site.layout.kg_db, key, site.config.site.id, clock)
    insts, kseqs = [], []
    for clock.ms in (NOW, ms, NOW, ms):
        insts.append(store.take_inst())
        with store.transaction() as tx:
            kseqs.append(store.rise(tx))
    assert insts == sorted(set(insts))
    assert kseqs == sorted(set(kseqs))
    assert insts[-1] < U24
    assert kseqs[-1] < 0xFFFF_FFFF
    store.close()


def test_the_last_inst(site: MadeSite, store: KgStore) -> None:
    with store.transaction() as tx:
        tx.execute(text("UPDATE counters SET value = :v WHERE name = 'inst'"), {"v": U24 - 1})
    assert store.take_inst() == U24
    with pytest.raises(KgRefusal, match="used up"):
        store.take_inst()


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_FULL])
def test_a_disk_that_takes_nothing_is_asked_about(code: int, store: KgStore) -> None:
    """SQLite says `disk I/O error` where a reader cannot make its file beside the store."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code
    with (
        pytest.raises(StoreBroken, match=r"^kg\.db: disk I/O error$") as caught,
        store.transaction(),
    ):
        raise error
    assert caught.value.hint == "is its disk full, read-only or damaged? df, dmesg"
