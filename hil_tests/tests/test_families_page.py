"""gateway/FAMILIES.md: the toy that it shows works in a started site as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

from installed_family import installed
from pages import of_page
from running_site import ROOT, Site, ran, sealmq

PAGE = "gateway/FAMILIES.md"
ANGLE, TEMP = "machine/1/arm/angle", "machine/1/temperature"


def test_the_toy_of_the_page_judges_in_a_started_site(site: Site, tmp_path: Path) -> None:
    [toy] = [s for s in of_page(PAGE) if s.language == "python"]
    [toml] = [s for s in of_page(PAGE) if s.language == "toml"]
    order, _, settings = toml.text.partition("\n\n")
    site.edit('order = ["labels"]\n', order.removeprefix("[policy]\n") + "\n")
    site.toml.write_text(f"{site.toml.read_text()}\n{settings}")
    with installed(tmp_path / "installed", "halt", toy.text):
        site.up()
        words = ("--client", "m1-control-panel", "-t", ANGLE)
        send = ("pub", site.path, *words, "-m", "3", "-q", 1)
        done = sealmq(*send)
        assert done.returncode != 0
        assert "publishing is halted there" in done.stderr
        assert "hint: wait, or ask the operator" in done.stderr
        ran("pub", site.path, "--client", "m1-temp-sensor", "-t", TEMP, "-m", "21", "-q", 1)
        done = sealmq("explain", site.path, "publish", *words)
        assert done.returncode == 1
        assert "halt.publish: An operator has halted publishing there" in done.stdout
        assert "halted is machine/1/arm/#" in done.stdout
        site.edit('filters = ["machine/1/arm/#"]', "filters = 1")
        done = sealmq("reload", site.path)
        assert done.returncode != 0
        assert "families.halt.filters: this is a list of filters" in done.stderr
        site.edit("filters = 1", "filters = []")
        ran("reload", site.path)
        ran(*send)
        site.down()


def test_the_page_has_the_toy_in_some_forty_lines() -> None:
    [toy] = [s for s in of_page(PAGE) if s.language == "python"]
    assert len([line for line in toy.text.splitlines() if line.strip()]) <= 45
    assert re.search(r"^MANIFEST = ", toy.text, re.M)
    assert (ROOT / PAGE).exists()
