"""gateway/BRIDGE.md, as two operators type it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from free_ports import free_port
from typed_page import console, typed

PAGE = Path(__file__).parents[2] / "BRIDGE.md"


@pytest.mark.full
def test_the_page_as_it_stands(tmp_path: Path) -> None:
    script, wanted = console(PAGE)
    assert len(script.splitlines()) <= 30
    [table] = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "outlet.toml").write_text(table)
    for port in ("1883", "2883", "8884"):
        script = script.replace(f":{port}", f":{free_port()}")
    out = typed(f"{script}\nsealmq down north\nsealmq down south\n", tmp_path, 400)
    printed = out.splitlines()
    for line in wanted:
        pattern = ".*".join(map(re.escape, line.split("…")))
        assert any(re.fullmatch(pattern, one) for one in printed), (line, out)
    assert not [one for one in printed if one.startswith(("sealmq: ", "bash: "))], out
