"""What a page has people type, in one shell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path


def console(page: Path) -> tuple[str, list[str]]:
    """The commands of its console blocks, and the lines that they have to print."""
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL)
    lines = "".join(blocks).splitlines()
    script = "\n".join(line[2:] for line in lines if line.startswith("$ "))
    return script, [line for line in lines if not line.startswith("$ ")]


def typed(script: str, folder: Path, seconds: float) -> str:
    """What it prints, with a home of its own in the folder."""
    home = folder / "home-of-the-test"
    home.mkdir()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": path, "XDG_CONFIG_HOME": str(home), "HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    return done.stdout
