"""`sealmq up` with fake processes: order, readiness, restarts, stops, secrets, one a site."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import stat
from pathlib import Path

import pytest

from run.sites import Site, gone, sealmq, until

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


@pytest.mark.parametrize("role", ROLES)
def test_a_killed_process_is_started_again(site: Site, role: str) -> None:
    up = site.up().ready()
    before = site.row(role)
    os.kill(before["pid"], signal.SIGKILL)
    until(lambda: f"{role} is ready again" in up.err.read_text(), "the restart")
    assert f"{role} was ended by SIGKILL" in up.err.read_text()
    after = site.row(role)
    assert after["ready"]
    assert after["pid"] != before["pid"]
    if role == "broker":
        # The mediator keeps the address and the password that it was handed.
        assert after["address"] == before["address"]
    assert up.end() == 0


def test_while_the_broker_is_away_its_port_refuses_and_stays_ours(site: Site) -> None:
    up = site.up().ready()
    row = site.row("broker")
    host, _, port = row["address"].partition(":")
    os.kill(row["pid"], signal.SIGKILL)
    until(lambda: "broker was ended" in up.err.read_text(), "the supervisor to notice")
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="in use"):
            thief.bind((host, int(port)))
    with contextlib.suppress(ConnectionResetError):
        with socket.create_connection((host, int(port)), 60) as mediator:
            assert mediator.recv(1) == b""
    until(lambda: "broker is ready again" in up.err.read_text(), "the restart")


def test_a_process_that_fails_again_and_again_is_tried_again(site: Site) -> None:
    up = site.up(env={"FAKE_TIMES": '{"BACKOFF_S": [0.25, 30.0]}'}).ready()
    site.plan("mediator", "fail")
    os.kill(site.row("mediator")["pid"], signal.SIGKILL)
    until(lambda: "trying again in 1 s" in up.err.read_text(), "two failures")
    row = site.row("mediator")
    assert (row["pid"], row["ready"], row["note"]) == (None, False, "not running")
    site.plan("mediator", "serve")
    until(lambda: "mediator is ready again" in up.err.read_text(), "the restart")
    assert up.end() == 0


@pytest.mark.parametrize("role", ["kg", "mediator"])
def test_one_that_does_not_start_fails_the_whole(site: Site, role: str) -> None:
    site.plan(role, "fail")
    up = site.up()
    assert up.process.wait(60) == 1
    last = up.err.read_text().splitlines()[-1]
    assert last == (
        f"sealmq: {role} ended with exit code 3 before it was ready; "
        "its last words: the key does not open this site"
    )
    assert f"{role}: first line" in up.err.read_text()
    assert site.left() == []


def test_one_that_is_not_ready_in_time_fails_the_whole(site: Site) -> None:
    site.plan("mediator", "hang")
    up = site.up(env={"FAKE_TIMES": '{"READY_S": 0.5}'})
    assert up.process.wait(60) == 1
    assert up.err.read_text().splitlines()[-1] == (
        "sealmq: mediator is not ready after 0.5 s; "
        "its last words: waiting for something that never comes"
    )
    assert gone(site.told("mediator")[0]["pid"])
    assert site.left() == []


def test_a_talkative_process_is_heard_in_bounded_clean_lines(site: Site) -> None:
    site.plan("kg", "flood")
    up = site.up().ready()
    assert max(len(line) for line in up.err.read_text().splitlines()) < 5000
    assert "\x1b" not in up.err.read_text()
    assert up.end() == 0


def test_one_that_ignores_sigterm_is_killed_and_told(site: Site) -> None:
    site.plan("mediator", "stubborn")
    up = site.up(env={"FAKE_TIMES": '{"STOP_S": 1.5}'}).ready()
    pids = [row["pid"] for row in site.status()["processes"]]
    assert up.end() == 1
    assert "mediator did not end within 1.5 s and was killed" in up.err.read_text()
    assert all(gone(pid) for pid in pids)
    assert site.left() == []


def test_a_second_signal_does_not_wait(site: Site) -> None:
    site.plan("mediator", "stubborn")
    up = site.up().ready()
    up.process.send_signal(signal.SIGINT)
    # Only once the first has been taken is a second one a second one.
    until((site.root / "state" / "mediator" / "term").exists, "the mediator to get SIGTERM")
    assert up.end(signal.SIGINT) == 0
    assert "was killed" not in up.err.read_text()
    assert site.left() == []


def test_sighup_is_passed_on(site: Site) -> None:
    up = site.up().ready()
    up.process.send_signal(signal.SIGHUP)
    for role in ("kg", "mediator"):
        until((site.root / "state" / role / "hup").exists, f"{role} to reload")
    assert site.status()["code"] == 0
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


def test_status_believes_no_stale_file(site: Site) -> None:
    up = site.up().ready()
    run = site.root / "run"
    kept = {name: (run / name).read_text() for name in ("kg.json", "broker.json", "mediator.json")}
    told = json.loads((run / "up.json").read_text())
    assert up.end() == 0
    for name, text in kept.items():
        (run / name).write_text(text)
    assert [row["note"] for row in site.status()["processes"]] == [
        "not running; its readiness file is stale"
    ] * 3
    # A pid that lives, but started at another time than the supervisor's child.
    told["processes"] = {role: {"pid": os.getpid(), "start": 1} for role in ROLES}
    (run / "up.json").write_text(json.dumps(told))
    assert [row["pid"] for row in site.status()["processes"]] == [None] * 3
    for text in ("", "[]", "{", '{"processes": 7}', '{"processes": {"kg": {"pid": "x"}}}'):
        (run / "up.json").write_text(text)
        assert site.status()["code"] == 1


def test_status_of_a_stopped_process_is_not_ready(site: Site) -> None:
    """It lives and its file says ready; only asking it shows that it does not serve."""
    site.up().ready()
    pid = site.row("broker")["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        row = site.row("broker")
        assert not row["ready"]
        assert "does not answer" in row["note"]
    finally:
        os.kill(pid, signal.SIGCONT)
    assert site.row("broker")["ready"]


def test_ready_and_stopping_are_told_to_systemd(site: Site, folder: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(folder / "notify"))
        systemd.settimeout(60)
        env = {"NOTIFY_SOCKET": str(folder / "notify"), "WATCHDOG_USEC": "200000"}
        up = site.up(env=env).ready()
        got = [systemd.recv(4096).decode() for _ in range(3)]
        assert got[0].splitlines()[0] == "READY=1"
        assert got[1:] == ["WATCHDOG=1"] * 2
        assert up.end() == 0
        while (last := systemd.recv(4096).decode()) == "WATCHDOG=1":
            pass
        assert last == "STOPPING=1"


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


@pytest.mark.parametrize("wrong", ["missing", "readable", "short", "salt", "inside"])
def test_a_key_that_will_not_do_is_one_clear_line(site: Site, wrong: str) -> None:
    options: list[str] = []
    if wrong == "missing":
        site.key.unlink()
    elif wrong == "readable":
        site.key.chmod(0o644)
    elif wrong == "short":
        site.key.write_text("short")
    elif wrong == "salt":
        (site.root / "state" / "salt").unlink()
    else:
        (site.root / "key").touch(0o600)
        options = ["--key-file", str(site.root / "key")]
    up = site.up(*options)
    assert up.process.wait(60) == 1
    error, hint = up.err.read_text().splitlines()
    assert error.startswith("sealmq: ")
    assert hint.startswith("hint: ")
    assert not (site.root / "state" / "kg" / "told.jsonl").exists()


def test_the_key_file_of_the_command_line_and_the_credential_of_systemd(
    site: Site, folder: Path
) -> None:
    site.up().ready().end()
    other = folder / "credentials" / "sealmq-key"
    other.parent.mkdir()
    site.key.rename(other)
    site.up("--key-file", str(other)).ready().end()
    site.up(env={"CREDENTIALS_DIRECTORY": str(other.parent)}).ready().end()
    assert len({row["secrets"]["key"] for row in site.told("kg")}) == 1
    assert len(site.told("kg")) == 3


def test_no_site_is_one_clear_line(folder: Path) -> None:
    for command in ("up", "status"):
        done = sealmq(command, str(folder))
        assert done.returncode == 1
        error, hint = done.stderr.splitlines()
        assert error == f"sealmq: {folder} is no site: it has no sealmq.toml"
        assert hint.startswith("hint: sealmq init")


def test_permissions(site: Site) -> None:
    site.up().ready()

    def mode(path: str) -> int:
        return stat.S_IMODE((site.root / path).stat().st_mode)

    if os.geteuid() != 0 or site.status()["shared_user"]:
        assert mode("state") == 0o700
    for role in ROLES:
        assert mode(f"state/{role}") == 0o700
        assert mode(f"run/{role}.json") == 0o644
    assert mode("run/up.lock") == 0o600


def test_a_module_in_the_current_folder_is_not_taken_for_ours(
    site: Site, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "json.py").write_text("raise SystemExit('taken from the current folder')")
    monkeypatch.chdir(folder)
    assert site.up().ready().end() == 0
