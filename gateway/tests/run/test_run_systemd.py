"""The systemd unit: what systemd's own checker says of it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

UNIT = Path(__file__).resolve().parents[2] / "systemd" / "sealmq@.service"


def test_the_unit_is_sound(folder: Path) -> None:
    """Every key is known and every value accepted; only the program is not installed here."""
    made = folder / "sealmq@.service"
    program = folder / "sealmq"
    program.touch(0o755)
    made.write_text(UNIT.read_text().replace("/opt/sealmq/bin/sealmq up", f"{program} up"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(folder / "sealmq@factory.service")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_leaves_little(folder: Path) -> None:
    """systemd's own measure, 0 (closed) to 10."""
    made = folder / "sealmq@.service"
    made.write_text(UNIT.read_text())
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", str(made)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found is not None, done.stdout
    assert float(found[1]) < 3.5


def test_the_unit_starts_what_the_command_line_has() -> None:
    lines = UNIT.read_text().splitlines()
    for line in (
        "Type=notify",
        "ExecStart=/opt/sealmq/bin/sealmq up --last-good /var/lib/sealmq/%i",
        "LoadCredential=sealmq-key:/etc/sealmq/%i.key",
        "ExecReload=/bin/kill -HUP $MAINPID",
    ):
        assert line in lines
