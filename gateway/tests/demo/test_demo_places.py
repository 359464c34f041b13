"""The demo's folder: emptied only when it is the demo's, and used by one run at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealmq.demo.errors import DemoError
from sealmq.demo.places import Places


def test_a_second_run_begins_in_an_empty_folder(tmp_path: Path) -> None:
    places = Places(tmp_path / "a" / "demo")
    places.fresh().close()
    (places.clients / "secret.json").touch()
    places.key.touch()
    places.fresh().close()
    assert not places.key.exists()
    assert list(places.clients.iterdir()) == []
    assert places.clients.stat().st_mode & 0o777 == 0o700


def test_two_runs_at_once_do_not_share_a_folder(tmp_path: Path) -> None:
    places = Places(tmp_path / "demo")
    with places.fresh():
        places.key.touch()
        with pytest.raises(DemoError, match="another demo"):
            places.fresh()
        assert places.key.exists()
    places.fresh().close()


def test_a_folder_of_others_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "theirs").touch()
    with pytest.raises(DemoError, match="not empty"):
        Places(tmp_path).fresh()
    assert (tmp_path / "theirs").exists()


def test_what_is_secret_goes_and_what_shows_stays(tmp_path: Path) -> None:
    places = Places(tmp_path / "demo")
    with places.fresh():
        for path in (places.audit / "kg" / "a.jsonl", places.clients / "x.state"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        for path in (places.key, places.work / "broker.pw", places.summary, places.said / "x"):
            path.touch()
        places.clean()
    left = {str(path.relative_to(places.work)) for path in places.work.rglob("*")}
    assert left == {
        ".sealmq-demo", "audit", "audit/kg", "audit/kg/a.jsonl", "capture", "log", "said",
        "said/x", "summary.json",
    }  # fmt: skip
