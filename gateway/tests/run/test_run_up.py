"""`sealmq up` with fake processes: it comes up, hands over secrets, goes, is one a site."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from run.sites import _PATH, FAKES, Site, Up, gone, sealmq, until
from sealmq.run import background
from sealmq.run.errors import RunError
from sealmq.site.layout import Layout

ROLES = ("kg", "broker", "mediator")


def test_it_comes_up_tells_so_and_stops_without_a_trace(site: Site) -> None:
    up = site.up().ready()
    summary = up.out.read_text()
    status = site.status()
    assert status["code"] == 0
    assert status["site"] == "site"
    assert status["enforce"] is True
    assert {row["role"]: row["ready"] for row in status["processes"]} == dict.fromkeys(ROLES, True)
    for row in status["processes"]:
        assert row["address"] in summary or row["role"] == "kg"
        assert row["user"]
    pids = [row["pid"] for row in status["processes"]]
    assert len(set(pids)) == 3
    assert not any(gone(pid) for pid in pids)
    human = sealmq("status", str(site.root))
    assert human.returncode == 0
    assert "mediator" in human.stdout
    assert up.end() == 0
    assert all(gone(pid) for pid in pids)
    assert site.left() == []
    status = site.status()
    assert status["code"] == 1
    assert [row["ready"] for row in status["processes"]] == [False] * 3
    assert "Traceback" not in up.err.read_text()


def test_in_the_foreground_json_is_one_object_once_it_serves(site: Site) -> None:
    up = site.up("--json")
    until(lambda: up.out.read_text().endswith("\n"), "an answer")
    told = json.loads(up.out.read_text())
    assert {row["role"]: row["ready"] for row in told["processes"]} == dict.fromkeys(ROLES, True)
    assert up.end() == 0
    assert len(up.out.read_text().splitlines()) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_it_starts_stops_it_cleanly(site: Site, number: int) -> None:
    site.plan("mediator", "hang")
    up = site.up()
    until(lambda: "waiting for something" in up.err.read_text(), "the mediator to hang")
    assert up.end(number) == 0
    assert "stops it." not in up.out.read_text()
    assert site.left() == []


def test_secrets_come_through_the_pipe_only_each_to_whom_it_is_for(site: Site) -> None:
    site.up(env={"NOTIFY_SOCKET": "/nowhere", "CREDENTIALS_DIRECTORY": "/nowhere"}).ready()
    [kg], [mediator] = site.told("kg"), site.told("mediator")
    assert re.fullmatch("[0-9a-f]{64}", kg["secrets"]["key"])
    assert re.fullmatch("[0-9a-f]{64}", mediator["secrets"]["cache_key"])
    assert kg["secrets"]["key"] != mediator["secrets"]["cache_key"]
    broker = mediator["secrets"]["broker"]
    assert broker["host"] == "127.0.0.1"
    assert len(broker["password"]) > 40
    assert broker["shared"] is False
    kept = {site.root / "state" / role / "told.jsonl" for role in ("kg", "mediator")}
    secrets = [kg["secrets"]["key"], mediator["secrets"]["cache_key"], broker["password"]]
    texts = [
        path.read_bytes()
        for path in site.root.parent.rglob("*")
        if path.is_file() and path not in kept and path != site.key
    ]
    pids = [site.ups[0].process.pid, *(row["pid"] for row in site.status()["processes"])]
    for pid in pids:
        texts += [Path(f"/proc/{pid}/{what}").read_bytes() for what in ("cmdline", "environ")]
    for secret in secrets:
        assert not any(secret.encode() in text for text in texts)
    for row in (kg, mediator):
        assert row["umask"] == 0o077
        assert not row["new_privs"]
        assert re.search(r"Max core file size +0 +0 ", row["limits"])
        assert not set(row["env"]) & {"NOTIFY_SOCKET", "CREDENTIALS_DIRECTORY"}


def test_credentials_are_new_at_each_start(site: Site) -> None:
    site.up().ready().end()
    site.up().ready().end()
    first, second = (row["secrets"]["broker"]["password"] for row in site.told("mediator"))
    assert first != second
    keys = {row["secrets"]["key"] for row in site.told("kg")}
    assert len(keys) == 1
    audit = [row["secrets"]["audit"] for role in ("kg", "mediator") for row in site.told(role)]
    assert len({one["run"] for one in audit}) == len({one["key"] for one in audit}) == 4


def test_sighup_is_passed_on(site: Site) -> None:
    up = site.up().ready()
    up.process.send_signal(signal.SIGHUP)
    for role in ("kg", "mediator"):
        until((site.root / "state" / role / "hup").exists, f"{role} to reload")
    assert site.status()["code"] == 0
    assert up.end() == 0


def test_sighup_while_a_part_starts_reaches_it_once_it_serves(site: Site) -> None:
    site.plan("kg", "slow")
    up = site.up()
    until(lambda: "waiting for SITE/go" in up.err.read_text(), "the key generator to begin")
    up.process.send_signal(signal.SIGHUP)
    (site.root / "go").touch()
    up.ready()
    until((site.root / "state" / "kg" / "hup").exists, "the key generator to reload")
    assert up.end() == 0


def test_a_second_up_is_refused_and_harms_nothing(site: Site) -> None:
    first = site.up().ready()
    second = site.up()
    assert second.process.wait(60) == 1
    error, hint = second.err.read_text().splitlines()
    assert error == (
        f"sealmq: {site.root} is up already: `sealmq up` runs as process {first.process.pid}"
    )
    assert hint.startswith(f"hint: sealmq status {site.root}")
    assert site.status()["code"] == 0
    assert first.end() == 0


def test_a_killed_supervisor_leaves_nothing_and_the_next_up_works(site: Site) -> None:
    first = site.up().ready()
    pids = [row["pid"] for row in site.status()["processes"]]
    first.process.kill()
    first.process.wait()
    until(lambda: all(gone(pid) for pid in pids), "the orphans to end")
    assert site.status()["code"] == 1
    second = site.up().ready()
    assert site.status()["code"] == 0
    assert second.end() == 0


def test_ready_and_stopping_are_told_to_systemd(site: Site, folder: Path) -> None:
    store = Layout.open(site.root).mediator_db
    store.parent.mkdir(exist_ok=True)
    store.write_bytes(bytes(1 << 20))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(folder / "notify"))
        systemd.settimeout(60)
        env = {"NOTIFY_SOCKET": str(folder / "notify"), "WATCHDOG_USEC": "200000"}
        up = site.up(env=env).ready()
        # Each start in turn has 90 s, and 90 more for the rest; the mediator's has one for what it
        # has to read: systemd never cuts off one that we would wait for.
        for seconds in (180, 180, 181):
            assert systemd.recv(4096).decode() == f"EXTEND_TIMEOUT_USEC={seconds}000000"
        got = [systemd.recv(4096).decode() for _ in range(3)]
        assert got[0].splitlines()[0] == "READY=1"
        assert got[1:] == ["WATCHDOG=1"] * 2
        assert up.end() == 0
        while (last := systemd.recv(4096).decode()) == "WATCHDOG=1":
            pass
        assert last == "STOPPING=1"
        # Ten seconds for each end, and ten to say so: a site may have many borders.
        assert [systemd.recv(4096).decode() for _ in range(3)] == [
            "EXTEND_TIMEOUT_USEC=20000000"
        ] * 3


def test_systemd_hears_that_the_supervisor_lives_while_a_process_does_not_come_back(
    site: Site, folder: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(folder / "notify"))
        systemd.settimeout(60)
        env = {"NOTIFY_SOCKET": str(folder / "notify"), "WATCHDOG_USEC": "200000"}
        up = site.up(env=env).ready()
        while not systemd.recv(4096).decode().startswith("READY=1"):
            pass
        site.plan("mediator", "hang")
        os.kill(site.row("mediator")["pid"], signal.SIGKILL)
        # Read meanwhile: who is not read from blocks.
        while len(site.told("mediator")) < 2:
            assert systemd.recv(4096).decode() == "WATCHDOG=1"
        assert [systemd.recv(4096).decode() for _ in range(4)] == ["WATCHDOG=1"] * 4
        assert site.status()["code"] == 1
        assert up.process.poll() is None


def test_policy_off_is_shouted(folder: Path) -> None:
    site = Site.make(folder, "[policy]\nenforce = false\n")
    try:
        up = site.up().ready()
        assert "NOT ENFORCED" in up.out.read_text()
        assert "NOT ENFORCED" in up.err.read_text()
        assert site.status()["enforce"] is False
        assert "NOT ENFORCED" in sealmq("status", str(site.root)).stdout
        assert up.end() == 0
    finally:
        for one in site.ups:
            one.end()


def test_permissions(site: Site) -> None:
    site.up().ready()

    def mode(path: str) -> int:
        return stat.S_IMODE((site.root / path).stat().st_mode)

    if os.geteuid() != 0 or site.status()["shared_user"]:
        assert mode("state") == 0o700
    for role in ROLES:
        assert mode(f"state/{role}") == 0o700
        assert mode(f"run/{role}/ready.json") == 0o644
    assert mode("run/up.lock") == 0o600


def test_a_module_in_the_current_folder_is_not_taken_for_ours(
    site: Site, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "json.py").write_text("raise SystemExit('taken from the current folder')")
    monkeypatch.chdir(folder)
    assert site.up().ready().end() == 0


def test_the_supervisor_carries_no_database() -> None:
    """It lives as long as the site does, on small boards too."""
    words = "import sys, sealmq.run.up; print('sqlalchemy' in sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", words], stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"False\n"


def test_a_second_up_changes_no_folder_of_the_first(site: Site) -> None:
    """As root it would give them to other users, and the site that is up would end."""
    first = site.up().ready()
    folder = site.root / "audit"
    folder.chmod(0o711)
    assert site.up().process.wait(60) == 1
    assert stat.S_IMODE(folder.stat().st_mode) == 0o711
    assert first.end() == 0


def test_a_site_whose_lines_nobody_takes_starts_its_parts_again(site: Site) -> None:
    """A full disk under a file of theirs, a terminal that has gone, `| tee` that was killed."""
    words = [sys.executable, str(FAKES / "fake_up.py"), str(site.root)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(_PATH)}
    out = site.root.parent / "site.out"
    with open("/dev/full", "w") as full, out.open("w") as stdout:
        process = subprocess.Popen(words, stdout=stdout, stderr=full, env=env, text=True)
    up = Up(site, process, out, site.root.parent / "site.err")
    up.err.touch()
    site.ups.append(up)
    up.ready()
    pid = site.row("mediator")["pid"]
    os.kill(pid, signal.SIGKILL)
    until(
        lambda: process.poll() is not None or site.row("mediator")["pid"] not in (None, pid),
        "the restart",
    )
    assert process.poll() is None
    assert up.end() == 0


def test_who_waits_for_a_site_that_is_up_hears_what_of_it_does_not_come_back(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    up = site.up().ready()
    site.plan("mediator", "fail")
    os.kill(site.row("mediator")["pid"], signal.SIGKILL)
    until(lambda: "trying again" in up.err.read_text(), "it to fail")
    monkeypatch.setattr(background, "_SERVES_S", 0.0)
    monkeypatch.setattr(background, "_POLL_S", 0.0)
    with pytest.raises(RunError, match="site is up, and after 0 s not all of it serves: mediator"):
        background.until_serving(Layout.open(site.root), "site")
    assert up.end() == 0
