"""gateway/FAMILIES.md: the toy that it shows works in a started site as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from installed_family import installed
from pages import Sample, of_page
from running_site import ROOT, Site, ran, sealmq

PAGE = "gateway/FAMILIES.md"
ANGLE, TEMP = "machine/1/arm/angle", "machine/1/temperature"


def programs() -> list[Sample]:
    """The toy, the one with rows and its command, and a doctor's part."""
    return [s for s in of_page(PAGE) if s.language == "python"]


@pytest.mark.full
def test_the_toy_of_the_page_judges_in_a_started_site(site: Site, tmp_path: Path) -> None:
    toy = programs()[0]
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


def test_the_toy_with_rows_and_a_command_judges_in_a_started_site(
    site: Site, tmp_path: Path
) -> None:
    _, hold, command, *_ = programs()
    assert (
        len([line for s in (hold, command) for line in s.text.splitlines() if line.strip()]) <= 40
    )
    site.edit('order = ["labels"]\n', 'order = ["labels", "hold"]\n')
    panel, arm = ("--client", "m1-control-panel"), ("--client", "m1-arm-operator")
    with installed(tmp_path / "installed", "hold", hold.text, command=command.text) as folder:
        site.up()
        send = ("pub", site.path, *panel, "-t", ANGLE, "-m", "3", "-q", 1)
        ran(*send)
        assert "held" in ran("hold", site.path, *arm, "-t", ANGLE)
        done = sealmq(*send)
        assert done.returncode != 0
        assert "another client holds it" in done.stderr
        done = sealmq("hold", site.path, *panel, "-t", ANGLE)
        assert done.returncode == 12
        site.down()
        site.up()
        assert sealmq(*send).returncode != 0, "the row has outlived the mediator"
        assert "free" in ran("hold", site.path, *arm, "-t", ANGLE)
        ran(*send)
        ran("hold", site.path, *arm, "-t", ANGLE)

        # An order in the file that is not in force yet is told.
        site.edit('order = ["labels", "hold"]', 'order = ["labels"]')
        ran("reload", site.path)
        told = "until its next start the mediator judges by [policy] order labels, hold"
        assert told in sealmq("explain", site.path, "publish", *panel, "-t", ANGLE).stderr
        assert told in sealmq("status", site.path).stdout
        site.edit('order = ["labels"]', 'order = ["labels", "hold"]')
        ran("reload", site.path)
        site.down()

        # A family that fails on its rows is named by all who are asked.
        broken = hold.text.replace("record.value.decode()", "record.nothing")
        assert broken != hold.text
        (folder / "__init__.py").write_text(broken)
        up = sealmq("up", site.path, "--detach")
        line = 1 + broken[: broken.index("record.nothing")].count("\n")
        why = (
            "the policy family 'hold' has failed at apply, AttributeError "
            f"(families/hold/__init__.py:{line})"
        )
        assert why in up.stdout + up.stderr
        done = sealmq("status", site.path, "--json")
        assert done.returncode == 1
        assert why in done.stdout
        done = sealmq("doctor", site.path)
        assert done.returncode != 0
        assert why in done.stderr
        [row] = site.audit("family-fault", family="hold")
        assert row["reason"] == f"AttributeError (families/hold/__init__.py:{line})"
        ran("down", site.path)


def test_the_page_has_the_toy_in_some_forty_lines() -> None:
    toy = programs()[0]
    assert len([line for line in toy.text.splitlines() if line.strip()]) <= 45
    assert re.search(r"^MANIFEST = ", toy.text, re.M)
    assert (ROOT / PAGE).exists()
