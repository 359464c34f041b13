"""Commands change sealmq.toml without touching what people wrote around it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from sealmq.site import edit
from sealmq.site.config import ConfigError, load
from sealmq.site.errors import SiteError
from sealmq.site.layout import Layout, locked

TEXT = """\
# my site
[site]
name = "f"
id = "01020304"

[labels]   # who is above whom
low = []
high = ["low"]   # the bosses

[clients]
# the first one
a = { label = "low" }

# what follows is about topics
[topics]
"x/y" = "low"
"""


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    path = tmp_path / "sealmq.toml"
    path.write_text(TEXT)
    path.chmod(0o640)
    return Layout.of(tmp_path)


def test_a_new_client_is_one_line_in_its_table(layout: Layout) -> None:
    config, added = edit.add_clients(layout, [edit.New("b.c", "high", "app", "chacha")])
    assert added
    assert config.clients["b.c"].label == "high"
    line = '"b.c" = { label = "high", kind = "app", suite = "chacha" }\n'
    mark = 'a = { label = "low" }\n'
    assert layout.config.read_text() == TEXT.replace(mark, mark + line)
    assert layout.config.stat().st_mode & 0o777 == 0o640
    assert load(layout.config) == config


# Out-of-order tables come back from tomlkit in another order once something has looked into them.
def test_what_says_the_same_in_another_order_is_not_written(layout: Layout) -> None:
    def around(doc: edit.Document) -> None:
        doc["labels"] = doc.pop("labels")
        assert doc.as_string() != TEXT

    before = layout.config.stat()
    assert edit.edit(layout, around).digest == load(layout.config).digest
    assert layout.config.read_text() == TEXT
    assert layout.config.stat().st_ino == before.st_ino


def test_the_same_client_again_changes_nothing(layout: Layout) -> None:
    before = layout.config.stat()
    config, added = edit.add_clients(layout, [edit.New("a", "low")])
    assert not added
    assert "a" in config.clients
    assert layout.config.read_text() == TEXT
    assert layout.config.stat().st_ino == before.st_ino


@pytest.mark.parametrize(
    ("label", "kind", "suite", "what"),
    [
        ("high", None, None, "label 'low' and not 'high'"),
        ("low", "app", None, "kind 'device' and not 'app'"),
        ("low", None, "chacha", "suite 'ccm' and not 'chacha'"),
    ],
)
def test_a_client_that_is_another_one(
    layout: Layout, label: str, kind: str | None, suite: str | None, what: str
) -> None:
    with pytest.raises(ConfigError, match=what):
        edit.add_clients(layout, [edit.New("a", label, kind, suite)])
    assert layout.config.read_text() == TEXT


def test_what_would_be_wrong_is_not_written(layout: Layout) -> None:
    with pytest.raises(ConfigError, match="no label 'hihg'") as caught:
        edit.add_clients(layout, [edit.New("b", "hihg")])
    assert caught.value.hint == "did you mean high?"
    assert caught.value.line is None
    assert layout.config.read_text() == TEXT
    assert sorted(p.name for p in layout.root.iterdir()) == [".edit.lock", "sealmq.toml"]


def test_whoever_can_only_read_the_site_s_folder_stops_no_edit(layout: Layout) -> None:
    folder = os.open(layout.root, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        edit.add_clients(layout, [edit.New("b", "high")])
    finally:
        os.close(folder)
    assert layout.lock_file("edit").stat().st_mode & 0o777 == 0o600


def test_an_edit_that_does_not_end_is_told_to_the_next(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    with locked(layout, "edit", patience_s=0) as ours:
        assert ours
        with locked(layout, "edit", patience_s=0) as again:
            assert not again
        monkeypatch.setattr(edit, "PATIENCE_S", 0.1)
        with pytest.raises(SiteError, match="does not end") as caught:
            edit.add_clients(layout, [edit.New("b", "high")])
    assert ".edit.lock" in str(caught.value.hint)


def test_a_file_that_is_wrong_already_is_left_alone(layout: Layout) -> None:
    layout.config.write_text(TEXT + "x = [")
    with pytest.raises(ConfigError, match="not TOML"):
        edit.add_clients(layout, [edit.New("b", "low")])
    assert layout.config.read_text() == TEXT + "x = ["


def test_topics_and_labels_of_clients(layout: Layout) -> None:
    edit.set_topic(layout, "x/z", "high")
    edit.set_topic(layout, "x/y", None)
    config = edit.set_client_label(layout, "a", "high")
    assert dict(config.topics) == {"x/z": "high"}
    assert config.clients["a"].label == "high"
    text = layout.config.read_text()
    assert text == TEXT.replace('"x/y" = "low"', '"x/z" = "high"').replace(
        'a = { label = "low" }', 'a = { label = "high" }'
    )
    with pytest.raises(ConfigError, match="no client 'zz'"):
        edit.set_client_label(layout, "zz", "low")


CLIENTS = """\
a = { label = "low" }   # by the door
b = {label="high",kind="app"}
"c.d" = { label = "low", disabled = false } # off

[clients.e]  # a table of its own
label = "high"   # up there
suite = "chacha"
"""


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("a", '{ label = "low" }   #', '{ label = "low", disabled = true}   #'),
        ("b", '{label="high",kind="app"}', '{label="high",kind="app", disabled = true}'),
        ("c.d", "disabled = false", "disabled = true"),
        ("e", 'suite = "chacha"\n', 'suite = "chacha"\ndisabled = true\n'),
    ],
)
def test_a_client_is_disabled_and_enabled(layout: Layout, name: str, old: str, new: str) -> None:
    text = TEXT.replace('a = { label = "low" }\n', CLIENTS)
    layout.config.write_text(text)
    config, changed = edit.set_client_disabled(layout, name, True)
    assert changed
    assert [c.name for c in config.clients.values() if c.disabled] == [name]
    told = layout.config.read_text()
    assert told == text.replace(old, new)
    assert edit.set_client_disabled(layout, name, True) == (config, False)
    assert layout.config.read_text() == told
    config, changed = edit.set_client_disabled(layout, name, False)
    assert changed
    assert not any(c.disabled for c in config.clients.values())
    assert "# by the door" in layout.config.read_text()
    assert edit.set_client_disabled(layout, name, False) == (config, False)


def test_rotation_rises_above_what_anybody_has_seen(layout: Layout) -> None:
    assert edit.raise_rotation(layout, "a", 0).clients["a"].rotation == 1
    assert edit.raise_rotation(layout, "a", 0).clients["a"].rotation == 2
    assert edit.raise_rotation(layout, "a", 7).clients["a"].rotation == 8
    assert edit.raise_rotation(layout, "a", 2).clients["a"].rotation == 9
    for call in (edit.raise_rotation, edit.set_client_disabled):
        with pytest.raises(ConfigError, match="no client 'aa'") as caught:
            call(layout, "aa", True)
        assert caught.value.hint == "did you mean a?"


def test_tables_that_are_missing_are_made(layout: Layout) -> None:
    layout.config.write_text('[site]\nname = "f"\nid = "01020304"\n')
    edit.add_clients(layout, [edit.New("a", "bottom")])
    config = edit.set_topic(layout, "x", "top")
    assert config.clients["a"].label == "bottom"
    assert config.topics["x"] == "top"


def test_fill_quotes_and_leaves_out() -> None:
    template = "a = @a@\n# mail@example.org\nb = @b@\n"
    assert edit.fill(template, {"a": 'x"\\\n@b@'}) == 'a = "x\\"\\\\\\n@b@"\n# mail@example.org\n'
