"""gateway/BLINDED.md, from its first line on, as a newcomer types it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from free_ports import free_port
from pages import samples
from running_site import ROOT, Site, ran, sealmq, until
from sealmq_hil.line import Line
from test_board_life import WIFI, virtual
from test_owners_page import typed
from test_samples import PATIENCE_S, provisioned

PAGE = "gateway/BLINDED.md"
PYTHON, TOML = samples("python"), samples("toml")
WALK = [f"Ten minutes{n}" for n in ("", " 2", " 3", " 4")]


@pytest.mark.full
def test_the_page_as_it_stands(tmp_path: Path) -> None:
    streaming = tmp_path / "streaming"
    listen = f"sealmq init streaming --listen 127.0.0.1:{free_port()}"
    try:
        typed(tmp_path, *WALK, page=PAGE, **{"sealmq init streaming": listen})
        assert (tmp_path / "miner.log").read_text() == "stream/b/1 71\nstream/b/4 72\n"
        assert (tmp_path / "all.toml").read_text().startswith("# Who has what")
        # What is written as the page has it, in the place of the example's.
        text = TOML[f"{PAGE}: What is written"].text
        (tmp_path / "own.toml").write_text(text)
        ran("blinded", "put", streaming, tmp_path / "own.toml")
        shown = json.loads(ran("blinded", "show", streaming, "--json"))
        assert shown["customers"]["miner"]["wants"]
        assert TOML[f"{PAGE}: Settings"].text in (streaming / "sealmq.toml").read_text()
        made = tmp_path / "jingfang.sealmq.json"
        ran("client", "add", streaming, "jingfang", "--label", "heat", "-o", made)
        script = "import asyncio\nfrom sealmq.client import Client\nasync def main():\n"
        body = PYTHON[f"{PAGE}: As a library"].text
        script += "".join(f"    {line}\n" for line in body.splitlines())
        done = subprocess.run(
            [sys.executable, "-c", f"{script}asyncio.run(main())"],
            cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    finally:
        sealmq("down", streaming)


@pytest.mark.full
def test_a_board_publishes_under_a_policy_id(tmp_path: Path) -> None:
    site = Site(tmp_path, example="streaming", policy="blinded")
    site.up()
    main, wifi = tmp_path / "main.py", tmp_path / "wifi.json"
    main.write_text(PYTHON[f"{PAGE}: As a library 2"].text)
    wifi.write_text(json.dumps(WIFI))
    wifi.chmod(0o600)
    site.edit('jingfang = { label = "heat", kind = "app" }', 'jingfang = { label = "heat" }')
    file = site.enrol("jingfang", "heat")
    with virtual(tmp_path / "board", 64) as made:
        provisioned(made, main, file, wifi)
        line = Line(lambda: str(made.pty))
        line.open()
        since = time.monotonic()
        try:
            assert made.ctl({"do": "reset"})["ok"]
            until("it to publish", lambda: line.since(since, "published"), PATIENCE_S)
        finally:
            line.close()
    site.down()
    assert not site.audit("publish-denied")
    assert (ROOT / PAGE).exists()
