"""A sealmq.toml that the family purposes cannot take: `up` says so, a running site goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from running_site import Site, sealmq, until

MODE = '[families.purposes]\nmode = "hybrid"\n'
WRONG = MODE.replace("hybrid", "fob")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    made.purposes(MODE)
    try:
        yield made
    finally:
        made.down()


def where(site: Site) -> str:
    line = site.toml.read_text().splitlines().index('mode = "fob"') + 1
    return f"sealmq.toml, line {line}: families.purposes.mode: mode is 'fob'"


def test_a_wrong_table_is_told_at_up_and_at_reload(site: Site) -> None:
    site.edit(MODE, WRONG)
    done = sealmq("up", site.path)
    assert done.returncode == 1
    assert where(site) in done.stderr
    assert "hint: one of: hybrid, fop, fos" in done.stderr
    assert "Traceback" not in done.stderr

    site.edit(WRONG, MODE)
    site.up()
    site.edit(MODE, WRONG)
    os.kill(site._supervisor(), signal.SIGHUP)
    (said,) = until("the refusal", lambda: site.audit("config-refused"))
    assert said["role"] == "kg", "it alone reads the file"
    assert where(site) in said["reason"]
    assert site.audit("config-reloaded", role="mediator") == []

    def told() -> list[str]:
        return [line for line in site.log().splitlines() if "kg: " in line and "'fob'" in line]

    (line,) = until("a line of the log", told)
    assert line.endswith("one of: hybrid, fop, fos")
    assert "Traceback" not in site.log()

    # It goes on, and takes the next one that is right.
    site.edit(WRONG, MODE.replace("hybrid", "fos"))
    os.kill(site._supervisor(), signal.SIGHUP)
    until("the reload", lambda: site.audit("config-reloaded", role="mediator"))
