"""A border of a site that runs under separate users, as root starts it: it has one of its own, and
does its work as that. With the real processes, in a mount namespace.
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


def test_a_border_has_a_user_of_its_own_that_reaches_nothing_of_the_others() -> None:
    if os.geteuid() != 0:
        with pytest.raises(BadUsers):
            create()
        return
    with tempfile.TemporaryDirectory(prefix="sealmq-") as folder:
        Path(folder).chmod(0o755)
        ports = [str(free_port()) for _ in range(2)]
        command = [sys.executable, str(FAKES / "apart_border.py"), folder, *ports]
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
    users = {row["role"]: row["user"] for row in told["status"]["processes"]}
    roles = {"kg", "broker", "mediator", "bridge"}
    assert users == {**{role: f"sealmq-{role}" for role in roles}, "border-outlet": "sealmq-border"}
    assert told["listed"]["line"] == "up", told["log"]
    assert set(told["crossed"]) == {"mill/1"}, told["log"]
    assert (told["owners"], told["modes"]) == (["sealmq-border"], ["0o700"])
    # The group sealmq alone, which reads sealmq.toml; nothing of keys, or of the others.
    assert len(told["ids"]["Groups"]) == 1
    assert len(set(told["ids"]["Uid"])) == 1
    assert [one for one in told["tries"] if "border" not in one] == ["read sealmq.toml"]
    assert told["code"] == 0
