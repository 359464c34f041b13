"""An older site goes on under this SealMQ, an upgrade that is cut off leaves the old or the new,
and an older SealMQ refuses what a newer one has written.

No version was ever released: what is upgraded was made by the oldest code that the history has
(make_old_site.sh), and lies here as that code left it when it was killed.
"""

from __future__ import annotations

import asyncio
import functools
import json
import shutil
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from free_ports import free_port
from sealmq.agent import run as agent_run
from sealmq.agent import spool as agents
from sealmq.agent.config import BadConfig
from sealmq.agent.spool import Kept
from sealmq.agent.spool import Spool as AgentSpool
from sealmq.border import spool as borders
from sealmq.border.spool import Message as Passed
from sealmq.border.spool import Spool as BorderSpool
from sealmq.bridge import spool as bridges
from sealmq.bridge.spool import Message as Crossed
from sealmq.bridge.spool import Spool as BridgeSpool
from sealmq.client.errors import StateError
from sealmq.client.state import StateFile
from sealmq.formats import NewerFormat
from sealmq.kg import schema
from sealmq.kg.core import Kg
from sealmq.kg.errors import StoreBroken
from sealmq.kg.store import KgStore
from sealmq.mediator.journal_file import read
from sealmq.site import masterkey
from sealmq.site.config import Config, load
from sealmq.site.layout import Layout
from sealmq.store import Store, StoreCorrupt
from sealmq.store.tables import IDENTITY
from sealmq_spec.identity import Identity

HERE = Path(__file__).parent
AT = "127.0.0.1:21883"
NEWER = "format {}; this SealMQ .* knows up to"


@pytest.fixture(scope="module", autouse=True)
def _scrypt_once() -> Iterator[None]:
    """scrypt is to cost a fifth of a second; for the same key and salt, here it does so once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masterkey, "derive", functools.cache(masterkey.derive))
        yield


def unpacked(name: str, folder: Path, at: str = AT) -> Layout:
    """The site of that archive, whose paths and address are this test's."""
    with tarfile.open(HERE / f"{name}.tar.xz") as archive:
        # Python 3.11 before 3.11.4, as Debian 12 has it, knows no filter.
        if hasattr(tarfile, "data_filter"):
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder)  # noqa: S202 - it is ours
    root = folder / "site"
    root.chmod(0o755)
    lines = (root / "sealmq.toml").read_text().replace(AT, at).splitlines()
    lines = [
        f'key_file = "{folder / "site.key"}"' if line.startswith("key_file") else line
        for line in lines
    ]
    (root / "sealmq.toml").write_text("\n".join(lines) + "\n")
    enrolment = folder / "thermometer.json"
    enrolment.write_text(enrolment.read_text().replace(AT.split(":")[1], at.split(":")[1]))
    return Layout.open(root)


def dump(path: Path) -> list[str]:
    """All that a database says, in a copy: who looks may change its WAL. The identity of a store is
    drawn when it is first opened."""
    with sqlite3.connect(path) as db:
        lines = [line for line in db.iterdump() if f"VALUES('{IDENTITY}'," not in line]
    db.close()
    return lines


def copied(path: Path, folder: Path) -> Path:
    """A database with its WAL, as a kill leaves both on the disk."""
    folder.mkdir()
    for part in path.parent.glob(f"{path.name}*"):
        if not part.name.endswith("-shm"):
            shutil.copy(part, folder)
    return folder / path.name


@contextmanager
def cut_off(path: Path, folder: Path) -> Iterator[list[Path]]:
    """Copies of the database, one from before each statement that anybody has it carry out."""
    moments: list[Path] = []

    def before(*_: Any) -> None:
        moments.append(copied(path, folder / f"moment-{len(moments)}"))

    event.listen(Engine, "before_cursor_execute", before)
    try:
        yield moments
    finally:
        event.remove(Engine, "before_cursor_execute", before)
    before()


def opened(layout: Layout, path: Path | None = None) -> tuple[KgStore, Config]:
    config = load(layout.config)
    key = masterkey.role_keys(layout, config).kg
    return KgStore.open(path or layout.kg_db, key, config.site.id), config


# --- from the oldest to this one ---


@pytest.mark.parametrize(("name", "version"), [("first", 1), ("consent", 2)])
def test_labels_clients_and_keys_of_an_old_site_are_kept(
    tmp_path: Path, name: str, version: int
) -> None:
    layout = unpacked(name, tmp_path)
    before = copied(layout.kg_db, tmp_path / "before")
    with sqlite3.connect(before) as db:
        [(told,)] = db.execute("SELECT value FROM meta WHERE name = 'version'")
        assert told == bytes((version,))
        labels = db.execute("SELECT number, name FROM labels ORDER BY number").fetchall()
        epochs = db.execute("SELECT label, epoch, secret FROM epochs ORDER BY 1, 2").fetchall()
        clients = db.execute("SELECT number, name, gen, secret FROM clients ORDER BY 1").fetchall()
        links = db.execute("SELECT client, gen, secret FROM links ORDER BY 1, 2").fetchall()
    db.close()
    assert len(epochs) > len(labels) - 3
    assert links

    store, config = opened(layout)
    kg = Kg(store, config)
    assert not kg.apply(config).changed, "sealmq.toml says what it said"
    store.close()
    with sqlite3.connect(layout.kg_db) as db:
        assert db.execute("SELECT value FROM meta WHERE name = 'version'").fetchone() == (
            bytes((schema.VERSION,)),
        )
        for table, columns, rows in (
            ("labels", "number, name", labels),
            ("epochs", "label, epoch, secret", epochs),
            ("clients", "number, name, gen, secret", clients),
            ("links", "client, gen, secret", links),
        ):
            found = db.execute(f"SELECT {columns} FROM {table} ORDER BY 1, 2")  # noqa: S608
            assert found.fetchall() == rows, table
    db.close()


def test_learned_topics_consent_and_sessions_of_an_old_site_are_kept(tmp_path: Path) -> None:
    layout = unpacked("consent", tmp_path)
    store = Store.open(layout.state_of("mediator") / "mediator.db")
    assert [(t.topic, t.label, t.client) for t in store.topics()] == [
        ("machine/1/oven", "m1-temp", "thermometer"),
    ]
    consent = {row.key: json.loads(row.value or b"{}") for row in store.rows("purposes")}
    assert len(consent) == 3
    said = json.dumps(consent)
    assert '"analytics"' in said
    assert '"maintenance"' in said
    assert {mark.client for mark in store.sessions().values()} >= {1, 8, 10}
    assert [(kept.client, kept.client_id) for kept in store.kept()] == [(8, "night-shift")]
    assert [sub.filter for sub in store.kept_subs()]
    store.close()


def test_an_old_journal_is_read_to_its_end(tmp_path: Path) -> None:
    layout = unpacked("consent", tmp_path)
    segments = sorted((layout.state_of("mediator") / "journal").glob("*.seg"))
    found = [entry for path in segments for entry in read(path)]
    assert [(e.topic, e.retain) for e in found][-2:] == [
        (b"machine/1/temperature", True),
        (b"machine/1/oven", True),
    ]
    assert sum(path.stat().st_size for path in segments) == sum(
        8 + 11 + (8 if e.gen is not None else 0) + len(e.topic) + len(e.payload) for e in found
    )


def test_an_old_client_goes_on_from_its_state(tmp_path: Path) -> None:
    unpacked("first", tmp_path)
    enrolment = json.loads((tmp_path / "thermometer.json").read_text())
    identity = Identity.from_enrolment(enrolment)
    state = StateFile(tmp_path / "thermometer.json.state")
    boot, _ = state.open(identity)
    state.close()
    assert boot > 0, "else its next messages would bear numbers that it has used"


# --- cut off ---


@pytest.mark.parametrize("name", ["first", "consent"])
def test_a_key_generator_s_upgrade_that_is_cut_off_leaves_the_old_or_the_new(
    tmp_path: Path, name: str
) -> None:
    layout = unpacked(name, tmp_path)
    old = dump(copied(layout.kg_db, tmp_path / "old"))
    with cut_off(layout.kg_db, tmp_path) as moments:
        opened(layout)[0].close()
    new = dump(copied(layout.kg_db, tmp_path / "new"))
    assert len(moments) > 5
    found = []
    for moment in moments:
        found.append(dump(copied(moment, moment.parent / "seen")))
        assert found[-1] in (old, new), moment.parent.name
        opened(layout, moment)[0].close()
        assert dump(moment) == new
    assert (found[0], found[-1]) == (old, new)


@pytest.mark.parametrize("name", ["first", "consent"])
def test_a_mediator_s_upgrade_that_is_cut_off_leaves_the_old_or_the_new(
    tmp_path: Path, name: str
) -> None:
    path = unpacked(name, tmp_path).state_of("mediator") / "mediator.db"
    old = dump(copied(path, tmp_path / "old"))
    with cut_off(path, tmp_path) as moments:
        Store.open(path).close()
    new = dump(copied(path, tmp_path / "new"))
    assert old != new
    assert len(moments) > 5
    for moment in moments:
        assert dump(copied(moment, moment.parent / "seen")) in (old, new), moment.parent.name
        Store.open(moment).close()
        assert dump(moment) == new


# --- the small databases, which begin at format 1; what was there before they said so is as 1 ---


def nobody(*gone: object) -> None:
    raise AssertionError(gone)


def agent_waits(path: Path) -> int:
    async def look() -> int:
        spool = AgentSpool(path, ["panel"])
        try:
            return len(await spool.oldest("panel", 9))
        finally:
            spool.close()

    return asyncio.run(look())


def fill_agent(path: Path) -> None:
    async def put() -> None:
        spool = AgentSpool(path, ["panel"])
        await spool.put("panel", Kept(1, "p 1", "a/b", b"21.5", 1, False, {}, 0, None), False)
        spool.close()

    asyncio.run(put())


def border_waits(path: Path) -> int:
    spool = BorderSpool(path, nobody)
    try:
        return spool.count
    finally:
        spool.close()


def fill_border(path: Path) -> None:
    spool = BorderSpool(path, nobody)
    spool.put(Passed("a/b", False, "panel", bytes(32), b"m1"), b"origin", 1)
    spool.close()


def bridge_waits(path: Path) -> int:
    spool = BridgeSpool(path, nobody)
    try:
        return spool.count("b2")
    finally:
        spool.close()


def fill_bridge(path: Path) -> None:
    spool = BridgeSpool(path, nobody)
    spool.put(Crossed(bytes(4), 1, "heat", 0, bytes(8), "a/b", 2, b"m1"), ("b2",))
    spool.close()


SMALL = [
    pytest.param(fill_agent, agent_waits, agents, id="agent"),
    pytest.param(fill_border, border_waits, borders, id="border"),
    pytest.param(fill_bridge, bridge_waits, bridges, id="bridge"),
]
Fill = Callable[[Path], None]
Waits = Callable[[Path], int]


def say_format(path: Path, number: int) -> None:
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {number}")
    db.close()


@pytest.mark.parametrize(("fill", "waits", "spool"), SMALL)
def test_a_newer_spool_is_refused_and_left_as_it_is(
    tmp_path: Path, fill: Fill, waits: Waits, spool: Any
) -> None:
    path = tmp_path / "s.db"
    fill(path)
    say_format(path, spool.FORMAT + 1)
    before = dump(path)
    with pytest.raises(NewerFormat, match=NEWER.format(spool.FORMAT + 1)) as caught:
        waits(path)
    assert caught.value.hint
    assert "nothing was changed" in caught.value.hint
    assert dump(path) == before
    say_format(path, spool.FORMAT)
    assert waits(path) == 1


@pytest.mark.parametrize(("fill", "waits", "spool"), SMALL)
def test_a_spool_s_upgrade_that_is_cut_off_loses_nothing(
    tmp_path: Path, fill: Fill, waits: Waits, spool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From before it said its format; a bridge's had a table that is gone."""
    path, moments = tmp_path / "s.db", list[Path]()
    fill(path)
    say_format(path, 0)
    if fill is fill_bridge:
        with sqlite3.connect(path) as db:
            db.execute("DROP TABLE seen")
            db.execute("CREATE TABLE came (id BLOB)")
        db.close()
    connect = sqlite3.connect

    def traced(*words: Any, **named: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = connect(*words, **named)
        db.set_trace_callback(
            lambda _: moments.append(copied(path, tmp_path / f"moment-{len(moments)}"))
        )
        return db

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", traced)
        waits(path)
    new = dump(path)
    assert len(moments) > 5
    for moment in moments:
        assert waits(moment) == 1
        assert dump(moment) == new


def test_an_agent_says_that_its_spool_is_newer(tmp_path: Path) -> None:
    path = tmp_path / "unsent.db"
    fill_agent(path)
    say_format(path, 2)
    with pytest.raises(BadConfig, match=NEWER.format(2)) as caught:
        agent_run._spool(path, ["panel"])
    assert "nothing was changed" in str(caught.value.hint)


# --- refused: the large ones ---


def test_a_newer_key_generator_s_store_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    layout = unpacked("first", tmp_path)
    opened(layout)[0].close()
    with sqlite3.connect(layout.kg_db) as db:
        row = bytes((schema.VERSION + 1,))
        db.execute("UPDATE meta SET value = ? WHERE name = 'version'", (row,))
    db.close()
    before = dump(layout.kg_db)
    ways: list[Callable[[], KgStore]] = [
        lambda: opened(layout)[0],
        lambda: KgStore.open_readonly(layout.kg_db),
    ]
    for way in ways:
        with pytest.raises(StoreBroken, match=NEWER.format(schema.VERSION + 1)) as caught:
            way()
        assert "nothing was changed" in str(caught.value.hint)
    assert dump(layout.kg_db) == before


def test_a_newer_mediator_s_store_is_refused_before_its_journal_is_read(tmp_path: Path) -> None:
    """One number for both: a start opens the store first."""
    layout = unpacked("consent", tmp_path)
    state = layout.state_of("mediator")
    Store.open(state / "mediator.db").close()
    with sqlite3.connect(state / "mediator.db") as db:
        db.execute("UPDATE meta SET value = '2' WHERE key = 'format'")
    db.close()
    before = dump(state / "mediator.db")
    for way in (Store.open, Store.open_readonly):
        with pytest.raises(StoreCorrupt, match=NEWER.format(2)) as caught:
            way(state / "mediator.db")
        assert "nothing was changed" in str(caught.value.hint)
    assert dump(state / "mediator.db") == before


def test_a_newer_client_s_state_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    unpacked("first", tmp_path)
    path = tmp_path / "thermometer.json.state"
    text = path.read_text().replace('"sealmq_state": 1', '"sealmq_state": 2')
    path.write_text(text)
    identity = Identity.from_enrolment(json.loads((tmp_path / "thermometer.json").read_text()))
    state = StateFile(path)
    with pytest.raises(StateError, match=NEWER.format(2)):
        state.open(identity)
    state.close()
    assert path.read_text() == text


# --- the whole site ---


@pytest.mark.full
def test_an_old_site_is_served_as_before(tmp_path: Path) -> None:
    """What its own code had accepted, and what it had promised, by commands alone."""
    site = unpacked("consent", tmp_path, f"127.0.0.1:{free_port()}")

    def sealmq(*words: str, code: int = 0) -> str:
        done = subprocess.run(
            [str(Path(sys.executable).with_name("sealmq")), *words],
            cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stderr

    sealmq("up", "site", "--detach")
    try:
        topics = [line.split() for line in sealmq("topic", "list", "site").splitlines()]
        labels = {row[0]: row[1:3] for row in topics}
        assert labels["machine/1/oven"] == ["m1-temp", "thermometer"]
        clients = sealmq("client", "list", "site")
        assert [line.split()[4] for line in clients.splitlines() if "m2-arm-operator" in line] == [
            "disabled"
        ]
        shown = sealmq("purposes", "show", "site")
        for line in (
            "machine/1/temperature analytics m1-temp-sensor",
            "machine/2/temperature (nothing) officer",
            "monitor machine/1/oven maintenance officer",
        ):
            assert any(set(line.split()) <= set(one.split()) for one in shown.splitlines()), line
        reader = ("--client", "monitor", "--purpose", "service", "-W", "60")
        night = ("-t", "machine/1/#", "-q", "1", "-c", "-i", "night-shift", "-C", "3")
        came = sealmq("sub", "site", *reader, *night).split()
        assert "21" in came, "what waited for a session that was away"
        # What the journal alone had, when the old processes were killed.
        for topic, value in (("temperature", "21.5"), ("oven", "200")):
            one = ("-t", f"machine/1/{topic}", "-C", "1")
            assert sealmq("sub", "site", *reader, *one) == f"{value}\n"
        # An old client, with what it kept, publishes on.
        old = ("--enrolment", "thermometer.json", "-t", "machine/1/oven")
        sealmq("pub", *old, "-m", "201", "-q", "1", "-r")
        assert sealmq("sub", "site", *reader, "-t", "machine/1/oven", "-C", "1") == "201\n"
    finally:
        sealmq("down", "site")
    # What a newer SealMQ would leave: the start says so, and what waits in the journal is left.
    state = site.state_of("mediator")
    with sqlite3.connect(state / "mediator.db") as db:
        db.execute("UPDATE meta SET value = '2' WHERE key = 'format'")
    db.close()
    (state / "journal").mkdir(exist_ok=True)
    waits = state / "journal" / "00000099.seg"
    waits.write_bytes(b"of a newer SealMQ")
    said = sealmq("up", "site", "--detach", code=1)
    assert "has the format 2; this SealMQ" in said
    assert "a newer one is needed" in said
    assert waits.read_bytes() == b"of a newer SealMQ"
