"""A site that is backed up, lost and restored: what labels and consent had closed stays closed.

The site runs with a private Mosquitto; everything goes through commands and the network.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from running_site import Site, publish, ran, sealmq, until
from wire import RawClient

OVEN = "plant/oven"
DENIED = 12
KEPT = 0xC0


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """m1-temp-sensor has labelled OVEN, and prohibited `service` there."""
    site = Site(tmp_path, policy="purposes")
    up(site)
    publish_to(site, "m1-temp-sensor", "hot")
    reserve(site, "--aip", "operation", "--pip", "service")
    yield site
    site.down()


def up(site: Site) -> None:
    site.up("--broker", "mosquitto")


def refused(*words: object, code: int = 1) -> str:
    done = sealmq(*words)
    assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stderr


def publish_to(site: Site, client: str, message: str, topic: str = OVEN) -> None:
    publish(site, client, topic, message, "-r", "-q", 1)


def reserve(site: Site, *sets: str) -> None:
    ran("reserve", site.path, "--client", "m1-temp-sensor", "-t", OVEN, *sets)


def reading(site: Site, purpose: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """The monitor reads OVEN once, or has nothing after 3 s (code 27)."""
    words = ("--client", "monitor", "-t", OVEN, "--purpose", purpose, "-C", 1, "-W", 3)
    done = sealmq("sub", site.path, *words)
    assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}"
    return done


def backed_up(site: Site, name: str = "b1") -> Path:
    file = site.path.parent / name
    ran("backup", site.path, file)
    return file


def restored(site: Site, file: Path, *options: object) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(ran("restore", site.path, file, *options, "--json"))
    return said


def what_holds(site: Site) -> None:
    """The label and the owner's word are those of the fixture."""
    assert "prohibited" in reading(site, "service", DENIED).stderr
    told = refused(
        "pub", site.path, "--client", "m2-temp-sensor", "-t", OVEN, "-m", "mine", code=DENIED
    )
    assert "labels.publish.other-label" in told
    publish_to(site, "m1-temp-sensor", "still hot")
    assert reading(site, "operation").stdout == "still hot\n"


def test_a_site_whose_state_is_gone_comes_back_with_its_labels_and_its_owners_word(
    site: Site,
) -> None:
    file = backed_up(site)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert b"plant" not in file.read_bytes()
    site.down()
    shutil.move(site.path / "state", site.path.parent / "state.lost")
    said = restored(site, file)
    assert (said["closed"], said["config"], said["replaced"]) == ("", "site", None)
    up(site)
    what_holds(site)


def test_a_site_whose_folder_is_gone_comes_back_from_backup_and_key_file(site: Site) -> None:
    file = backed_up(site)
    site.down()
    shutil.rmtree(site.path)
    assert "give the site's key file" in refused("restore", site.path, file)
    assert restored(site, file, "--key-file", site.key)["config"] == "backup"
    up(site)
    what_holds(site)


def test_a_connect_that_was_recorded_after_the_backup_is_refused(site: Site) -> None:
    """CONNECT: the store that comes back knows of no newer proof, so its link roots end."""
    enrolment = site.enrol("m1-temp-sensor", "m1-temp")
    raw = RawClient(site.port, enrolment)
    assert raw.connect() == b"\0\0"
    raw.close()
    file = backed_up(site)
    recorded = raw.connect_packet()
    assert raw.enter(recorded) == b"\0\0"
    raw.close()
    site.down()
    restored(site, file)
    up(site)
    assert raw.enter(recorded) == b"\0\5"
    assert RawClient(site.port, enrolment).connect() == b"\0\0"


@pytest.mark.full
def test_a_session_that_the_broker_kept_since_the_backup_is_not_the_clients_any_more(
    site: Site,
) -> None:
    enrolment = site.enrol("monitor", "monitor")
    file = backed_up(site)
    raw = RawClient(site.port, enrolment)
    assert raw.connect(flags=KEPT) == b"\0\0"
    raw.close()
    assert raw.connect(flags=KEPT) == b"\1\0"
    raw.close()
    site.down()
    restored(site, file)
    up(site)
    assert RawClient(site.port, enrolment).connect(flags=KEPT) == b"\0\0"


def test_two_restores_and_an_undo(site: Site) -> None:
    first = backed_up(site)
    reserve(site, "--aip", "service")
    second = backed_up(site, "b2")
    site.down()
    restored(site, second)
    assert restored(site, first)["closed"] == ""
    undo = restored(site, second)["replaced"]
    up(site)
    assert "prohibited" not in reading(site, "service").stderr
    site.down()
    assert restored(site, Path(undo))["closed"] == ""
    up(site)
    what_holds(site)


def test_a_restore_while_the_site_runs_is_refused_and_a_backup_is_none_the_less_made(
    site: Site,
) -> None:
    file = backed_up(site)
    assert "is up already" in refused("restore", site.path, file)
    assert "is there already" in refused("backup", site.path, file)
    what_holds(site)


def test_a_torn_or_changed_backup_changes_nothing(site: Site) -> None:
    file = backed_up(site)
    site.down()
    whole, before = file.read_bytes(), state_of(site)
    step = max(len(whole) // 12, 1)
    wrong = [whole[:cut] for cut in (0, 10, 60, len(whole) // 2, len(whole) - 1)]
    wrong += [
        whole[:i] + bytes((whole[i] ^ 1,)) + whole[i + 1 :] for i in range(0, len(whole), step)
    ]
    wrong += [whole + b"x", whole[:76] + whole[76 + 65552 :]]
    for content in wrong:
        file.write_bytes(content)
        told = refused("restore", site.path, file)
        assert "hint: " in told
        assert state_of(site) == before
    file.write_bytes(whole)
    restored(site, file)


def state_of(site: Site) -> dict[str, bytes]:
    """What lies in state/ and sealmq.toml, but for locks."""
    files = [*(site.path / "state").rglob("*"), site.toml]
    return {str(p): p.read_bytes() for p in files if p.is_file() and p.name != "lock"}


# --- the mediator's part is missing --------------------------------------------------------------


def is_closed(site: Site, why: str) -> None:
    """Nothing is delivered, nothing labelled, nothing reserved; everybody says so."""
    told = refused(
        "pub", site.path, "--client", "m2-temp-sensor", "-t", OVEN, "-m", "mine", code=DENIED
    )
    assert "engine.closed" in told
    told = refused(
        "reserve",
        site.path,
        "--client",
        "m2-temp-sensor",
        "-t",
        OVEN,
        "--aip",
        "service",
        code=DENIED,
    )
    assert "engine.closed" in told
    reading(site, "operation", 27)
    status = site.status()
    [mediator] = [p for p in status["processes"] if p["role"] == "mediator"]
    assert why in mediator["closed"]
    assert "THE SITE IS CLOSED" in sealmq("status", site.path).stdout
    assert "the site is closed" in refused("doctor", site.path, code=2)
    until("the audit record", lambda: site.audit("site-closed", role="mediator"))


def is_opened(site: Site) -> None:
    """An operator fixes the label in sealmq.toml, and reopens."""
    site.edit("[topics]\n", f'[topics]\n"{OVEN}" = "m1-temp"\n')
    assert "is open again" in ran("reopen", site.path)

    def open_again() -> bool:
        return not any(p["closed"] for p in site.status()["processes"])

    until("the mediator to hear of it", open_again)
    publish_to(site, "m1-temp-sensor", "again")
    told = refused(
        "pub", site.path, "--client", "m2-temp-sensor", "-t", OVEN, "-m", "mine", code=DENIED
    )
    assert "labels.publish.other-label" in told


def test_a_mediators_store_that_was_deleted_closes_the_site_until_an_operator_opens_it(
    site: Site,
) -> None:
    site.down()
    shutil.rmtree(site.path / "state" / "mediator")
    up(site)
    is_closed(site, "another one than before")
    site.down()
    up(site)
    is_closed(site, "another one than before")
    is_opened(site)
    site.down()
    up(site)
    publish_to(site, "m1-temp-sensor", "still open")
    assert "was not closed" in ran("reopen", site.path)


def test_keys_alone_leave_the_site_closed_unless_the_mediators_own_store_is_there(
    site: Site,
) -> None:
    file = backed_up(site)
    site.down()
    assert restored(site, file, "--keys-only")["closed"] == ""
    up(site)
    what_holds(site)
    site.down()
    shutil.rmtree(site.path / "state" / "mediator")
    said = restored(site, file, "--keys-only")
    assert "mediator's store" in said["closed"]
    up(site)
    is_closed(site, "mediator's store")
    is_opened(site)


def test_a_backup_of_the_keys_alone_of_an_older_sealmq_leaves_the_site_closed(
    site: Site,
) -> None:
    old = of_an_older_sealmq(site)
    site.down()
    shutil.rmtree(site.path / "state" / "mediator")
    assert "labels and reservations are lost" in restored(site, old)["closed"]
    up(site)
    is_closed(site, "labels and reservations are lost")
    is_opened(site)


def of_an_older_sealmq(site: Site) -> Path:
    """As `sealmq kg backup` wrote it: kg.db, with two notes in its table `meta`."""
    path = site.path.parent / "old"
    with sqlite3.connect(site.path / "state/kg/kg.db") as db, sqlite3.connect(path) as copy:
        db.backup(copy)
        copy.execute("PRAGMA journal_mode=DELETE")
        salt = (site.path / "state/salt").read_bytes()
        made = int(os.stat(path).st_mtime).to_bytes(8, "big")
        rows = [("backup-made", made), ("backup-salt", salt)]
        copy.executemany("INSERT INTO meta VALUES (?, ?)", rows)
        copy.execute("DELETE FROM meta WHERE name = 'mediator-store'")
    return path
