"""Backup and restore: what is refused, what is left when it is cut off, where the numbers begin."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kg.helpers import Device, MadeSite, make_site, own, running
from kg.test_kg_kept import ORDER, PANEL, TEXT, WITH
from kg.test_kg_store import scan, secrets_of
from sealmq.backup import make, sealed
from sealmq.backup import restore as backup_restore
from sealmq.backup.make import backup
from sealmq.backup.restore import restore
from sealmq.backup.sealed import BackupError
from sealmq.cli.main import main
from sealmq.kg import lift
from sealmq.kg.core import Kg
from sealmq.kg.errors import Bad, StoreBroken, StoreBusy
from sealmq.kg.lift import Issued
from sealmq.kg.store import KgStore, hold
from sealmq.site import masterkey
from sealmq.store import Store

DAY_S = 86400
NOW_S = 1_800_000_000


@pytest.fixture
def saved(site: MadeSite, store: KgStore, kg: Kg, tmp_path: Path) -> Path:
    """A backup of a site with a provisioned client, and a mediator that has come with its store;
    the stores are closed.
    """
    device = Device(kg.enrol("monitor"))
    device.accept(kg.answer(device.ask(), 1)[0].packet)
    kg.confirm(device.ident.client, 1)
    mediator = Store.open(site.layout.mediator_db)
    kg.meet(mediator.identity)
    mediator.close()
    path = tmp_path / "saved"
    backup(site.layout, site.config.site.id, site.key_file, path)
    store.close()
    return path


def of_the_keys_alone(site: MadeSite, folder: Path) -> Path:
    """As `sealmq kg backup` wrote it, before there was a backup of the whole site."""
    path = folder / "keys-alone"
    with sqlite3.connect(site.layout.kg_db) as db, sqlite3.connect(path) as copy:
        db.backup(copy)
        copy.execute("PRAGMA journal_mode=DELETE")
        notes = [("backup-made", NOW_S.to_bytes(8, "big"))]
        notes.append(("backup-salt", site.layout.salt.read_bytes()))
        copy.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", notes)
        copy.execute("DELETE FROM meta WHERE name = 'mediator-store'")
    copy.close()
    db.close()
    return path


def state(site: MadeSite) -> dict[str, Any]:
    """Rows of the stores, and the files beside them."""
    rows = {}
    for path in (site.layout.kg_db, site.layout.mediator_db):
        with sqlite3.connect(path) as db:
            for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'"):
                found = db.execute(f"SELECT * FROM {table}")  # noqa: S608
                rows[path.name, table] = sorted(map(repr, found))
        db.close()
    files = sorted(str(p.relative_to(site.layout.state)) for p in site.layout.state.rglob("*"))
    return {"rows": rows, "files": files, "toml": site.layout.config.read_text()}


# --- backup ---------------------------------------------------------------------------------------


def test_a_backup_reveals_nothing_and_is_one_file(
    site: MadeSite, store: KgStore, kg: Kg, key: bytes, tmp_path: Path
) -> None:
    kg.lend("monitor")
    folder = tmp_path / "stick"
    folder.mkdir()
    made = backup(site.layout, site.config.site.id, site.key_file, folder / "b")
    assert [p.name for p in folder.iterdir()] == ["b"]
    assert stat.S_IMODE((folder / "b").stat().st_mode) == 0o600
    assert (folder / "b").stat().st_size == made.size
    assert scan(folder, secrets_of(store, key)) == []
    assert b"monitor" not in (folder / "b").read_bytes()
    assert list(site.layout.state.glob("backup-*")) == []


def test_a_backup_overwrites_nothing_and_lies_outside(
    site: MadeSite, store: KgStore, tmp_path: Path
) -> None:
    number = site.config.site.id
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("mine", "link"):
        with pytest.raises(BackupError, match="is there already"):
            backup(site.layout, number, site.key_file, tmp_path / name)
    with pytest.raises(BackupError, match="inside the site"):
        backup(site.layout, number, site.key_file, site.layout.root / "state" / "b")
    with pytest.raises(BackupError, match="not of site 00000000"):
        backup(site.layout, bytes(4), site.key_file, tmp_path / "b")
    assert (tmp_path / "mine").read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "mine", "site"]


class Full(sqlite3.Connection):
    """What it is copied to has room for two pages."""

    def backup(self, target: sqlite3.Connection, **_: Any) -> None:
        target.execute("PRAGMA max_page_count = 2")
        for name in "abc":
            target.execute(f"CREATE TABLE {name} (x)")


def test_a_backup_that_has_no_place(
    site: MadeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "stick"
    with pytest.raises(BackupError, match="stick is no folder") as refused:
        backup(site.layout, site.config.site.id, site.key_file, folder / "b")
    assert refused.value.hint is not None
    assert f"mkdir -p {folder}" in refused.value.hint
    folder.mkdir()
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Full))
    with pytest.raises(BackupError, match="no space is left for a copy of the key generator"):
        backup(site.layout, site.config.site.id, site.key_file, folder / "b")
    assert list(folder.iterdir()) == []


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_stick_and_a_full_disk_under_the_site_are_told_apart(
    site: MadeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stick = tmp_path / "stick"
    stick.mkdir()
    words = site.layout, site.config.site.id, site.key_file, stick / "b"
    with monkeypatch.context() as patch:
        patch.setattr(make, "write", full)
        with pytest.raises(BackupError, match=f"{stick}: no space is left for the backup"):
            backup(*words)
    assert list(stick.iterdir()) == []
    backup(*words)
    monkeypatch.setattr(backup_restore, "read", full)
    with pytest.raises(BackupError, match=f"{site.layout.state}: no space is left"):
        restore(site.layout, stick / "b", site.key_file)


def test_a_site_on_a_disk_that_has_become_read_only_is_backed_up_from_a_copy(
    site: MadeSite,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = site.layout.root

    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "mkdtemp", read_only)
        patch.setattr(os, "chown", read_only)
        assert main(["backup", str(root), str(tmp_path / "b")]) == 1
    said = capsys.readouterr().err
    assert f"{site.layout.state} is on a disk that is read-only" in said
    assert f"cp -a {root} " in said
    copied = tmp_path / "copy"
    shutil.copytree(root, copied)
    assert main(["backup", str(copied), str(tmp_path / "b")]) == 0


def test_a_backup_of_a_store_that_is_torn(site: MadeSite, tmp_path: Path) -> None:
    whole = site.layout.kg_db.read_bytes()
    for content in (b"", b"x" * 5000, whole[: len(whole) // 2]):
        site.layout.kg_db.write_bytes(content)
        with pytest.raises(BackupError):
            backup(site.layout, site.config.site.id, site.key_file, tmp_path / "b")
        assert sorted(p.name for p in tmp_path.iterdir()) == ["site"]


# --- restore: refused, and nothing changed --------------------------------------------------------


def test_what_is_no_backup(site: MadeSite, saved: Path, tmp_path: Path) -> None:
    whole, before = saved.read_bytes(), state(site)
    wrong = {
        "empty": (b"", "is no backup"),
        "text": (b"hello" * 500, "is no backup"),
        "head": (whole[:60], "is no backup"),
        "cut": (whole[: len(whole) * 2 // 3], "is damaged|does not open"),
        "longer": (whole + b"x", "is damaged"),
        "a piece less": (whole[:76] + whole[76 + 65536 + 16 :], "does not open"),
        "raw": (site.layout.kg_db.read_bytes(), "not made by `sealmq backup`"),
    }
    for name, (content, what) in wrong.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(BackupError, match=what):
            restore(site.layout, path)
    with pytest.raises(FileNotFoundError):
        restore(site.layout, tmp_path / "nothing")
    assert state(site) == before


def test_every_byte_counts(site: MadeSite, saved: Path, tmp_path: Path) -> None:
    """Of the header, of each piece and of their tags: one bit, and nothing is touched.

    Byte 27 is the last of when it was made: a second more or less, which nothing but the seal
    notices.
    """
    whole, before = saved.read_bytes(), state(site)
    torn = tmp_path / "torn"
    places = [*range(0, 76, 3), *range(76, len(whole), len(whole) // 20), len(whole) - 1]
    for at in places:
        torn.write_bytes(whole[:at] + bytes((whole[at] ^ 1,)) + whole[at + 1 :])
        with pytest.raises(BackupError):
            restore(site.layout, torn)
    for at in range(0, len(whole), len(whole) // 20):
        torn.write_bytes(whole[:at])
        with pytest.raises(BackupError):
            restore(site.layout, torn)
    assert state(site) == before


@pytest.mark.parametrize(
    ("table", "what"),
    [
        ("clients", r"the secret of client \S+"),
        ("links", "link key 1 of client monitor"),
        ("epochs", r"epoch 1 of label \S+"),
    ],
)
def test_one_bit_of_a_secret_is_another(
    table: str,
    what: str,
    site: MadeSite,
    saved: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """SQLite's own check sees nothing of it: each secret is opened before the old store goes."""
    saved = of_the_keys_alone(site, tmp_path)
    with sqlite3.connect(saved) as db:
        row, blob = db.execute(f"SELECT rowid, secret FROM {table} LIMIT 1").fetchone()  # noqa: S608
        changed = blob[:-20] + bytes((blob[-20] ^ 1,)) + blob[-19:]
        db.execute(f"UPDATE {table} SET secret = ? WHERE rowid = ?", (changed, row))  # noqa: S608
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()
    before = state(site)
    assert main(["restore", str(site.layout.root), str(saved)]) == 1
    told = capsys.readouterr().err
    assert re.search(f"{re.escape(str(saved))} is damaged: {what}.*{table}.secret", told), told
    assert "hint: nothing was changed; restore another backup" in told
    assert state(site) == before


def test_the_way_back_is_told(
    site: MadeSite, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["restore", str(site.layout.root)]
    assert main([*command, str(saved)]) == 0
    lines = capsys.readouterr().out.splitlines()
    undo = next(line for line in lines if line.startswith("to undo: sealmq "))
    assert undo.endswith("state/replaced.backup")
    assert main(undo.split()[3:]) == 0
    # nothing was there before, or nothing that can be read: there is no way back to it
    for content in (None, b"torn"):
        site.layout.kg_db.unlink()
        if content is not None:
            site.layout.kg_db.write_bytes(content)
        capsys.readouterr()
        assert main([*command, str(saved)]) == 0
        assert "to undo" not in capsys.readouterr().out
    assert site.layout.kg_db.with_name("kg.db.replaced").read_bytes() == b"torn"


def test_of_another_site_or_with_another_key(site: MadeSite, saved: Path, tmp_path: Path) -> None:
    other = make_site(tmp_path / "other")
    with pytest.raises(BackupError, match="does not open: it was sealed under another key"):
        restore(other.layout, saved)
    text = site.layout.config.read_text()
    site.edit(f'id = "{site.config.site.id.hex()}"', 'id = "01020304"')
    with pytest.raises(BackupError, match="this one is 01020304"):
        restore(site.layout, saved)
    site.layout.config.write_text(text)
    before = state(site)
    (tmp_path / "key").write_text("another key of this length")
    (tmp_path / "key").chmod(0o600)
    with pytest.raises(BackupError, match="does not open: it was sealed under another key"):
        restore(site.layout, saved, tmp_path / "key")
    site.layout.salt.write_bytes(bytes(16))
    with pytest.raises(BackupError, match="is another one than the backup's"):
        restore(site.layout, saved)
    assert state(site) == before


def test_while_the_site_runs(
    site: MadeSite, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(site) as process:
        with pytest.raises(StoreBusy):
            restore(site.layout, saved)
        assert main(["restore", str(site.layout.root), str(saved)]) == 1
        assert "another process has the key generator's store open" in capsys.readouterr().err
        assert process.popen.poll() is None
        # a backup is no trouble
        assert main(["backup", str(site.layout.root), str(tmp_path / "new")]) == 0
        assert main(["backup", str(site.layout.root), str(tmp_path / "new")]) == 1
        assert "is there already" in capsys.readouterr().err
    assert main(["restore", str(site.layout.root), str(tmp_path / "new"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (said["labels"], said["enrol"], said["out"]) == (10, [], [])


def test_a_clock_that_is_behind(site: MadeSite, saved: Path) -> None:
    before = state(site)
    with pytest.raises(StoreBroken, match=r"clock is \d+ s behind"):
        restore(site.layout, saved, clock=lambda: 1_000_000_000)
    assert state(site) == before


def test_what_sealmq_toml_cannot_have_is_refused(site: MadeSite, saved: Path) -> None:
    site.edit("m1-temp = []", 'm1-temp = { over = [], suite = "chacha" }')
    before = state(site)
    with pytest.raises(Bad, match="its keys were made for suite ccm"):
        restore(site.layout, saved)
    assert state(site) == before


class Killed(BaseException):
    """As by SIGKILL: nothing of ours catches it."""


@pytest.mark.parametrize("at", range(12))
def test_killed_at_any_step_the_old_site_is_there_or_the_new_one_or_it_opens_nothing(
    at: int, site: MadeSite, saved: Path, key: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps are what changes a name: renames, links, files that are taken away."""
    before, count = state(site), 0

    def dying(name: str) -> Any:
        real = getattr(os, name)

        def one(*words: Any, **more: Any) -> Any:
            nonlocal count
            if str(site.layout.root) in "".join(map(str, words)):
                if count == at:
                    raise Killed
                count += 1
            return real(*words, **more)

        return one

    done = False
    with monkeypatch.context() as patch:
        for name in ("replace", "rename", "link"):
            patch.setattr(os, name, dying(name))
        try:
            restore(site.layout, saved)
            done = True
        except Killed:
            pass
    after = state(site)
    store = KgStore.open(site.layout.kg_db, key, site.config.site.id)
    kg, mediator = Kg(store, site.config), Store.open(site.layout.mediator_db)
    old = after["rows"]["kg.db", "epochs"] == before["rows"]["kg.db", "epochs"]
    swapped = after["rows"]["mediator.db", "meta"] != before["rows"]["mediator.db", "meta"]
    closed = bool(kg.meet(mediator.identity))
    mediator.close()
    store.close()
    assert closed == (old and swapped)
    assert not done or (swapped and not old)
    assert restore(site.layout, saved).closed == ""


@pytest.mark.parametrize(
    "room",
    [
        pytest.param(0, marks=pytest.mark.full),
        20_000,
        pytest.param(100_000, marks=pytest.mark.full),
        200_000,
    ],
)
def test_a_disk_that_is_full_changes_nothing(room: int, site: MadeSite, saved: Path) -> None:
    before = state(site)
    command = [sys.executable, "-m", "sealmq.cli", "restore", str(site.layout.root), str(saved)]
    limits = (room, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits),
    )
    if done.returncode == 0:
        assert room == 200_000
        return
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr
    after = state(site)
    assert after["rows"] == before["rows"]
    assert after["toml"] == before["toml"]
    assert restore(site.layout, saved).labels == 10


def tables_of_the_undo(site: MadeSite, folder: Path) -> set[str]:
    """Of the mediator's store in what undoes the last restore."""
    out = {name: folder / f"undo-{name}" for name in ("kg", "mediator", "config")}
    for path in out.values():
        path.unlink(missing_ok=True)
    with (site.layout.state / "replaced.backup").open("rb") as file:
        head = sealed.header(file)
        keys = masterkey.derive(masterkey.read(site.key_file), head.salt)
        sealed.read(file, head, keys.backup, out)
    with sqlite3.connect(out["mediator"]) as db:
        found = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
    db.close()
    return found


def mark(site: MadeSite) -> None:
    """Something in the mediator's store that the backup has not."""
    with sqlite3.connect(site.layout.mediator_db) as db:
        db.execute("CREATE TABLE since_the_backup (x)")
    db.close()


@pytest.mark.parametrize("between", ["nothing", "a start"])
@pytest.mark.parametrize("at", ["mediator", "kg", "rotations"])
def test_a_restore_that_was_cut_off_keeps_what_undoes_it_when_it_is_repeated(
    at: str,
    between: str,
    site: MadeSite,
    saved: Path,
    key: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mark(site)
    real = backup_restore._swap

    def swap(draft: Path, place: Path) -> None:
        if place.stem == at:
            raise Killed
        real(draft, place)

    def dies(*words: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(backup_restore, "_swap", swap)
        patch.setattr(backup_restore, "set_rotations", dies)
        with pytest.raises(Killed):
            restore(site.layout, saved)
    if between == "a start":
        store = KgStore.open(site.layout.kg_db, key, site.config.site.id)
        kg, mediator = Kg(store, site.config), Store.open(site.layout.mediator_db)
        kg.meet(mediator.identity)
        mediator.close()
        store.close()
    again = restore(site.layout, saved)
    assert again.replaced == site.layout.state / "replaced.backup"
    # Keys that have been at work since are what the next restore replaces, as after any restore.
    kept = (at, between) != ("rotations", "a start")
    assert ("since_the_backup" in tables_of_the_undo(site, tmp_path)) == kept
    # and the one after that has what it replaces put aside
    mark(site)
    restore(site.layout, saved)
    assert "since_the_backup" in tables_of_the_undo(site, tmp_path)


def test_a_full_disk_takes_away_no_earlier_undo(
    site: MadeSite, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restore(site.layout, saved)
    undo = site.layout.state / "replaced.backup"
    before, old = state(site), undo.read_bytes()

    def full(*words: object, **more: object) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(make, "_reader", full)
        with pytest.raises(BackupError, match="what would undo the restore cannot be written"):
            restore(site.layout, saved)
    assert undo.read_bytes() == old
    assert state(site) == before


def test_where_nothing_can_be_put_aside_the_earlier_undo_is_kept_and_named(
    site: MadeSite, saved: Path
) -> None:
    restore(site.layout, saved)
    old = (site.layout.state / "replaced.backup").read_bytes()
    site.layout.kg_db.write_bytes(b"torn")
    done = restore(site.layout, saved)
    earlier = site.layout.state / "replaced-earlier.backup"
    assert done.replaced is None
    assert f"what undoes the restore before this one: {earlier}" in done.notes
    assert earlier.read_bytes() == old


def test_two_at_once_are_refused(site: MadeSite, saved: Path) -> None:
    with hold(site.layout.kg_db), pytest.raises(StoreBusy):
        restore(site.layout, saved)


# --- restore: what is there afterwards ------------------------------------------------------------


def test_on_a_machine_that_has_nothing_else(
    site: MadeSite, saved: Path, key: bytes, tmp_path: Path
) -> None:
    """sealmq.toml, the key file and the backup are enough."""
    root = tmp_path / "fresh" / "site"
    root.mkdir(parents=True)
    (root / "sealmq.toml").write_text(site.layout.config.read_text())
    fresh = MadeSite(type(site.layout).of(root), site.key_file)
    done = restore(fresh.layout, saved)
    assert (done.labels, done.drawn, done.out) == (10, {}, [])
    assert fresh.kg_key == key
    for path in (fresh.layout.kg_db, fresh.layout.salt):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    files = {p.name for p in fresh.layout.kg_db.parent.iterdir()}
    assert {f for f in files if not f.startswith("reserve-")} == {"kg.db", "lock", "restored"}
    assert list(fresh.layout.state.glob("backup-*")) == []
    with running(fresh) as process:
        assert process.popen.poll() is None


def test_all_link_roots_end_and_clients_provision_anew(
    site: MadeSite, store: KgStore, kg: Kg, key: bytes, tmp_path: Path
) -> None:
    """The mediator's store goes back, and does not know which proofs it has seen since."""
    device = Device(kg.enrol("monitor"))
    device.accept(kg.answer(device.ask(), 1)[0].packet)
    kg.confirm(device.ident.client, 1)
    pending = Device(kg.enrol("m1-temp-sensor"))
    pending.accept(kg.answer(pending.ask(), 1)[0].packet)
    kg.answer(device.ask(), 1)
    backup(site.layout, site.config.site.id, site.key_file, tmp_path / "b")
    store.close()
    restore(site.layout, tmp_path / "b")
    store = KgStore.open(site.layout.kg_db, key, site.config.site.id)
    kg = Kg(store, site.config)
    clients = {c["name"]: c for c in kg.snapshot()["clients"]}
    assert [c["links"] for c in clients.values()] == [[]] * len(clients)
    assert clients["monitor"]["ended"] > device.ident.gen
    for one in (device, pending):
        before = (one.ident.gen, one.ident.kseq, own(one).epoch)
        one.accept(kg.answer(one.ask(), 1)[0].packet)
        after = (one.ident.gen, one.ident.kseq, own(one).epoch)
        assert all(new > old for new, old in zip(after, before, strict=True))
        assert one.ident.gen > clients[one.ident.name]["ended"]
    # its old epoch is still good for what is retained
    label = next(r for r in kg.snapshot()["labels"] if r["name"] == "monitor")
    assert label["previous"]["epoch"] == 1
    assert label["epoch"] > 4096
    store.close()


def test_sealmq_toml_is_the_truth_about_who_is_in(
    site: MadeSite, saved: Path, key: bytes, tmp_path: Path
) -> None:
    """What happened after the backup: one is disabled, one removed, one rotated, one added."""
    number = site.config.site.id

    def opened() -> tuple[KgStore, Kg]:
        store = KgStore.open(site.layout.kg_db, key, number)
        return store, Kg(store, site.config)

    store, kg = opened()
    names = ("monitor", "m1-arm-operator", "m1-temp-sensor", "m2-temp-sensor")
    old = {name: Device(kg.enrol(name)) for name in names}
    store.close()
    site.edit('monitor = { label = "monitor"', 'monitor = { disabled = true, label = "monitor"')
    site.edit('m1-arm-operator = { label = "m1-arm", kind = "device" }\n', "")
    site.edit("m1-temp-sensor = { label", "m1-temp-sensor = { rotation = 1, label")
    site.edit("[topics]", 'late = { label = "m1-temp" }\n\n[topics]')
    store, kg = opened()
    kg.apply(site.config)
    rotated, late = kg.enrol("m1-temp-sensor")["ps"], kg.enrol("late")
    backup(site.layout, number, site.key_file, tmp_path / "second")
    store.close()
    done = restore(site.layout, saved)
    assert done.drawn == {"m1-temp-sensor": 2, "late": 1}
    assert done.out == ["m1-arm-operator", "monitor"]
    assert site.config.clients["late"].rotation == 1
    store, kg = opened()
    assert not kg.apply(site.config).changed
    for name, status in (("monitor", 1), ("m1-arm-operator", 1), ("m2-temp-sensor", 0)):
        assert kg.answer(old[name].ask(), 1)[0].status == status
    secrets = {old["m1-temp-sensor"].ident.ps.hex(), rotated}
    assert kg.enrol("m1-temp-sensor")["ps"] not in secrets
    assert kg.enrol("late")["ps"] != late["ps"]
    assert kg.enrol("late")["client"] > late["client"] + 1024
    store.close()
    # a backup that knows both with the secrets of before: they are not taken up again
    done = restore(site.layout, tmp_path / "second")
    assert done.drawn == {"m1-temp-sensor": 3, "late": 2}


def rows_of(site: MadeSite, key: bytes) -> dict[str, dict[str, Any]]:
    """Clients, after what a key generator does at its start."""
    store = KgStore.open(site.layout.kg_db, key, site.config.site.id)
    kg = Kg(store, site.config)
    kg.apply(site.config)
    found = {row["name"]: row for row in kg.clients()}
    store.close()
    return found


@pytest.mark.parametrize("keys_only", [False, True])
def test_who_is_held_out_without_sealmq_toml_stays_out(
    keys_only: bool, site: MadeSite, saved: Path, key: bytes
) -> None:
    """`client disable` while the file was wrong; one of them the backup does not know."""
    site.edit("[topics]", 'late = { label = "m1-temp" }\n\n[topics]')
    store = KgStore.open(site.layout.kg_db, key, site.config.site.id)
    kg = Kg(store, site.config)
    kg.apply(site.config)
    for name in ("monitor", "late"):
        kg.hold(name, True)
    store.close()
    done = restore(site.layout, saved, keys_only=keys_only)
    assert done.out == ["monitor"]
    assert done.drawn == {"late": 1}
    notes = [note for note in done.notes if "stays disabled" in note]
    assert sorted(note.split()[1] for note in notes) == ["late", "monitor"]
    rows = rows_of(site, key)
    assert {name for name, row in rows.items() if row["disabled"]} == {"monitor", "late"}


def test_whom_the_backup_holds_out_stays_out_when_the_present_store_does_not(
    site: MadeSite, saved: Path, key: bytes, tmp_path: Path
) -> None:
    store = KgStore.open(site.layout.kg_db, key, site.config.site.id)
    kg = Kg(store, site.config)
    kg.hold("monitor", True)
    backup(site.layout, site.config.site.id, site.key_file, tmp_path / "second")
    kg.hold("monitor", False)
    store.close()
    done = restore(site.layout, tmp_path / "second")
    assert any("monitor stays disabled" in note for note in done.notes)
    assert rows_of(site, key)["monitor"]["disabled"]


@pytest.mark.parametrize("since", ["removed", "rotated", "removed and added"])
def test_what_a_family_kept_of_a_client_that_is_gone_stays_gone(
    since: str, site: MadeSite, saved: Path, key: bytes, tmp_path: Path
) -> None:
    site.edit(ORDER, WITH)
    store = KgStore.open(site.layout.kg_db, key, site.config.site.id)
    kg = Kg(store, site.config)
    kg.apply(site.config)
    kg.keep("blinded", TEXT.encode())
    assert PANEL in kg.kept("blinded").decode()
    backup(site.layout, site.config.site.id, site.key_file, tmp_path / "second")
    line = next(line for line in site.layout.config.read_text().splitlines() if PANEL in line)
    if since == "rotated":
        site.edit(line, line[:-2] + ", rotation = 1 }")
    else:
        site.edit(line + "\n", "")
    kg.apply(site.config)
    if since == "removed and added":
        site.edit("[topics]", line[:-2] + ", rotation = 1 }\n\n[topics]")
        kg.apply(site.config)
    store.close()
    done = restore(site.layout, tmp_path / "second")
    assert "blinded keeps nothing more of clients that are gone" in done.notes
    store = KgStore.open(site.layout.kg_db, key, site.config.site.id)
    kg = Kg(store, site.config)
    assert kg.apply(site.config).notes == []
    assert PANEL not in kg.kept("blinded").decode()
    assert not any(PANEL in row[1] for row in kg.snapshot()["told"])
    store.close()


def test_undone(site: MadeSite, saved: Path, key: bytes) -> None:
    def enrolled() -> dict[str, Any]:
        store = KgStore.open(site.layout.kg_db, key, site.config.site.id)
        kg = Kg(store, site.config)
        kg.apply(site.config)
        found = kg.enrol("late")
        store.close()
        return found

    site.edit("[topics]", 'late = { label = "m1-temp" }\n\n[topics]')
    first = enrolled()
    text = site.layout.config.read_text()
    assert restore(site.layout, saved).drawn == {"late": 1}
    assert enrolled()["ps"] != first["ps"]
    site.layout.config.write_text(text)
    replaced = site.layout.state / "replaced.backup"
    assert restore(site.layout, replaced).drawn == {}
    assert enrolled() == first


# --- where numbers begin --------------------------------------------------------------------------


def issued(at_s: int, n: int) -> Issued:
    return Issued(at_s, inst=n, kseq=at_s, gen=n, epoch=n, label=n, client=n)


@pytest.mark.parametrize("days", [0, 1, 30, 400])
def test_above_all_that_can_have_been_issued(days: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lift, "randbelow", lambda n: 0)
    last = NOW_S // DAY_S * DAY_S + DAY_S - 1  # the last second of a day
    begin = lift.above(None, [issued(last, 100)], last + 1 + (days - 1) * DAY_S if days else last)
    calendar = days + 1
    assert begin.epoch > 100 + 4096 * calendar
    assert begin.inst > 100 + 4096 * calendar
    assert begin.gen > 100 + 2048 * calendar
    assert min(begin.label, begin.client) > 100 + 1024 * calendar
    assert begin.kseq >= last + days * DAY_S


def test_twice_on_one_day_with_nothing_left_of_the_first() -> None:
    source = issued(NOW_S - DAY_S, 100)
    first = lift.above(None, [source], NOW_S)
    second = lift.above(None, [source], NOW_S + 3600)
    assert second.epoch == first.epoch + 60
    assert second.kseq == first.kseq + 3600
    begins = {lift.above(None, [source], NOW_S).inst for _ in range(50)}
    assert len(begins) > 40


def test_above_what_is_there_and_what_the_last_restore_began_with() -> None:
    present = issued(NOW_S, 3_000_000)
    begin = lift.above(present, [issued(NOW_S - DAY_S, 5)], NOW_S)
    assert begin.epoch == 3_000_001
    assert lift.above(issued(NOW_S, 7), [issued(NOW_S, 5)], NOW_S).epoch > 1_000_000
    before = issued(NOW_S - 60, 5_000_000)
    assert lift.above(present, [before], NOW_S).epoch > 5_000_000 + 4096


def test_twice_at_once_with_the_store_past_reading(site: MadeSite, saved: Path, key: bytes) -> None:
    """The second begins above what the first may have issued, bursts of changes included."""
    now = NOW_S * 1000
    first = restore(site.layout, saved, clock=lambda: now)
    store = KgStore.open(site.layout.kg_db, key, site.config.site.id, lambda: now)
    kg = Kg(store, site.config, clock=lambda: now)
    last = kg.rekey(["m1-temp"], 0, False)
    for _ in range(99):
        last = kg.rekey(["m1-temp"], 0, False)
    assert last.kseq == first.kseq + 100
    store.close()
    site.layout.kg_db.write_bytes(b"torn")
    restore(site.layout, saved, clock=lambda: now + 60_000)
    store = KgStore.open(site.layout.kg_db, key, site.config.site.id, lambda: now)
    kg = Kg(store, site.config, clock=lambda: now)
    assert kg.status()["kseq"] > last.kseq
    assert min(row["epoch"] for row in kg.labels()) > last.epochs[0].epoch
    store.close()


def test_when_there_are_no_numbers_left() -> None:
    with pytest.raises(Bad, match="no numbers left"):
        lift.above(issued(NOW_S, 0xFFFFFF), [], NOW_S)
    old = lift.above(None, [issued(NOW_S - 10 * 365 * DAY_S, 1)], NOW_S)
    # however old a backup, it does not use them all up
    assert max(old.inst, old.gen, old.client, old.label) < 1 << 22
    assert old.epoch < 1 << 23


def test_a_file_of_the_last_restore_that_is_not_ours(site: MadeSite, saved: Path) -> None:
    path = site.layout.kg_db.with_name("restored")
    for content in ("", "[]", '{"epoch": 3}', '{"epoch": "x"}', "\0\0"):
        path.write_text(content)
        assert restore(site.layout, saved).labels == 10
    told = lift.from_json(json.loads(path.read_text()))
    assert told is not None


@pytest.mark.parametrize("first", ["reopen", "up"])
def test_a_site_whose_store_is_lost_is_reopened_once_before_or_after_its_next_start(
    first: str, site: MadeSite, store: KgStore, key: bytes, tmp_path: Path
) -> None:
    """What `sealmq restore` says is done first: the next start closed it again."""
    backup(site.layout, site.config.site.id, site.key_file, tmp_path / "saved")
    store.close()
    assert restore(site.layout, tmp_path / "saved").closed == backup_restore.NO_PART
    opened = KgStore.open(site.layout.kg_db, key, site.config.site.id)
    kg, new = Kg(opened, site.config), os.urandom(16)
    steps: list[Callable[[], object]] = [kg.reopen, lambda: kg.meet(new)]
    for step in steps if first == "reopen" else reversed(steps):
        step()
    assert kg.snapshot()["closed"] == ""
    # And that one is known from now on.
    kg.meet(new)
    assert kg.snapshot()["closed"] == ""
    kg.meet(os.urandom(16))
    assert "another one than before" in kg.snapshot()["closed"]
    opened.close()
