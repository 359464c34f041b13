"""The report's folder: what a kill leaves behind, who may read it, what --fresh takes away."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sealmq_spark import locks, outputs
from sealmq_spark.errors import ReportError
from sealmq_spark.state import Record, State


class Killed(Exception):
    """Stands for kill -9 at this point."""


def modes(out: Path) -> set[int]:
    paths = [path for path in out.rglob("*") if not path.is_symlink()]
    return {path.stat().st_mode & 0o077 for path in paths}


def write(out: Path, word: str) -> None:
    """A report whose only table says `word`."""
    with outputs.opened(out) as place, outputs.tables(place.out) as folder:
        (folder / "decisions").write_text(word)


def killed_while_writing(out: Path) -> None:
    with outputs.opened(out) as place, outputs.tables(place.out) as folder:
        (folder / "decisions").write_text("ne")
        raise Killed


def table(out: Path) -> str:
    return (out / "tables" / "decisions").read_text()


def test_what_is_written_is_the_owners_alone(tmp_path: Path) -> None:
    out = tmp_path / "a" / "out"
    before = os.umask(0o022)
    try:
        write(out, "x")
        (tmp_path / "later").write_text("")
    finally:
        os.umask(before)
    assert out.stat().st_mode & 0o777 == 0o700
    assert modes(out) == {0}
    assert (tmp_path / "later").stat().st_mode & 0o777 == 0o644, "the mask is put back"


def test_a_folder_that_is_open_to_the_group_stays_so(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    out.chmod(0o775)
    write(out, "x")
    assert (out / "tables" / "decisions").stat().st_mode & 0o777 == 0o660


def test_tables_change_together_or_not_at_all(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, "old")
    with pytest.raises(Killed):
        killed_while_writing(out)
    assert table(out) == "old"
    write(out, "new")
    assert table(out) == "new"
    assert len(list(out.glob(".tables-*"))) == 1, "what the kill left is gone"


def test_a_copied_report_is_gone_on_with(tmp_path: Path) -> None:
    """Links have become folders in it."""
    out = tmp_path / "out"
    write(out, "old")
    link = out / "tables"
    link.unlink()
    link.mkdir()
    (link / "decisions").write_text("copied")
    write(out, "new")
    assert table(out) == "new"


def test_a_file_is_the_old_one_until_it_is_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "summary.json"
    outputs.replace(path, "old")

    def killed(fd: int) -> None:
        raise Killed

    monkeypatch.setattr(os, "fsync", killed)
    with pytest.raises(Killed):
        outputs.replace(path, "new")
    assert path.read_text() == "old"
    monkeypatch.undo()
    outputs.replace(path, "new")
    assert path.read_text() == "new"


def test_fresh_takes_a_reports_files_and_no_others(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, "old")
    for name in outputs.READ:
        (out / name).mkdir()
        (out / name / "part-0").write_text("x")
    (out / "summary.json").write_text("{}")
    (out / outputs.SEGMENTS).write_text("")
    (out / "notes.txt").write_text("mine")
    with outputs.opened(out, fresh=True):
        left = {path.name for path in out.iterdir()}
    assert left == {".sealmq-report", ".scratch", "notes.txt", "spark.log"}


def test_what_was_half_forgotten_is_forgotten_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines without the state that says that they are there would be read twice. And the gateway
    must not delete what is forgotten, whatever becomes of this report."""
    out = tmp_path / "out"
    write(out, "old")
    (out / outputs.SEGMENTS).write_text("kg-00000001-1800000000000-000001.jsonl 200\n")
    for name in ("state", "audit"):
        (out / name).mkdir()
    remove = outputs._remove

    def killed(path: Path) -> None:
        if path.name == "audit":
            raise Killed
        remove(path)

    monkeypatch.setattr(outputs, "_remove", killed)
    with pytest.raises(Killed), outputs.opened(out, fresh=True):
        pass
    assert (out / "audit").exists()
    assert not (out / outputs.SEGMENTS).exists()
    monkeypatch.undo()
    with outputs.opened(out):
        assert not (out / "audit").exists()
        assert not (out / "state").exists()


def test_a_java_that_outlived_its_report_is_waited_for(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may still write what --fresh would take away."""
    monkeypatch.setattr(locks, "_JAVA_S", 0.0)
    out = tmp_path / "out"
    write(out, "old")
    (out / "audit").mkdir()
    with locks.of_java(spark, out):
        with pytest.raises(ReportError, match="another report is being made"):
            with outputs.opened(out, fresh=True):
                pass
        assert (out / "audit").exists()
    with outputs.opened(out, fresh=True):
        assert not (out / "audit").exists()


@pytest.mark.parametrize(("folder", "file"), [(0o700, 0o600), (0o705, 0o600), (0o710, 0o640)])
def test_who_may_enter_the_folder_may_read_which_segments_were_read(
    folder: int, file: int, tmp_path: Path
) -> None:
    """The gateway's processes are other users, who shall read that, and nothing else there."""
    group = 54321 if os.geteuid() == 0 else os.getgroups()[-1]
    os.chown(tmp_path, -1, group)
    tmp_path.chmod(folder)
    before = os.umask(0o077)
    try:
        outputs.replace(tmp_path / outputs.SEGMENTS, "", group=True)
        outputs.replace(tmp_path / outputs.SUMMARY, "")
    finally:
        os.umask(before)
    found = (tmp_path / outputs.SEGMENTS).stat()
    assert found.st_mode & 0o777 == file
    assert found.st_gid == group or not file & 0o040
    assert (tmp_path / outputs.SUMMARY).stat().st_mode & 0o777 == 0o600


def test_what_is_decided_outlasts_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway deletes what was read."""
    synced: list[str] = []
    fsync = os.fsync

    def told(file: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{file}"))
        fsync(file)

    monkeypatch.setattr(os, "fsync", told)
    state = State(tmp_path)
    staged = state.begin() / "audit" / "day=2027-01-15"
    staged.mkdir(parents=True)
    (staged / "part-0.parquet").write_text("x")
    state.commit(Record())
    folders = (staged, staged.parent, staged.parents[1])
    before = {str(path) for path in (staged / "part-0.parquet", *folders)}
    decided = next(at for at, path in enumerate(synced) if path.endswith(".settled.json.new"))
    assert before <= set(synced[:decided])
    assert synced[decided + 1] == str(state.folder)


def test_a_folder_that_was_taken_away_is_told(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with outputs.opened(out) as place:
        place.check()
        out.rename(tmp_path / "away")
        with pytest.raises(ReportError, match="has taken") as caught:
            place.check()
        assert caught.value.hint
        write(out, "another one's")
        with pytest.raises(ReportError, match="has taken"):
            place.check()


def test_names_with_signs_that_mean_something_to_others(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="is no path"):
        outputs.look(["s3a://bucket/logs"], tmp_path)
