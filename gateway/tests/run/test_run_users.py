"""Separate users for the processes: real ones if we are root, and the word "shared" if not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from free_ports import free_port
from run.sites import FAKES, Site, sealmq
from sealmq.run import users
from sealmq.run.child import Identity
from sealmq.run.errors import BadUsers
from sealmq.run.users import check

ROLES = ("kg", "broker", "mediator")


def test_users_that_separate_nothing_are_refused() -> None:
    check({})
    check({role: Identity(role, 900 + at, 900) for at, role in enumerate(ROLES)})
    with pytest.raises(BadUsers):
        check({role: Identity(role, 900, 900) for role in ROLES})
    with pytest.raises(BadUsers):
        check({role: Identity(role, at, 900) for at, role in enumerate(ROLES)})


def test_without_separate_users_status_and_summary_say_so(site: Site) -> None:
    up = site.up().ready()
    if not site.status()["shared_user"]:
        # This machine really has the three users, and we are root.
        assert "separate: sealmq-kg" in up.out.read_text()
        return
    assert "shared user" in up.out.read_text()
    assert "shared user" in sealmq("status", str(site.root)).stdout
    assert len({row["user"] for row in site.status()["processes"]}) == 1


def test_each_process_runs_as_its_own_user_and_reaches_nothing_of_the_others(
    folder: Path,
) -> None:
    """With the real processes. Not being root, it shows that this takes root."""
    if os.geteuid() != 0:
        done = sealmq("system-users")
        assert done.returncode == 1
        assert "by root only" in done.stderr
        assert "hint: sudo sealmq system-users" in done.stderr
        return
    port = free_port()
    unshare = ["unshare", "--mount", "--propagation", "private", "--"]
    done = subprocess.run(
        [*unshare, sys.executable, str(FAKES / "apart.py"), str(folder), str(port)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"needs a mount namespace of its own: {done.stderr}"
    told = json.loads(done.stdout)
    # Where this machine has them already, nothing is left to be made.
    assert told["made"][-1] in ("made user sealmq-mdns", "all users are there already")
    assert told["again"] == ["all users are there already"]
    for status in (told["status"], told["restarted"]):
        assert status["code"] == 0, told["log"]
        assert status["shared_user"] is False
        users = {row["role"]: row["user"] for row in status["processes"]}
        assert users == {role: f"sealmq-{role}" for role in ROLES}
    # As root, but with the six capabilities of the systemd unit only.
    assert told["powers"].bit_count() == 6
    uids = {role: ids["Uid"] for role, ids in told["ids"].items()}
    assert all(len(set(four)) == 1 and four[0] != 0 for four in uids.values())
    assert len({four[0] for four in uids.values()}) == 3
    assert [len(told["ids"][role]["Groups"]) for role in ROLES] == [1, 0, 2]
    assert told["tries"] == {
        "broker": ["kill broker", "list state/broker", "trace broker"],
        "mediator": [
            "kill mediator",
            "list audit/mediator",
            "list state/mediator",
            "read sealmq.toml",
            "trace mediator",
            "write into run/mediator/",
        ],
        # It keeps debuggers away from its memory even as its own user.
        "kg": [
            "kill kg",
            "list audit/kg",
            "list state/kg",
            "read sealmq.toml",
            "remove run/kg/kg.sock",
        ],
    }
    assert told["code"] == 0
    mosquitto = told["mosquitto"]
    [row] = [row for row in mosquitto["processes"] if row["role"] == "broker"]
    assert (row["ready"], row["user"], row["kind"]) == (True, "sealmq-broker", "mosquitto")
    # Its socket: the broker's own user and the mediator's process, and nobody else.
    denied = "PermissionError: [Errno 13] Permission denied"
    assert mosquitto["socket"] == {
        "broker": "",
        "mediator": "",
        "kg": denied,
        "sealmq-broker's commands": "",
        "sealmq-mediator's commands": denied,
        "sealmq-kg's commands": denied,
        "nobody": denied,
    }
    # A mediator sees when Mosquitto has saved, and not what.
    assert mosquitto["seen"] == "seen\n"
    assert "PermissionError" in mosquitto["read"]
    assert mosquitto["code"] == 0


def test_bridges_and_borders_each_have_a_user_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = SimpleNamespace
    found = {"kg": Identity("sealmq-kg", 901, 901)}
    there: dict[str, Any] = {"bridge": row(pw_uid=904), "border": row(pw_uid=905)}
    monkeypatch.setattr(users, "user_of", there.get)
    assert users.beside("border", {}) is None, "all processes share a user"
    user = users.beside("border", found)
    assert user is not None
    assert user.pw_uid == 905
    for wrong in (None, row(pw_uid=0), row(pw_uid=901), row(pw_uid=904)):
        there["border"] = wrong
        with pytest.raises(BadUsers, match="this site has borders, and there is no user"):
            users.beside("border", found)
