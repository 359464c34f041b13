"""The archive of Java's classes: made once, by a Java that has ended well, for its user alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from sealmq_spark.classes import Archive


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that is none, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program = tmp_path / "jdk" / "bin" / "java"
    (tmp_path / "jdk" / "lib").mkdir(parents=True)
    program.parent.mkdir()
    program.write_text("")
    return program


def made(archive: Archive) -> Path:
    """What Java would write, at the place that the option says."""
    name, _, path = archive.option().strip('"').partition("=")
    assert name == "-XX:ArchiveClassesAtExit"
    Path(path).write_text("classes")
    return Path(path)


def used(archive: Archive) -> Path:
    name, _, path = archive.option().strip('"').partition("=")
    assert name == "-XX:SharedArchiveFile", archive.option()
    return Path(path)


def test_it_is_made_once_and_used_then(java: Path) -> None:
    first = Archive(str(java))
    written = made(first)
    made(Archive(str(java)))  # nobody uses it before Java has ended
    first.keep(0)
    assert not written.exists()
    assert used(Archive(str(java))).read_text() == "classes"
    assert used(Archive(str(java))).parent.stat().st_mode & 0o777 == 0o700
    Archive(str(java)).keep(0)  # it has written none
    used(Archive(str(java)))


@pytest.mark.parametrize("code", [1, -9, None])
def test_what_a_java_that_failed_has_written_goes(java: Path, code: int | None) -> None:
    archive = Archive(str(java))
    written = made(archive)
    archive.keep(code)
    assert not list(written.parent.iterdir())
    made(Archive(str(java)))


def test_another_java_has_another(java: Path) -> None:
    kept = []
    for size in range(4):
        (java.parents[1] / "lib" / "modules").write_text("x" * size)
        archive = Archive(str(java))
        made(archive)
        archive.keep(0)
        kept.append(used(Archive(str(java))))
    assert len(set(kept)) == 4
    assert set(kept[0].parent.iterdir()) <= set(kept)
    assert len(list(kept[0].parent.iterdir())) == 2, "old ones stay"
    assert kept[-1].exists()


@pytest.mark.parametrize("mode", [0o722, 0o770])
def test_what_others_could_have_written_is_not_used(java: Path, mode: int) -> None:
    archive = Archive(str(java))
    made(archive)
    archive.keep(0)
    path = used(archive)
    path.chmod(mode & 0o666)
    assert archive.option() == ""
    path.chmod(0o444)
    used(archive)
    path.parent.chmod(mode)
    assert archive.option() == ""


def test_where_there_is_no_place_java_starts_without(
    java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / 'a "quoted" place'))
    assert Archive(str(java)).option() == ""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert Archive(str(java)).option() == ""
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert str(tmp_path / "home" / ".cache") in Archive(str(java)).option()


def test_a_real_java_takes_one_that_is_broken_for_none(tmp_path: Path) -> None:
    java = shutil.which("java")
    assert java is not None
    broken = tmp_path / "broken.jsa"
    broken.write_bytes(os.urandom(10_000))
    said = subprocess.run([java, f"-XX:SharedArchiveFile={broken}", "-version"], check=False)
    assert said.returncode == 0
