"""gateway/TRUST.md as a newcomer types it, and the family in a started site."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from pages import of_page
from running_site import ROOT, SEALMQ, Site, sealmq

PAGE = "gateway/TRUST.md"


@pytest.mark.full
def test_the_page_as_it_stands(tmp_path: Path) -> None:
    """Every block in its order, in one shell; what stands there and is no command is printed."""
    lines: list[str] = []
    for sample in of_page(PAGE):
        if sample.language == "json":
            (tmp_path / "ratings.json").write_text(sample.text)
        else:
            assert sample.language == "console"
            lines += sample.text.splitlines()
    commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    commands[0] += " --key-file key"
    done = subprocess.run(
        ["bash", "-e", "-c", "\n".join(commands)],
        cwd=tmp_path, env={**os.environ, "PATH": f"{SEALMQ.parent}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    printed = done.stdout.splitlines()
    for line in lines:
        if not line.startswith("$ "):
            pattern = ".*".join(map(re.escape, line.split("…")))
            assert any(re.fullmatch(pattern, one) for one in printed), (line, done.stdout)
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / PAGE).read_text()):
        assert "://" in target or (ROOT / "gateway" / target).exists(), target


TRIES = ("publish what the token does not have", "subscribe beyond the token")


def tries(site: Site) -> tuple[int, dict[str, bool]]:
    """What `sealmq doctor` finds, by name."""
    done = sealmq("doctor", site.path, "--json")
    return done.returncode, {row["name"]: row["ok"] for row in json.loads(done.stdout)["tries"]}


@pytest.mark.full
def test_tokens_judge_in_a_started_site(tmp_path: Path) -> None:
    site = Site(tmp_path, example="factory", policy="trust")
    site.up()
    try:
        sent = ("pub", site.path, "--client", "m1-temp-sensor", "-m", "21.5", "-q", "1")
        assert sealmq(*sent, "-t", "machine/1/temperature", "--retain").returncode == 0
        no = sealmq(*sent, "-t", "machine/1/other")
        assert no.returncode != 0
        assert "trust.publish.outside" in no.stderr
        assert "[families.trust.tokens.CLIENT]" in no.stderr
        read = ("sub", site.path, "--client", "monitor", "-C", "1", "-W", "20", "-v")
        assert "machine/1/temperature 21.5" in sealmq(*read, "-t", "machine/#").stdout
        assert "trust.subscribe.outside" in sealmq(*read, "-t", "#").stderr
        code, tried = tries(site)
        assert code == 0
        assert tried.items() >= dict.fromkeys(TRIES, True).items()
        # A token that is narrowed ends what its client reads.
        file = site.path / "sealmq.toml"
        file.write_text(file.read_text().replace('"machine/#", ', ""))
        assert sealmq("reload", site.path).returncode == 0
        assert "trust.subscribe.outside" in sealmq(*read, "-t", "machine/#").stderr
        # Where nobody enforces it, the doctor finds out.
        site.down()
        site.edit("[policy]\n", "[policy]\nenforce = false\n")
        site.up()
        code, tried = tries(site)
        assert code == 1
        assert tried.items() >= dict.fromkeys(TRIES, False).items()
    finally:
        site.down()
