"""The doctor's rule: in sealmq.toml for a visit, out to the byte, whatever rules stand there."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from sealmq.cli.main import main
from sealmq.doctor.policy import in_policy
from sealmq.families.allowlist import doctor as ours
from sealmq.families.allowlist.settings import Rule, read
from sealmq.site import canary
from sealmq.site.config import load
from sealmq.site.edit import set_topic
from sealmq.site.layout import Layout

TEMPLATES = resources.files("sealmq.families.allowlist") / "templates"
RULES = {
    "nothing said": "",
    "what init writes": (TEMPLATES / "plain.toml").read_text("utf-8"),
    "the example": (TEMPLATES / "factory.toml").read_text("utf-8"),
    "a table without rules": "[families.allowlist]\n# none yet\n",
    "a list": '[families]\nallowlist = { rule = [{ read = ["a/#"], labels = ["m1-temp"] }] }\n',
}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    root, key = tmp_path / "site", tmp_path / "key"
    words = ["--example", "factory", "--policy", "labels", "--key-file", str(key)]
    assert main(["init", str(root), *words]) == 0
    return Layout.open(root)


@pytest.mark.parametrize("more", RULES.values(), ids=RULES)
def test_where_rules_judge_there_is_one_for_a_visit(layout: Layout, more: str) -> None:
    text = layout.config.read_text().replace('["labels"]', '["labels", "allowlist"]')
    layout.config.write_text(text + more)
    before = layout.config.read_bytes()
    theirs = read(load(layout.config))
    comments = {line for line in more.splitlines() if line.startswith("#")}
    for edited in (False, True):
        with in_policy(layout):
            *others, own, from_one = read(load(layout.config))
            assert tuple(others) == theirs
            assert own == Rule(
                tuple(canary.CLIENTS),
                publish=("+", "sealmq-doctor/+", ours.UNREAD, ours.UNHEARD, ours.SEALED),
                read=("+", "sealmq-doctor/+", ours.SEALED),
                sealed=(ours.SEALED,),
            )
            assert from_one == Rule(
                tuple(canary.CLIENTS), read=(ours.UNHEARD,), senders=(canary.STRANGER,)
            )
            if edited:
                set_topic(layout, "hall/door", "m1-temp")
        if not edited:
            assert layout.config.read_bytes() == before
    text = layout.config.read_text()
    assert "sealmq-doctor" not in text
    assert comments <= set(text.splitlines())
    assert read(load(layout.config)) == theirs
