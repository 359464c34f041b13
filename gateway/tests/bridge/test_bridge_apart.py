"""Bridges of sites that run under separate users: one has two workers and a private Mosquitto, is
lost with its folder, and restored from its backup. With the real processes, in a mount namespace.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from free_ports import free_port
from run.sites import FAKES
from sealmq.run.errors import BadUsers
from sealmq.run.users import create

pytestmark = pytest.mark.full


def test_a_bridge_has_a_user_of_its_own_and_its_site_comes_back_from_a_backup() -> None:
    if os.geteuid() != 0:
        with pytest.raises(BadUsers):
            create()
        return
    ports = [str(free_port()) for _ in range(3)]
    with tempfile.TemporaryDirectory(prefix="sealmq-") as folder:
        Path(folder).chmod(0o755)
        command = [sys.executable, str(FAKES / "apart_bridge.py"), folder, *ports]
        done = subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "--", *command],
            env=os.environ | {"PYTHONPATH": str(FAKES.parents[1])},
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
    assert done.returncode == 0, f"needs a mount namespace of its own: {done.stderr}"
    told = json.loads(done.stdout)
    for status in (*told["status"].values(), told["restored"]):
        assert (status["code"], status["shared_user"]) == (0, False), told["log"]
        users = {row["role"]: row["user"] for row in status["processes"]}
        assert users == {role: f"sealmq-{role}" for role in ("kg", "broker", "mediator", "bridge")}
    assert "2 workers" in str(told["status"]["north"])
    assert (told["first"], told["second"]) == ("first\n", "second\n"), told["log"]
    for name, before in told["told"].items():
        after = told["again"][name]
        assert (before["line"]["line"], after["line"]["line"]) == ("up", "up")
        assert (before["line"]["dropped"], after["line"]["dropped"]) == ({}, {})
        assert before["prints"] == after["prints"], "the key file says who it is"
        assert before["owners"] == after["owners"] == ["sealmq-bridge"]
        # Root is told over the socket, and each knows the other's token, also the one who lost it.
        for said in (before, after):
            issuers = {row["issuer"] for row in said["shown"]["live"]["tokens"]}
            assert issuers == {"north", "south"}, said["error"]
    # The group sealmq alone, which reads sealmq.toml; nothing of keys, or of the others.
    assert len(told["ids"]["Groups"]) == 1
    assert len(set(told["ids"]["Uid"])) == 1
    assert told["tries"] == ["kill bridge", "list state/bridge", "read sealmq.toml", "trace bridge"]
    assert told["code"] == 0
