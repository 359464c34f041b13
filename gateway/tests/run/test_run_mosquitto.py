"""`sealmq up --broker mosquitto`: a private Mosquitto, supervised like the other processes."""

from __future__ import annotations

import asyncio
import contextlib
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
from sealmq.site.model import Limits

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
    return Target.at_socket(Path(broker["unix"]), broker["user"], broker["password"])


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


def test_it_opens_no_port_and_its_socket_is_for_no_other_user(running: Site) -> None:
    pid = running.row("broker")["pid"]
    ours = {os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()}
    tables = {name: Path(f"/proc/{pid}/net/{name}").read_text() for name in ("tcp", "udp", "unix")}
    for name in ("tcp6", "udp6"):
        with contextlib.suppress(FileNotFoundError):
            tables[name] = Path(f"/proc/{pid}/net/{name}").read_text()
    unix = tables.pop("unix")
    for name, table in tables.items():
        for row in map(str.split, table.splitlines()[1:]):
            assert f"socket:[{row[9]}]" not in ours, f"a {name} socket of its own: {row}"
    # Its own fds are enough to find it: the table names what the socket was bound to.
    bound = [row.split() for row in unix.splitlines()[1:] if row.endswith("mosquitto.sock")]
    assert any(f"socket:[{row[6]}]" in ours for row in bound)
    path = running.root / "run/mosquitto/mosquitto.sock"
    assert (running.row("broker")["address"], target(running).unix) == (str(path), path)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) & 0o007 == 0


def test_it_warns_of_nothing_when_a_mediator_connects(running: Site) -> None:
    assert asyncio.run(connack(target(running))) == 0
    assert "Warning" not in running.ups[0].err.read_text()


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
    assert good.unix is not None
    assert asyncio.run(connack(Target.at_socket(good.unix, *tried))) == 5
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


def test_a_socket_that_a_kill_left_does_not_stop_the_next_start(folder: Path) -> None:
    """Neither of Mosquitto alone, nor of the whole site."""
    site = Site.make(folder, TOML)
    try:
        up = site.up().ready()
        good = target(site)
        assert good.unix is not None
        before = site.row("broker")["pid"]
        os.kill(before, signal.SIGKILL)
        until(lambda: "broker is ready again" in up.err.read_text(), "the restart")
        after = site.row("broker")
        assert after["ready"]
        assert after["pid"] != before
        assert asyncio.run(connack(good)) == 0
        up.end(signal.SIGKILL)
        until(lambda: gone(after["pid"]), "Mosquitto to end with its supervisor")
        good.unix.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(good.unix))
        again = site.up().ready()
        last = site.row("broker")["pid"]
        assert asyncio.run(connack(target(site))) == 0
        assert again.end() == 0
        assert gone(last)
        assert site.left() == []
        assert (site.root / "state/broker/mosquitto.db").exists()
    finally:
        end(site)


def test_a_site_whose_path_no_socket_takes_is_served(folder: Path) -> None:
    """unix(7) takes 107 bytes; the path has spaces, too."""
    deep = folder / ("a long name " * 9)
    deep.mkdir()
    site = Site.make(deep, TOML)
    try:
        site.up().ready()
        assert len(str(target(site).unix)) > 107
        assert asyncio.run(connack(target(site))) == 0
        assert site.row("broker")["ready"]
    finally:
        end(site)


def test_more_mediators_at_once_than_its_queue_holds_all_get_in(running: Site) -> None:
    """Its queue has ten places."""

    async def all_at_once() -> list[int]:
        return await asyncio.gather(*(connack(target(running), 30.0) for _ in range(200)))

    assert asyncio.run(all_at_once()) == [0] * 200


def test_who_may_not_ask_it_is_told_so(running: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    row = running.row("broker")
    assert row["ready"]
    assert row["note"].endswith("as it says: only root and the mediator may ask it")


def test_a_port_for_it_is_refused(site: Site) -> None:
    up = site.up("--broker", "mosquitto", "--broker-port", "1884")
    assert up.process.wait(60) == 1
    error, hint = up.err.read_text().splitlines()
    assert "--broker-port with a private Mosquitto, which listens on a Unix socket" in error
    assert "leave it out" in hint


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
        ("echo 'mosquitto version 2.1.0'", "is version 2.1.0, which disconnects who", "newer"),
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


def test_the_log_of_a_newer_one_as_well() -> None:
    """2.1.2's words."""
    hush = mosquitto.Hush(lambda: 0.0)
    assert hush("New connection from mosquitto.sock:0 on port 0.")
    assert hush("Client sealmq/01020304/x [mosquitto.sock:0] disconnected.")
    assert hush("Client sealmq/x [127.0.0.1:4711] disconnected: connection closed by client.")
    assert not hush("Client sealmq/x [127.0.0.1:4711] disconnected: protocol error.")
    assert not hush("Client <unknown> [127.0.0.1:4711] disconnected: not authorised.")
    assert hush("Client <unknown> [127.0.0.1:4712] disconnected: not authorised.")


def test_what_is_configured_has_no_line_for_each_message(folder: Path) -> None:
    """Since 2.1.1 it warns of each message of QoS 1 and 2 where their number has no limit."""
    lines = mosquitto.config(folder, 1883, Limits(), root=False).splitlines()
    assert "max_inflight_messages 0" in lines
    assert "log_type warning" not in lines
    assert "allow_duplicate_messages false" in lines
