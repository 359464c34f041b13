"""`sealmq up --broker mosquitto`: a private Mosquitto, supervised like the other processes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from run.conftest import end
from run.sites import Site, gone, sealmq, until
from sealmq.broker import mosquitto
from sealmq.broker.errors import BrokerError
from sealmq.broker.external import connack
from sealmq.broker.target import Target

TOML = '[broker]\nkind = "mosquitto"\n'


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site with a private Mosquitto, for tests that only look."""
    made = Site.make(tmp_path_factory.mktemp("m"), TOML)
    made.up().ready()
    yield made
    end(made)


def target(site: Site) -> Target:
    broker = site.told("mediator")[-1]["secrets"]["broker"]
    return Target(broker["host"], broker["port"], broker["user"], broker["password"])


def test_it_runs_and_says_which_it_is(running: Site) -> None:
    row = running.row("broker")
    version = mosquitto.find().version
    assert (row["ready"], row["kind"], row["version"]) == (True, "mosquitto", version)
    assert row["note"] == f"private Mosquitto {version}"
    assert f"(private Mosquitto {version}, for the mediator only)" in running.ups[0].out.read_text()
    assert Path(f"/proc/{row['pid']}/comm").read_text() == "mosquitto\n"
    broker = running.told("mediator")[-1]["secrets"]["broker"]
    assert (broker["keeps_sessions"], broker["shared"]) == (True, True)
    assert broker["saved"] == str(running.root / "state/broker/mosquitto.db")


def test_it_listens_on_the_loopback_only(running: Site) -> None:
    pid = running.row("broker")["pid"]
    ours = {os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()}
    listening = [
        row[1]
        for proto in ("tcp", "tcp6")
        for row in map(str.split, Path(f"/proc/{pid}/net/{proto}").read_text().splitlines()[1:])
        if row[3] == "0A" and f"socket:[{row[9]}]" in ours
    ]
    assert listening == [f"0100007F:{target(running).port:04X}"]


@pytest.mark.parametrize("who", ["nobody", "another password", "another user", "no password"])
def test_only_the_mediator_gets_in(running: Site, who: str) -> None:
    good = target(running)
    user, password = good.user, good.password
    tried = {
        "nobody": (None, None),
        "another password": (user, "another password"),
        "another user": ("somebody", password),
        "no password": (user, None),
    }[who]
    assert asyncio.run(connack(Target(good.host, good.port, *tried))) == 5
    assert asyncio.run(connack(good)) == 0


def test_no_file_holds_the_password_and_none_is_for_others(running: Site) -> None:
    folder = running.root / "state" / "broker"
    password = target(running).password
    assert password is not None
    written = [path for path in folder.iterdir() if path.is_file()]
    assert {"mosquitto.conf", "passwords", "acl"} <= {path.name for path in written}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in written:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert password.encode() not in path.read_bytes()
    pid = running.row("broker")["pid"]
    for what in ("cmdline", "environ"):
        assert password.encode() not in Path(f"/proc/{pid}/{what}").read_bytes()


def test_its_port_cannot_be_taken_while_it_is_away(folder: Path) -> None:
    """A thief would be sent the mediator's password."""
    site = Site.make(folder, TOML)
    try:
        up = site.up().ready()
        good = target(site)
        before = site.row("broker")["pid"]
        os.kill(before, signal.SIGKILL)
        until(lambda: "broker was ended by SIGKILL" in up.err.read_text(), "the loss to be noticed")
        with socket.socket() as thief:
            thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with pytest.raises(OSError, match="in use"):
                thief.bind((good.host, good.port))
        until(lambda: "broker is ready again" in up.err.read_text(), "the restart")
        after = site.row("broker")
        assert after["ready"]
        assert after["pid"] != before
        assert asyncio.run(connack(good)) == 0
        assert up.end() == 0
        assert gone(after["pid"])
        assert site.left() == []
        assert (site.root / "state/broker/mosquitto.db").exists()
    finally:
        end(site)


def test_a_port_that_is_taken_is_one_clear_line(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        up = site.up("--broker", "mosquitto", "--broker-port", str(port))
        assert up.process.wait(60) == 1
    error, hint = up.err.read_text().splitlines()
    assert error == (
        f"sealmq: the site's broker cannot have 127.0.0.1:{port}: Address already in use"
    )
    assert "--broker-port" in hint


def _program(folder: Path, says: str) -> dict[str, str]:
    path = folder / "bin" / "mosquitto"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{says}\n")
    path.chmod(0o755)
    return {"PATH": f"{path.parent}:/usr/bin:/bin"}


@pytest.mark.parametrize(
    ("says", "error", "hint"),
    [
        ("echo 'mosquitto version 1.6.9'", "is version 1.6.9; 2.0 is the oldest", "newer"),
        ("echo something", "does not say its version, but 'something'", "apt-get install"),
    ],
)
def test_another_program_is_one_clear_line(
    site: Site, folder: Path, says: str, error: str, hint: str
) -> None:
    up = site.up("--broker", "mosquitto", env=_program(folder, says))
    assert up.process.wait(60) == 1
    told, advice = up.err.read_text().splitlines()
    assert error in told
    assert hint in advice


def test_one_that_ends_at_once_says_its_last_words(site: Site, folder: Path) -> None:
    says = (
        """case "$1" in -h) echo 'mosquitto version 2.0.18';; """
        """*) echo Error: broken >&2; exit 3;; esac"""
    )
    up = site.up("--broker", "mosquitto", env=_program(folder, says))
    assert up.process.wait(60) == 1
    assert (
        "sealmq: broker ended with exit code 3 before it was ready; its last words: Error: broken"
        in up.err.read_text().splitlines()
    )
    assert site.left() == []


def test_a_torn_database_is_one_clear_line_with_what_to_do(site: Site) -> None:
    saved = site.root / "state/broker/mosquitto.db"
    saved.parent.mkdir()
    saved.write_bytes(b"torn")
    up = site.up("--broker", "mosquitto")
    assert up.process.wait(60) == 1
    *_, error, hint = up.err.read_text().splitlines()
    assert error.startswith("sealmq: broker ended with exit code 1 before it was ready; ")
    assert hint.startswith(f"hint: move {saved} away")


def test_where_none_is_installed_it_says_how(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(mosquitto, "_PLACES", str(folder))
    with pytest.raises(BrokerError, match="not installed") as caught:
        mosquitto.find()
    assert "apt-get install mosquitto" in (caught.value.hint or "")


def test_init_writes_it_down(folder: Path) -> None:
    root = folder / "new"
    words = ("--broker", "mosquitto", "--key-file", str(folder / "new.key"))
    assert sealmq("init", str(root), *words).returncode == 0
    assert re.search(r'^kind = "mosquitto"$', (root / "sealmq.toml").read_text(), re.MULTILINE)


def test_its_log_is_passed_on_where_it_says_something() -> None:
    now = 0.0
    hush = mosquitto.Hush(lambda: now)
    assert hush("New connection from 127.0.0.1:40372 on port 1883.")
    assert hush("Client sealmq/01020304/x disconnected.")
    assert not hush("Error: Unable to open log file")
    assert not hush("Client sealmq/x disconnected due to protocol error.")
    assert not hush("Client <unknown> disconnected, not authorised.")
    assert hush("Client <unknown> disconnected, not authorised.")
    now = 601.0
    assert not hush("Client <unknown> disconnected, not authorised.")
