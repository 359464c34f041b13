"""The doctor's names: in sealmq.toml for a visit, out to the byte, and no new keys for anybody."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from sealmq.cli.main import main
from sealmq.doctor.errors import DoctorError
from sealmq.doctor.policy import alone, in_policy
from sealmq.families.purposes import doctor as ours
from sealmq.families.purposes.settings import read
from sealmq.kg.errors import Denied
from sealmq.kg.local import opened
from sealmq.site import canary
from sealmq.site.config import Config, ConfigError, load, loads
from sealmq.site.edit import set_topic
from sealmq.site.layout import Layout

PLAIN = '[site]\nname = "s"\nid = "01020304"\n'


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    root, key = tmp_path / "site", tmp_path / "key"
    words = ["--example", "factory", "--policy", "labels", "--key-file", str(key)]
    assert main(["init", str(root), *words]) == 0
    return Layout.open(root)


def names(config: Config) -> set[str]:
    found = {*config.labels, *config.clients, *config.topics}
    return {name for name in found if name.startswith("sealmq-doctor")}


ALL = {*canary.LABELS, *canary.CLIENTS, *canary.TOPICS}


def test_they_stand_there_for_a_visit_and_are_gone_to_the_byte(layout: Layout) -> None:
    before, mode = layout.config.read_bytes(), layout.config.stat().st_mode
    for _ in range(2):
        with in_policy(layout):
            assert names(load(layout.config)) == ALL
        assert layout.config.read_bytes() == before
        assert layout.config.stat().st_mode == mode


def test_a_visit_that_fails_takes_them_out_as_well(layout: Layout) -> None:
    before = layout.config.read_bytes()
    with pytest.raises(ZeroDivisionError), in_policy(layout):
        raise ZeroDivisionError
    assert layout.config.read_bytes() == before


def test_what_somebody_edits_meanwhile_stays(layout: Layout) -> None:
    with in_policy(layout):
        set_topic(layout, "hall/door", "m1-temp")
    config = load(layout.config)
    assert config.topics["hall/door"] == "m1-temp"
    assert names(config) == set()


def test_what_a_visit_that_was_cut_off_has_left_goes_with_the_next(layout: Layout) -> None:
    before = layout.config.read_bytes()
    with in_policy(layout):
        left = layout.config.read_bytes()
    layout.config.write_bytes(left)
    with in_policy(layout):
        assert names(load(layout.config)) == ALL
    assert names(load(layout.config)) == set()
    assert load(layout.config) == loads(before.decode(), layout.config)


TEMPLATE = resources.files("sealmq.families.purposes") / "templates" / "plain.toml"
PURPOSES = {
    "nothing said": "",
    "what init writes": TEMPLATE.read_text(encoding="utf-8"),
    "a tree, grants and reservations": """
[families.purposes]
stewards = ["monitor"]
[families.purposes.tree]
operation = ["control"]
[families.purposes.reserve]
"#" = { aip = ["operation"], pip = ["control"] }
[[families.purposes.grant]]
filter = "#"
clients = ["monitor"]
""",
    "a grant that is written as a list": "[families]\n"
    'purposes = { grant = [{ filter = "a/#", labels = ["m1-temp"] }] }\n',
}


@pytest.mark.parametrize("more", PURPOSES.values(), ids=PURPOSES)
def test_where_purposes_judge_its_topics_have_one_for_a_visit(layout: Layout, more: str) -> None:
    text = layout.config.read_text()
    assert text.count('order = ["labels"]') == 1
    text = text.replace('order = ["labels"]', 'order = ["labels", "purposes"]')
    layout.config.write_text(text + more)
    before = layout.config.read_bytes()
    theirs = read(load(layout.config)).settings
    comments = {line for line in more.splitlines() if line.startswith("#")}
    for edited in (False, True):
        with in_policy(layout):
            settings, purposes, _ = read(load(layout.config))
            assert settings.reserve[canary.ALL_TOPICS] == (frozenset({ours.PURPOSE}), frozenset())
            assert settings.grants[0] == (ours.CONSENT, (), (canary.LOW,))
            assert settings.grants[1:] == theirs.grants
            assert all(map(purposes.known, (ours.PURPOSE, ours.OTHER_PURPOSE)))
            assert ours.PURPOSE not in purposes.above(ours.OTHER_PURPOSE)
            if edited:
                set_topic(layout, "hall/door", "m1-temp")
        if not edited:
            assert layout.config.read_bytes() == before
    text = layout.config.read_text()
    assert "sealmq-doctor" not in text
    assert comments <= set(text.splitlines())
    assert read(load(layout.config)).settings == theirs


def test_one_visit_at_a_time(layout: Layout) -> None:
    with alone(layout), pytest.raises(DoctorError, match="another"), alone(layout):
        raise AssertionError("two at once")
    with alone(layout):
        pass


def test_nobody_gets_new_keys_for_a_visit(layout: Layout) -> None:
    with opened(layout, load(layout.config)) as kg:

        def epochs() -> dict[str, int]:
            return {row["name"]: row["epoch"] for row in kg.labels()}

        before = epochs()
        for _ in range(3):
            with in_policy(layout):
                done = kg.apply(load(layout.config))
                assert done.changed
                for name in canary.CLIENTS:
                    kg.lend(name)
                    with pytest.raises(Denied, match="never enrolled"):
                        kg.enrol(name)
            done = kg.apply(load(layout.config))
            assert (done.left, done.epochs) == ([], [])
            now = epochs()
            assert {name: now[name] for name in before} == before
            assert {now[name] for name in canary.LABELS} == {1}


@pytest.mark.parametrize(
    "text",
    [
        '[labels]\nsealmq-doctor-low = ["x"]\nx = []\n',
        "[labels]\nsealmq-doctor-mine = []\n",
        '[labels]\nsealmq-doctor-low = []\nx = ["sealmq-doctor-low"]\n',
        '[labels]\nsealmq-doctor-low = []\n[clients]\nx = { label = "sealmq-doctor-low" }\n',
        '[labels]\nx = []\n[clients]\nsealmq-doctor-writer = { label = "x" }\n',
        "[labels]\nsealmq-doctor-side = []\n[clients]\n"
        'sealmq-doctor-writer = { label = "sealmq-doctor-side" }\n',
        '[clients]\nsealmq-doctor-writer = { label = "top" }\n',
    ],
)
def test_nobody_else_uses_the_names(text: str) -> None:
    """Else somebody could leave a label under such a name, and keep its keys."""
    with pytest.raises(ConfigError, match="are those of `sealmq doctor`"):
        loads(PLAIN + text)
