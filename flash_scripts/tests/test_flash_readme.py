"""The README's way without a board, as it stands there: from an empty folder to a reading."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from free_ports import free_port

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "flash_scripts" / "README.md"


def commands() -> list[str]:
    """All that stands behind a prompt, comments away, until the first heading below the title."""
    text = README.read_text().partition("\n## ")[0]
    blocks = re.findall(r"(?s)```console\n(.*?)```", text)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [re.sub(r"\s+#.*", "", line[2:]) for line in lines if line.startswith("$ ")]


def test_it_reaches_a_result_within_25_lines() -> None:
    text = README.read_text()
    assert text.partition("machine/1/temperature 10")[0].count("\n") <= 25


def test_every_command_of_it_is_one_of_ours() -> None:
    from sealmq_board import cli

    words = re.findall(r"sealmq board (\w+)", README.read_text())
    assert {"build", "list", "flash"} <= set(words)
    assert set(words) <= set(cli.COMMANDS)


@pytest.mark.full
def test_a_virtual_board_publishes(tmp_path: Path) -> None:
    port = free_port()
    listen = ""
    script = ["set -e"]
    for line in commands():
        if "make " in line or "board list" in line or "--board " in line or "--wifi ask" in line:
            continue  # needs a real board, or is done
        line = line.replace("0.0.0.0:1883", f"127.0.0.1:{port} --key-file site.key")
        line = line.replace("127.0.0.1:1883", f"127.0.0.1:{port}")
        line = line.replace("/dev/pts/5", "$(sed -n 's/^pty //p' board.out)")
        if line.startswith("sealmq sub"):
            listen = f"timeout 200 {line} > read.out 2> sub.err &"
            continue
        if "vboard run" in line:
            line = line.replace(" &", " > board.out 2>&1 &")
            line += "\nuntil grep -q ready board.out; do sleep 0.2; done"
        script.append(line)
    script.append(listen)
    script.append("for n in $(seq 180); do [ -s read.out ] && exit; sleep 1; done; exit 9")
    env = dict(os.environ, PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    with subprocess.Popen(
        ["bash", "-c", "\n".join(script)], cwd=tmp_path, env=env, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as running:  # fmt: skip
        try:
            code = running.wait(timeout=300)
        finally:
            os.killpg(running.pid, signal.SIGTERM)
            subprocess.run(["sealmq", "down", "factory"], cwd=tmp_path, env=env, check=False)
        assert running.stdout is not None
        assert code == 0, running.stdout.read()
    assert re.match(r"machine/1/temperature \d+\n", (tmp_path / "read.out").read_text())
    assert not (tmp_path / "m1.board" / "nvs.bin").exists()
