"""gateway/AGENT.md, as somebody types it who has a home and no time."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "AGENT.md"
UNIT = PAGE.with_name("systemd") / "sealmq-agent@.service"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.mark.full
def test_the_page_as_it_stands(tmp_path: Path) -> None:
    text = PAGE.read_text()
    [toml] = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    lines = "".join(re.findall(r"```console\n(.*?)```", text, re.DOTALL)).splitlines()
    script = "\n".join(line[2:] for line in lines if line.startswith("$ "))
    script = script.replace("--policy labels", f"--policy labels --listen 127.0.0.1:{free_port()}")
    local = str(free_port())
    (tmp_path / "agent.toml").write_text(toml.replace("1884", local))
    script = script.replace("1884", local) + "\nkill $!; kill %1; sealmq down home\n"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    home = tmp_path / "home-of-the-test"
    home.mkdir()
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "XDG_CONFIG_HOME": str(home), "HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    printed = done.stdout.splitlines()
    said = (tmp_path / "agent.log").read_text() if (tmp_path / "agent.log").exists() else ""
    for line in lines:
        if not line.startswith("$ "):
            wanted = re.escape(line).replace("sealmq\\-age:0", r"sealmq\-age:\d")
            assert any(re.fullmatch(wanted, one) for one in printed), (line, done.stdout, said)
    assert "command_topic" not in done.stdout


def test_the_unit_is_sound_and_leaves_little(tmp_path: Path) -> None:
    program = tmp_path / "sealmq"
    program.touch(0o755)
    made = tmp_path / "sealmq-agent@.service"
    # The user is made when it is installed.
    text = UNIT.read_text().replace("User=sealmq-agent\n", "User=daemon\n")
    made.write_text(text.replace("/opt/sealmq/bin/sealmq agent", f"{program} agent"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / "sealmq-agent@ha.service")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    shown = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", str(made)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", shown.stdout)
    assert found is not None, shown.stdout
    assert float(found[1]) < 2.0
