"""gateway/BRIDGE.md, as two operators type it."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "BRIDGE.md"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.mark.full
def test_the_page_as_it_stands(tmp_path: Path) -> None:
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL)
    lines = "".join(blocks).splitlines()
    assert sum(line.startswith("$ ") for line in lines) <= 30
    script = "\n".join(line[2:] for line in lines if line.startswith("$ "))
    for port in ("1883", "2883", "8884"):
        script = script.replace(f":{port}", f":{free_port()}")
    script += "\nsealmq down north\nsealmq down south\n"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    home = tmp_path / "home"
    home.mkdir()
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "XDG_CONFIG_HOME": str(home), "HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
        check=False,
    )
    printed = done.stdout.splitlines()
    for line in lines:
        if not line.startswith("$ "):
            pattern = ".*".join(map(re.escape, line.split("…")))
            assert any(re.fullmatch(pattern, one) for one in printed), (line, done.stdout)
    assert not [one for one in printed if one.startswith(("sealmq: ", "bash: "))], done.stdout
