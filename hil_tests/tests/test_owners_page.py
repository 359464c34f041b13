"""gateway/OWNERS.md, from its first line on, as a newcomer types it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import sealmq_forks
from free_ports import free_port
from pages import samples
from running_site import ROOT, SEALMQ, Site, ran, sealmq, until
from sealmq_hil.line import Line
from test_board_life import WIFI, virtual
from test_samples import PATIENCE_S, provisioned

PAGE = "gateway/OWNERS.md: "
CONSOLE, PYTHON, TOML = (samples(language) for language in ("console", "python", "toml"))


def typed(
    folder: Path, *headings: str, page: str = PAGE.removesuffix(": "), **replaced: str
) -> None:
    """Each line with a prompt, in one shell; each other line has to be printed."""
    text = "".join(CONSOLE[f"{page}: {heading}"].text for heading in headings)
    lines = text.splitlines()
    commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    shown = [line for line in lines if not line.startswith("$ ")]
    script = "\n".join(commands)
    for old, new in replaced.items():
        assert old in script
        script = script.replace(old, new)
    path = f"{sealmq_forks.on_path(os.environ)}:{SEALMQ.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder, env={**os.environ, "PATH": path, "HOME": str(folder)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False,
    )  # fmt: skip
    printed = done.stdout.splitlines()
    for line in shown:
        pattern = ".*".join(map(re.escape, line.split("…")))
        assert any(re.fullmatch(pattern, one) for one in printed), (line, done.stdout)
    assert "bash: " not in done.stdout
    errors = [one for one in printed if one.startswith("sealmq: ") and one not in shown]
    # What the page shows to be refused, and what `could` does not know.
    told = ("no-change-policy", "is not looked at", "alone knows", "sealmq.toml was read", "{",
            "blinded.publish")  # fmt: skip
    assert [one for one in errors if not any(word in one for word in told)] == []


@pytest.mark.full
def test_the_page_as_it_stands(tmp_path: Path) -> None:
    campus = tmp_path / "campus"
    listen = f"sealmq init campus --listen 127.0.0.1:{free_port()}"
    try:
        walk = [f"Ten minutes{n}" for n in ("", " 2", " 3", " 4", " 5")]
        typed(tmp_path, *walk, **{"sealmq init campus": listen})
        assert (tmp_path / "bob.log").read_text() == "loc/Alice/ATL/133 again\n"
        text = (campus / "sealmq.toml").read_text()
        assert TOML[f"{PAGE}Event types"].text in text
        for sections in (("What readers say", "Signed assertions"), ("Emergencies",)):
            text += "\n" + TOML[f"{PAGE}{sections[0]}"].text
            (campus / "sealmq.toml").write_text(text)
            typed(tmp_path, *sections)
        typed(tmp_path, "After a restore")
        made = tmp_path / "Alice.sealmq.json"
        words = ("client", "add", campus, "Alice", "--label", "campus", "-o", made)
        ran(*words)
        body = PYTHON[f"{PAGE}As a library"].text
        script = "import asyncio\nfrom sealmq.client import Client\nasync def main():\n"
        script += "".join(f"    {line}\n" for line in body.splitlines())
        done = subprocess.run(
            [sys.executable, "-c", f"{script}asyncio.run(main())"],
            cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    finally:
        sealmq("down", campus)
    page = (ROOT / "gateway/OWNERS.md").read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", page):
        assert "://" in target or (ROOT / "gateway" / target).exists(), target


@pytest.mark.full
def test_a_badge_asserts_and_retracts_on_a_board(tmp_path: Path) -> None:
    site = Site(tmp_path, example="campus", policy="owners")
    site.up()
    main, wifi = tmp_path / "main.py", tmp_path / "wifi.json"
    main.write_text(PYTHON[f"{PAGE}As a library 2"].text)
    wifi.write_text(json.dumps(WIFI))
    wifi.chmod(0o600)
    file = site.enrol("badge-7", "campus")
    with virtual(tmp_path / "board", 64) as made:
        provisioned(made, main, file, wifi)
        line = Line(lambda: str(made.pty))
        line.open()
        since = time.monotonic()
        try:
            assert made.ctl({"do": "reset"})["ok"]
            until("it to take it back", lambda: line.since(since, "taken back"), PATIENCE_S)
        finally:
            line.close()
    said = site.audit("command", family="owners", client="badge-7")
    verbs = [row["detail"].split()[0] for row in said]
    assert verbs[:2] == ["assert", "retract"]
    site.down()
