"""Processes that fail under `sealmq up`: restarts, failed starts, deaf ones, stale files."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from pathlib import Path

import pytest

from run.sites import Site, gone, until
from sealmq.run import status
from sealmq.site.layout import Layout

ROLES = ("kg", "broker", "mediator")


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
    until(lambda: "trying again in 4 s" in up.err.read_text(), "four failures")
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


# It has a second more for each MiB that it has to read first.
@pytest.mark.parametrize(("stored", "patience_s"), [(0, 15), (2 << 20, 17)])
def test_one_that_is_not_ready_in_time_fails_the_whole(
    site: Site, stored: int, patience_s: int
) -> None:
    site.plan("mediator", "hang")
    store = Layout.open(site.root).mediator_db
    store.parent.mkdir(exist_ok=True)
    with store.open("ab") as file:
        file.truncate(stored)
    # Time enough for the others on a slow machine.
    up = site.up(env={"FAKE_TIMES": '{"READY_S": 15}'})
    assert up.process.wait(60) == 1
    assert up.err.read_text().splitlines()[-1] == (
        f"sealmq: mediator is not ready after {patience_s} s; "
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


def test_status_believes_no_stale_file(site: Site) -> None:
    up = site.up().ready()
    run = site.root / "run"
    names = [f"{role}/ready.json" for role in ROLES]
    kept = {name: (run / name).read_text() for name in names}
    told = json.loads((run / "up.json").read_text())
    assert sorted(told["roles"]) == sorted(ROLES)
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


def test_status_names_a_part_that_has_not_begun_or_has_ended(tmp_path: Path) -> None:
    """Else a site is ready before its bridge is, and while that one waits for its next start."""
    up = {"roles": [*ROLES, "bridge", "border-a"], "processes": {}}
    found = asyncio.run(status._all(Layout.of(tmp_path), up))
    assert [(row.role, row.ready, row.note) for row in found[len(ROLES) :]] == [
        ("border-a", False, "not running"),
        ("bridge", False, "not running"),
    ]


@pytest.mark.parametrize("role", ROLES)
def test_status_of_a_stopped_process_is_not_ready(
    site: Site, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lives, its file says ready, and the kernel takes connections for it; only an answer shows
    that it serves.
    """
    site.up().ready()
    pid = site.row(role)["pid"]
    monkeypatch.setattr(status, "PROBE_S", 1.0)
    os.kill(pid, signal.SIGSTOP)
    try:
        row = site.row(role)
        assert not row["ready"]
        assert "does not answer" in row["note"]
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: bool(site.row(role)["ready"]), "it to serve again")
