"""Console blocks of the READMEs are run as they stand, and their output is what they show."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from free_ports import free_port
from running_site import ROOT, Site, sealmq

README = (ROOT / "README.md").read_text(encoding="utf-8")


def block() -> list[str]:
    """The lines of the first console block."""
    found = re.search(r"```console\n(.*?)```", README, re.DOTALL)
    assert found
    return found[1].splitlines()


def test_a_result_within_25_lines_of_100_columns() -> None:
    before = README.split("```console")[0].splitlines()
    lines = before + block()
    assert len(lines) <= 25
    assert max(map(len, README.splitlines())) <= 100


@pytest.mark.parametrize("shell", ["bash", pytest.param("dash", marks=pytest.mark.full)])
def test_its_commands_show_what_it_shows(tmp_path: Path, shell: str) -> None:
    check(block(), tmp_path, shell)


@pytest.mark.full
def test_the_walk_through_purposes(tmp_path: Path) -> None:
    text = (ROOT / "gateway" / "PURPOSES.md").read_text(encoding="utf-8")
    walk = text.partition("## Ten minutes")[2].partition("\n## ")[0]
    blocks = re.findall(r"```console\n(.*?)```", walk, re.DOTALL)
    assert len(blocks) == 5
    begin = ["$ . build/venv/bin/activate"]
    check([*begin, *(line for found in blocks for line in found.splitlines())], tmp_path)


def check(lines: list[str], tmp_path: Path, shell: str = "bash") -> None:
    """Type what stands behind `$ `; each other line has to be printed."""
    (tmp_path / "build").symlink_to(ROOT / "build")
    # `make demo` has its own test; everything else runs in one shell, as a person would type it.
    typed, shown = [], []
    for line in lines:
        if not line.startswith("$ "):
            shown.append(line)
        elif not line.startswith("$ make demo"):
            typed.append(line[2:])
    # The default port may be taken on the machine that runs the tests.
    typed = [
        f"{x.split('#')[0]} --listen 127.0.0.1:{free_port()}" if " init " in x else x for x in typed
    ]
    script = "export HOME=$PWD\n" + "\n".join(typed) + "\nwait\n"
    try:
        done = subprocess.run(
            [shell, "-c", script],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        sealmq("down", tmp_path / "factory")
    printed = [x for x in (done.stdout + done.stderr).splitlines() if x.strip()]
    complaints = [x for x in printed if re.match(rf"{shell}: ", x)]
    assert complaints == []
    # stdout and stderr of one shell: which stream a line came by is not shown in a README.
    for line in shown:
        pattern = ".*".join(map(re.escape, line.split("…")))
        assert any(re.fullmatch(pattern, x) for x in printed), (line, printed)
    told = ("refused by rule", "the log begins")
    extra = [x for x in printed if x.startswith("sealmq:") and not any(t in x for t in told)]
    assert extra == []


def test_its_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if "://" not in target:
            assert (ROOT / target).exists(), target


@contextmanager
def running(script: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A sample as a program of its own, in that folder."""
    words = [sys.executable, "-u", "-c", script]
    child = subprocess.Popen(words, cwd=folder, text=True, stdout=subprocess.PIPE)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def test_the_library_s_samples_run_as_they_stand_and_wait_for_a_gateway_that_is_not_up(
    tmp_path: Path,
) -> None:
    text = (ROOT / "gateway" / "README.md").read_text(encoding="utf-8")
    section = text.partition("## As a library")[2].partition("\n## ")[0]
    script, program = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    site = Site(tmp_path, policy="purposes")
    for name, label in (("thermometer", "m1-temp"), ("reader", "monitor")):
        site.enrol(name, label).rename(tmp_path / f"{name}.json")
    (tmp_path / "reader.json").rename(tmp_path / "monitor.json")
    with running(script, tmp_path) as publishing:
        # It was there before its gateway.
        site.up()
        try:
            assert publishing.wait(60) == 0
            with running(program, tmp_path) as reading:
                assert reading.stdout is not None
                assert reading.stdout.readline().startswith("hall/temperature b'21.5' thermometer")
        finally:
            site.down()
