"""gateway/DOCTOR.md, as somebody types it who has a Mosquitto."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from free_ports import free_port
from sealmq.doctor.cures import CURES, TITLES
from typed_page import console, typed

PAGE = Path(__file__).parents[2] / "DOCTOR.md"


@pytest.mark.full
def test_the_page_as_it_stands(tmp_path: Path) -> None:
    text, port = PAGE.read_text(), str(free_port())
    for kind, name in (("conf", "mosquitto.conf"), ("acl", "acl"), ("toml", "accounts.toml")):
        [block] = re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)
        if kind == "conf":
            block = block.replace("1883", port)
            block += "set_tcp_nodelay true\n" + ("user root\n" if os.geteuid() == 0 else "")
        (tmp_path / name).write_text(block)
    script, wanted = console(PAGE)
    script = script.replace("mqtt://localhost", f"mqtt://localhost:{port}")
    printed = typed(f"trap 'kill $!' EXIT\n{script}", tmp_path, 120)
    for line in wanted:
        assert line in printed.splitlines(), (line, printed)
    assert printed.count(" OPEN ") == 2


def test_the_table_has_each_row_and_each_that_can_be_open_says_how_it_is_closed() -> None:
    rows = re.findall(r"^\| (.+?) \|", PAGE.read_text(), re.MULTILINE)
    assert rows[1:] == list(TITLES.values())
    assert set(CURES) == set(TITLES) - {"allowed", "left"}
    assert all(set(cure) == {"mosquitto", "emqx"} for cure in CURES.values())
