"""`sealmq up` finds the site and its key, or says in one line what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from run.sites import Site, sealmq
from sealmq.cli.main import main


@pytest.mark.parametrize("wrong", ["missing", "readable", "short", "salt", "inside"])
def test_a_key_that_will_not_do_is_one_clear_line(site: Site, wrong: str) -> None:
    options: list[str] = []
    if wrong == "missing":
        site.key.unlink()
    elif wrong == "readable":
        site.key.chmod(0o644)
    elif wrong == "short":
        site.key.write_text("short")
    elif wrong == "salt":
        (site.root / "state" / "salt").unlink()
    else:
        (site.root / "key").touch(0o600)
        options = ["--key-file", str(site.root / "key")]
    up = site.up(*options)
    assert up.process.wait(60) == 1
    error, hint = up.err.read_text().splitlines()
    assert error.startswith("sealmq: ")
    assert hint.startswith("hint: ")
    assert not (site.root / "state" / "kg" / "told.jsonl").exists()


def test_the_key_file_of_the_command_line_and_the_credential_of_systemd(
    site: Site, folder: Path
) -> None:
    site.up().ready().end()
    other = folder / "credentials" / "sealmq-key"
    other.parent.mkdir()
    site.key.rename(other)
    site.up("--key-file", str(other)).ready().end()
    site.up(env={"CREDENTIALS_DIRECTORY": str(other.parent)}).ready().end()
    assert len({row["secrets"]["key"] for row in site.told("kg")}) == 1
    assert len(site.told("kg")) == 3


def test_no_site_is_one_clear_line(folder: Path) -> None:
    for command, what in (("up", f"sealmq init {folder}"), ("status", "a site is a folder that ")):
        done = sealmq(command, str(folder))
        assert done.returncode == 1
        error, hint = done.stderr.splitlines()
        assert error == f"sealmq: {folder} is no site: it has no sealmq.toml"
        assert hint.startswith(f"hint: {what}")


def test_a_folder_that_is_not_there_is_told_with_the_site_beside_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Site.make(folder, name="north")
    (folder / "nrth-too").mkdir()
    monkeypatch.chdir(folder)
    for command, site, meant in (
        (("down",), "nrth", "did you mean north?"),
        (("peer", "list"), str(folder / "nrth"), f"did you mean {folder}/north?"),
        (("up",), "nrth", "did you mean north? A new one: sealmq init nrth"),
        (("peer", "list"), "elsewhere", "a site is a folder that `sealmq init` has made"),
        (("up", "--detach"), "elsewhere", "sealmq init elsewhere"),
    ):
        assert main([*command, site]) == 1
        assert capsys.readouterr().err == (
            f"sealmq: {site} is no site: there is no such folder\nhint: {meant}\n"
        )
