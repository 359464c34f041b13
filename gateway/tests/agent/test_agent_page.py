"""gateway/AGENT.md, as somebody types it who has a home and no time."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from free_ports import free_port
from typed_page import console, typed

PAGE = Path(__file__).parents[2] / "AGENT.md"
INTEROP = Path(__file__).parents[3] / "hil_tests/interop.json"
UNIT = PAGE.with_name("systemd") / "sealmq-agent@.service"


@pytest.mark.full
def test_the_page_as_it_stands(tmp_path: Path) -> None:
    [toml] = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    script, wanted = console(PAGE)
    script = script.replace("--policy labels", f"--policy labels --listen 127.0.0.1:{free_port()}")
    local = str(free_port())
    (tmp_path / "agent.toml").write_text(toml.replace("1884", local))
    script = script.replace("1884", local) + "\nkill $!; kill %1; sealmq down home\n"
    out = typed(script, tmp_path, 300)
    printed = out.splitlines()
    said = (tmp_path / "agent.log").read_text() if (tmp_path / "agent.log").exists() else ""
    for line in wanted:
        pattern = re.escape(line).replace("sealmq\\-age:0", r"sealmq\-age:\d+")
        assert any(re.fullmatch(pattern, one) for one in printed), (line, out, said)
    assert "command_topic" not in out


def test_the_page_puts_no_password_on_a_command_line() -> None:
    script, _ = console(PAGE)
    for line in script.splitlines():
        for command in re.split(r"[;|&]|\bdo\b", line):
            # A builtin of the shell has no command line that others see.
            assert " -P" not in command or command.strip().startswith("printf "), line


def test_the_page_s_table_is_what_came_of_the_interoperability_tests() -> None:
    page = PAGE.read_text()
    for version, tests in json.loads(INTEROP.read_text()).items():
        failed = [name for name, why in tests.items() if why]
        assert f"| MQTT {version}, {len(tests)} | {len(tests) - len(failed)} |" in page
        assert [name for name in failed if f"`{name}`" not in page] == []


def test_each_agent_runs_as_a_user_of_its_own(tmp_path: Path) -> None:
    """Whoever takes one over reads no other one's enrolments."""
    lines = UNIT.read_text().splitlines()
    [user] = [line for line in lines if line.startswith("User=")]
    assert "%i" in user
    named = [line for line in lines if line.startswith(("ReadWritePaths=", "WorkingDirectory="))]
    assert named
    assert all("%i" in line for line in named)


def test_the_unit_is_sound_and_leaves_little(tmp_path: Path) -> None:
    program = tmp_path / "sealmq"
    program.touch(0o755)
    made = tmp_path / "sealmq-agent@.service"
    # The user is made when it is installed.
    text = UNIT.read_text().replace("User=sealmq-agent-%i\n", "User=daemon\n")
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
