"""`sealmq init --policy owners`, and the example campus."""

from __future__ import annotations

from pathlib import Path

import pytest

from families.owners.owners_site import People, campus, config
from sealmq.cli import init
from sealmq.cli.errors import UsageError
from sealmq.cli.main import main
from sealmq.families.owners.settings import read
from sealmq.site.config import load


def test_a_new_site_of_owners_is_closed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, key = tmp_path / "site", tmp_path / "site.key"
    assert main(["init", str(root), "--policy", "owners", "--key-file", str(key)]) == 0
    made = load(root / "sealmq.toml")
    assert made.policy.order == ("labels", "owners")
    settings = read(made)
    assert (settings.dynamic, settings.types, settings.assertions) == (True, (), ())
    assert "closed    what no assertion lets anybody have is nobody's" in capsys.readouterr().out
    text = (root / "sealmq.toml").read_text()
    # What is commented out is a policy, too.
    commented = (
        text.partition("# [families.owners.types")[1]
        + text.partition("# [families.owners.types")[2]
    )
    lines = [line.removeprefix("# ") for line in commented.splitlines() if line.startswith("# ")]
    meant = "\n".join(line for line in lines if line.startswith("[") or " = " in line)
    assert [kind.name for kind in read(config(text + meant)).types] == ["LOC_INFO"]
    assert len(read(config(text + meant)).assertions) == 1


def test_the_example_is_a_whole_site_and_brings_its_events() -> None:
    words = {"name": "campus", "id": "00c0ffee", "listen": "127.0.0.1:1883", "broker": "embedded"}
    text = init._text("campus", "owners", words)
    found = config(text)
    assert found.policy.order == ("labels", "owners")
    assert {client.label for client in found.clients.values()} == {"campus"}
    assert sorted(init._beside("campus", "owners")) == ["events.jsonl"]
    assert init._beside("factory", "owners") == {}
    settings = read(found)
    assert [made.authorizer for made in settings.assertions] == [
        "POLICY", "location_admin", "location_admin", "location_admin", "Bob", "Nick", "Eve",
    ]  # fmt: skip
    assert [made.owner for made in settings.assertions] == ["*"] * 4 + ["Bob", "Nick", "Eve"]
    assert People(campus()).faults == []


def test_an_example_brings_its_policy_and_no_other() -> None:
    assert init._family(None, "campus") == "owners"
    assert init._family("owners", "campus") == "owners"
    assert init._family(None, "factory") == init._family(None, None) == init.DEFAULT
    assert init._family("labels", "factory") == "labels"
    with pytest.raises(UsageError, match="has the policy owners"):
        init._family("labels", "campus")
